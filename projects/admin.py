"""Projects for operators: whose, how large, who is in. Names, instructions and files' names are not shown."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from core.admin import ReadOnlyAdmin
from projects.models import Project
from projects.planner.admin import TaskAdmin, TaskChangeAdmin

# Django finds only this module by itself.
__all__ = ["ProjectAdmin", "TaskAdmin", "TaskChangeAdmin"]


@admin.register(Project)
class ProjectAdmin(ReadOnlyAdmin):
    list_display = ("id", "owner", "members", "files", "version", "created", "updated")
    list_select_related = ("owner",)
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of a project, or a user name"
    fields = ("id", "owner", "members", "files", "version", "created", "updated")

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
