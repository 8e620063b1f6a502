from django.urls import path

from chat import project_views, views

app_name = "chat"
urlpatterns = [
    path("", views.home, name="home"),
    path("conversations/", views.conversations, name="list"),
    path("c/<uuid:pk>/", views.conversation, name="conversation"),
    path("c/<uuid:pk>/turns/", views.send, name="send"),
    path("c/<uuid:pk>/rename/", views.rename, name="rename"),
    path("c/<uuid:pk>/delete/", views.delete, name="delete"),
    path("projects/<uuid:pk>/meter/", project_views.meter, name="project_meter"),
    path("projects/<uuid:pk>/conversations/", project_views.conversations, name="project_conversations"),
    path("messages/<uuid:pk>/", views.message, name="message"),
    path("messages/<uuid:pk>/regenerate/", views.regenerate, name="retry"),
    path("plan/", views.plan, name="plan_new"),
    path("c/<uuid:pk>/plan/", views.plan, name="plan"),
    path("turns/<uuid:pk>/report/", views.report, name="report"),
    path("turns/<uuid:pk>/stop/", views.stop, name="stop"),
]
