from django.urls import path

from chat import branch_views, file_picker, project_views, views

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
    path("messages/<uuid:pk>/edit/", branch_views.edit, name="edit"),
    path("messages/<uuid:pk>/choose/", branch_views.choose, name="choose"),
    path("messages/<uuid:pk>/continue/", branch_views.go_on, name="continue"),
    path("messages/<uuid:pk>/feedback/", branch_views.feedback, name="feedback"),
    path("messages/<uuid:pk>/delete/", branch_views.delete, name="delete_message"),
    path("plan/", views.plan, name="plan_new"),
    path("c/<uuid:pk>/plan/", views.plan, name="plan"),
    path("pick/", file_picker.pick, name="pick"),
    path("c/<uuid:pk>/pick/", file_picker.pick, name="pick"),
    path("turns/<uuid:pk>/report/", views.report, name="report"),
    path("turns/<uuid:pk>/stop/", views.stop, name="stop"),
]
