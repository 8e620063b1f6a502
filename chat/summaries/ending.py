"""End summary jobs: as done, failed, interrupted or timed out.

Each function ends a live job once, and settles its conversation in the same transaction.
"""

import logging
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from uuid_utils.compat import uuid7

from chat.models import Conversation, SummaryJob
from chat.models.conversation_state import settle
from chat.models.summary import SummaryJobQuerySet
from core.jobs import NO_ROWS, JobKind
from core.sentences import NO_SENTENCE, Sentence

# All three count from the creation of the first job. A job that replaces it has only the remaining time.
LOCKED_FOR = timedelta(seconds=120)  # then sending works again
TIMEOUT = timedelta(seconds=110)  # then the job gives up by itself
MAX_WAIT = timedelta(seconds=90)  # after that no worker begins the job, since it would hardly finish in time

SUMMARIES = JobKind(
    model=SummaryJob,
    task="chat.tasks.summarise",
    waiting=Q(status=SummaryJob.Status.QUEUED, created__gt=Now() - MAX_WAIT),
    running=Q(status=SummaryJob.Status.RUNNING),
    resumable=NO_ROWS,  # another job replaces a lost job, see `interrupt`
    on_claim={"status": SummaryJob.Status.RUNNING},
    attempt_column=None,
)

logger = logging.getLogger(__name__)


def finish(job_id: UUID) -> None:
    """End a live job whose summary is stored."""
    _end(job_id, SummaryJob.Status.DONE)


def fail(job_id: UUID, code: str, detail: Sentence) -> bool:
    """End a live job without a summary. Returns False if it has ended already."""
    logger.warning("summary job %s failed: %s", job_id, code)
    return _end(job_id, SummaryJob.Status.FAILED, code=code, detail=detail)


def interrupt(job_id: UUID) -> bool:
    """End a live job whose worker is lost. Returns False if it has ended already.

    Another job replaces it once, with the remaining time. A job that kills its worker must not do so for ever.
    """
    logger.warning("the worker of summary job %s was lost", job_id)
    in_time = SummaryJob.objects.filter(created__gt=timezone.now() - MAX_WAIT)
    job = in_time.filter(pk=job_id, again=False).first()
    if job is not None:
        job.pk = uuid7()
        job.again = True
        job.status = SummaryJob.Status.QUEUED
        job.heartbeat = timezone.now()
    detail = Sentence("The server stopped while writing it.")
    return _end(job_id, SummaryJob.Status.FAILED, due=job, code="summary_interrupted", detail=detail)


def _end(
    job_id: UUID, status: str, due: SummaryJob | None = None, code: str = "", detail: Sentence = NO_SENTENCE
) -> bool:
    """End a live job, once. `due` is the job that replaces it, see `settle`."""
    with transaction.atomic():
        # The conversation is locked before its job, as in a send and `store`. Otherwise each could wait for the other.
        rows = Conversation.objects.select_for_update(of=("self",)).filter(summary_jobs=job_id)
        conversation = rows.values_list("pk", flat=True).first()
        live = SummaryJob.objects.live().filter(pk=job_id)
        if conversation is None or not live.update(status=status, finished=timezone.now(), code=code, detail=detail):
            return False
        settle(conversation, due)
    return True


def expire(jobs: SummaryJobQuerySet) -> list[UUID]:
    """End the jobs that have used up their time or were not begun in time, so that sending works again.

    Returns the ids of their conversations. A lost job counts as interrupted, since that is not the model's fault.
    """
    now = timezone.now()
    not_begun = Q(status=SummaryJob.Status.QUEUED, created__lte=now - MAX_WAIT)
    late = jobs.live().filter(Q(created__lt=now - LOCKED_FOR) | not_begun)
    lost = SUMMARIES.lost().filter(pk__in=late)
    ended = [job.conversation_id for job in lost if interrupt(job.pk)]
    return ended + [job.conversation_id for job in late if time_out(job)]


def time_out(job: SummaryJob) -> bool:
    """Fail a live job that has no time left. Returns False if it has ended already.

    The code of a job that no worker has begun differs, since that is not the model's fault.
    """
    if job.status == SummaryJob.Status.QUEUED:
        return fail(job.pk, "summary_not_begun", Sentence("No worker started it in time."))
    return fail(job.pk, "summary_timeout", Sentence("The model took too long to write it."))
