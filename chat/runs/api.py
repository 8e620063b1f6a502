"""`/api/v1/runs/` and `tasks/<id>/runs/`: a model works through a checklist, for programs."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.permissions import ScopedView
from chat.conversations.services import visible_model, visible_persona
from chat.models import Run
from chat.runs import services
from chat.runs.serializers import AnswerSerializer, NewRunSerializer, RunSerializer
from core.lookups import identifier
from core.rest import pages
from projects.planner.queries import visible_task


class TaskRunsView(ScopedView):
    scope = "tasks"

    @extend_schema(request=NewRunSerializer, responses={202: RunSerializer})
    def post(self, request: Request, pk: str) -> Response:
        """Has a model draft the task's checklist, then do its items one after another."""
        body = NewRunSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        fields = body.validated_data
        made = services.create_run(
            user=self.person,
            task=visible_task(self.person, pk),
            persona=visible_persona(self.person, fields["persona"]),
            model=visible_model(fields["model"]),
            starts_itself=fields["start"],
        )
        return _accepted(made)


class RunViewSet(ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Run]):
    scope = "tasks"
    serializer_class = RunSerializer
    pagination_class = pages("-id", size=20, at_most=100)
    queryset = Run.objects.none()

    def get_queryset(self) -> QuerySet[Run]:
        related = ("item", "conversation__owner", "conversation__project", "conversation__persona__budget_profile")
        rows = Run.objects.visible_to(self.request.user).select_related(*related)
        task = self.request.query_params.get("task") if self.action == "list" else None
        return rows.filter(task=identifier(task, "task")) if task else rows

    @extend_schema(parameters=[OpenApiParameter("task", OpenApiTypes.UUID)])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Newest first."""
        return super().list(request, *args, **kwargs)

    @extend_schema(request=None, responses={202: RunSerializer})
    @action(detail=True, methods=["post"])
    def start(self, request: Request, pk: str) -> Response:
        """Accepts the drafted checklist as it is now, and begins with it."""
        return _accepted(services.start_run(user=self.person, run=self.get_object()))

    @extend_schema(request=None, responses={202: RunSerializer})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stops it, and the answer that is being written; what was written stays."""
        return _accepted(services.stop_run(user=self.person, run=self.get_object()))

    @extend_schema(request=AnswerSerializer, responses={202: RunSerializer})
    @action(detail=True, methods=["post"])
    def answer(self, request: Request, pk: str) -> Response:
        """Confirms the breakpoint it waits at, or tells it what it asked."""
        run, body = self.get_object(), AnswerSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return _accepted(services.answer_run(user=self.person, run=run, **body.validated_data))

    @extend_schema(request=None, responses={202: RunSerializer})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Goes on where it waits, failed or was stopped."""
        return _accepted(services.retry_run(user=self.person, run=self.get_object()))


def _accepted(run: Run) -> Response:
    return Response(RunSerializer(run).data, status=status.HTTP_202_ACCEPTED)
