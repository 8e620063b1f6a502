"""Conversations and turns for operators: who, when, which model, how it ended. What people wrote is not shown."""

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from chat.conversations.sharing.admin import ImportAdmin, ShareAdmin
from chat.models import Conversation, Turn
from chat.runs.admin import RunAdmin
from chat.summaries.admin import SummaryAdmin, SummaryJobAdmin
from core.admin import STATES, RecordAdmin
from personas.models import Persona

__all__ = [
    "ConversationAdmin", "ImportAdmin", "RunAdmin", "ShareAdmin", "SummaryAdmin", "SummaryJobAdmin", "TurnAdmin",
]  # fmt: skip


@admin.register(Conversation)
class ConversationAdmin(RecordAdmin):
    list_display = ("id", "owner", "persona_name", "state_label", "archived", "created", "updated")
    list_select_related = ("owner", "persona")
    list_filter = ("state", "archived")
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of a conversation, or a user name"
    fields = ("id", "owner", "persona_name", "state_label", "archived", "created", "updated")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found: Conversation | None = super().get_object(request, object_id, from_field)
        if found is not None:
            found.title = f"Conversation {found.pk}"  # the real one begins with what the person wrote
        return found

    @display(description="Persona")
    def persona_name(self, conversation: Conversation) -> str:
        persona = conversation.persona
        if persona is None:
            return "–"
        return persona.name if persona.visibility == Persona.Visibility.WORKSPACE else "a private one"

    @display(description="State", label=STATES)
    def state_label(self, conversation: Conversation) -> str:
        return conversation.state


@admin.register(Turn)
class TurnAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("id", "person", "model", "status_label", "tokens", "took", "error_code", "created")
    list_select_related = ("model", "conversation__owner")
    list_filter = ("status", "model")
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a turn or conversation, or a user name"
    fields = (
        *("id", "of_conversation", "person", "model", "slot", "status_label", "error_code", "tokens", "calls"),
        *("created", "started", "finished", "waited", "took", "heartbeat", "attempt", "seq", "stop_requested"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.defer("report").annotate(answer_error=F("answer__error_code"))

    @display(description="Person")
    def person(self, turn: Turn) -> str:
        return str(turn.conversation.owner)

    @display(description="Conversation")
    def of_conversation(self, turn: Turn) -> str:
        return str(turn.conversation_id)

    @display(description="Status", ordering="status", label=STATES)
    def status_label(self, turn: Turn) -> str:
        return turn.status

    @display(description="Error")
    def error_code(self, turn: Turn) -> str:
        return getattr(turn, "answer_error", "") or "–"

    @display(description="Tokens in / out")
    def tokens(self, turn: Turn) -> str:
        into, out = (turn.usage.get(name) for name in ("input", "output"))
        return "–" if into is None and out is None else f"{into or 0:,} / {out or 0:,}"

    @display(description="Model calls")
    def calls(self, turn: Turn) -> str:
        return str(turn.usage.get("calls", "–"))

    @display(description="Waited")
    def waited(self, turn: Turn) -> str:
        return _seconds(turn.started - turn.created if turn.started else None)

    @display(description="Took")
    def took(self, turn: Turn) -> str:
        return _seconds(turn.finished - turn.started if turn.finished and turn.started else None)


def _seconds(span: timedelta | None) -> str:
    return "–" if span is None else f"{span.total_seconds():.1f} s"
