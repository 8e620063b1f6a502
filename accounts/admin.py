"""Admin pages for groups of administrators and for API tokens. Pages for people are in `accounts.people_admin`."""

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext as _

from accounts import services
from accounts.access.delegation import group_outranks, require_held
from accounts.auditing import admin as audit_admin
from accounts.groups import admin as group_admin
from accounts.limits import admin as limit_admin
from accounts.models import AdminRecord, ApiToken
from accounts.openid import admin as openid_admin
from accounts.people_admin import RightsAdmin, refuse_in_field
from accounts.webhooks import admin as webhook_admin
from core import i18n
from core.admin import (
    Confirmation,
    ReadOnlyAdmin,
    RecordAdmin,
    acting_user,
    confirmation_button,
    display,
    htmx_redirect,
)
from core.sentences import Sentence

__all__ = [  # Django imports only this module, which imports the other admin modules
    "audit_admin",
    "group_admin",
    "limit_admin",
    "openid_admin",
    "webhook_admin",
]

admin.site.unregister([Group, Authenticator, EmailAddress])


class GroupForm(forms.ModelForm[Group]):
    """The form of a group. `acting_user`: the administrator who fills it in, set by `GroupAdmin.get_form`."""

    acting_user: ClassVar[AbstractUser]

    def clean_permissions(self) -> Any:
        permissions = self.cleaned_data["permissions"]
        before = self.instance.permissions.all() if self.instance.pk else Permission.objects.none()
        refuse_in_field(require_held, self.acting_user, set(permissions) ^ set(before))
        return permissions


@admin.register(Group)
class GroupAdmin(RightsAdmin):
    form = GroupForm
    fields = ("name", "permissions")
    search_fields = ("name",)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.acting_user = acting_user(request)
        return form

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and group_outranks(obj, acting_user(request)))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_group(user=acting_user(request), group=obj, permissions=form.cleaned_data["permissions"])

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Save nothing: `save_model` has stored the related rows."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_group(user=acting_user(request), group=obj)


@admin.register(AdminRecord)
class AdminRecordAdmin(RecordAdmin):
    """The acts of deleted administrators. The acts of others are in the history of each row."""

    empty_words = "Nobody has changed anything in the admin yet."
    list_display = ("at", "username", "action", "kind", "row", "message_in_words")
    list_filter = ("action",)
    search_fields = ("username", "row", "what")
    fields = ("at", "username", "action", "kind", "row", "row_id", "message_in_words")

    @display(description="What")
    def kind(self, record: AdminRecord) -> str:
        return i18n.label(record.what)

    @display(description="Message")
    def message_in_words(self, record: AdminRecord) -> str:
        return gettext(record.message) if record.message else ""


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """The API tokens of people. Administrators see them without the hash, and can revoke them."""

    empty_words = "No tokens yet. People make them in their settings."
    list_display = ("name", "user", "scope_names", "state", "created", "last_used")
    list_select_related = ("user",)
    search_fields = ("name", "user__username")
    fields = ("name", "user", "scope_names", "state", "created", "expires", "last_used")
    actions = ("revoke_selected",)
    actions_detail: Any = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting_user(request).has_perm("accounts.change_apitoken")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        rows: QuerySet[ApiToken] = super().get_queryset(request)
        return rows.defer("digest")

    @display(description="Scopes")
    def scope_names(self, token: ApiToken) -> str:
        return ", ".join(token.scopes) or _("none")

    @display(description="State", label={"usable": "success", "ended": "danger", "user is off": "warning"})
    def state(self, token: ApiToken) -> str:
        if not token.user.is_active:
            return "user is off"
        return "ended" if token.expires is not None and token.expires <= timezone.now() else "usable"

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> None:
        for token in tokens:
            self._revoke(request, token)

    @confirmation_button(
        "Revoke",
        icon="block",
        ask="Revoke this token?",
        explain="Programs that use it are refused from now on. This cannot be undone. The owner can create a new one.",
        permission="revoke",
    )
    def revoke(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        self._revoke(request, self.row(request, object_id))
        return htmx_redirect(reverse("admin:accounts_apitoken_changelist"))

    def _revoke(self, request: HttpRequest, token: ApiToken) -> None:
        services.revoke_token(user=acting_user(request), token=token)
        self.message_user(request, Sentence("The token “{token}” is revoked.", token=str(token)), messages.SUCCESS)
