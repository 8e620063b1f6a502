"""Runs for operators: whose, of which task, how they stand; what people and models wrote is not shown."""

from typing import Any, cast

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from unfold.decorators import display

from accounts.models import User
from chat.models import Run
from chat.runs.limits import used
from chat.runs.services import stop_run
from core.admin import Confirmation, RecordAdmin, acting, confirmed

STATES = {
    "drafting": "info",
    "ready": "warning",
    "running": "info",
    "waiting": "warning",
    "stopped": "warning",
    "failed": "danger",
    "done": "success",
}


@admin.register(Run)
class RunAdmin(RecordAdmin):
    ordering = ("-id",)
    list_display = ("id", "owner", "task_code", "model", "status_label", "code", "created", "started", "finished")
    list_select_related = ("owner", "task", "model")
    list_filter = ("status", "model")
    search_fields = ("=id", "=owner__username", "=task__code", "=code")
    search_help_text = "The id of a run, a user name, a task's code, or the code of what went wrong"
    fields = (
        *("id", "owner", "task_code", "of_conversation", "model", "status_label", "code", "steps_and_tokens"),
        *("created", "started", "finished", "heartbeat"),
    )
    actions_detail: Any = ("stop",)

    def has_stop_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting(request).has_perm("chat.change_run")

    @display(description="Task")
    def task_code(self, run: Run) -> str:
        return run.task.code

    @display(description="Conversation")
    def of_conversation(self, run: Run) -> str:
        return str(run.conversation_id)

    @display(description="Status", ordering="status", label=STATES)
    def status_label(self, run: Run) -> str:
        return run.status

    @display(description="Used")
    def steps_and_tokens(self, run: Run) -> str:
        so_far = used(run)
        return f"{so_far.steps} steps, {so_far.tokens:,} tokens, {so_far.minutes:.0f} minutes"

    @confirmed(
        "Stop",
        icon="stop_circle",
        permission="stop",
        ask="Stop this run?",
        explain="The answer that is being written is stopped too. Its owner can go on with it.",
    )
    def stop(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        run = stop_run(user=cast("User", request.user), run=self.row(request, object_id))
        return self.back(request, run, "The run is stopped.")
