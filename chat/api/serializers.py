"""Rows as programs see them."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chat.models import Conversation, Message, Turn
from core.i18n import translated
from personas.models import Persona
from projects.models import Project


class VisiblePersonaField(serializers.PrimaryKeyRelatedField[Persona]):
    def get_queryset(self) -> QuerySet[Persona]:
        return Persona.objects.visible_to(self.context["request"].user)


class VisibleProjectField(serializers.PrimaryKeyRelatedField[Project]):
    def get_queryset(self) -> QuerySet[Project]:
        return Project.objects.visible_to(self.context["request"].user)


class ConversationSerializer(serializers.ModelSerializer[Conversation]):
    persona = VisiblePersonaField(required=False, allow_null=True)
    project = VisibleProjectField(required=False, allow_null=True)

    class Meta:
        model = Conversation
        fields: ClassVar = [
            *("id", "title", "persona", "project", "leaf", "state", "automatic_summaries", "archived", "origin"),
            *("created", "updated"),
        ]
        read_only_fields: ClassVar = ["leaf", "state", "automatic_summaries", "origin", "created", "updated"]


class PartSerializer(serializers.Serializer[dict[str, Any]]):
    type = serializers.ChoiceField(choices=["text", "reasoning", "tool_call", "tool_result", "file"])
    text = serializers.CharField(required=False)
    id = serializers.CharField(required=False)
    name = serializers.CharField(required=False)
    arguments = serializers.CharField(required=False)
    approval = serializers.ChoiceField(
        choices=["waiting", "allowed", "refused", "timed_out"],
        required=False,
        help_text="Of a call that its person has to allow.",
    )
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
    return {"code": message.error_code, "detail": translated(message.error_detail)} if message.error_code else None


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
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)
    # Declared fields leave the class, so the name does not shadow the serializer's own `parent`.
    parent = serializers.UUIDField(required=False, allow_null=True, default=None)  # type: ignore[assignment]  # see above


class DraftSerializer(serializers.Serializer[dict[str, Any]]):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False, allow_blank=True, default="")
    files = serializers.ListField(child=serializers.UUIDField(), max_length=50, default=list)
    model = serializers.UUIDField(required=False, allow_null=True, default=None)


class SourceSerializer(serializers.Serializer[dict[str, Any]]):
    kind = serializers.CharField(help_text="message, file, project_file, image, or a section's name")
    id = serializers.CharField(allow_null=True)
    title = serializers.CharField()
    tokens = serializers.IntegerField(required=False)
    state = serializers.ChoiceField(choices=["full", "shortened", "stubbed", "by_search", "left_out"])
    reason = serializers.CharField(allow_null=True)
    cut_from = serializers.IntegerField(required=False)
    exact = serializers.BooleanField()


class PromptMessageSerializer(serializers.Serializer[dict[str, Any]]):
    section = serializers.CharField()
    # As with `parent` below, the declared field leaves the class.
    source = serializers.CharField(allow_null=True)  # type: ignore[assignment]  # see above
    role = serializers.CharField()
    tokens = serializers.IntegerField()
    state = serializers.CharField()
    text = serializers.CharField(allow_null=True)


class CallSerializer(serializers.Serializer[dict[str, Any]]):
    cycle = serializers.IntegerField()
    model = serializers.CharField()
    limit = serializers.IntegerField()
    used = serializers.IntegerField()
    refused = serializers.CharField(help_text="What the provider said to a longer prompt before this one.")


class CoveredSerializer(serializers.Serializer[dict[str, Any]]):
    """The summary in a prompt, and what it stands for."""

    id = serializers.UUIDField()
    messages = serializers.IntegerField(help_text="How many messages it stands for.")
    first = serializers.UUIDField()
    last = serializers.UUIDField()
    span_start = serializers.DateTimeField()
    span_end = serializers.DateTimeField()
    tokens_before = serializers.IntegerField(help_text="Tokens of those messages.")


class ReportSerializer(CallSerializer):
    """What the model saw in one call; all numbers in tokens."""

    window = serializers.IntegerField()
    reserved_output = serializers.IntegerField()
    buffer = serializers.IntegerField()
    margin = serializers.FloatField()
    tools_tokens = serializers.IntegerField(
        help_text="What the definitions of the tools, and the schema of an answer in JSON, take beside the messages."
    )
    tools = serializers.ListField(child=serializers.CharField(), help_text="The names of the tools it could call.")
    policy = serializers.CharField()
    layout = serializers.CharField()
    profile = serializers.CharField()
    left = serializers.IntegerField()
    exact = serializers.BooleanField()
    sections = serializers.DictField(child=serializers.IntegerField())
    dropped = serializers.ListField(child=serializers.CharField())
    unloaded = serializers.IntegerField(help_text="Older messages that were not even read, since there was no room.")
    sources = SourceSerializer(many=True)
    versions = serializers.DictField(child=serializers.CharField())
    summary = CoveredSerializer(allow_null=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text="What should have been there and was not.")
    messages = PromptMessageSerializer(many=True)
    calls = CallSerializer(many=True, required=False)


class BudgetSerializer(serializers.Serializer[Any]):
    available = serializers.IntegerField()
    offered = serializers.IntegerField()
    selectable_up_to = serializers.IntegerField()


class SelectionSerializer(BudgetSerializer):
    selected = serializers.IntegerField(allow_null=True, help_text="Tokens of the draft's files; null while unknown.")


class PlanErrorSerializer(ErrorSerializer):
    sections = serializers.DictField(child=serializers.IntegerField(), required=False)


class PlanSerializer(ReportSerializer):
    """Of a draft that does not fit there is only `fits`, `limit`, `error` and `documents`."""

    fits = serializers.BooleanField()
    documents = SelectionSerializer()
    error = PlanErrorSerializer(allow_null=True)


class EditSerializer(serializers.Serializer[dict[str, Any]]):
    text = serializers.CharField(max_length=1_000_000, trim_whitespace=False)
    files = serializers.ListField(
        child=serializers.UUIDField(), max_length=50, required=False, help_text="Without it the old question's files."
    )


class FeedbackSerializer(serializers.Serializer[dict[str, Any]]):
    feedback = serializers.ChoiceField(choices=["good", "bad", ""], help_text="Empty takes it back.")


class RegenerateSerializer(serializers.Serializer[dict[str, Any]]):
    models = serializers.ListField(child=serializers.UUIDField(), max_length=3, default=list)
