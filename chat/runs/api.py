"""`/api/v1/runs/` and `tasks/<id>/runs/`: runs, in which a model works through a checklist, for programs."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from chat.conversations.services import visible_model, visible_persona
from chat.runs import services
from chat.runs.limits import RunUsage, compute_usage, get_profile
from core.api.actions import post_action
from core.api.fields import SentenceField, StrictSerializer, validate
from core.api.pagination import pages
from core.requests import identifier
from projects.planner.models import Run, RunStep
from projects.planner.queries import visible_task


class NewRunSerializer(StrictSerializer):
    persona = serializers.UUIDField(required=False, allow_null=True, default=None)
    model = serializers.UUIDField(required=False, allow_null=True, default=None)
    start = serializers.BooleanField(
        default=True, help_text="Start the drafted checklist at once; false: wait for `runs/{id}/start/`."
    )  # fmt: skip


class AnswerSerializer(StrictSerializer):
    text = serializers.CharField(
        max_length=1_000_000,
        trim_whitespace=False,
        allow_blank=True,
        default="",
        help_text="The answer to its question. Omit it to confirm a breakpoint.",
    )


class RunStepSerializer(serializers.ModelSerializer[RunStep]):
    item = serializers.CharField(source="code", help_text="The item's code; empty while the checklist is drafted.")
    message = serializers.UUIDField(
        source="turn.answer_id", read_only=True, allow_null=True, help_text="The answer's message."
    )

    class Meta:
        model = RunStep
        fields: ClassVar = ["number", "item", "attempt", "reminds", "status", "question", "turn", "message", "created"]
        read_only_fields: ClassVar = fields


class UsedSerializer(serializers.Serializer[RunUsage]):
    """The amounts of its limits that a run has used."""

    steps = serializers.IntegerField()
    tokens = serializers.IntegerField()
    minutes = serializers.FloatField()


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run. `item`: the code of the current item. `code` and `detail`: why it waits, failed or was stopped.

    `unasked`: the server started it to draft the checklist. `tasks/{id}/runs/` takes it over.
    """

    detail = SentenceField()
    item = serializers.CharField(source="item.code", default=None, allow_null=True)
    steps = serializers.SerializerMethodField()
    used = serializers.SerializerMethodField()
    caps = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields: ClassVar = [
            *("id", "task", "conversation", "model", "status", "item", "needs", "code", "detail", "steps", "used"),
            *("caps", "unasked", "created", "started", "finished"),
        ]
        read_only_fields: ClassVar = fields

    @extend_schema_field(RunStepSerializer(many=True))
    def get_steps(self, run: Run) -> Any:
        return RunStepSerializer(run.steps.select_related("turn").order_by("number"), many=True).data

    @extend_schema_field(UsedSerializer)
    def get_used(self, run: Run) -> dict[str, float]:
        return compute_usage(run)._asdict()

    @extend_schema_field(UsedSerializer)
    def get_caps(self, run: Run) -> dict[str, float]:
        caps = get_profile(run)
        return RunUsage(caps.run_max_steps, caps.run_max_tokens, float(caps.run_max_minutes))._asdict()


class TaskRunsView(ScopedView):
    scope = "tasks"

    @extend_schema(request=NewRunSerializer, responses={202: RunSerializer})
    def post(self, request: Request, pk: str) -> Response:
        """Start a run: a model drafts the task's checklist and then does its items in order.

        If the server has already started a draft, the run continues it.
        """
        fields = validate(NewRunSerializer, request)
        run = services.create_run(
            user=self.person,
            task=visible_task(self.person, pk),
            persona=visible_persona(self.person, fields["persona"]),
            model=visible_model(self.person, fields["model"]),
            starts_itself=fields["start"],
        )
        return Response(RunSerializer(run).data, status=status.HTTP_202_ACCEPTED)


class RunViewSet(ScopedView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Run]):
    scope = "tasks"
    serializer_class = RunSerializer
    pagination_class = pages("-id", size=20, at_most=100)
    queryset = Run.objects.none()

    def get_queryset(self) -> QuerySet[Run]:
        rows = services.list_runs(self.person)
        task = self.request.query_params.get("task") if self.action == "list" else None
        return rows.filter(task=identifier(task, "task")) if task else rows

    @extend_schema(parameters=[OpenApiParameter("task", OpenApiTypes.UUID)])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the runs, newest first."""
        return super().list(request, *args, **kwargs)

    @post_action(RunSerializer, status=202)
    def start(self, run: Run) -> Run:
        """Accept the drafted checklist in its current form, and start with its items."""
        return services.start_run(user=self.person, run=run)

    @post_action(RunSerializer, status=202)
    def stop(self, run: Run) -> Run:
        """Stop the run and its current answer. The text so far is kept."""
        return services.stop_run(user=self.person, run=run)

    @post_action(RunSerializer, AnswerSerializer, status=202)
    def answer(self, run: Run, text: str) -> Run:
        """Confirm the breakpoint at which the run waits, or answer its question."""
        return services.answer_run(user=self.person, run=run, text=text)

    @post_action(RunSerializer, status=202)
    def retry(self, run: Run) -> Run:
        """Continue a run that waits, has failed or was stopped."""
        return services.retry_run(user=self.person, run=run)
