from django.urls import path

from core.permissions import signed_in
from personas import views

app_name = "personas"
urlpatterns = signed_in(
    [
        path("", views.personas, name="list"),
        path("new/", views.new, name="new"),
        path("count/", views.count, name="count"),
        path("tools/", views.server_tools, name="server_tools"),
        path("<uuid:pk>/", views.persona, name="persona"),
        path("<uuid:pk>/duplicate/", views.duplicate, name="duplicate"),
    ]
)
