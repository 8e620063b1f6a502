from django.urls import path

from accounts import views
from accounts.webhooks import views as webhook_views
from core.permissions import signed_in

app_name = "settings"
urlpatterns = [
    path("", views.preferences, name="preferences"),
    path("password/", views.password, name="password"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/revoke/", views.revoke_all, name="revoke_all"),
    path("tokens/<uuid:pk>/revoke/", views.revoke, name="revoke"),
    path("webhooks/", webhook_views.page, name="webhooks"),
    path("webhooks/<uuid:pk>/switch/", webhook_views.switch, name="webhook_switch"),
    path("webhooks/<uuid:pk>/test/", webhook_views.test, name="webhook_test"),
    path("webhooks/<uuid:pk>/remove/", webhook_views.remove, name="webhook_remove"),
    path("webhooks/deliveries/<uuid:pk>/retry/", webhook_views.retry, name="webhook_retry"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/end/", views.end_others, name="end_others"),
    path("sessions/<slug:pk>/end/", views.end_session, name="end_session"),
]
urlpatterns = signed_in(urlpatterns)
