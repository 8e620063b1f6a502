"""Show operators conversations, turns, summaries, shares and imports: owner, times, model and result.

The admin never shows the texts of users and models, nor the tokens of links.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounts.models import User
from chat.conversations.erasing import set_hold
from chat.conversations.feedback import REASON_LABELS, describe_reasons, describe_seen_prompt
from chat.conversations.import_undo import undo_import
from chat.conversations.importing.jobs import pause_import, remove_import, retry_import
from chat.ledger.overview import ASKING
from chat.models import Conversation, Import, JudgedAnswer, Share, Summary, SummaryJob, Turn
from chat.texts import admin as text_admin
from core.admin import (
    STATE_COLOURS,
    Confirmation,
    RecordAdmin,
    acting_user,
    button,
    column,
    confirmation_button,
    display,
    htmx_redirect,
)
from core.errors import ProductError
from personas.models import Persona

SHOWN_COMMENT = 120  # characters of a comment in the list

__all__ = ["text_admin"]  # Django finds admin classes only in this module


@admin.register(Conversation)
class ConversationAdmin(RecordAdmin):
    empty_words = "No conversations yet."
    ordering = ("-id",)
    list_display = ("created", "owner", "persona_name", "state_label", "archived", "updated")
    list_select_related = ("owner", "persona")
    list_filter = ("state", "archived", "legal_hold")
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of a conversation, or a user name"
    fields = ("id", "owner", "persona_name", "state_label", "archived", "legal_hold", "created", "updated")
    actions_detail: Any = ("replay", "hold", "release")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row: Conversation | None = super().get_object(request, object_id, from_field)
        if row is not None:
            row.title = _("Conversation %(id)s") % {"id": row.pk}  # the real title is text of the user
        return row

    def has_replay_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_view_permission(request) and acting_user(request).has_perm("chat.add_replay")

    @button("Plan its turns again", icon="science", permission="replay")
    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect(reverse("admin:chat_replay_add", query={"conversation_id": object_id}))

    def has_hold_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_view_permission(request) and acting_user(request).has_perm("chat.change_conversation")

    @confirmation_button(
        "Hold",
        icon="gavel",
        permission="hold",
        ask="Put it under a legal hold?",
        explain="It is not erased, neither after the days that conversations are kept nor when its owner deletes it.",
    )
    def hold(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._set_hold(request, object_id, on_hold=True)

    @confirmation_button(
        "Release",
        icon="lock_open",
        permission="hold",
        ask="Remove the legal hold?",
        explain="From then on it is erased as any other: a day after it was deleted, or when its days are over.",
    )
    def release(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._set_hold(request, object_id, on_hold=False)

    def _set_hold(self, request: HttpRequest, object_id: str, *, on_hold: bool) -> HttpResponse:
        row = self.row(request, object_id)
        set_hold(user=acting_user(request), conversation=row, under_hold=on_hold)
        return self.back(request, row, _("It is under a legal hold.") if on_hold else _("It is under no legal hold."))

    @display(description="Persona")
    def persona_name(self, conversation: Conversation) -> str:
        return public_name(conversation.persona)

    @display(description="State", label=STATE_COLOURS)
    def state_label(self, conversation: Conversation) -> str:
        return conversation.state


def public_name(persona: Persona | None) -> str:
    """Return the name of a persona that everybody sees. Those of others are not shown."""
    if persona is None:
        return "–"
    return persona.name if persona.visibility == Persona.Visibility.WORKSPACE else _("a private one")


class ErrorFilter(admin.SimpleListFilter):
    """Filter by the error code in the address. The start page links to such addresses.

    The filter lists no other codes, since finding all codes would take long.
    """

    title = "error"
    parameter_name = "error"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        code = request.GET.get(self.parameter_name)
        return [(code, code)] if code else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(answer__error_code=self.value()) if self.value() else queryset


class ApprovalFilter(admin.SimpleListFilter):
    """Filter the live turns that wait for an approval by their user."""

    title = "approval"
    parameter_name = "approval"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("waiting", _("Waiting for an approval"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(status__in=Turn.LIVE, answer__parts__contains=ASKING)


@admin.register(Turn)
class TurnAdmin(RecordAdmin):
    empty_words = "No question was asked yet."
    ordering = ("-id",)
    list_display = ("created", "of_owner", "model", "status_label", "tokens", "took", "error_code")
    list_select_related = ("model", "conversation__owner")
    list_filter = ("status", ApprovalFilter, ErrorFilter, "model", ("fallback_reason", admin.EmptyFieldListFilter))
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a turn or conversation, or a user name"
    fields = (
        *("id", "of_conversation", "of_owner", "model", "slot", "status_label", "error_code"),
        *("answered_by", "fallback_reason", "finish_reason", "finish_detail"),
        *("tokens", "cached", "calls"),
        *("created", "started", "finished", "waited", "first_token", "took"),
        *("heartbeat", "attempt", "seq", "stop_requested", "stop_took"),
    )
    actions_detail: Any = ("replay",)

    of_conversation = column("conversation_id", "Conversation")
    of_owner = column("conversation.owner", "Owner")
    answered_by = column("answer.model", "Answered by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.defer("report").annotate(answer_error=F("answer__error_code"))

    def has_replay_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_view_permission(request) and acting_user(request).has_perm("chat.add_replay")

    @button("Plan it again with …", icon="science", permission="replay")
    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect(reverse("admin:chat_replay_add", query={"turn": object_id}))

    @display(description="Status", ordering="status", label=STATE_COLOURS)
    def status_label(self, turn: Turn) -> str:
        return turn.status

    @display(description="Error")
    def error_code(self, turn: Turn) -> str:
        return getattr(turn, "answer_error", "") or "–"

    @display(description="Tokens in / out")
    def tokens(self, turn: Turn) -> str:
        input_tokens, output_tokens = (turn.usage.get(name) for name in ("input", "output"))
        return (
            "–" if input_tokens is None and output_tokens is None else f"{input_tokens or 0:,} / {output_tokens or 0:,}"
        )

    @display(description="From the provider's cache")
    def cached(self, turn: Turn) -> str:
        input_tokens = turn.usage.get("input")
        cached_tokens = turn.usage.get("cached_input")
        return f"{cached_tokens or 0:,} ({100 * (cached_tokens or 0) // input_tokens} %)" if input_tokens else "–"

    @display(description="Model calls")
    def calls(self, turn: Turn) -> str:
        return str(turn.usage.get("calls", "–"))

    @display(description="Waited")
    def waited(self, turn: Turn) -> str:
        return _seconds(turn.started - turn.created if turn.started else None)

    @display(description="First token")
    def first_token(self, turn: Turn) -> str:
        if turn.first_token_ms is None:
            return "–"
        return _("%(seconds)s s after it was requested") % {"seconds": f"{turn.first_token_ms / 1_000:.2f}"}

    @display(description="Stopped within")
    def stop_took(self, turn: Turn) -> str:
        return _seconds(turn.finished - turn.stop_asked if turn.finished and turn.stop_asked else None)

    @display(description="Took")
    def took(self, turn: Turn) -> str:
        return _seconds(turn.finished - turn.started if turn.finished and turn.started else None)


class ReasonFilter(admin.SimpleListFilter):
    title = "reason"
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(REASON_LABELS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(feedback_reasons__contains=[self.value()]) if self.value() else queryset


@admin.register(JudgedAnswer)
class JudgedAnswerAdmin(RecordAdmin):
    """List the answers with feedback. Comments are written for administrators; messages are not shown."""

    empty_words = "Nobody has judged an answer yet."
    ordering = (F("feedback_at").desc(nulls_last=True), "-id")
    list_display = ("judged", "verdict", "why", "comment", "model", "persona_name", "of_owner")
    list_display_links = ("judged",)
    list_select_related = ("model", "conversation__owner", "conversation__persona")
    list_filter = ("feedback", ReasonFilter, "model", ("feedback_comment", admin.EmptyFieldListFilter))
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of an answer or conversation, or a user name"
    fields = (
        *("judged", "verdict", "why", "whole_comment", "model", "persona_name", "of_owner"),
        *("of_conversation", "of_turn", "seen"),
    )
    actions_detail: Any = ("replay",)

    of_conversation = column("conversation_id", "Conversation")
    of_owner = column("conversation.owner", "Owner")

    def get_queryset(self, request: HttpRequest) -> QuerySet[JudgedAnswer]:
        rows: QuerySet[JudgedAnswer] = super().get_queryset(request)
        return rows.defer("parts")

    def has_replay_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self.has_view_permission(request) and acting_user(request).has_perm("chat.add_replay")

    @button("Plan its conversation again", icon="science", permission="replay")
    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        answer = self.row(request, object_id)
        return redirect(reverse("admin:chat_replay_add", query={"conversation_id": answer.conversation_id}))

    @display(description="Judged", ordering="feedback_at")
    def judged(self, answer: JudgedAnswer) -> str:
        at = answer.feedback_at or answer.created
        return date_format(timezone.localtime(at), "SHORT_DATETIME_FORMAT")

    @display(description="Feedback", ordering="feedback", label={"good": "success", "bad": "danger"})
    def verdict(self, answer: JudgedAnswer) -> tuple[str, str]:
        return answer.feedback, answer.get_feedback_display()

    @display(description="Reasons")
    def why(self, answer: JudgedAnswer) -> str:
        return describe_reasons(answer) or "–"

    @display(description="Comment")
    def comment(self, answer: JudgedAnswer) -> str:
        return Truncator(answer.feedback_comment).chars(SHOWN_COMMENT) or "–"

    @display(description="Comment")
    def whole_comment(self, answer: JudgedAnswer) -> str:
        return answer.feedback_comment or "–"

    @display(description="Persona")
    def persona_name(self, answer: JudgedAnswer) -> str:
        return public_name(answer.conversation.persona)

    @display(description="Turn")
    def of_turn(self, answer: JudgedAnswer) -> str:
        turn = Turn.objects.filter(answer=answer).only("id").first()
        if turn is None:
            return "–"
        return format_html('<a href="{}">{}</a>', reverse("admin:chat_turn_change", args=[turn.pk]), turn.pk)

    @display(description="What the model saw")
    def seen(self, answer: JudgedAnswer) -> str:
        turn = Turn.objects.filter(answer=answer).first()
        seen = describe_seen_prompt(turn) if turn is not None else None
        return render_to_string("admin/chat/judgedanswer/seen.html", {"seen": seen})


@admin.register(Summary)
class SummaryAdmin(RecordAdmin):
    empty_words = "No conversation was summarised yet."
    list_display = ("created", "messages", "tokens_in", "tokens_out", "model_name", "version")
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a summary or conversation, or a user name"
    fields = (
        *("id", "of_conversation", "messages", "span_start", "span_end", "tokens_in", "tokens_out", "model_name"),
        *("version", "timezone", "as_of", "instead_of", "withdrawn", "created"),
    )
    of_conversation = column("conversation_id", "Conversation")
    instead_of = column("supersedes_id", "Replaces")

    @display(description="Summary prompt")
    def version(self, summary: Summary) -> str:
        return f"v{summary.prompt_version}"


@admin.register(SummaryJob)
class SummaryJobAdmin(RecordAdmin):
    empty_words = "No summary was due yet."
    list_display = ("created", "reason", "status_label", "code", "finished")
    list_filter = ("status", "reason", ("code", admin.EmptyFieldListFilter))
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a job or conversation, or a user name"
    fields = (
        *("id", "of_conversation", "reason", "status_label", "code", "said", "model", "used", "fixed", "again"),
        *("created", "heartbeat", "finished"),
    )
    of_conversation = column("conversation_id", "Conversation")

    @display(description="Detail")
    def said(self, job: SummaryJob) -> str:
        return str(job.detail) or "–"

    @display(description="Status", label=STATE_COLOURS)
    def status_label(self, job: SummaryJob) -> str:
        return job.status


@admin.register(Share)
class ShareAdmin(RecordAdmin):
    empty_words = "Nobody has shared a conversation by a link yet."
    ordering = ("-id",)
    list_display = ("created", "owner", "has_password", "shows_context", "expires")
    list_select_related = ("conversation__owner",)
    list_filter = ("shows_context", "names_sources")
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a link or conversation, or a user name"
    fields = (
        *("id", "owner", "of_conversation", "has_password", "expires"),
        *("shows_context", "names_sources", "created"),
    )
    of_conversation = column("conversation_id", "Conversation")
    owner = column("conversation.owner", "Owner")

    @admin.display(boolean=True, description="Has a password")
    def has_password(self, share: Share) -> bool:
        return share.has_password


@admin.register(Import)
class ImportAdmin(RecordAdmin):
    empty_words = "Nobody has imported conversations yet."
    ordering = ("-id",)
    list_display = ("created", "owner", "status_label", "error_code", "size", "imported", "known", "skipped")
    list_select_related = ("owner",)
    list_filter = ("status", "error_code")
    search_fields = ("=id", "=owner__username")
    search_help_text = "The id of an import, or a user name"
    fields = (
        *("id", "owner", "status_label", "progress", "imported", "known", "skipped"),
        *("error_code", "what_went_wrong", "size", "can_be_tried_until", "created", "heartbeat", "finished", "attempt"),
    )
    actions_detail: Any = ("retry", "pause", "undo", "remove")

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row: Import | None = super().get_object(request, object_id, from_field)
        if row is not None:
            row.name = _("Import %(id)s") % {"id": row.pk}  # the real file name is text of the user
        return row

    @display(description="Can be tried again until")
    def can_be_tried_until(self, job: Import) -> str:
        return date_format(timezone.localtime(job.kept_until), "DATETIME_FORMAT") if job.kept_until else "–"

    @display(description="What went wrong")
    def what_went_wrong(self, job: Import) -> str:
        return str(job.error_detail) or "–"

    @display(description="Status", label=STATE_COLOURS)
    def status_label(self, job: Import) -> str:
        return job.status

    def has_retry_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("chat.change_import")

    def has_remove_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("chat.delete_import")

    @confirmation_button(
        "Pause",
        icon="pause",
        permission="retry",
        ask="Pause this import?",
        explain="What it has imported stays. “Try again” lets it go on.",
    )
    def pause(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._change(request, object_id, pause_import, gettext_noop("The import is paused."))

    @confirmation_button(
        "Undo",
        icon="undo",
        permission="retry",
        ask="Remove everything that this import has brought?",
        explain="Conversations, files, personas, projects, prompts, facts and tasks of this import are removed. What "
        "its owner has continued or changed, shares or uses stays. The page of the import names it for the owner.",
    )
    def undo(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._change(request, object_id, undo_import, gettext_noop("The import is being undone."))

    @confirmation_button(
        "Try again",
        icon="replay",
        permission="retry",
        ask="Import what was uploaded again?",
        explain="The upload of a failed or paused import is kept for 30 days. Nothing is imported twice.",
    )
    def retry(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._change(request, object_id, retry_import, gettext_noop("The import begins again."))

    @confirmation_button(
        "Remove",
        icon="delete",
        permission="remove",
        ask="Remove this import?",
        explain="The stored upload is deleted for good. The imported conversations stay.",
    )
    def remove(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        return self._change(request, object_id, remove_import, gettext_noop("The import is removed."))

    def _change(self, request: HttpRequest, pk: str, change: Callable[..., None], message: str) -> HttpResponse:
        job = self.row(request, pk)
        try:
            change(user=cast("User", request.user), job=job)
        except ProductError as error:
            return self.back(request, job, error.sentence, messages.ERROR)
        self.message_user(request, message, messages.SUCCESS)
        return htmx_redirect(reverse("admin:chat_import_changelist"))


def _seconds(span: timedelta | None) -> str:
    return "–" if span is None else f"{span.total_seconds():.1f} s"
