"""Runs in the admin: owner, task and end of each, and a button that stops one."""

from typing import Any, cast

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from accounts.models import User
from chat.runs.limits import compute_usage
from chat.runs.services import stop_run
from core.admin import STATE_COLOURS, Confirmation, RecordAdmin, acting_user, column, confirmation_button, display
from core.i18n import grouped
from core.sentences import Sentence
from projects.planner.models import Run


@admin.register(Run)
class RunAdmin(RecordAdmin):
    empty_words = "No model has worked through a checklist yet."
    ordering = ("-id",)
    list_display = ("created", "owner", "task_code", "model", "status_label", "code", "finished")
    list_select_related = ("owner", "task", "model")
    list_filter = ("status", "unasked", "model")
    search_fields = ("=id", "=owner__username", "=task__code", "=code")
    search_help_text = "The id of a run, a user name, a task's code, or the code of what went wrong"
    fields = (
        *("id", "owner", "task_code", "of_conversation", "model", "status_label", "code", "steps_and_tokens"),
        *("unasked", "created", "started", "finished", "heartbeat"),
    )
    task_code = column("task.code", "Task")
    of_conversation = column("conversation_id", "Conversation")
    actions_detail: Any = ("stop",)

    def has_stop_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return acting_user(request).has_perm("chat.change_run")

    @display(description="Status", ordering="status", label=STATE_COLOURS)
    def status_label(self, run: Run) -> str:
        return run.status

    @display(description="Used")
    def steps_and_tokens(self, run: Run) -> str:
        so_far = compute_usage(run)
        template = _("%(steps)s steps, %(tokens)s tokens, %(minutes)s minutes")
        return template % {"steps": so_far.steps, "tokens": grouped(so_far.tokens), "minutes": f"{so_far.minutes:.0f}"}

    @confirmation_button(
        "Stop",
        icon="stop_circle",
        permission="stop",
        ask="Stop this run?",
        explain="The answer that is being written is stopped too. Its owner can go on with it.",
    )
    def stop(self, request: HttpRequest, form: Confirmation, object_id: str) -> HttpResponse:
        run = stop_run(user=cast("User", request.user), run=self.row(request, object_id))
        return self.back(request, run, Sentence("The run is stopped."))
