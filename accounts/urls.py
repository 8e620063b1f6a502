from django.urls import path

from accounts import views
from accounts.connected_tools import views as tool_views
from accounts.groups import views as group_views
from accounts.mailing import views as mail_views
from accounts.second_factors import views as factor_views
from accounts.webhooks import views as webhook_views
from core.permissions import require_sign_in

app_name = "settings"
urlpatterns = [
    path("", views.preferences, name="preferences"),
    path("time-zone/", views.browsers_zone, name="browsers-zone"),
    path("tasks-notice/", views.hide_tasks_notice, name="hide-tasks-notice"),
    path("password/", views.password, name="password"),
    path("email/", mail_views.email, name="email"),
    path("second-factor/", factor_views.page, name="second-factor"),
    path("second-factor/app/", factor_views.AppView.as_view(), name="second-factor-app"),
    path("second-factor/passkeys/", factor_views.PasskeysView.as_view(), name="second-factor-passkeys"),
    path("second-factor/codes/", factor_views.CodesView.as_view(), name="second-factor-codes"),
    path("second-factor/<int:pk>/remove/", factor_views.remove, name="second-factor-remove"),
    path("groups/", group_views.groups, name="groups"),
    path("groups/<uuid:pk>/", group_views.members, name="group"),
    path("groups/<uuid:pk>/add/", group_views.add, name="group-add"),
    path("groups/<uuid:pk>/members/<uuid:member>/remove/", group_views.remove, name="group-remove"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/revoke/", views.revoke_all, name="revoke_all"),
    path("tokens/<uuid:pk>/revoke/", views.revoke, name="revoke"),
    path("tools/", tool_views.page, name="tools"),
    path("tools/return/", tool_views.returned, name="tools-return"),
    path("tools/<uuid:pk>/sign-in/", tool_views.sign_in, name="tools-sign-in"),
    path("tools/<uuid:pk>/disconnect/", tool_views.disconnect, name="tools-disconnect"),
    path("webhooks/", webhook_views.page, name="webhooks"),
    path("webhooks/<uuid:pk>/switch/", webhook_views.toggle, name="webhook_switch"),
    path("webhooks/<uuid:pk>/test/", webhook_views.test, name="webhook_test"),
    path("webhooks/<uuid:pk>/remove/", webhook_views.remove, name="webhook_remove"),
    path("webhooks/deliveries/<uuid:pk>/retry/", webhook_views.retry, name="webhook_retry"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/end/", views.end_others, name="end_others"),
    path("sessions/<slug:pk>/end/", views.end_session, name="end_session"),
]
urlpatterns = require_sign_in(urlpatterns)
