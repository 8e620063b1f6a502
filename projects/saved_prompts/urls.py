from django.urls import path

from core.permissions import require_sign_in
from projects.saved_prompts import views

app_name = "prompts"
urlpatterns = require_sign_in(
    [
        path("", views.prompts, name="list"),
        path("<uuid:pk>/", views.prompt, name="prompt"),
        path("<uuid:pk>/copy/", views.copy, name="copy"),
        path("<uuid:pk>/delete/", views.delete, name="delete"),
    ]
)
