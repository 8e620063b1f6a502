from django.urls import path

from core.permissions import require_sign_in
from workspace.setup import views

app_name = "setup"
urlpatterns = require_sign_in(
    [
        path("", views.start, name="start"),
        path("provider/", views.provider, name="provider"),
        path("models/", views.models, name="models"),
        path("models/<uuid:pk>/", views.models_of, name="models_of"),
        path("default/", views.default, name="default"),
        path("persona/", views.persona, name="persona"),
        path("people/", views.invite, name="people"),
        path("end/", views.end_setup, name="end"),
    ]
)
