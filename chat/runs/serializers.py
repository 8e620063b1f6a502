"""Runs as programs see them."""

from typing import Any, ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chat.models import Run, RunStep
from chat.runs.limits import profile_of, used
from llm.serializers import SentenceField
from personas.models import BudgetProfile


class NewRunSerializer(serializers.Serializer[dict[str, Any]]):
    persona = serializers.UUIDField(required=False, allow_null=True, default=None)
    model = serializers.UUIDField(required=False, allow_null=True, default=None)
    start = serializers.BooleanField(
        default=True, help_text="Begin the drafted checklist at once; false: wait for `runs/{id}/start/`."
    )  # fmt: skip


class AnswerSerializer(serializers.Serializer[dict[str, Any]]):
    text = serializers.CharField(
        max_length=1_000_000,
        trim_whitespace=False,
        allow_blank=True,
        default="",
        help_text="What it waits for; may be left out to confirm a breakpoint.",
    )


class RunStepSerializer(serializers.ModelSerializer[RunStep]):
    item = serializers.CharField(source="code", help_text="The item's code; empty for drafting the checklist.")
    message = serializers.SerializerMethodField(help_text="The answer's message.")

    class Meta:
        model = RunStep
        fields: ClassVar = ["number", "item", "attempt", "reminds", "status", "question", "turn", "message", "created"]
        read_only_fields: ClassVar = fields

    def get_message(self, step: RunStep) -> UUID | None:
        return step.turn.answer_id if step.turn else None


class UsedSerializer(serializers.Serializer[dict[str, Any]]):
    """How much of its caps a run has used."""

    steps = serializers.IntegerField()
    tokens = serializers.IntegerField()
    minutes = serializers.FloatField()


class RunSerializer(serializers.ModelSerializer[Run]):
    """`item`: the code of what it works on or waits at. `code` and `detail`: why it waits, failed or was stopped."""

    detail = SentenceField()
    item = serializers.CharField(source="item.code", default=None, allow_null=True)
    steps = serializers.SerializerMethodField()
    used = serializers.SerializerMethodField()
    caps = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields: ClassVar = [
            *("id", "task", "conversation", "model", "status", "item", "needs", "code", "detail", "steps", "used"),
            *("caps", "created", "started", "finished"),
        ]
        read_only_fields: ClassVar = fields

    @extend_schema_field(RunStepSerializer(many=True))
    def get_steps(self, run: Run) -> Any:
        return RunStepSerializer(run.steps.select_related("turn").order_by("number"), many=True).data

    @extend_schema_field(UsedSerializer)
    def get_used(self, run: Run) -> dict[str, Any]:
        return used(run)._asdict()

    @extend_schema_field(UsedSerializer)
    def get_caps(self, run: Run) -> dict[str, Any]:
        return caps_of(profile_of(run))


def caps_of(profile: BudgetProfile) -> dict[str, Any]:
    return {
        "steps": profile.run_max_steps,
        "tokens": profile.run_max_tokens,
        "minutes": float(profile.run_max_minutes),
    }
