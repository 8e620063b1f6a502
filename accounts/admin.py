"""People, their groups and their programs' tokens."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import CASCADE, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from accounts import services
from accounts.models import ApiToken, User
from accounts.webhooks import admin as webhook_admin
from core.admin import Confirmation, ReadOnlyAdmin, RowAdmin, acting, confirmed, go

__all__ = ["webhook_admin"]  # Django looks for admin pages here alone

admin.site.unregister(Group)


class PersonForm(UserChangeForm):
    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        still_admin = cleaned.get("is_active", True) and cleaned.get("is_superuser", True)
        if not still_admin and services.is_last_admin(self.instance):
            self.add_error(None, services.LAST_ADMIN)
        return cleaned


class PasswordForm(AdminPasswordChangeForm):
    def save(self, commit: bool = True) -> Any:
        person = super().save(commit)
        services.end_sessions(user=person)
        return person


@admin.register(User)
class UserAdmin(DjangoUserAdmin[User], ModelAdmin):  # type: ignore[misc]  # both annotate the same attributes
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

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_user(user=acting(request), person=obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_user(user=acting(request), person=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for person in queryset:
            services.delete_user(user=acting(request), person=person)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """How much goes with these people, not what: their rows are their own, and there may be very many."""
        people = User.objects.filter(pk__in=[person.pk for person in objs])
        counts: dict[Any, int] = {self.opts.verbose_name_plural: len(objs)}
        for relation in User._meta.related_objects:
            if relation.on_delete is CASCADE:
                rows = relation.related_model._default_manager.filter(**{f"{relation.field.name}__in": people})
                counts[relation.related_model._meta.verbose_name_plural] = rows.count()
        listed = [f"{number:,} {name}" for name, number in counts.items() if number]
        needed = set() if self.has_delete_permission(request) else {self.opts.verbose_name}
        return listed, counts, needed, []


@admin.register(Group)
class GroupAdmin(RowAdmin):
    search_fields = ("name",)
    filter_horizontal = ("permissions",)


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
