"""Celery tasks: each loads, calls one function, returns. The row, not the broker, is the truth about a turn."""

import logging
import threading
from concurrent.futures import CancelledError
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.db import DatabaseError, InterfaceError
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from chat import deletion, recovery, streams, titles, turn_rows, turns
from chat.importing import jobs as imports
from chat.protocol import retention
from chat.runs import course as runs
from chat.summaries import jobs
from chat.waiting import next_messages
from llm import runtime

BROKER_ERRORS = (KombuError, OperationalError, RedisError, OSError)
GRACE = 7.0  # seconds that running answers get to finish when the worker is asked to end; its supervisor waits 10

logger = logging.getLogger(__name__)


@shared_task
def run_turn(turn_id: str) -> None:
    try:
        runtime.submit(turns.run(UUID(turn_id))).result()
    except CancelledError:
        logger.info("turn %s was cut off by the end of the worker", turn_id)
        return
    try:
        if waiting := runtime.submit(turn_rows.on_database(next_messages.waiting_for, UUID(turn_id))).result():
            send_next(str(waiting))
        if job := runtime.submit(turn_rows.on_database(jobs.queued_after, UUID(turn_id))).result():
            enqueue_summary(job)
        if run := runtime.submit(turn_rows.on_database(runs.of_turn, UUID(turn_id))).result():
            advance_run(str(run))
        if runtime.submit(turn_rows.on_database(titles.claim, UUID(turn_id))).result():
            write_title.apply_async((turn_id,), retry=False)
    except (*BROKER_ERRORS, DatabaseError, InterfaceError):
        logger.warning("turn %s: nothing follows yet, since the database or the broker is away", turn_id)


@shared_task
def send_next(conversation_id: str) -> None:
    """Sends what waits there, if it may go now. A worker that is killed in here leaves what the sweeper finds."""
    place = UUID(conversation_id)
    for turn_id in runtime.submit(turn_rows.on_database(next_messages.send_kept, place)).result():
        run_turn.apply_async((str(turn_id),), retry=False)
    runtime.submit(turns.announce(place, next_messages.hint(place))).result()


@shared_task
def advance_run(run_id: str) -> None:
    """Begins what comes next in a run. A worker that is killed in here leaves what the sweeper finds."""
    came = runtime.submit(turn_rows.on_database(runs.advance, UUID(run_id))).result()
    for turn_id in came.turns:
        run_turn.apply_async((str(turn_id),), retry=False)
    if came.conversation is not None:
        runtime.submit(turns.announce(came.conversation, next_messages.hint(came.conversation))).result()


@shared_task
def summarise(job_id: str) -> None:
    """Writes the summary; then the conversation is open again, also for a message that waits there."""
    conversation = runtime.submit(_summarise(UUID(job_id))).result()
    if conversation is not None and conversation in next_messages.due():
        send_next(str(conversation))
    if conversation is not None and (run := runs.of_conversation(conversation)):
        advance_run(str(run))


async def _summarise(job_id: UUID) -> UUID | None:
    conversation = await jobs.run(job_id)
    if conversation is not None:
        await turns.announce_state(conversation, summary="ended")
    return conversation


def enqueue_summary(job_id: UUID) -> None:
    """A broker that is away is no error: the sweeper finds the queued row."""
    try:
        summarise.apply_async((str(job_id),), retry=False)
    except BROKER_ERRORS:
        logger.warning("summary job %s waits for the broker", job_id)


@shared_task
def write_title(turn_id: str) -> None:
    runtime.submit(titles.write(UUID(turn_id))).result()


@shared_task
def sweep_turns() -> None:
    """Runs every 5 s, and so also tells that a worker is there."""
    streams.mark_worker_alive()
    stale = turn_rows.stale()
    for turn_id in stale.interrupted:
        runtime.submit(recovery.recover(turn_id)).result()
    for turn_id in stale.unclaimed:
        run_turn.apply_async((str(turn_id),), retry=False)
    summaries = jobs.stale()
    for conversation_id in summaries.failed:
        runtime.submit(turns.announce_state(conversation_id, summary="ended")).result()
    for job_id in summaries.unclaimed:
        enqueue_summary(job_id)
    for conversation_id in next_messages.due():
        send_next.apply_async((str(conversation_id),), retry=False)
    for run_id in runs.due():
        advance_run.apply_async((str(run_id),), retry=False)


@shared_task
def forget_requests() -> None:
    retention.forget_old()


@shared_task
def import_conversations(import_id: str) -> None:
    imports.run(UUID(import_id))


@shared_task
def tidy_conversations() -> None:
    """Runs every minute: what was deleted a day ago goes, and imports that nobody works on are taken up."""
    deletion.purge()
    for import_id in imports.unclaimed():
        import_conversations.apply_async((str(import_id),), retry=False)


@worker_ready.connect
def _start(**kwargs: Any) -> None:
    runtime.submit(turns.warm_up()).result()
    streams.mark_worker_alive()


@worker_shutting_down.connect
def _end(**kwargs: Any) -> None:
    """Running answers may finish for a while; then they end as interrupted, their text kept."""
    timer = threading.Timer(GRACE, lambda: runtime.loop().call_soon_threadsafe(turns.interrupt_all))
    timer.daemon = True
    timer.start()
