"""`/api/v1/tasks/`: objectives, tasks and checklist items for programs."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from core.rest import Pages, pages, valid
from projects.models.task import Task, TaskChange, TaskQuerySet
from projects.planner import services
from projects.planner.queries import with_links, with_progress
from projects.planner.rules import Actor, DraftItem, NewTask
from projects.planner.serializers import (
    ChangeTaskSerializer,
    ChecklistSerializer,
    DraftChecklistSerializer,
    FilterSerializer,
    MoveSerializer,
    NewTaskSerializer,
    PlaceSerializer,
    TaskChangeSerializer,
    TaskSerializer,
)

# A list's parameters as what they ask of a row.
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
}


Latest = pages("-id")


class ByDate(Pages):
    ordering = ("date", "position", "code")
    # The cursor is a date and an offset in it; a New Year's Day can have every series of a year, a month and a day.
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
        """By date, then in the order that people gave them; `from` and `to` compare the first day of a period."""
        asked = valid(FilterSerializer, request, request.query_params)
        rows = self.get_queryset().filter(**{FILTERS[name]: value for name, value in asked.items() if value})
        page = self.paginate_queryset(rows) or []
        return self.get_paginated_response(self.get_serializer(with_progress(page), many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._shown(self.get_object())

    @extend_schema(request=NewTaskSerializer, responses={201: TaskSerializer})
    def create(self, request: Request) -> Response:
        """Adds an objective, a task or an item at the end of its list, under the next code."""
        new = NewTask(**valid(NewTaskSerializer, request))
        return self._shown(services.create(actor=self.actor, new=new), status.HTTP_201_CREATED)

    @extend_schema(request=ChangeTaskSerializer, responses=TaskSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        task, fields = self.get_object(), valid(ChangeTaskSerializer, request)
        return self._shown(services.update(actor=self.actor, task=task, fields=fields))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Deletes it with its checklist; tasks below it stay, and its code is not given again."""
        services.delete(actor=self.actor, task=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=MoveSerializer, responses={201: TaskSerializer})
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: str) -> Response:
        """Goes on with a day task on another day, under a new code; the old one stays and links to it."""
        task, day = self.get_object(), valid(MoveSerializer, request)["date"]
        return self._shown(services.move(actor=self.actor, task=task, day=day), status.HTTP_201_CREATED)

    @extend_schema(request=PlaceSerializer, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def order(self, request: Request, pk: str) -> Response:
        """Puts it behind another one of its list, or first."""
        task, after = self.get_object(), valid(PlaceSerializer, request)["after"]
        return self._shown(services.reorder(actor=self.actor, task=task, after=after))

    @extend_schema(request=DraftChecklistSerializer, responses={201: ChecklistSerializer})
    @action(detail=True, methods=["post"])
    def draft(self, request: Request, pk: str) -> Response:
        """Puts new items in the place of the unfinished ones of a day task's checklist."""
        task, body = self.get_object(), valid(DraftChecklistSerializer, request)
        items = [DraftItem(**item) for item in body["items"]]
        drafted = services.draft_checklist(actor=self.actor, task=task, items=items)
        return Response(ChecklistSerializer({"items": drafted}).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=TaskSerializer)
    @action(detail=True, methods=["post"])
    def clear(self, request: Request, pk: str) -> Response:
        """Lets work pass a breakpoint."""
        return self._shown(services.clear_breakpoint(actor=self.actor, task=self.get_object()))

    @extend_schema(responses=TaskChangeSerializer(many=True), filters=True)
    @action(detail=True, pagination_class=Latest, filter_backends=[])
    def changes(self, request: Request, pk: str) -> Response:
        """Who changed what of it and its checklist, newest first."""
        rows: QuerySet[TaskChange] = TaskChange.objects.of(self.get_object())
        paginator = Latest()
        page = paginator.paginate_queryset(rows, request, self)
        return paginator.get_paginated_response(TaskChangeSerializer(page or [], many=True).data)

    def _shown(self, task: Task, code: int = status.HTTP_200_OK) -> Response:
        return Response(self.get_serializer(with_progress([task])[0]).data, status=code)
