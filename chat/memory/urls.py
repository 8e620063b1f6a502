from django.urls import path

from chat.memory import views
from core.permissions import require_sign_in

urlpatterns = require_sign_in(
    [
        path("memory/", views.memory, name="memory"),
        path("memory/facts/", views.add, name="add_fact"),
        path("memory/forget/", views.forget_everything, name="forget_facts"),
        path("memory/facts/<uuid:pk>/", views.fact, name="fact"),
        path("c/<uuid:pk>/memory/", views.switch, name="switch_memory"),
    ]
)
