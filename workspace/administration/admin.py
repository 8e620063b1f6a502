"""The admin page for the workspace's settings."""

from typing import Any, ClassVar, cast

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.models import User
from core.admin import RowAdmin, acting_user
from workspace import services as workspace
from workspace.administration import people_admin
from workspace.administration.forms import WorkspaceForm
from workspace.administration.services import save_settings
from workspace.models import Workspace

__all__ = ["people_admin"]  # Django discovers admin pages only in this module


@admin.register(Workspace)
class WorkspaceAdmin(RowAdmin):
    """The settings: one row. The menu links to its page."""

    form = WorkspaceForm
    fieldsets: ClassVar[Any] = (
        ("Name and look", {"fields": ("name", "picture", "remove_logo", "accent", "notice")}),
        ("First visit", {"fields": ("about", "suggestions")}),
        ("Languages", {"fields": ("languages", "default_language")}),
        (
            "Prompts",
            {
                "fields": (
                    "default_profile",
                    "layout",
                    "date_awareness",
                    "today_tasks",
                    "task_tools",
                    "search_approval",
                    "citation_model",
                )
            },
        ),
        ("Memory", {"fields": ("memory", "memory_unasked", "memory_answering", "memory_days")}),
        ("Files", {"fields": ("page_reader",)}),
        ("Sharing", {"fields": ("sharing",)}),
        (
            "Signing in",
            {
                "fields": (
                    "second_factor",
                    "session_days",
                    "session_most_days",
                    "password_length",
                    "sign_up",
                    "sign_up_domains",
                )
            },
        ),
        ("What is kept", {"fields": ("conversation_days", "api_conversation_days")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        hidden = set() if obj is not None and obj.logo else {"remove_logo"}
        if not self.has_change_permission(request, obj):
            hidden |= {"picture", "remove_logo", "default_profile", "layout"}
        return [
            (title, {"fields": tuple(name for name in options["fields"] if name not in hidden)})
            for title, options in self.fieldsets
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Workspace | None:
        """Return the row, or the defaults if no row exists yet. The first change creates the row."""
        if object_id != str(Workspace.ONLY):
            return None
        return Workspace.objects.first() or Workspace()

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return HttpResponseRedirect(reverse("admin:accounts_workspace_change", args=[Workspace.ONLY]))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        person = cast("User", acting_user(request))
        save_settings(user=person, fields=form.changes)
        picture = form.cleaned_data.get("picture") or None
        if picture or form.cleaned_data.get("remove_logo"):
            workspace.set_logo(user=person, picture=picture)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        self.message_user(request, _("Saved. It applies everywhere now."))
        return HttpResponseRedirect(request.path)
