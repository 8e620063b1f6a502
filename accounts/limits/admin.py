"""Limits for administrators."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from accounts.limits import services
from accounts.models import Limit
from core.admin import RowAdmin, acting, display


@admin.register(Limit)
class LimitAdmin(RowAdmin):
    kind = "limit"
    list_display = ("most", "whom", "unit", "per", "created")
    list_select_related = ("user", "token__user")
    list_filter = ("unit", "per")
    search_fields = ("user__username", "token__name", "token__user__username")
    fields = ("user", "token", "unit", "per", "amount")
    autocomplete_fields = ("user", "token")

    @display(description="Most", ordering="amount")
    def most(self, limit: Limit) -> str:
        return f"{limit.amount.normalize():,f}"

    @display(description="For")
    def whom(self, limit: Limit) -> str:
        if limit.token is not None:
            return f"{limit.token.name} ({limit.token.user})"
        return _("Everyone, each by themselves") if limit.user is None else str(limit.user)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.save_limit(user=acting(request), limit=obj)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_limit(user=acting(request), limit=obj)
