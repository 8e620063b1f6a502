"""Count the tokens of imported messages, so that the first turn in a conversation does not wait for the count.

This is an optimisation: a turn that comes earlier counts the messages that it reads. If a worker is lost, the next
worker goes on with the messages that have no count.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from chat.models import Import, Message
from chat.prompts.history import counts_of, store_counts
from core.jobs import JobKind
from llm.models import Model
from llm.tokens import CATCH_ALL, tokenizer
from personas.services import default_profile

BATCH_MESSAGES = 200  # messages that are counted and stored together
BATCH_CONVERSATIONS = 50  # conversations whose messages are read together
STALE_AFTER = timedelta(seconds=60)


UNCOUNTED = Q(status=Import.Status.DONE, counting=True)

# All uncounted rows are `waiting`, so every claim succeeds, although the end of the import set a recent heartbeat. If
# two workers claim an import, the later one goes on.
COUNTING_JOBS = JobKind(
    model=Import,
    task="chat.tasks.count_imported",
    waiting=UNCOUNTED,
    running=UNCOUNTED,
    resumable=UNCOUNTED,
    stale_after=STALE_AFTER,
    unclaimed_after=STALE_AFTER,
)


def run(pk: UUID) -> None:
    """Count the tokens of messages that have no count, for every tokenizer in use."""
    job = COUNTING_JOBS.claim(pk)
    if job is None:
        return
    names = set(Model.objects.filter(enabled=True).values_list("tokenizer", flat=True))
    tokenizers = {name or CATCH_ALL for name in names} or {CATCH_ALL}
    overhead = default_profile().message_overhead
    for rows in _uncounted_batches(job):
        if not COUNTING_JOBS.renew(job):
            return
        with transaction.atomic():  # a message has the counts of all tokenizers, or none
            for name in tokenizers:
                store_counts(counts_of(rows, tokenizer=tokenizer(name), overhead=overhead))
    COUNTING_JOBS.claimed(job).update(counting=False)


def _uncounted_batches(job: Import) -> Iterator[Sequence[Message]]:
    """Yield the messages of the import that have no count, in batches."""
    conversations = [result["conversation"] for result in job.results if result["conversation"]]
    for first in range(0, len(conversations), BATCH_CONVERSATIONS):
        rows = Message.objects.filter(conversation__in=conversations[first : first + BATCH_CONVERSATIONS], tokens={})
        ids = list(rows.exclude(status=Message.Status.PENDING).values_list("pk", flat=True))
        for begin in range(0, len(ids), BATCH_MESSAGES):
            yield list(Message.objects.filter(pk__in=ids[begin : begin + BATCH_MESSAGES]))
