"""Links and imports for operators: whose, when and how they ended. Neither words nor tokens are shown."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from chat.models import Import, Share
from core.admin import STATES, RecordAdmin


@admin.register(Share)
class ShareAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("id", "person", "of_conversation", "created")
    list_select_related = ("conversation__owner",)
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a link or conversation, or a user name"
    fields = ("id", "person", "of_conversation", "created")

    @display(description="Person")
    def person(self, share: Share) -> str:
        return str(share.conversation.owner)

    @display(description="Of conversation")
    def of_conversation(self, share: Share) -> str:
        return str(share.conversation_id)


@admin.register(Import)
class ImportAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("id", "owner", "status_label", "progress", "imported", "known", "skipped", "created")
    list_select_related = ("owner",)
    list_filter = ("status",)
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of an import, or a user name"
    fields = (
        *("id", "owner", "status_label", "progress", "imported", "known", "skipped"),
        *("error_code", "created", "heartbeat", "finished", "attempt"),
    )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found: Import | None = super().get_object(request, object_id, from_field)
        if found is not None:
            found.name = f"Import {found.pk}"  # the file's own name is the person's
        return found

    @display(description="Status", label=STATES)
    def status_label(self, job: Import) -> str:
        return job.status
