from django.urls import path

from core.permissions import require_sign_in
from personas import views
from personas.sharing import views as sharing

app_name = "personas"
urlpatterns = require_sign_in(
    [
        path("", views.personas, name="list"),
        path("new/", views.new, name="new"),
        path("count/", views.count, name="count"),
        path("tools/", views.server_tools, name="server_tools"),
        path("<uuid:pk>/", views.persona, name="persona"),
        path("<uuid:pk>/duplicate/", views.duplicate, name="duplicate"),
        path("<uuid:pk>/shares/", sharing.shares, name="shares"),
        path("<uuid:pk>/shares/<uuid:share>/", sharing.change, name="share"),
        path("<uuid:pk>/shares/<uuid:share>/remove/", sharing.remove, name="remove_share"),
        path("<uuid:pk>/shares/<uuid:share>/hand-over/", sharing.hand_over, name="hand_over"),
    ]
)
