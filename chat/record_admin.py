"""What the admin pages of conversations, turns and summaries share."""

from unfold.paginator import InfinitePaginator

from llm.administration import ReadOnlyAdmin

STATES = {
    "queued": "info",
    "running": "info",
    "answering": "info",
    "summarising": "info",
    "done": "success",
    "stopped": "warning",
    "interrupted": "warning",
    "failed": "danger",
}


class RecordAdmin(ReadOnlyAdmin):
    """These tables grow without bound: nothing on their pages counts rows."""

    paginator = InfinitePaginator
    show_full_result_count = False
    list_per_page = 50
