from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.routers import DefaultRouter

from chat import api as chat_api
from config import operations, schema
from projects import api as projects_api
from projects import file_api

__all__ = ["handler404", "schema", "urlpatterns"]  # the schema registers what it knows by being imported

router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False  # `….json` would hand the views an argument that they do not take
router.register("conversations", chat_api.ConversationViewSet)
router.register("messages", chat_api.MessageViewSet)
router.register("turns", chat_api.TurnViewSet)
router.register("files", file_api.FileViewSet)
router.register("projects", projects_api.ProjectViewSet)

handler404 = "config.operations.not_found"

urlpatterns = [
    path("", include("chat.urls")),
    path("files/", include("projects.file_urls")),
    path("projects/", include("projects.urls")),
    path("login/", auth.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
    path("api/v1/turns/<uuid:pk>/events/", chat_api.turn_events, name="turn-events"),
    path("api/v1/max-selected-document-tokens/", chat_api.DocumentBudgetView.as_view(), name="document-budget"),
    path("api/v1/", include(router.urls)),
    path("api/v1/schema/", SpectacularAPIView.as_view(), name="schema"),
    path(
        "api/docs/", SpectacularSwaggerView.as_view(url_name="schema", http_method_names=["get", "head"]), name="docs"
    ),
    path("livez", operations.livez, name="livez"),
    path("readyz", operations.readyz, name="readyz"),
]
