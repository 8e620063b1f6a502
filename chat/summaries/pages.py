"""What a conversation's page shows of its summaries: the divider where one ends, and why the last one failed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.context.summary import SECTION_SHARES
from chat.models import Conversation, Summary, SummaryJob
from chat.models.summary import in_force
from personas.models import SummaryPrompt

NAMES = {
    "Earlier": gettext_lazy("Earlier"),
    "This month": gettext_lazy("This month"),
    "Today": gettext_lazy("Today"),
    "Now": gettext_lazy("Now"),
}


@dataclass(frozen=True, slots=True)
class SummaryView:
    """`sections` are all four in order, `label` and `text` each; `stale`: the summary prompt has changed since."""

    id: UUID
    last: UUID
    messages: int
    tokens_before: int
    tokens_after: int
    span_start: datetime
    span_end: datetime
    sections: list[dict[str, Any]]
    by: str
    prompt_version: int
    stale: bool
    shortened: int


def of_branch(conversation: Conversation) -> tuple[SummaryView | None, SummaryJob | None]:
    """The summary that holds on the branch on show, and the newest job if it failed. One query where none was."""
    newest = SummaryJob.objects.filter(conversation=conversation).order_by("-id").first()
    if newest is None:
        return None, None
    found = in_force(conversation.pk, conversation.leaf_id)
    failed = newest if newest.status == SummaryJob.Status.FAILED else None
    return (_view(found) if found is not None else None), failed


def _view(summary: Summary) -> SummaryView:
    texts = {section["name"]: section["text"] for section in summary.sections}
    active = SummaryPrompt.objects.filter(active=True).values_list("version", flat=True).first() or 0
    return SummaryView(
        id=summary.pk,
        last=summary.last_id,
        messages=summary.messages,
        tokens_before=summary.tokens_in,
        tokens_after=summary.tokens_out,
        span_start=summary.span_start,
        span_end=summary.span_end,
        sections=[{"name": name, "label": NAMES[name], "text": texts.get(name, "")} for name in SECTION_SHARES],
        by=summary.model_name or (_("you") if summary.author_id else ""),
        prompt_version=summary.prompt_version,
        stale=summary.prompt_version != active,
        shortened=len(summary.shortened),
    )
