"""The ledger for administrators: every model call, sums of any days, and all of it as a table to take along."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminDateWidget, UnfoldAdminTextInputWidget

from chat.models import ModelCall
from chat.usage.services import as_csv, between, record_export, spent, summed
from core.admin import RecordAdmin, acting, button, column, display
from core.i18n import dollars

TABLES = {"day": _("Day"), "model": _("Model"), "person": _("Person"), "project": _("Project"), "purpose": _("Purpose")}
SHOWN = 100  # rows of a table


def _shown(rows: QuerySet[ModelCall, dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of a table; purposes are said in the reader's language."""
    if kind != "purpose":
        return list(rows[:SHOWN])
    return [{**row, "name": ModelCall.Purpose(row["name"]).label} for row in rows[:SHOWN]]


class RangeForm(forms.Form):
    """Which calls are summed; what is left empty leaves nothing out."""

    first = forms.DateField(label=_("From"), required=False, widget=UnfoldAdminDateWidget)
    last = forms.DateField(label=_("To"), required=False, widget=UnfoldAdminDateWidget)
    person = forms.CharField(label=_("User name"), required=False, widget=UnfoldAdminTextInputWidget)
    model = forms.CharField(label=_("Model"), required=False, widget=UnfoldAdminTextInputWidget)

    def calls(self) -> QuerySet[ModelCall]:
        asked = self.cleaned_data
        rows = between(ModelCall.objects.all(), timezone.get_default_timezone(), asked.get("first"), asked.get("last"))
        named = {"person__username": asked.get("person"), "model_name": asked.get("model")}
        return rows.filter(**{name: value for name, value in named.items() if value})


@admin.register(ModelCall)
class ModelCallAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("created", "person", "provider_name", "model_name", "purpose", "tokens", "money", "counted")
    list_select_related = ("person",)
    list_filter = ("purpose", "counted", "model", "created")
    search_fields = ("=person__username", "=model_name", "=turn__id", "=conversation__id")
    search_help_text = "A user name, a model, or the id of a turn or conversation"
    fields = (
        *("id", "created", "person", "purpose", "of_conversation", "of_turn", "number", "project", "of_persona"),
        *("provider_name", "model_name", "input", "cached_input", "cache_written", "output", "reasoning"),
        *("counted", "money"),
    )
    actions_list: Any = ("sums",)
    of_conversation = column("conversation_id", "Conversation")
    of_turn = column("turn_id", "Turn")
    of_persona = column("persona_id", "Persona")

    @display(description="Tokens read / cached / written", ordering="input")
    def tokens(self, call: ModelCall) -> str:
        return f"{call.input:,} / {call.cached_input:,} / {call.output:,}"

    @display(description="Cost", ordering="cost")
    def money(self, call: ModelCall) -> str:
        return "–" if call.cost is None else dollars(call.cost)

    @button("Sums", icon="functions", permission="view")
    def sums(self, request: HttpRequest) -> HttpResponseBase:
        """By day, model, person, project and purpose; at first those of the present month."""
        today = timezone.localdate(timezone=timezone.get_default_timezone())
        form = RangeForm(request.GET if "first" in request.GET else {"first": today.replace(day=1), "last": today})
        rows = form.calls() if form.is_valid() else ModelCall.objects.none()
        if "csv" in request.GET and form.is_valid():
            days = {name: form.cleaned_data.get(name) for name in ("first", "last")}
            record_export(user=acting(request), **days)
            return as_csv(rows, "model-calls.csv")
        zone = timezone.get_default_timezone()
        context = {
            **self.admin_site.each_context(request),
            "title": _("What model calls took and cost"),
            "opts": self.opts,
            "form": form,
            "total": spent(rows),
            "tables": [(title, _shown(summed(rows, kind, zone), kind)) for kind, title in TABLES.items()],
            "query": request.GET.urlencode() or f"first={today.replace(day=1)}&last={today}",
        }
        return TemplateResponse(request, "admin/chat/modelcall/sums.html", context)
