"""Rows as programs see them."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chat.models import Conversation, Message, Turn
from personas.models import Persona


class VisiblePersonaField(serializers.PrimaryKeyRelatedField[Persona]):
    def get_queryset(self) -> QuerySet[Persona]:
        return Persona.objects.visible_to(self.context["request"].user)


class ConversationSerializer(serializers.ModelSerializer[Conversation]):
    persona = VisiblePersonaField(required=False, allow_null=True)

    class Meta:
        model = Conversation
        fields: ClassVar = ["id", "title", "persona", "leaf", "state", "archived", "created", "updated"]
        read_only_fields: ClassVar = ["leaf", "state", "created", "updated"]


class PartSerializer(serializers.Serializer[dict[str, Any]]):
    type = serializers.ChoiceField(choices=["text", "reasoning", "tool_call", "tool_result", "file"])
    text = serializers.CharField(required=False)
    id = serializers.CharField(required=False)
    name = serializers.CharField(required=False)
    arguments = serializers.CharField(required=False)
    error = serializers.BooleanField(required=False)

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        return instance


class ErrorSerializer(serializers.Serializer[dict[str, str]]):
    code = serializers.CharField()
    detail = serializers.CharField()


class MessageSerializer(serializers.ModelSerializer[Message]):
    parts = PartSerializer(many=True)
    text = serializers.CharField(read_only=True)
    error = serializers.SerializerMethodField()

    class Meta:
        model = Message
        fields: ClassVar = [
            "id", "conversation", "parent", "role", "text", "parts", "model", "status", "error", "feedback", "created"
        ]  # fmt: skip

    @extend_schema_field(ErrorSerializer(allow_null=True))
    def get_error(self, message: Message) -> dict[str, str] | None:
        return error_of(message)


def error_of(message: Message) -> dict[str, str] | None:
    return {"code": message.error_code, "detail": message.error_detail} if message.error_code else None


class UsageSerializer(serializers.Serializer[dict[str, int]]):
    input = serializers.IntegerField()
    output = serializers.IntegerField()
    cached_input = serializers.IntegerField()
    reasoning = serializers.IntegerField()
    calls = serializers.IntegerField(help_text="Model calls of this turn.")


class TurnSerializer(serializers.ModelSerializer[Turn]):
    message = serializers.UUIDField(source="answer_id", help_text="The answer's message.")
    text = serializers.CharField(source="answer.text")
    parts = PartSerializer(source="answer.parts", many=True)
    error = serializers.SerializerMethodField()
    usage = serializers.SerializerMethodField()

    class Meta:
        model = Turn
        fields: ClassVar = [
            "id", "conversation", "user_message", "message", "model", "slot", "status",
            "text", "parts", "usage", "error", "created", "started", "finished",
        ]  # fmt: skip

    @extend_schema_field(ErrorSerializer(allow_null=True))
    def get_error(self, turn: Turn) -> dict[str, str] | None:
        return error_of(turn.answer)

    @extend_schema_field(UsageSerializer(allow_null=True))
    def get_usage(self, turn: Turn) -> dict[str, int] | None:
        return turn.usage or None


class TurnsSerializer(serializers.Serializer[dict[str, Any]]):
    turns = TurnSerializer(many=True)


class AskSerializer(serializers.Serializer[dict[str, Any]]):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False)
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)
    # Declared fields leave the class, so the name does not shadow the serializer's own `parent`.
    parent = serializers.UUIDField(required=False, allow_null=True, default=None)  # type: ignore[assignment]


class RegenerateSerializer(serializers.Serializer[dict[str, Any]]):
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)
