from django.apps import apps
from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.routers import DefaultRouter

from accounts import api as accounts_api
from accounts.access.page_throttle import limited, limited_sign_in
from accounts.auditing.api import AuditView
from accounts.connected_tools import views as tool_views
from accounts.connected_tools.api import ConnectedToolViewSet
from accounts.groups.api import GroupViewSet
from accounts.limits.api import LimitViewSet
from accounts.mailing import views as mail_views
from accounts.openid import views as openid_views
from accounts.second_factors import views as factor_views
from accounts.views import forgotten, logo, sign_in, welcome
from accounts.webhooks import api as webhook_api
from chat.api import conversations as chat_api
from chat.api import permissions as permission_api
from chat.api.plan import DocumentBudgetView
from chat.conversations import api as conversations_api
from chat.conversations import team_shares_api, views
from chat.ledger.api import MyselfView, OwnUsageView, UsageView
from chat.mcp_server import api as mcp_api
from chat.memory import api as memory_api
from chat.openai_api import api as protocol_api
from chat.readings import api as reading_api
from chat.runs import api as run_api
from chat.summaries import api as summary_api
from chat.texts import api as texts_api
from config.all_admin import all_page
from config.api_docs import contracts, examples, schema
from config.dashboard_admin import doctor_page, people_page
from config.http import app, health, metrics
from files import api
from files.speech.api import SpeechView, SpokenView, TranscriptionView
from personas import api as personas_api
from projects import api as projects_api
from projects.planner import api as task_api
from projects.saved_prompts import api as prompt_api
from workspace.administration.api import LogoView, WorkspaceView
from workspace.setup.sign_in import AdminSignInView, SignInAgainView, SignInView

__all__ = ["handler404", "handler500", "schema", "urlpatterns"]  # the import of `schema` registers its extensions

router = DefaultRouter()
router.include_root_view = False
router.include_format_suffixes = False  # a `.json` suffix would pass an argument that the views do not accept
router.register("conversations", chat_api.ConversationViewSet)
router.register("messages", chat_api.MessageViewSet)
router.register("turns", chat_api.TurnViewSet)
router.register("files", api.FileViewSet)
router.register("projects", projects_api.ProjectViewSet)
router.register("invitations", projects_api.InvitationViewSet)
router.register("shares", conversations_api.ShareViewSet)
router.register("team-shares", team_shares_api.TeamShareViewSet)
router.register("shared-with-me", team_shares_api.ReceivedShareViewSet, basename="received")
router.register("imports", conversations_api.ImportViewSet)
router.register("readings", reading_api.ReadingViewSet)
router.register("summaries", summary_api.SummaryViewSet)
router.register("groups", GroupViewSet)
router.register("tokens", accounts_api.TokenViewSet)
router.register("limits", LimitViewSet)
router.register("connected-tools", ConnectedToolViewSet, "connected-tool")
router.register("webhooks/deliveries", webhook_api.WebhookDeliveryViewSet)
router.register("webhooks", webhook_api.WebhookViewSet)
router.register("tasks", task_api.TaskViewSet)
router.register("runs", run_api.RunViewSet)
router.register("personas", personas_api.PersonaViewSet)
router.register("memories", memory_api.FactViewSet, "memory")
router.register("prompts", prompt_api.PromptViewSet)
router.register("reminders", personas_api.ReminderViewSet)
router.register("budget-profiles", personas_api.BudgetProfileViewSet)
router.register("system-prompts", personas_api.SystemPromptViewSet)
router.register("prompt-texts", texts_api.PromptTextViewSet, "prompt-text")
router.register("models", personas_api.ModelViewSet)

handler404 = "config.http.health.not_found"
handler500 = "config.http.health.server_error"

urlpatterns = [
    path("", include("chat.urls")),
    path("files/", include("files.urls")),
    path("projects/", include("projects.urls")),
    path("tasks/", include("projects.planner.urls")),
    path("personas/prompts/", include("projects.saved_prompts.urls")),
    path("personas/", include("personas.urls")),
    path("settings/", include("accounts.urls")),
    path("setup/", include("workspace.setup.urls")),
    path("help/", include("config.help.urls")),
    path(
        "login/",
        limited_sign_in("password", sign_in(SignInView.as_view())),
        name="login",
    ),
    path("login/again/", limited_sign_in("password", sign_in(SignInAgainView.as_view())), name="login-again"),
    path("login/second/", limited_sign_in("second", factor_views.second_step), name="login-second"),
    path(
        "login/passkey/",
        limited_sign_in("passkey", factor_views.PasskeySignInView.as_view(), requests=2, get_works=True),
        name="login-passkey",
    ),
    path("login/forgotten/", limited_sign_in("forgotten", forgotten), name="forgotten"),
    path("login/sign-up/", limited_sign_in("sign-up", mail_views.sign_up), name="sign-up"),
    path("login/sign-up/confirmed/", limited_sign_in("sign-up", mail_views.confirmed), name="sign-up-confirmed"),
    path("login/openid/<uuid:pk>/", limited_sign_in("openid", openid_views.begin, get_works=True), name="login-openid"),
    path(
        "login/openid/<uuid:pk>/done/",
        limited_sign_in("openid", openid_views.done, requests=2, get_works=True),
        name="login-openid-done",
    ),
    path("login/openid/<uuid:pk>/sign-out/", limited("openid", openid_views.sign_out), name="openid-sign-out"),
    path("oauth/client.json", tool_views.client, name="oauth-client"),
    path("welcome/<uuid:pk>/", limited_sign_in("welcome", welcome), name="welcome"),
    path("logo/<slug:name>.png", logo, name="logo"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("admin/login/", limited_sign_in("password", sign_in(AdminSignInView.as_view()))),
    path("admin/password_change/", admin.site.admin_view(RedirectView.as_view(pattern_name="settings:password"))),
    path("admin/all/", all_page, name="admin_all"),
    path("admin/doctor/", doctor_page, name="admin_doctor"),
    path("admin/people-who-used-most/", people_page, name="admin_people_who_used_most"),
    path("admin/", admin.site.urls),
    path("api/v1/conversations/chosen/", conversations_api.ChosenView.as_view(), name="chosen"),
    path("api/v1/conversations/<uuid:pk>/next/", chat_api.NextMessageView.as_view(), name="next-message"),
    path("api/v1/daily/<chat_day:day>/chat/", conversations_api.DailyChatView.as_view(), name="daily-chat"),
    path("api/v1/daily/<chat_day:day>/summary/", conversations_api.DailySummaryView.as_view(), name="daily-summary"),
    path(
        "api/v1/daily/<chat_day:day>/Daily_chat.json",
        conversations_api.DailyChatFileView.as_view(),
        name="daily-chat-file",
    ),
    path(
        "api/v1/daily/<chat_day:day>/Daily_summary.json",
        conversations_api.DailySummaryFileView.as_view(),
        name="daily-summary-file",
    ),
    path("api/v1/conversations/<uuid:pk>/summary/", summary_api.ConversationSummaryView.as_view(), name="summary"),
    path("api/v1/conversations/<uuid:pk>/summarise/", summary_api.SummariseView.as_view(), name="summarise"),
    path("api/v1/tasks/<uuid:pk>/runs/", run_api.TaskRunsView.as_view(), name="task-runs"),
    path(
        "api/v1/conversations/<uuid:pk>/permissions/",
        permission_api.PermissionsView.as_view(),
        name="permissions",
    ),
    path(
        "api/v1/conversations/<uuid:pk>/permissions/<uuid:permission>/",
        permission_api.PermissionView.as_view(),
        name="permission",
    ),
    path("api/v1/turns/<uuid:pk>/approvals/", permission_api.ApprovalView.as_view(), name="approvals"),
    path("api/v1/turns/<uuid:pk>/events/", chat_api.turn_events, name="turn-events"),
    path("api/v1/conversations/<uuid:pk>/shares/", conversations_api.ConversationSharesView.as_view(), name="shares"),
    path(
        "api/v1/conversations/<uuid:pk>/team-shares/",
        team_shares_api.ConversationTeamSharesView.as_view(),
        name="team-shares",
    ),
    path("api/v1/conversations/<uuid:pk>/export/", views.api_export, name="export"),
    path("api/v1/export/", views.api_export_all, name="export-all"),
    path("api/v1/usage/", UsageView.as_view(), name="usage"),
    path("api/v1/speech/", SpeechView.as_view(), name="speech"),
    path("api/v1/speech/transcriptions/", TranscriptionView.as_view(), name="transcriptions"),
    path("api/v1/speech/spoken/", SpokenView.as_view(), name="spoken"),
    path("api/v1/search/", conversations_api.SearchView.as_view(), name="search"),
    path("api/v1/max-selected-document-tokens/", DocumentBudgetView.as_view(), name="document-budget"),
    path("api/v1/workspace/", WorkspaceView.as_view(), name="workspace"),
    path("api/v1/workspace/logo/", LogoView.as_view(), name="workspace-logo"),
    path("api/v1/audit/", AuditView.as_view(), name="audit"),
    path("api/v1/profile/", memory_api.ProfileView.as_view(), name="profile"),
    path("api/v1/me/", MyselfView.as_view(), name="me"),
    path("api/v1/me/usage/", OwnUsageView.as_view(), name="own-usage"),
    *([path("api/v1/ag-ui/", include("contrib.ag_ui.urls"))] if apps.is_installed("contrib.ag_ui") else []),
    path("api/v1/", include(router.urls)),
    path("api/v1/schema/", contracts.SchemaView.as_view(), name="schema"),
    path(
        "api/docs/", SpectacularSwaggerView.as_view(url_name="schema", http_method_names=["get", "head"]), name="docs"
    ),
    path("api/v1/asyncapi/", contracts.AsyncApiView.as_view(), name="asyncapi"),
    path("api/examples/", examples.page, name="examples"),
    path("v1/models", protocol_api.models, name="openai-models"),
    path("v1/models/<path:name>", protocol_api.model, name="openai-model"),
    path("v1/chat/completions", protocol_api.chat_completions, name="openai-chat"),
    path("v1/responses", protocol_api.responses, name="openai-responses"),
    path("v1/completions", protocol_api.completions, name="openai-completions"),
    path("v1/moderations", protocol_api.moderations, name="openai-moderations"),
    path(
        "v1/files",
        protocol_api.by_method(GET=protocol_api.list_files, POST=protocol_api.upload_file),
        name="openai-files",
    ),
    path(
        "v1/files/<str:file_id>",
        protocol_api.by_method(GET=protocol_api.retrieve_file, DELETE=protocol_api.delete_file),
        name="openai-file",
    ),
    path("v1/files/<str:file_id>/content", protocol_api.file_content, name="openai-file-content"),
    path("v1/messages", protocol_api.messages, name="anthropic-messages"),
    path("v1/messages/count_tokens", protocol_api.count_tokens, name="anthropic-count-tokens"),
    path("v1/embeddings", protocol_api.embeddings, name="openai-embeddings"),
    path("mcp/", mcp_api.mcp, name="mcp"),
    path("manifest.webmanifest", app.manifest, name="manifest"),
    path("service-worker.js", app.service_worker, name="service_worker"),
    path("offline/", app.offline, name="offline"),
    path("livez", health.livez, name="livez"),
    path("metrics", metrics.metrics, name="metrics"),
    path("readyz", health.readyz, name="readyz"),
]
