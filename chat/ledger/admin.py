"""Admin pages of the ledger: the model calls, sums over a range of days, and a CSV of the calls to download."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminDateWidget, UnfoldAdminTextInputWidget

from chat.ledger.models import ModelCall
from chat.ledger.services import calls_between, csv_response, describe_usage, record_export
from chat.ledger.sums import UsageLine, UsageReport
from core.admin import RecordAdmin, acting_user, button, column, display
from core.i18n import dollars

TABLES = {
    "day": _("Day"),
    "model": _("Model"),
    "user": _("Person"),
    "group": _("Group"),
    "project": _("Project"),
    "persona": _("Persona"),
    "token": _("API token"),
    "purpose": _("Purpose"),
}
ROWS_PER_TABLE = 100  # rows per table


def _with_labels(lines: Sequence[UsageLine], kind: str) -> list[tuple[Any, UsageLine]]:
    """Return each line with its label: a day, a purpose in the reader's language, or a name."""
    if kind == "purpose":
        return [(ModelCall.Purpose(line.key).label, line) for line in lines]
    return [(line.key if kind == "day" else line.name, line) for line in lines]


class RangeForm(forms.Form):
    """Filter for the calls that are summed. An empty field does not filter."""

    first = forms.DateField(label=_("From"), required=False, widget=UnfoldAdminDateWidget)
    last = forms.DateField(label=_("To"), required=False, widget=UnfoldAdminDateWidget)
    person = forms.CharField(label=_("User name"), required=False, widget=UnfoldAdminTextInputWidget)
    model = forms.CharField(label=_("Model"), required=False, widget=UnfoldAdminTextInputWidget)

    def days(self) -> tuple[date | None, date | None]:
        return self.cleaned_data.get("first"), self.cleaned_data.get("last")

    def calls(self) -> QuerySet[ModelCall]:
        calls = ModelCall.objects.filter(Q(*self._lookups().items()))
        return calls_between(calls, timezone.get_default_timezone(), *self.days())

    def usage(self) -> UsageReport:
        return UsageReport(*self.days(), timezone.get_default_timezone(), self._lookups())

    def _lookups(self) -> dict[str, str]:
        lookups = {"person__username": self.cleaned_data.get("person"), "model_name": self.cleaned_data.get("model")}
        return {name: value for name, value in lookups.items() if value}


@admin.register(ModelCall)
class ModelCallAdmin(RecordAdmin):
    empty_words = "No model was asked yet."
    ordering = ("-id",)
    list_display = ("created", "person", "provider_name", "model_name", "purpose", "tokens", "money", "counted")
    list_select_related = ("person",)
    list_filter = ("purpose", "counted", "failed", "model", "created")
    search_fields = ("=person__username", "=model_name", "=turn__id", "=conversation__id")
    search_help_text = "A user name, a model, or the id of a turn or conversation"
    fields = (
        *(
            "id",
            "created",
            "person",
            "of_group",
            "of_token",
            "purpose",
            "of_conversation",
            "of_turn",
            "number",
            "project",
            "of_persona",
        ),
        *("provider_name", "model_name", "input", "cached_input", "cache_written", "output", "reasoning"),
        *("seconds", "counted", "failed", "money"),
    )
    actions_list: Any = ("sums",)
    of_group = column("group_id", "Group")
    of_token = column("token_id", "API token")
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
        """Show the sums by day, model, user, group and more, by default for the current month."""
        today = timezone.localdate(timezone=timezone.get_default_timezone())
        form = RangeForm(request.GET if "first" in request.GET else {"first": today.replace(day=1), "last": today})
        if "csv" in request.GET and form.is_valid():
            first, last = form.days()
            record_export(user=acting_user(request), first=first, last=last)
            return csv_response(form.calls(), "model-calls.csv")
        usage = form.usage() if form.is_valid() else None
        total = usage.total() if usage is not None else None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Tokens and cost of model calls"),
            "opts": self.opts,
            "form": form,
            "total": describe_usage(total) if total is not None and total.calls else "",
            "tables": [
                (title, _with_labels(usage.lines(kind, ROWS_PER_TABLE), kind))
                for kind, title in TABLES.items()
                if usage is not None
            ],
            "query": request.GET.urlencode() or f"first={today.replace(day=1)}&last={today}",
        }
        return TemplateResponse(request, "admin/chat/modelcall/sums.html", context)
