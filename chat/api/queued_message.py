"""`/api/v1/`: the message that waits for the answer, and calls that wait for their person."""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from chat.api.serializers import TurnSerializer
from chat.models import NextMessage
from chat.models.conversation_state import visible_conversation, visible_turn
from chat.sending.queued_message import no_next, queue, remove_next
from chat.turns.services import decide_call
from chat.turns.submit import Ask
from llm.serializers import SentenceField


class ApprovalSerializer(serializers.Serializer[dict[str, Any]]):
    call = serializers.CharField(max_length=1_000, help_text="The id of the tool call.")
    allow = serializers.BooleanField()


class KeepSerializer(serializers.Serializer[dict[str, Any]]):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False)
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)


class NextMessageSerializer(serializers.ModelSerializer[NextMessage]):
    files = serializers.ListField(child=serializers.UUIDField())
    models = serializers.ListField(child=serializers.UUIDField(), source="asked_models")
    problem = SentenceField(help_text="Why it could not be sent; empty while it waits.")

    class Meta:
        model = NextMessage
        fields: ClassVar = ["id", "conversation", "text", "files", "models", "problem", "created"]


class ApprovalView(ScopedView):
    @extend_schema(request=ApprovalSerializer, responses={202: TurnSerializer})
    def post(self, request: Request, pk: str) -> Response:
        """Allows or refuses a tool call that waits for it (`approval` of its part is “waiting”)."""
        turn, body = visible_turn(self.person, pk), ApprovalSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        decide_call(user=self.person, turn=turn, **body.validated_data)
        return Response(TurnSerializer(turn).data, status=status.HTTP_202_ACCEPTED)


class NextMessageView(ScopedView):
    """The message that is sent when the present answer is complete."""

    @extend_schema(responses=NextMessageSerializer)
    def get(self, request: Request, pk: str) -> Response:
        conversation = visible_conversation(self.person, pk)
        kept = NextMessage.objects.visible_to(self.person).filter(conversation=conversation).first()
        if kept is None:
            raise no_next()
        return Response(NextMessageSerializer(kept).data)

    @extend_schema(request=KeepSerializer, responses=NextMessageSerializer)
    def put(self, request: Request, pk: str) -> Response:
        """Keeps a message in place of any other; 409 `not_answering` when there is no answer to wait for."""
        conversation, body = visible_conversation(self.person, pk), KeepSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        ask = Ask(**body.validated_data)
        kept = queue(user=self.person, conversation=conversation, ask=ask, replace=True)
        return Response(NextMessageSerializer(kept).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: str) -> Response:
        remove_next(user=self.person, conversation=visible_conversation(self.person, pk))
        return Response(status=status.HTTP_204_NO_CONTENT)
