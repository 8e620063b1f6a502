from django.urls import path

from accounts import views

app_name = "settings"
urlpatterns = [
    path("", views.preferences, name="preferences"),
    path("password/", views.password, name="password"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/<uuid:pk>/revoke/", views.revoke, name="revoke"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/end/", views.end_others, name="end_others"),
    path("sessions/<slug:pk>/end/", views.end_session, name="end_session"),
]
