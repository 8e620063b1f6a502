"""The admin of limits."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from accounts.limits import services
from accounts.models import Limit
from core.admin import RowAdmin, acting_user, display


class LimitForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    def get_initial_for_field(self, field: forms.Field, field_name: str) -> Any:
        """Return the amount of a stored limit without trailing zeros."""
        if field_name == "amount" and not self.instance._state.adding:
            return self.instance.plain
        return super().get_initial_for_field(field, field_name)


@admin.register(Limit)
class LimitAdmin(RowAdmin):
    empty_words = "No limits yet: everybody may use as much as they like."
    kind = "limit"
    form = LimitForm
    list_display = ("most", "whom", "unit", "per", "created")
    list_select_related = ("user", "group", "token__user")
    list_filter = ("unit", "per")
    search_fields = ("user__username", "group__name", "token__name", "token__user__username")
    fields = ("user", "group", "token", "unit", "per", "amount")
    autocomplete_fields = ("user", "group", "token")

    @display(description="Most", ordering="amount")
    def most(self, limit: Limit) -> str:
        return limit.most

    @display(description="For")
    def whom(self, limit: Limit) -> str:
        if limit.token is not None:
            return f"{limit.token.name} ({limit.token.user})"
        return str(limit.user or limit.group or _("Everyone, each person separately"))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_limit(user=acting_user(request), limit=obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_limit(user=acting_user(request), limit=obj)
