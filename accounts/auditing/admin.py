"""The audit in the admin: read, searched and exported, never changed."""

import json
from datetime import datetime, time, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminDateWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from accounts.auditing.services import KINDS, export
from core.admin import RecordAdmin, acting_user, action_label, button, display, field_label, kind_label
from core.audit.actions import ACTIONS
from core.audit.models import Entry
from core.audit.reading import AuditFilter, actor_filter

SEARCHED = ("actor_name", "object_name", "object_id", "request_id", "address")


def _actions() -> list[tuple[str, str]]:
    """Return the choices of acts. A choice shows the name of the act and its code for programs."""
    return [(action, f"{action_label(action)} · {action}") for action in ACTIONS]


class ActionFilter(admin.SimpleListFilter):
    title = "action"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return _actions()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(action=self.value()) if self.value() else queryset


class ExportForm(forms.Form):
    """The filter of an export; an empty field filters nothing. Days are in the person's time zone."""

    first = forms.DateField(label=_("From"), required=False, widget=UnfoldAdminDateWidget)
    last = forms.DateField(label=_("To"), required=False, widget=UnfoldAdminDateWidget)
    actor = forms.CharField(label=_("User name"), required=False, widget=UnfoldAdminTextInputWidget)
    action = forms.ChoiceField(
        label=_("Action"),
        required=False,
        choices=lambda: [("", _("All")), *_actions()],
        widget=UnfoldAdminSelectWidget,
    )
    kind = forms.ChoiceField(
        label=_("As"), choices=[("csv", "CSV"), ("jsonl", "JSON lines")], widget=UnfoldAdminSelectWidget
    )

    def audit_filter(self) -> AuditFilter:
        first = self.cleaned_data["first"]
        last = self.cleaned_data["last"]
        return AuditFilter(
            since=first and timezone.make_aware(datetime.combine(first, time.min)),
            until=last and timezone.make_aware(datetime.combine(last + timedelta(days=1), time.min)),
            actor=self.cleaned_data["actor"].strip(),
            action=self.cleaned_data["action"],
        )


def _change(change: Any) -> str:
    """Return a change as HTML: [before, after], or another JSON value; empty for None."""
    if change is None:
        return ""
    pair = change if isinstance(change, list) and len(change) == 2 else [change]
    return format_html("<code>{}</code>", " → ".join(json.dumps(each, ensure_ascii=False) for each in pair))


@admin.register(Entry)
class EntryAdmin(RecordAdmin):
    empty_words = "Nothing was recorded yet."
    list_display = ("at", "actor", "how", "act", "kind_of_row", "called", "address")
    list_filter = ("how", ActionFilter, "at")
    search_fields = tuple(f"={name}" for name in SEARCHED)
    search_help_text = "A whole user name, name of a row, id, request id or address"
    fields = (
        *("sequence", "at", "actor", "actor_id", "how", "token_name", "token_id", "address", "request_id"),
        *("act", "kind_of_row", "object_id", "object_name", "what_changed", "previous", "hash"),
    )
    actions_list: Any = ("take_along",)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """Search for whole values, since only those have an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.filter(Q(*((name, term) for name in SEARCHED), _connector=Q.OR) | actor_filter(term)), False

    @display(description="Who", ordering="actor_name")
    def actor(self, entry: Entry) -> str:
        return entry.actor_name or "–"

    @display(description="Action", ordering="action")
    def act(self, entry: Entry) -> str:
        return format_html('{} <code class="quiet">{}</code>', action_label(entry.action), entry.action)

    @display(description="Kind of row", ordering="object_type")
    def kind_of_row(self, entry: Entry) -> str:
        return kind_label(entry.object_type) or "–"

    @display(description="Name of the row")
    def called(self, entry: Entry) -> str:
        return entry.object_name or entry.object_id or "–"

    @display(description="What changed")
    def what_changed(self, entry: Entry) -> str:
        """Return a line for each field. For texts and secrets the line only states that they changed."""
        lines = [(field_label(entry.object_type, name), _change(change)) for name, change in entry.changes.items()]
        return format_html_join(mark_safe("<br>"), "{} {}", lines) or "–"

    @button("Export", icon="download", permission="view")
    def take_along(self, request: HttpRequest) -> HttpResponseBase:
        """Export acts as CSV or JSON lines, oldest first."""
        form = ExportForm(request.GET if "kind" in request.GET else None)
        if form.is_valid() and form.cleaned_data["kind"] in KINDS:
            return export(user=acting_user(request), chosen=form.audit_filter(), kind=form.cleaned_data["kind"])
        context = {
            **self.admin_site.each_context(request),
            "title": _("Download the audit"),
            "opts": self.opts,
            "form": form,
        }
        return TemplateResponse(request, "admin/audit/entry/export.html", context, status=422 if form.errors else 200)
