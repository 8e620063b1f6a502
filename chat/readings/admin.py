"""Readings of whole files for operators, without questions and answers, and the button that stops a reading."""

from typing import Any, cast

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse

from accounts.models import User
from chat.readings.models import Reading
from chat.readings.services import stop_reading
from core.admin import STATE_COLOURS, Confirmation, RecordAdmin, acting_user, column, confirmation_button, display
from core.errors import ProductError
from core.sentences import Sentence


@admin.register(Reading)
class ReadingAdmin(RecordAdmin):
    empty_words = "Nobody has asked a question over whole files yet."
    ordering = ("-id",)
    list_display = ("created", "person", "model_name", "status_label", "code", "calls_and_asked", "finished")
    list_select_related = ("person",)
    list_filter = ("status", "code")
    search_fields = ("=id", "=person__username", "=conversation__id")
    search_help_text = "The id of a reading or conversation, or a user name"
    fields = (
        *("id", "person", "of_conversation", "files_read", "model_name", "status_label", "code", "calls_and_asked"),
        *("parts_read", "tokens", "cost", "created", "heartbeat", "finished", "attempt"),
    )
    of_conversation = column("conversation_id", "Conversation")
    actions_detail: Any = ("stop",)

    def has_stop_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("chat.change_reading")

    @display(description="Status", ordering="status", label=STATE_COLOURS)
    def status_label(self, reading: Reading) -> str:
        return reading.status

    @display(description="Model calls, of those agreed to")
    def calls_and_asked(self, reading: Reading) -> str:
        return f"{reading.asked:,} / {reading.calls:,}"

    @display(description="Files")
    def files_read(self, reading: Reading) -> str:
        """Return the ids of the files, since their names are private. A dash stands for a deleted file."""
        return ", ".join(str(file or "–") for file in reading.files.values_list("file_id", flat=True))

    @display(description="Parts read")
    def parts_read(self, reading: Reading) -> str:
        parts = reading.parts.filter(level=0)
        return f"{parts.filter(state='done').count():,} / {parts.count():,}"

    @confirmation_button(
        "Stop",
        icon="stop_circle",
        permission="stop",
        ask="Stop this reading?",
        explain="The notes so far are kept. The user can continue the reading.",
    )
    def stop(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        reading = self.row(request, object_id)
        try:
            stop_reading(user=cast("User", request.user), reading=reading)
        except ProductError as error:
            return self.back(request, reading, error.sentence, messages.ERROR)
        return self.back(request, reading, Sentence("The reading is stopped."))
