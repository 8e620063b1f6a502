"""Objectives, tasks and checklist items as programs see them: one shape for the three levels."""

from typing import Any, ClassVar
from uuid import UUID

from rest_framework import serializers

from core.rest import VisibleField
from projects.models import Project, codes
from projects.models.task import MAX_NEEDS, MAX_TITLE, Task, TaskChange
from projects.planner.rules import MAX_NOTES

SETTABLE = [(value, label) for value, label in Task.Status.choices if value != Task.Status.MOVED]


class ProgressSerializer(serializers.Serializer[Any]):
    done = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Without what was dropped or moved.")


class TaskSerializer(serializers.ModelSerializer[Task]):
    """`code` is the ID that people mention with @. `position` is its place from 0 among those of its list."""

    archetype = serializers.ChoiceField(
        choices=Task.Archetype.choices, allow_blank=True, read_only=True, help_text="Of tasks only."
    )
    progress = ProgressSerializer(read_only=True, allow_null=True)
    moved_from = serializers.SerializerMethodField()

    class Meta:
        model = Task
        fields: ClassVar = [
            "id", "code", "level", "horizon", "date", "title", "notes", "archetype", "status", "breakpoint", "needs",
            "cleared", "parent", "project", "position", "moved_from", "moved_to", "progress",
            "created", "updated", "finished",
        ]  # fmt: skip
        read_only_fields: ClassVar = fields

    def get_moved_from(self, task: Task) -> UUID | None:
        return task.moved_from.pk if hasattr(task, "moved_from") else None


class NewTaskSerializer(serializers.Serializer[dict[str, Any]]):
    title = serializers.CharField(max_length=MAX_TITLE)
    level = serializers.ChoiceField(choices=Task.Level.choices)
    horizon = serializers.ChoiceField(choices=Task.Horizon.choices, default=Task.Horizon.DAY)
    date = serializers.DateField(
        required=False,
        allow_null=True,
        help_text="Any day of the year or month; your today without it. An item is of the day of its task.",
    )
    archetype = serializers.ChoiceField(
        choices=Task.Archetype.choices, required=False, allow_blank=True, help_text="Of tasks; user without it."
    )
    # Declared fields leave the class, so the name does not shadow the serializer's own `parent`.
    parent = VisibleField(Task, required=False, allow_null=True)  # type: ignore[assignment]  # see above
    breakpoint = serializers.BooleanField(
        required=False, help_text="Of items: work by a model stops here until you clear it."
    )
    needs = serializers.CharField(
        required=False, allow_blank=True, max_length=MAX_NEEDS, help_text="What the breakpoint needs from you."
    )
    notes = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NOTES)
    project = VisibleField(Project, required=False, allow_null=True)


class ChangeTaskSerializer(serializers.Serializer[dict[str, Any]]):
    title = serializers.CharField(required=False, max_length=MAX_TITLE)
    notes = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NOTES)
    archetype = serializers.ChoiceField(required=False, choices=Task.Archetype.choices)
    status = serializers.ChoiceField(required=False, choices=SETTABLE)
    parent = VisibleField(Task, required=False, allow_null=True)  # type: ignore[assignment]  # as above
    breakpoint = serializers.BooleanField(required=False)
    needs = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NEEDS)
    project = VisibleField(Project, required=False, allow_null=True)


class FilterSerializer(serializers.Serializer[dict[str, Any]]):
    """What narrows a list. `status` and `level` may be given several times."""

    code = serializers.CharField(required=False, help_text="Finds one by its code.")
    level = serializers.MultipleChoiceField(required=False, choices=Task.Level.choices)
    horizon = serializers.ChoiceField(required=False, choices=Task.Horizon.choices)
    date = serializers.DateField(required=False, help_text="The day, or the first day of the year or month.")
    to = serializers.DateField(required=False, help_text="Up to this date, itself included.")
    status = serializers.MultipleChoiceField(required=False, choices=Task.Status.choices)
    project = serializers.UUIDField(required=False)
    parent = serializers.UUIDField(required=False)  # type: ignore[assignment]  # as above

    def get_fields(self) -> dict[str, Any]:
        since = serializers.DateField(required=False, help_text="From this date on.")
        return {**super().get_fields(), "from": since}  # the name is a keyword, so no attribute can have it

    def validate_code(self, value: str) -> str:
        if not codes.is_code(value):
            raise serializers.ValidationError("This is not a code such as D2026-11-21-T02.")
        return value


class MoveSerializer(serializers.Serializer[dict[str, Any]]):
    date = serializers.DateField()


class PlaceSerializer(serializers.Serializer[dict[str, Any]]):
    after = VisibleField(Task, allow_null=True, help_text="The one to stand behind, or null to be the first.")


class DraftItemSerializer(serializers.Serializer[dict[str, Any]]):
    title = serializers.CharField(max_length=MAX_TITLE)
    breakpoint = serializers.BooleanField(default=False)
    needs = serializers.CharField(default="", allow_blank=True, max_length=MAX_NEEDS)


class DraftChecklistSerializer(serializers.Serializer[dict[str, Any]]):
    items = serializers.ListField(child=DraftItemSerializer(), allow_empty=False, max_length=codes.MAX_NUMBER)


class ChecklistSerializer(serializers.Serializer[dict[str, Any]]):
    items = TaskSerializer(many=True)


class TaskChangeSerializer(serializers.ModelSerializer[TaskChange]):
    """One field before and after, as text; `field` is also "created" or "deleted". `model` is empty for people."""

    class Meta:
        model = TaskChange
        fields: ClassVar = ["code", "field", "before", "after", "user", "model", "created"]
        read_only_fields: ClassVar = fields
