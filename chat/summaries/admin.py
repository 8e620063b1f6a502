"""Summaries and the jobs that write them, for operators: how long, how much, why not. Their text is not shown."""

from django.contrib import admin
from unfold.decorators import display

from chat.models import Summary, SummaryJob
from core.admin import STATES, RecordAdmin


@admin.register(Summary)
class SummaryAdmin(RecordAdmin):
    list_display = ("id", "conversation_id", "messages", "tokens_in", "tokens_out", "model_name", "version", "created")
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a summary or conversation, or a user name"
    fields = (
        *("id", "conversation_id", "messages", "span_start", "span_end", "tokens_in", "tokens_out", "model_name"),
        *("version", "timezone", "as_of", "supersedes_id", "withdrawn", "created"),
    )

    @display(description="Summary prompt")
    def version(self, summary: Summary) -> str:
        return f"v{summary.prompt_version}"


@admin.register(SummaryJob)
class SummaryJobAdmin(RecordAdmin):
    list_display = ("id", "conversation_id", "reason", "status_label", "code", "created", "finished")
    list_filter = ("status", "reason", "code")
    search_fields = ("=id", "=conversation__id", "=conversation__owner__username")
    search_help_text = "The id of a job or conversation, or a user name"
    fields = (
        *("id", "conversation_id", "reason", "status_label", "code", "detail", "model", "used", "fixed"),
        *("created", "heartbeat", "finished"),
    )

    @display(description="Status", label=STATES)
    def status_label(self, job: SummaryJob) -> str:
        return job.status
