"""Projects, tasks and their history for operators: whose, how large, how they stand. What people wrote is not shown."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from core.admin import ReadOnlyAdmin, RecordAdmin
from projects.models import Invitation, Project, Task, TaskChange

STATES = {"doing": "info", "waiting": "warning", "done": "success", "dropped": "danger"}
WORDS = {"created", "deleted", "title", "notes", "needs"}  # fields whose values people wrote


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ("id", "owner", "members", "files", "web", "version", "created", "updated")
    list_select_related = ("owner",)
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of a project, or a user name"
    fields = ("id", "owner", "members", "files", "web", "version", "created", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        rows: QuerySet[Project] = super().get_queryset(request)
        return rows.annotate(
            member_count=Count("memberships", distinct=True), file_count=Count("entries", distinct=True)
        )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found: Project | None = super().get_object(request, object_id, from_field)
        if found is not None:
            found.name = f"Project {found.pk}"  # the real one is its people's own
        return found

    @display(description="Members", ordering="member_count")
    def members(self, project: Project) -> str:
        return str(getattr(project, "member_count", 0))

    @display(description="Files", ordering="file_count")
    def files(self, project: Project) -> str:
        return str(getattr(project, "file_count", 0))


@admin.register(Invitation)
class InvitationAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("id", "project_id", "person", "role", "created", "expires", "declined")
    list_select_related = ("person",)
    list_filter = ("role",)
    search_fields = ("=id", "=project__id", "=person__username")
    search_help_text = "An id, the id of a project, or a user name"
    fields = ("id", "project_id", "person", "role", "created", "expires", "declined")

    @display(description="Project")
    def project_id(self, invitation: Invitation) -> str:
        return str(invitation.project_id)


@admin.register(Task)
class TaskAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("code", "owner", "level", "horizon", "archetype", "status_label", "stands", "created", "finished")
    list_select_related = ("owner",)
    list_filter = ("level", "horizon", "archetype", "status", "draft")
    search_fields = ("=id", "=code", "=owner__username")
    search_help_text = "An id, a code such as D2026-11-21-T02, or a user name"
    fields = (
        *("id", "code", "owner", "level", "horizon", "date", "archetype", "status_label", "stands", "cleared"),
        *("draft", "draft_code", "heartbeat"),
        *("parent_code", "moved_to_code", "project_id", "position", "created", "updated", "finished"),
    )

    @display(description="Status", ordering="status", label=STATES)
    def status_label(self, task: Task) -> str:
        return task.status

    @display(description="Breakpoint")
    def stands(self, task: Task) -> str:
        if not task.breakpoint:
            return "–"
        return "stands" if task.blocking else "passed"

    @display(description="Parent")
    def parent_code(self, task: Task) -> str:
        return task.parent.code if task.parent else "–"

    @display(description="Moved to")
    def moved_to_code(self, task: Task) -> str:
        return task.moved_to.code if task.moved_to else "–"

    @display(description="Project")
    def project_id(self, task: Task) -> str:
        return str(task.project_id or "–")


@admin.register(TaskChange)
class TaskChangeAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("code", "owner", "field", "before_shown", "after_shown", "user", "by_model", "created")
    list_select_related = ("owner", "user")
    list_filter = ("field",)
    search_fields = ("=code", "=owner__username")
    search_help_text = "A code such as D2026-11-21-T02, or a user name"
    fields = ("code", "owner", "field", "before_shown", "after_shown", "user", "by_model", "created")

    @display(description="Before")
    def before_shown(self, change: TaskChange) -> str:
        return _shown(change, change.before)

    @display(description="After")
    def after_shown(self, change: TaskChange) -> str:
        return _shown(change, change.after)

    @display(description="Model")
    def by_model(self, change: TaskChange) -> str:
        return change.model or "–"


def _shown(change: TaskChange, value: str) -> str:
    if not value:
        return "–"
    return f"{len(value):,} characters" if change.field in WORDS else value
