"""How a summary job ends: done, failed, interrupted, or because its time is over.

Each ends a live job once, and settles its conversation in the same transaction.
"""

import logging
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from uuid_utils.compat import uuid7

from chat.models import Conversation, SummaryJob
from chat.models.conversation_state import settle
from chat.models.summary import SummaryJobQuerySet
from core.background import stale_rows
from core.sentences import Sentence

# All three from a summary's beginning, with what stands in for it.
PATIENCE = timedelta(seconds=120)  # then sending works again
TIMEOUT = timedelta(seconds=110)  # then it gives up by itself
BEGUN_WITHIN = timedelta(seconds=90)  # what has less time than from then on is not begun: it would be asked for in vain
logger = logging.getLogger(__name__)


def finish(job_id: UUID) -> None:
    _end(job_id, SummaryJob.Status.DONE)


def fail(job_id: UUID, code: str, detail: Sentence) -> bool:
    """Ends a live job without a summary. False when it has ended already."""
    logger.warning("summary job %s failed: %s", job_id, code)
    return _end(job_id, SummaryJob.Status.FAILED, code=code, detail=detail)


def interrupt(job_id: UUID) -> bool:
    """Ends a live job whose worker is gone. Another one stands in for it with what is left of its patience, once: what
    kills its worker must not go on doing so. False when it has ended already."""
    logger.warning("the worker of summary job %s is gone", job_id)
    in_time = SummaryJob.objects.filter(created__gt=timezone.now() - BEGUN_WITHIN)
    job = in_time.filter(pk=job_id, again=False).first()
    if job is not None:
        job.pk, job.again, job.status, job.heartbeat = uuid7(), True, SummaryJob.Status.QUEUED, timezone.now()
    detail = Sentence("The server stopped while writing it.")
    return _end(job_id, SummaryJob.Status.FAILED, due=job, code="summary_interrupted", detail=detail)


def _end(job_id: UUID, status: str, due: SummaryJob | None = None, **fields: str | Sentence) -> bool:
    """`due`: see `settle`."""
    with transaction.atomic():
        # The conversation before its job, as a send and `store` lock them: else each could wait for the other.
        of_job = Conversation.objects.select_for_update(of=("self",)).filter(summary_jobs=job_id)
        conversation = of_job.values_list("pk", flat=True).first()
        live = SummaryJob.objects.live().filter(pk=job_id)
        if conversation is None or not live.update(status=status, finished=timezone.now(), **fields):
            return False
        settle(conversation, due)
    return True


def expire(jobs: SummaryJobQuerySet) -> list[UUID]:
    """Ends those that have used up their patience, or were not begun in time, so that sending works again; returns
    their conversations."""
    now = timezone.now()
    not_begun = Q(status=SummaryJob.Status.QUEUED, created__lte=now - BEGUN_WITHIN)
    late = jobs.live().filter(Q(created__lt=now - PATIENCE) | not_begun)
    gone = stale_rows(late.filter(status=SummaryJob.Status.RUNNING))
    ended = [job.conversation_id for job in gone if interrupt(job.pk)]
    return ended + [job.conversation_id for job in late if time_out(job)]


def time_out(job: SummaryJob) -> bool:
    """Ends a live job for which there is no time left; what nobody has begun is not the model's fault. False when it
    has ended already."""
    if job.status == SummaryJob.Status.QUEUED:
        return fail(job.pk, "summary_not_begun", Sentence("No worker took it in time."))
    return fail(job.pk, "summary_timeout", Sentence("The model took too long to write it."))
