"""People, their groups and their programs' tokens."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.core.exceptions import ValidationError
from django.db.models import CASCADE, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from accounts import services
from accounts.access.delegation import group_outranks, outranks, require_held
from accounts.models import AdminRecord, ApiToken, User
from accounts.webhooks import admin as webhook_admin
from core.admin import Confirmation, ReadOnlyAdmin, RecordAdmin, RowAdmin, acting, confirmed, go
from core.errors import ProductError

__all__ = ["webhook_admin"]  # Django looks for admin pages here alone

admin.site.unregister(Group)


class PersonForm(UserChangeForm):
    """`acting` is who fills it in; the admin below says so."""

    acting: ClassVar[AbstractUser]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        still_admin = cleaned.get("is_active", True) and cleaned.get("is_superuser", True)
        if not still_admin and services.is_last_admin(self.instance):
            self.add_error(None, services.LAST_ADMIN)
        return cleaned

    def clean_groups(self) -> Any:
        groups = self.cleaned_data["groups"]
        _refuse(require_held, self.acting, (), set(groups) ^ set(self.instance.groups.all()))
        return groups

    def clean_user_permissions(self) -> Any:
        given = self.cleaned_data["user_permissions"]
        _refuse(require_held, self.acting, set(given) ^ set(self.instance.user_permissions.all()))
        return given


class GroupForm(forms.ModelForm[Group]):
    """As `PersonForm`."""

    acting: ClassVar[AbstractUser]

    def clean_permissions(self) -> Any:
        given = self.cleaned_data["permissions"]
        held = self.instance.permissions.all() if self.instance.pk else Permission.objects.none()
        _refuse(require_held, self.acting, set(given) ^ set(held))
        return given


def _refuse(require: Callable[..., None], *given: Any) -> None:
    """What a service would refuse is said beside the field."""
    try:
        require(*given)
    except ProductError as error:
        raise ValidationError(str(error), code=error.code) from error


class PasswordForm(AdminPasswordChangeForm):
    def save(self, commit: bool = True) -> Any:
        person = super().save(commit)
        services.end_sessions(user=person)
        return person


@admin.register(User)
class UserAdmin(DjangoUserAdmin[User], RowAdmin):  # type: ignore[misc]  # both annotate the same attributes
    form = PersonForm
    add_form = UserCreationForm
    change_password_form = PasswordForm
    list_display = ("username", "email", "is_staff", "is_superuser", "is_active", "last_login")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email", "timezone", "language", "theme")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.acting = acting(request)
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if acting(request).is_superuser else (*self.readonly_fields, "is_superuser")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Setting somebody's password asks for this too."""
        return super().has_change_permission(request, obj) and not (obj and outranks(obj, acting(request)))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and outranks(obj, acting(request)))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_user(user=acting(request), person=obj)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        given = form.cleaned_data
        if "groups" in given:  # the form of a new person has name and password alone
            rights = {"groups": given["groups"], "permissions": given["user_permissions"]}
            services.set_rights(user=acting(request), person=form.instance, **rights)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_user(user=acting(request), person=obj)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """How much goes with these people, not what: their rows are their own, and there may be very many."""
        people = User.objects.filter(pk__in=[person.pk for person in objs])
        counts: dict[Any, int] = {self.opts.verbose_name_plural: len(objs)}
        for relation in User._meta.related_objects:
            if relation.on_delete is CASCADE:
                rows = relation.related_model._default_manager.filter(**{f"{relation.field.name}__in": people})
                counts[relation.related_model._meta.verbose_name_plural] = rows.count()
        listed = [f"{number:,} {name}" for name, number in counts.items() if number]
        may = all(self.has_delete_permission(request, person) for person in objs)
        needed = set() if may else {self.opts.verbose_name}
        return listed, counts, needed, []


@admin.register(Group)
class GroupAdmin(RowAdmin):
    form = GroupForm
    fields = ("name", "permissions")
    search_fields = ("name",)
    filter_horizontal = ("permissions",)

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.acting = acting(request)
        return form

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and group_outranks(obj, acting(request)))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_group(user=acting(request), group=obj, permissions=form.cleaned_data["permissions"])

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """The service above has stored them."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_group(user=acting(request), group=obj)


@admin.register(AdminRecord)
class AdminRecordAdmin(RecordAdmin):
    """What administrators did who are deleted; of all others the history of each row tells."""

    list_display = ("at", "username", "action", "what", "row", "message")
    list_filter = ("action",)
    search_fields = ("username", "row", "what")
    fields = ("at", "username", "action", "what", "row", "row_id", "message")


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """People make tokens themselves; here they are seen and revoked, without the hash."""

    list_display = ("name", "user", "scope_names", "state", "created", "last_used")
    list_select_related = ("user",)
    search_fields = ("name", "user__username")
    fields = ("name", "user", "scope_names", "state", "created", "expires", "last_used")
    actions = ("revoke_selected",)
    actions_detail: Any = ("revoke",)
    show_full_result_count = False

    def has_revoke_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return acting(request).has_perm("accounts.change_apitoken")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        rows: QuerySet[ApiToken] = super().get_queryset(request)
        return rows.defer("digest")

    @display(description="Scopes")
    def scope_names(self, token: ApiToken) -> str:
        return ", ".join(token.scopes) or "none"

    @display(description="State", label={"usable": "success", "ended": "danger", "user is off": "warning"})
    def state(self, token: ApiToken) -> str:
        if not token.user.is_active:
            return "user is off"
        return "ended" if token.expires is not None and token.expires <= timezone.now() else "usable"

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, tokens: QuerySet[ApiToken]) -> None:
        for token in tokens:
            self._revoke(request, token)

    @confirmed(
        "Revoke",
        icon="block",
        ask="Revoke this token?",
        explain="Programs that use it are refused from now on. It cannot be undone; the owner can make a new one.",
        permission="revoke",
    )
    def revoke(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        self._revoke(request, self.row(request, object_id))
        return go(reverse("admin:accounts_apitoken_changelist"))

    def _revoke(self, request: HttpRequest, token: ApiToken) -> None:
        services.revoke_token(user=acting(request), token=token)
        self.log_change(request, token, "Revoked.")
        self.message_user(request, f"The token “{token}” is revoked.", messages.SUCCESS)
