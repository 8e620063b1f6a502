"""Check that a conversation is idle: no answer, no summary within its time limit, no run.

The checks also end overdue summaries.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from accounts.models import User
from chat.models import Conversation, SummaryJob
from chat.models.conversation_state import ConversationStatus, busy, lock, require_owner, status_of
from chat.summaries.ending import expire
from core.errors import ProductError
from core.sentences import Sentence
from projects.planner.models import Run


@contextmanager
def lock_idle(user: User, conversation: Conversation) -> Iterator[Conversation]:
    """Open a transaction that changes the person's own conversation. The conversation is locked and idle.

    Raises `NotFound`, and `already_answering` and `summarising` (409).
    """
    require_owner(user, conversation)
    with transaction.atomic():
        locked = lock(conversation)
        require_idle(locked)
        yield locked


class RunWaits(ProductError):
    """A run waits for an answer in the conversation, so a message here would be that answer."""

    def __init__(self, run: Run) -> None:
        self.run_id = run.pk
        super().__init__(
            "run_waits",
            Sentence("A run waits for you here. Answer it, or try again where it is shown."),
            status=409,
        )


def require_idle(conversation: Conversation, *, of_run: bool = False) -> ConversationStatus:
    """Return the status of a locked, idle conversation. `of_run`: the conversation's own run does not count.

    Raises `already_answering`, `summarising`, `run_in_progress` or `RunWaits` (409). An overdue summary is ended
    and does not count.
    """
    status = status_of(conversation)
    if status.answering:
        raise busy()
    if status.summarising:
        expire(SummaryJob.objects.filter(conversation=conversation))
    if status.summarising and SummaryJob.objects.live().filter(conversation=conversation).exists():
        raise ProductError(
            "summarising",
            "Older messages are being summarised. This takes at most two minutes. Then send again. Your text is kept.",
            status=409,
        )
    if status.running and not of_run:
        require_no_run(conversation)
    return status


def require_no_run(conversation: Conversation) -> None:
    """Check that no run is working or waiting. Raises `run_in_progress` or `RunWaits` (409)."""
    run = Run.objects.filter(conversation=conversation, status__in=Run.UNFINISHED).first()
    if run is not None:
        raise RunWaits(run) if run.status == Run.Status.WAITING else run_in_progress_error()


def run_in_progress_error() -> ProductError:
    return ProductError(
        "run_in_progress",
        "A run is working in this conversation. Wait until it asks you, or stop it. Your text is kept.",
        status=409,
    )
