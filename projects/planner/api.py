"""`/api/v1/tasks/`: manage objectives, tasks and checklist items. All three levels have the same fields."""

from typing import Any, ClassVar, TypedDict, cast
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from core.api.fields import SentenceField, StrictSerializer, VisibleField, validate
from core.api.pagination import Pages, pages
from projects.models import Project
from projects.planner import services
from projects.planner.models import codes
from projects.planner.models.task import MAX_NEEDS, MAX_TITLE, Task, TaskChange, TaskProgress, TaskQuerySet
from projects.planner.queries import with_links, with_progress
from projects.planner.rules import MAX_NOTES, Actor, DraftItem, NewTask, TaskFields

SETTABLE = [(value, label) for value, label in Task.Status.choices if value != Task.Status.MOVED]
# Maps the parameters of a list to lookups.
FILTERS = {
    "code": "code",
    "level": "level__in",
    "horizon": "horizon",
    "date": "date",
    "from": "date__gte",
    "to": "date__lte",
    "status": "status__in",
    "project": "project_id",
    "parent": "parent_id",
    "proposed": "proposed",
}


class ProgressSerializer(serializers.Serializer[TaskProgress]):
    done = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Without dropped and moved items.")


@extend_schema_serializer(component_name="Draft")
class TaskDraftSerializer(serializers.Serializer[Task]):
    """The state of the draft of a checklist, as long as the task has no item.

    `due`: it starts as soon as possible. `begun`: `runs/?task=` has the run. `refused`: `code` and `detail` give the
    reason, and `tasks/{id}/runs/` tries again.
    """

    status = serializers.ChoiceField(source="draft", choices=Task.Draft.choices)
    code = serializers.CharField(source="draft_code")
    detail = SentenceField(source="draft_detail")


class TaskSerializer(serializers.ModelSerializer[Task]):
    """A task. `code` is the id for mentions with @. `position` is its index in its list, from 0."""

    archetype = serializers.ChoiceField(
        choices=Task.Archetype.choices, allow_blank=True, read_only=True, help_text="Only for tasks."
    )
    progress = ProgressSerializer(read_only=True, allow_null=True)
    made_by = serializers.CharField(
        source="model", read_only=True, help_text="The name of the model that created it; empty for people."
    )
    proposed = serializers.BooleanField(
        read_only=True,
        help_text=(
            "A model created it and nobody has accepted it, so no prompt contains it. See `accept/` and `decline/`."
        ),
    )
    moved_from = serializers.SerializerMethodField()
    draft = serializers.SerializerMethodField()

    class Meta:
        model = Task
        fields: ClassVar = [
            "id", "code", "level", "horizon", "date", "title", "notes", "archetype", "status", "breakpoint", "needs",
            "cleared", "parent", "project", "position", "moved_from", "moved_to", "progress",
            "draft", "made_by", "proposed", "created", "updated", "finished",
        ]  # fmt: skip
        read_only_fields: ClassVar = fields

    def get_moved_from(self, task: Task) -> UUID | None:
        return task.moved_from.pk if hasattr(task, "moved_from") else None

    @extend_schema_field(TaskDraftSerializer(allow_null=True))
    def get_draft(self, task: Task) -> Any:
        return TaskDraftSerializer(task).data if task.draft else None


class NewTaskSerializer(StrictSerializer):
    title = serializers.CharField(max_length=MAX_TITLE)
    level = serializers.ChoiceField(choices=Task.Level.choices)
    horizon = serializers.ChoiceField(choices=Task.Horizon.choices, default=Task.Horizon.DAY)
    date = serializers.DateField(
        required=False,
        allow_null=True,
        help_text="Any day of the year or month; default: today in your time zone. An item has the day of its task.",
    )
    archetype = serializers.ChoiceField(
        choices=Task.Archetype.choices, required=False, allow_blank=True, help_text="For tasks; default: user."
    )
    # The metaclass removes declared fields, so the name does not shadow the serializer's own `parent`.
    parent = VisibleField(Task, required=False, allow_null=True)  # type: ignore[assignment]  # see above
    breakpoint = serializers.BooleanField(
        required=False, help_text="For items: the model stops before this item until you clear the breakpoint."
    )
    needs = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_NEEDS,
        help_text="What a model needs from you there.",
    )
    notes = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NOTES)
    project = VisibleField(Project, required=False, allow_null=True)
    draft = serializers.BooleanField(
        default=True, help_text="For a model or hybrid task of a day: a model drafts its checklist."
    )


class ChangeTaskSerializer(StrictSerializer):
    title = serializers.CharField(required=False, max_length=MAX_TITLE)
    notes = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NOTES)
    archetype = serializers.ChoiceField(required=False, choices=Task.Archetype.choices)
    status = serializers.ChoiceField(required=False, choices=SETTABLE)
    parent = VisibleField(Task, required=False, allow_null=True)  # type: ignore[assignment]  # as above
    breakpoint = serializers.BooleanField(required=False)
    needs = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NEEDS)
    project = VisibleField(Project, required=False, allow_null=True)


class FilterSerializer(serializers.Serializer[None]):
    """Filters of a list. `status` and `level` may be repeated."""

    code = serializers.CharField(required=False, help_text="Only the task with this code.")
    level = serializers.MultipleChoiceField(required=False, choices=Task.Level.choices)
    horizon = serializers.ChoiceField(required=False, choices=Task.Horizon.choices)
    date = serializers.DateField(required=False, help_text="The day, or the first day of the year or month.")
    to = serializers.DateField(required=False, help_text="Up to and including this date.")
    status = serializers.MultipleChoiceField(required=False, choices=Task.Status.choices)
    project = serializers.UUIDField(required=False)
    parent = serializers.UUIDField(required=False)  # type: ignore[assignment]  # as above
    proposed = serializers.BooleanField(
        required=False, allow_null=True, help_text="true: only proposals of models; false: only accepted tasks."
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        since = serializers.DateField(required=False, help_text="From this date on.")
        return {**super().get_fields(), "from": since}  # `from` is a keyword, so it cannot be declared in the class

    def validate_code(self, value: str) -> str:
        if not codes.is_code(value):
            raise serializers.ValidationError(gettext("This is not a code such as D2026-11-21-T02."))
        return value


class MoveSerializer(StrictSerializer):
    date = serializers.DateField()


class PlaceSerializer(StrictSerializer):
    after = VisibleField(Task, allow_null=True, help_text="The task to put it after, or null for the first place.")


class DraftItemSerializer(StrictSerializer):
    title = serializers.CharField(max_length=MAX_TITLE)
    breakpoint = serializers.BooleanField(default=False)
    needs = serializers.CharField(default="", allow_blank=True, max_length=MAX_NEEDS)


class DraftChecklistSerializer(StrictSerializer):
    items = serializers.ListField(child=DraftItemSerializer(), allow_empty=False, max_length=codes.MAX_NUMBER)


class DraftedChecklist(TypedDict):
    items: list[Task]


class ChecklistSerializer(serializers.Serializer[DraftedChecklist]):
    items = TaskSerializer(many=True)


class TaskChangeSerializer(serializers.ModelSerializer[TaskChange]):
    """One change of a field, with both values as text. `field` may also be "created" or "deleted". `model` is empty
    for changes by people.
    """

    class Meta:
        model = TaskChange
        fields: ClassVar = ["code", "field", "before", "after", "user", "model", "created"]
        read_only_fields: ClassVar = fields


class ByDate(Pages):
    ordering = ("date", "position", "code")
    # The cursor is a date and an offset. The offset may be large: January 1 has the rows of a year, a month and a day.
    offset_cutoff = 20_000


class TaskViewSet(ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Task]):
    scope = "tasks"
    serializer_class = TaskSerializer
    pagination_class = ByDate
    queryset = Task.objects.none()

    @property
    def actor(self) -> Actor:
        return Actor(self.person)

    def get_queryset(self) -> TaskQuerySet:
        return with_links(Task.objects.visible_to(self.request.user))

    @extend_schema(parameters=[FilterSerializer])
    def list(self, request: Request) -> Response:
        """Return tasks by date, then in the order that people chose. `from` and `to` compare the first day of a
        period.
        """
        query = validate(FilterSerializer, request, request.query_params)
        lookups = [(FILTERS[name], value) for name, value in query.items() if value or value is False]
        rows = self.get_queryset().filter(Q(*lookups))
        page = self.paginate_queryset(rows) or []
        return self.get_paginated_response(self.get_serializer(with_progress(page), many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._respond(self.get_object())

    @extend_schema(request=NewTaskSerializer, responses={201: TaskSerializer})
    def create(self, request: Request) -> Response:
        """Create an objective, a task or an item at the end of its list, with the next code."""
        new = NewTask(**validate(NewTaskSerializer, request))
        return self._respond(services.create(actor=self.actor, new=new), status.HTTP_201_CREATED)

    @extend_schema(request=ChangeTaskSerializer, responses=TaskSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        task = self.get_object()
        fields = cast("TaskFields", validate(ChangeTaskSerializer, request))
        return self._respond(services.update(actor=self.actor, task=task, fields=fields))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the task and its checklist. Other tasks below it stay. Its code is not used again."""
        services.delete(actor=self.actor, task=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=MoveSerializer, responses={201: TaskSerializer})
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: str) -> Response:
        """Continue a day task on another day, with a new code. The old task stays and links to the new one."""
        task = self.get_object()
        day = validate(MoveSerializer, request)["date"]
        return self._respond(services.move(actor=self.actor, task=task, day=day), status.HTTP_201_CREATED)

    @extend_schema(request=PlaceSerializer, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def order(self, request: Request, pk: str) -> Response:
        """Move the task behind another task of its list, or to the first place."""
        task = self.get_object()
        after = validate(PlaceSerializer, request)["after"]
        return self._respond(services.reorder(actor=self.actor, task=task, after=after))

    @extend_schema(request=DraftChecklistSerializer, responses={201: ChecklistSerializer})
    @action(detail=True, methods=["post"])
    def draft(self, request: Request, pk: str) -> Response:
        """Replace the unfinished items of a day task's checklist with new ones."""
        task = self.get_object()
        body = validate(DraftChecklistSerializer, request)
        items = [DraftItem(item["title"], item["breakpoint"], item["needs"]) for item in body["items"]]
        drafted = services.draft_checklist(actor=self.actor, task=task, items=items)
        return Response(ChecklistSerializer({"items": drafted}).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, pk: str) -> Response:
        """Accept a task that a model proposed, with its current checklist. Prompts contain it only after this."""
        return self._respond(services.accept(actor=self.actor, task=self.get_object()))

    @extend_schema(request=None, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: str) -> Response:
        """Decline a task that a model proposed. No prompt contains it."""
        return self._respond(services.decline(actor=self.actor, task=self.get_object()))

    @extend_schema(request=None, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def clear(self, request: Request, pk: str) -> Response:
        """Clear a breakpoint, so that work continues."""
        return self._respond(services.clear_breakpoint(actor=self.actor, task=self.get_object()))

    @extend_schema(responses=TaskChangeSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=pages("-id"), filter_backends=[])
    def changes(self, request: Request, pk: str) -> Response:
        """Return the changes of the task and its checklist, newest first."""
        rows: QuerySet[Any] = TaskChange.objects.of(self.get_object())
        page: Any = self.paginate_queryset(rows)
        return self.get_paginated_response(TaskChangeSerializer(page, many=True).data)

    def _respond(self, task: Task, code: int = status.HTTP_200_OK) -> Response:
        return Response(self.get_serializer(with_progress([task])[0]).data, status=code)
