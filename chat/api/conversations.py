"""Serve conversations, messages, turns and the queued message to programs (`/api/v1/`).

Docstrings of views and serializers are part of the API's documentation.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, TypedDict, cast, get_args
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils.translation import get_language, gettext_noop
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from accounts.access.api_views import ScopedView, user_of_request
from accounts.access.authentication import Credential
from accounts.models import User
from accounts.realtime import require_connection, require_connection_of_request
from chat.api.plan import (
    ChosenModelsSerializer,
    EffortField,
    ErrorSerializer,
    PlanSerializer,
    ProposedFactSerializer,
    ReportSerializer,
    TurnDraftSerializer,
)
from chat.conversations import branches, search, services
from chat.conversations.api import ConversationSerializer
from chat.conversations.attaching import own_source
from chat.conversations.attaching_api import AttachedConversationSerializer, AttachSerializer, attached_response
from chat.conversations.feedback import MAX_COMMENT, REASON_LABELS, give_feedback
from chat.conversations.forking import fork_conversation
from chat.conversations.marks import MARKS, mark_file, mark_turn
from chat.models import Conversation, Message, NextMessage, Tag, Turn
from chat.models.conversation_state import scope_of, visible_conversation, visible_turn
from chat.models.parts import MessagePart
from chat.models.summary import Marks, marks_on
from chat.models.tree import branch_rows, sibling_rows, with_rows
from chat.prompts import report as reports
from chat.prompts.preview import TurnDraft, plan_ahead
from chat.realtime import event_stream
from chat.realtime.events import translate_parts
from chat.sending.offers import find_offers
from chat.sending.services import no_next_message_error, queue, remove_next, send
from chat.turns.services import stop_turn
from chat.turns.smaller import offers_send_less
from chat.turns.submit import Ask, regenerate
from core.api.actions import post_action
from core.api.fields import MoneyField, SentenceField, StrictSerializer, validate
from core.api.idempotency import read_key
from core.api.pagination import ByUpdate, pages
from core.api.parameters import refuse_unknown_query
from core.api.streams import EVENT_STREAM, JSON_OR_EVENTS
from core.errors import ProductError
from core.json_types import JsonObject
from core.requests import identifier
from core.sentences import Sentence
from llm.models import Model
from llm.types.model_call import FinishReason
from personas.services import model_for

DeepestFirst = pages("-depth", "-id")
ONE_MODEL_ONLY = gettext_noop(
    "A streamed response has the events of one answer. Choose one model, or read the `events/` of each turn."
)


class PartSerializer(serializers.Serializer[MessagePart]):
    type = serializers.ChoiceField(choices=["text", "reasoning", "tool_call", "tool_result", "file"])
    text = serializers.CharField(required=False)
    id = serializers.CharField(required=False)
    name = serializers.CharField(required=False)
    arguments = serializers.CharField(required=False)
    approval = serializers.ChoiceField(
        choices=["waiting", "allowed", "refused", "timed_out"],
        required=False,
        help_text="The decision on a call that you have to allow.",
    )
    error = serializers.BooleanField(required=False)
    edited = serializers.BooleanField(required=False, help_text="A user has edited this text of an answer.")

    def to_representation(self, instance: MessagePart) -> JsonObject:
        return {**translate_parts([instance])[0]}


CONTEXT_NOTICE = (
    "A warning that the provider's server did not read the whole prompt, with advice; or that it reported too few "
    "tokens (`context_unread` is 0 then). Empty otherwise."
)
SEND_LESS = "Whether the provider refused the prompt and a shorter one may succeed: `regenerate/` with `send_less`."


class MarkSerializer(StrictSerializer):
    mark = serializers.ChoiceField(
        choices=MARKS, allow_null=True, help_text="pinned: always sent; excluded: left out; null: neither."
    )


class AttachedEntry(TypedDict):
    """A file of a question. `id` is None for a deleted file."""

    id: UUID | None
    name: str
    mark: str | None


class AttachedSerializer(serializers.Serializer[AttachedEntry]):
    id = serializers.UUIDField(allow_null=True, help_text="Null for a deleted file.")
    name = serializers.CharField()
    mark = serializers.ChoiceField(choices=MARKS, allow_null=True)


class MessageSerializer(serializers.ModelSerializer[Message]):
    parts = PartSerializer(source="separated_parts", many=True)
    files = serializers.SerializerMethodField()
    mark = serializers.SerializerMethodField()
    text = serializers.CharField(read_only=True)
    error = serializers.SerializerMethodField()
    cost = MoneyField(source="turn.cost", default=None, help_text="The sum over the answer's model calls.")
    finish_reason = serializers.ChoiceField(
        choices=get_args(FinishReason), read_only=True, allow_blank=True, help_text="Only for a complete answer."
    )
    finish_detail = serializers.CharField(
        read_only=True, help_text="The provider's own reason if `finish_reason` is `other`; empty otherwise."
    )
    context_notice = SentenceField(
        source="turn.context_notice", default=None, allow_null=True, help_text=CONTEXT_NOTICE
    )

    class Meta:
        model = Message
        fields: ClassVar = [
            "id", "conversation", "parent", "role", "text", "parts", "files", "mark", "model", "status",
            "finish_reason", "finish_detail", "error", "feedback", "feedback_reasons",
            "feedback_comment", "cost", "context_notice", "created",
        ]  # fmt: skip

    @extend_schema_field(
        serializers.ChoiceField(choices=MARKS, allow_null=True, help_text=("The mark of its whole turn."))
    )
    def get_mark(self, message: Message) -> str | None:
        return self._marks(message).by_message.get(message.pk)

    @extend_schema_field(AttachedSerializer(many=True))
    def get_files(self, message: Message) -> list[AttachedEntry]:
        """Return the files that were uploaded with the message."""
        marks = self._marks(message)
        return [
            {"id": each.file_id, "name": each.name, "mark": marks.of_file(message.pk, each.file_id)}
            for each in message.attachments.all()
        ]

    def _marks(self, message: Message) -> Marks:
        """Return the marks of the displayed branch. All messages of a response belong to one conversation."""
        context = cast("dict[str, Marks]", self.context)
        if "marks" not in context:
            context["marks"] = marks_on(message.conversation_id, message.conversation.leaf_id)
        return context["marks"]

    @extend_schema_field(ErrorSerializer(allow_null=True))
    def get_error(self, message: Message) -> dict[str, str] | None:
        return describe_error(message)


def describe_error(message: Message) -> dict[str, str] | None:
    """Return the error of an answer, None if it has none."""
    return {"code": message.error_code, "detail": str(message.error_detail)} if message.error_code else None


class UsageSerializer(serializers.Serializer[dict[str, int]]):
    input = serializers.IntegerField()
    output = serializers.IntegerField()
    cached_input = serializers.IntegerField()
    reasoning = serializers.IntegerField()
    calls = serializers.IntegerField(help_text="Number of model calls of this turn.")


class TurnSerializer(serializers.ModelSerializer[Turn]):
    message = serializers.UUIDField(source="answer_id", help_text="The answer's message.")
    text = serializers.CharField(source="answer.text")
    parts = PartSerializer(source="answer.separated_parts", many=True)
    error = serializers.SerializerMethodField()
    usage = serializers.SerializerMethodField()
    model = serializers.PrimaryKeyRelatedField[Model](read_only=True, help_text="The model that was requested.")
    answered_by = serializers.PrimaryKeyRelatedField[Model](
        source="answer.model",
        read_only=True,
        help_text=("The model that wrote the answer: `model` or one of its fallbacks."),
    )
    cost = MoneyField(help_text="The sum over all its model calls.")
    context_notice = SentenceField(help_text=CONTEXT_NOTICE)
    send_less = serializers.SerializerMethodField(help_text=SEND_LESS)

    class Meta:
        model = Turn
        fields: ClassVar = [
            "id", "conversation", "user_message", "message", "model", "answered_by", "fallback_reason",
            "finish_reason", "finish_detail", "effort", "slot", "status",
            "text", "parts", "usage", "cost", "error", "context_unread", "context_notice", "send_less",
            "created", "started", "finished",
        ]  # fmt: skip

    @extend_schema_field(ErrorSerializer(allow_null=True))
    def get_error(self, turn: Turn) -> dict[str, str] | None:
        return describe_error(turn.answer)

    def get_send_less(self, turn: Turn) -> bool:
        return offers_send_less(turn, turn.answer)

    @extend_schema_field(UsageSerializer(allow_null=True))
    def get_usage(self, turn: Turn) -> dict[str, int] | None:
        return turn.usage or None


class StartedTurns(TypedDict):
    """The turns that a request has started."""

    turns: Sequence[Turn]


class TurnsSerializer(serializers.Serializer[StartedTurns]):
    turns = TurnSerializer(many=True)


STARTED = {(202, "application/json"): TurnsSerializer, (200, EVENT_STREAM): OpenApiTypes.STR}


def starts_turns(
    body: type[BaseSerializer[Any]] | None = None, url_path: str | None = None
) -> Callable[[Callable[..., Sequence[Turn]]], Any]:
    """Make an action that starts turns. The response holds the turns, or streams the events of a single turn.

    The decorated method gets the row and, if there is a `body` serializer, the validated body.
    """

    def decorate(act: Callable[..., Sequence[Turn]]) -> Any:
        @extend_schema(request=body, responses=STARTED)
        @action(detail=True, methods=["post"], url_path=url_path, renderer_classes=JSON_OR_EVENTS)
        @wraps(act)
        def start(view: Any, request: Request, pk: str) -> HttpResponseBase:
            row = view.get_object()
            arguments = [validate(body, request)] if body else []
            if request.accepted_renderer.media_type != EVENT_STREAM:
                started: StartedTurns = {"turns": act(view, row, *arguments)}
                return Response(TurnsSerializer(started, context=view.get_serializer_context()).data, status=202)
            if any(len(each.get("models", ())) > 1 for each in arguments):
                raise ProductError("several_answers", ONE_MODEL_ONLY)
            require_connection_of_request(view.person.pk)
            return _stream_events(request, view.person, act(view, row, *arguments)[0])

        return start

    return decorate


def _stream_events(request: Request, person: User, turn: Turn) -> HttpResponseBase:
    """Return the event stream of a turn that the request has started."""
    lines = event_stream.stream_lines(turn, 0, get_language() or "")
    response = event_stream.stream_response(Credential.of(request._request, person), lines)
    response["Location"] = request.build_absolute_uri(reverse("turn-detail", args=[turn.pk]))
    return response


class KeepSerializer(ChosenModelsSerializer):
    effort = EffortField()
    text = serializers.CharField(
        max_length=1_000_000, trim_whitespace=False, allow_blank=True, help_text="May be empty if there are files."
    )
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)


class RegenerateSerializer(ChosenModelsSerializer):
    effort = EffortField()
    send_less = serializers.BooleanField(
        default=False, help_text="Use at most half of the last prompt's tokens, for this answer only."
    )


class AskSerializer(KeepSerializer):
    # Declared fields leave the class, so the name does not shadow the serializer's own `parent`.
    parent = serializers.UUIDField(required=False, allow_null=True, default=None)  # type: ignore[assignment]  # see above


class RewriteSerializer(StrictSerializer):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False)


class EditSerializer(StrictSerializer):
    text = serializers.CharField(
        max_length=1_000_000, trim_whitespace=False, allow_blank=True, help_text="May be empty if there are files."
    )
    files = serializers.ListField(
        child=serializers.UUIDField(),
        max_length=50,
        required=False,
        help_text=("Default: the files of the old question."),
    )


class FeedbackSerializer(StrictSerializer):
    feedback = serializers.ChoiceField(choices=["good", "bad", ""], help_text="Empty removes the rating.")
    reasons = serializers.ListField(
        child=serializers.ChoiceField(choices=list(REASON_LABELS)),
        max_length=len(REASON_LABELS),
        required=False,
        help_text="Why. Without it, the reasons of the same feedback stay.",
    )
    comment = serializers.CharField(
        max_length=MAX_COMMENT, allow_blank=True, required=False, help_text="For the administrators, who read it."
    )


class NextMessageSerializer(serializers.ModelSerializer[NextMessage]):
    files = serializers.ListField(child=serializers.UUIDField())
    models = serializers.ListField(child=serializers.UUIDField(), source="asked_models")
    problem = SentenceField(help_text="Why it could not be sent; empty while it waits.")

    class Meta:
        model = NextMessage
        fields: ClassVar = ["id", "conversation", "text", "files", "models", "problem", "created"]


class ConversationViewSet(ScopedView, viewsets.ModelViewSet[Conversation]):
    serializer_class = ConversationSerializer
    pagination_class = ByUpdate
    queryset = Conversation.objects.none()
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def get_queryset(self) -> QuerySet[Conversation]:
        if self.action != "list":
            return Conversation.objects.visible_to(self.request.user)
        query = self.request.GET.get("search")
        tag = self.request.GET.get("tag")
        origin = self.request.GET.get("origin")
        if origin not in (None, "", Conversation.Origin.API):
            raise ProductError("bad_filter", Sentence("“origin” is {api}, or left out.", api=Conversation.Origin.API))
        if origin:
            return Conversation.objects.visible_to(self.request.user).filter(origin=Conversation.Origin.API)
        rows = Conversation.objects.listed_for(self.request.user).prefetch_related("tags")
        if tag:
            rows = rows.filter(tags__in=Tag.objects.visible_to(self.request.user).filter(name__iexact=tag))
        return search.filter_conversations(rows, self.person, query) if query else rows

    @extend_schema(
        parameters=[
            OpenApiParameter("search", str, description="Words in the title or in a message."),
            OpenApiParameter("tag", str, description="Only conversations with this tag."),
            OpenApiParameter("origin", str, description="api: requests in OpenAI's protocol, which are not searched."),
        ]
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=None, responses=ConversationSerializer)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Restore a deleted conversation within 24 hours."""
        return Response(self.get_serializer(services.restore_conversation(user=self.person, pk=pk)).data)

    def perform_create(self, serializer: BaseSerializer[Conversation]) -> None:
        data = serializer.validated_data
        serializer.instance = services.create_conversation(
            user=self.person,
            title=data.get("title", ""),
            persona=data.get("persona"),
            project=data.get("project"),
            temporary=data.get("temporary", False),
        )
        if {"pinned", "tags"} & set(data):
            self.perform_update(serializer)

    def perform_update(self, serializer: BaseSerializer[Conversation]) -> None:
        conversation = serializer.instance or self.get_object()
        serializer.instance = services.update_conversation(
            user=self.person, conversation=conversation, fields=serializer.validated_data
        )

    def perform_destroy(self, instance: Conversation) -> None:
        services.delete_conversation(user=self.person, conversation=instance)

    @starts_turns(AskSerializer)
    def turns(self, conversation: Conversation, body: JsonObject) -> Sequence[Turn]:
        """Send a message. The answer is written in the background; `turns/{id}/events/` streams it."""
        ask = Ask(
            text=body["text"],
            files=body["files"],
            models=body["models"],
            effort=body["effort"],
            parent=body["parent"],
            key=read_key(self.request),
        )
        return send(user=self.person, conversation=conversation, ask=ask)

    @extend_schema(request=TurnDraftSerializer, responses=PlanSerializer)
    @action(detail=True, methods=["post"])
    def plan(self, request: Request, pk: str) -> Response:
        """Plan the next turn for a draft: the tokens that it uses, and the parts that are left out, with reasons."""
        body = validate(TurnDraftSerializer, request)
        draft = TurnDraft(body["text"], body["files"], body["effort"])
        scope = scope_of(self.get_object())
        [chosen] = body["models"] or [None]
        model = services.visible_model(self.person, chosen) or model_for(scope.persona, self.person)
        plan = plan_ahead(user=self.person, scope=scope, draft=draft, model=model, count=body["count"])
        readable = reports.readable(plan)
        found_offers = find_offers(user=self.person, scope=scope, draft=draft, model=model, plan=readable)
        return Response({**readable, "offers": found_offers})

    @extend_schema(request=AttachSerializer, responses={201: AttachedConversationSerializer})
    @action(detail=True, methods=["post"], url_path="as-file")
    def as_file(self, request: Request, pk: str) -> Response:
        """Make a file of this conversation, to send along with a message of another one.

        The file has the whole branch on show if the message may carry it. Otherwise it has the summary and the newer
        messages, or the messages that match the text of your message.
        """
        return attached_response(self.person, own_source(self.person, pk), validate(AttachSerializer, request))

    @extend_schema(responses=MessageSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=DeepestFirst, filter_backends=[])
    def messages(self, request: Request, pk: str) -> Response:
        """Return the messages of the current branch, newest first."""
        rows: QuerySet[Any] = branch_rows(self.get_object().leaf_id)
        page: Any = self.paginate_queryset(rows)
        return self.get_paginated_response(MessageSerializer(page, many=True).data)


class MessageViewSet(ScopedView, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet[Message]):
    serializer_class = MessageSerializer
    queryset = Message.objects.none()

    def get_queryset(self) -> QuerySet[Message]:
        return with_rows(Message.objects.visible_to(self.request.user)).select_related(
            "conversation__persona", "parent"
        )

    @extend_schema(request=MarkSerializer, responses=MessageSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Mark the message's whole turn on the current branch: pinned, left out, or neither."""
        message = self.get_object()
        marked = mark_turn(user=self.person, message=message, mark=validate(MarkSerializer, request)["mark"])
        return Response(self.get_serializer(marked).data)

    @extend_schema(
        request=MarkSerializer,
        responses=MessageSerializer,
        parameters=[OpenApiParameter("file", OpenApiTypes.UUID, OpenApiParameter.PATH)],
    )
    @action(detail=True, methods=["patch"], url_path="files/(?P<file>[^/.]+)")
    def files(self, request: Request, pk: str, file: str) -> Response:
        """Mark a file or picture of a question: left out, or `pinned`, which pins its whole turn. Null removes the
        mark.
        """
        message = self.get_object()
        body = validate(MarkSerializer, request)
        marked = mark_file(user=self.person, message=message, file=identifier(file, "file"), mark=body["mark"])
        return Response(self.get_serializer(marked).data)

    @starts_turns(RegenerateSerializer)
    def regenerate(self, message: Message, body: JsonObject) -> Sequence[Turn]:
        """Answer the question again. The new answer is a new branch next to the old answer."""
        return regenerate(
            user=self.person,
            message=message,
            models=body["models"],
            effort=body["effort"],
            send_less=body["send_less"],
            key=read_key(self.request),
        )

    @starts_turns(EditSerializer)
    def edit(self, message: Message, body: JsonObject) -> Sequence[Turn]:
        """Ask an edited question, as a new branch next to the old one. Without `files`, its files are used again."""
        return branches.edit_question(
            user=self.person,
            message=message,
            text=body["text"],
            files=body.get("files"),
            key=read_key(self.request),
        )

    @starts_turns(url_path="continue")
    def go_on(self, message: Message) -> Sequence[Turn]:
        """Continue an incomplete answer, in a follow-up turn."""
        return branches.continue_answer(user=self.person, message=message, key=read_key(self.request))

    @starts_turns()
    def shorten(self, message: Message) -> Sequence[Turn]:
        """Ask for a shorter version of an answer, in a follow-up turn."""
        return branches.shorten_answer(user=self.person, message=message, key=read_key(self.request))

    @post_action(MessageSerializer, RewriteSerializer, url_path="edit-answer")
    def edit_answer(self, message: Message, text: str) -> Message:
        """Store an edited version of an answer next to it. The conversation continues from this version."""
        return branches.edit_answer(user=self.person, message=message, text=text)

    @post_action(ConversationSerializer, status=201)
    def fork(self, message: Message) -> Conversation:
        """Copy the conversation, down to this message, into a new one."""
        return fork_conversation(user=self.person, message=message)

    @post_action(ConversationSerializer)
    def choose(self, message: Message) -> Conversation:
        """Show the branch of this message, down to its newest message."""
        return branches.choose_branch(user=self.person, message=message)

    @post_action(MessageSerializer, FeedbackSerializer)
    def feedback(
        self, message: Message, feedback: str, reasons: Sequence[str] | None = None, comment: str | None = None
    ) -> Message:
        """Rate an answer as good or bad, with reasons and a comment."""
        return give_feedback(user=self.person, message=message, feedback=feedback, reasons=reasons, comment=comment)

    @extend_schema(responses=MessageSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=DeepestFirst, filter_backends=[])
    def siblings(self, request: Request, pk: str) -> Response:
        """Return the versions of this question or answer, including itself, newest first."""
        page = self.paginate_queryset(sibling_rows(self.get_object())) or []
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    @extend_schema(request=None, responses=MessageSerializer)
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Restore a deleted message and the messages that were deleted with it, within 24 hours."""
        return Response(self.get_serializer(branches.restore_message(user=self.person, pk=pk)).data)

    def perform_destroy(self, instance: Message) -> None:
        """Delete the message and all messages below it."""
        branches.delete_message(user=self.person, message=instance)


class TurnViewSet(ScopedView, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Turn]):
    serializer_class = TurnSerializer
    queryset = Turn.objects.none()

    def get_queryset(self) -> QuerySet[Turn]:
        return Turn.objects.visible_to(self.request.user).select_related("answer", "conversation")

    @post_action(TurnSerializer, status=202)
    def stop(self, turn: Turn) -> Turn:
        """Stop the answer. The text so far is kept."""
        stop_turn(user=self.person, turn=turn)
        return turn

    @extend_schema(responses=ReportSerializer, parameters=[OpenApiParameter("call", OpenApiTypes.INT)])
    @action(detail=True)
    def report(self, request: Request, pk: str) -> Response:
        """Return the report of one model call of the turn (`call`, from 1; by default the last), and a list of the
        others.
        """
        turn = self.get_object()
        report = reports.of_turn(turn, reports.call_number(request.query_params.get("call")))
        if report is None:
            raise ProductError("no_report", "This turn has not called a model yet, so it has no report.", status=404)
        sources = [*report["sources"], *reports.summarised(turn)]
        members = {"sources": sources, "outgoing": reports.outgoing(turn)}
        proposed = [ProposedFactSerializer(fact).data for fact in reports.proposed(turn)]
        return Response({**reports.readable(report), **members, "proposed": proposed})


class NextMessageView(ScopedView):
    """The message that waits and is sent when the current answer is complete."""

    @extend_schema(responses=NextMessageSerializer)
    def get(self, request: Request, pk: str) -> Response:
        conversation = visible_conversation(self.person, pk)
        queued = NextMessage.objects.visible_to(self.person).filter(conversation=conversation).first()
        if queued is None:
            raise no_next_message_error()
        return Response(NextMessageSerializer(queued).data)

    @extend_schema(request=KeepSerializer, responses=NextMessageSerializer)
    def put(self, request: Request, pk: str) -> Response:
        """Store the message that waits, in place of any other. 409 `not_answering` if no answer is being written."""
        conversation = visible_conversation(self.person, pk)
        body = validate(KeepSerializer, request)
        ask = Ask(text=body["text"], files=body["files"], models=body["models"], effort=body["effort"])
        queued = queue(user=self.person, conversation=conversation, ask=ask, replace=True)
        return Response(NextMessageSerializer(queued).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: str) -> Response:
        remove_next(user=self.person, conversation=visible_conversation(self.person, pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


@csrf_exempt  # it only reads
@require_GET
async def turn_events(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """Stream the events of a turn. `Last-Event-ID` (or `?after_seq=`) resumes; comments keep a silent stream open."""
    refuse_unknown_query(request.GET, {"after_seq"})
    after = request.headers.get("Last-Event-ID") or request.GET.get("after_seq") or "0"
    if not (after.isascii() and after.isdigit() and len(after) < 10):
        raise ProductError("bad_sequence", "Last-Event-ID must be the `seq` of an event, a whole number from 0.")
    turn, credential = await sync_to_async(_get_turn_to_follow)(request, pk)
    require_connection(credential.person)
    return event_stream.stream_response(credential, event_stream.stream_lines(turn, int(after), get_language() or ""))


def _get_turn_to_follow(request: HttpRequest, pk: UUID) -> tuple[Turn, Credential]:
    """Return the turn with the credential of the request. Raises `not_found` and the errors of authentication."""
    try:
        user = user_of_request(request, "chat")
        return visible_turn(user, pk), Credential.of(request, user)
    finally:
        close_old_connections()  # otherwise the stream would hold this connection until its end
