"""Admin of tasks and their history, without the texts that users wrote."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from core import i18n
from core.admin import RecordAdmin, column, display
from projects.planner.models import Task, TaskChange
from projects.planner.pages import FIELDS

STATES = {
    **dict.fromkeys(("open", "moved"), "default"),
    "doing": "info",
    "waiting": "warning",
    "done": "success",
    "dropped": "danger",
}
WORDS = {"created", "deleted", "title", "notes", "needs"}  # fields with texts that users wrote


@admin.register(Task)
class TaskAdmin(RecordAdmin):
    empty_words = "Nobody has written a task yet."
    ordering = ("-id",)
    list_display = ("code", "owner", "level", "horizon", "archetype", "status_label", "stands", "created", "finished")
    list_select_related = ("owner",)
    list_filter = ("level", "horizon", "archetype", "status", "draft")
    search_fields = ("=id", "=code", "=owner__username")
    search_help_text = "An id, a code such as D2026-11-21-T02, or a user name"
    fields = (
        *("id", "code", "owner", "level", "horizon", "date", "archetype", "status_label", "stands", "cleared"),
        *("draft", "draft_code", "heartbeat"),
        *("parent_code", "moved_to_code", "of_project", "position", "created", "updated", "finished"),
    )

    parent_code = column("parent.code", "Parent")
    moved_to_code = column("moved_to.code", "Moved to")
    of_project = column("project_id", "Project")

    @display(description="Status", ordering="status", label=STATES)
    def status_label(self, task: Task) -> str:
        return task.status

    @display(description="Breakpoint")
    def stands(self, task: Task) -> str:
        if not task.breakpoint:
            return "–"
        return _("stands") if task.blocking else _("passed")


class FieldFilter(admin.SimpleListFilter):
    title = "field"
    parameter_name = "field"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, str(words)) for name, words in FIELDS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(field=self.value()) if self.value() else queryset


@admin.register(TaskChange)
class TaskChangeAdmin(RecordAdmin):
    empty_words = "No task was changed yet."
    ordering = ("-id",)
    list_display = ("code", "owner", "what", "before_shown", "after_shown", "user", "by_model", "created")
    list_select_related = ("owner", "user")
    list_filter = (FieldFilter,)
    search_fields = ("=code", "=owner__username")
    search_help_text = "A code such as D2026-11-21-T02, or a user name"
    fields = ("code", "owner", "what", "before_shown", "after_shown", "user", "by_model", "created")

    @display(description="Field", ordering="field")
    def what(self, change: TaskChange) -> str:
        return str(FIELDS.get(change.field, change.field))

    @display(description="Before")
    def before_shown(self, change: TaskChange) -> str:
        return _value_in_words(change, change.before)

    @display(description="After")
    def after_shown(self, change: TaskChange) -> str:
        return _value_in_words(change, change.after)

    @display(description="Model")
    def by_model(self, change: TaskChange) -> str:
        return change.model or "–"


def _value_in_words(change: TaskChange, value: str) -> str:
    """Return a value for administrators. Of a text that the user wrote, return only the length."""
    if not value:
        return "–"
    if change.field not in WORDS:
        return i18n.label(value)
    return _("%(number)s characters") % {"number": i18n.grouped(len(value))}
