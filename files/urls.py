from django.urls import path

from core.permissions import require_sign_in
from files import views

app_name = "files"
urlpatterns = require_sign_in(
    [
        path("", views.files, name="list"),
        path("delete/", views.delete_several, name="delete_several"),
        path("<uuid:pk>/", views.file, name="file"),
        path("<uuid:pk>/content/", views.content, name="content"),
        path("<uuid:pk>/shown/", views.shown, name="shown"),
        path("<uuid:pk>/pages/<int:page>/picture/", views.page_picture, name="picture"),
        path("<uuid:pk>/chip/", views.chip, name="chip"),
        path("<uuid:pk>/retry/", views.retry, name="retry"),
        path("<uuid:pk>/reread/", views.reread, name="reread"),
        path("<uuid:pk>/delete/", views.delete, name="delete"),
    ]
)
