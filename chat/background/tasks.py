"""Celery tasks of chat. Each hands its work to the event loop, or calls one function, and returns.

1. `_start` begins the loops of a worker. A worker with the queue `turns` runs turns on its event loop (`take_turns`),
   as many as it has room for. Turns are not Celery tasks.
2. Other work arrives as a named task. No task waits for a model: the event loop carries such work.
3. `follow_up` reads the rows and decides which work begins next in a conversation.
4. `sweep_turns` begins work that a dead worker or the broker has lost. `core.tasks.sweep_jobs` does so for jobs.
5. `_end` gives running answers some time to finish when the worker is asked to end.
"""

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db.models import QuerySet

from chat.background import schedule
from chat.conversations import erasing, import_undo, titles
from chat.conversations.importing import counting
from chat.conversations.importing import jobs as imports
from chat.lab import services as replays
from chat.ledger.sums import sum_days
from chat.memory import passes
from chat.memory.retention import forget_old_facts
from chat.models import SummaryJob
from chat.models.conversation_state import follow_ups, state_of
from chat.openai_api import create_turn
from chat.readings import jobs as readings
from chat.realtime.append_only import rewrite_if_due
from chat.realtime.event_stream import announce, announce_state, state_hint
from chat.runs import drafts
from chat.runs import state_machine as runs
from chat.sending import resuming
from chat.sending import services as sending
from chat.summaries import jobs
from chat.summaries.ending import SUMMARIES
from chat.turns import runner, store
from chat.turns.line import queue_next
from core import background, memory
from core.background import TURNS, enqueue, on_database, report_queues, touch_life_file
from core.consumer import ConsumerWatchdog
from core.logs import metrics
from llm.tools.mcp import close_sessions

MAX_CONCURRENT_CLAIMS = 2
SESSION_CLOSE_TIMEOUT = 3.0  # seconds
STORE_TIMEOUT = 6.0  # seconds after `DRAIN_SECONDS`; supervisors kill a worker ten seconds after `DRAIN_SECONDS`

logger = logging.getLogger(__name__)
_free_slots = asyncio.Semaphore(settings.TURNS_PER_WORKER)
_taking: "Future[None] | None" = None
_draining = False  # the worker was asked to end: it takes no more turns, and no longer reports its queues


async def take_turns() -> None:
    """Run the turns that wait in `TURNS`, as many as there is room for, until it is cancelled.

    Other turns stay in the queue, where another worker may take them and their user sees the position. Only
    `MAX_CONCURRENT_CLAIMS` turns are claimed at a time: of a hundred turns, the first should reach its model before the
    last one reads its rows.
    """
    await asyncio.gather(*(_take_turns() for _ in range(MAX_CONCURRENT_CLAIMS)))


async def _take_turns() -> None:
    while True:
        await _free_slots.acquire()
        try:
            turn = await TURNS.take()
        except asyncio.CancelledError:
            _free_slots.release()
            raise
        looked = asyncio.Event()
        background.run_in_background(_run_turn(turn, looked))
        await looked.wait()


async def _run_turn(turn_id: UUID, looked: asyncio.Event) -> None:
    try:
        conversation = await runner.run_turn(turn_id, looked)
    finally:
        _free_slots.release()
    if conversation is not None:
        await follow_up(conversation)


@shared_task(name="chat.tasks.send_next")
def send_next(conversation_id: str) -> None:
    background.run_in_background(follow_up(UUID(conversation_id)))


@shared_task(name="chat.tasks.advance_run")
def advance_run(run_id: str) -> None:
    conversation = runs.get_conversation_id(UUID(run_id))
    if conversation is not None:
        background.run_in_background(follow_up(conversation))


@shared_task(name="chat.tasks.draft_checklist")
def draft_checklist(task_id: str) -> None:
    drafts.begin_draft(UUID(task_id))


@shared_task(name="chat.tasks.summarise")
def summarise(job_id: str) -> None:
    background.run_in_background(write_summary(UUID(job_id)))


async def write_summary(job_id: UUID) -> bool:
    """Run a queued job and begin the work that follows. Returns False if the job could not be claimed."""
    conversation = await jobs.run_job(job_id)
    if conversation is not None:
        await _summary_ended(conversation)
    return conversation is not None


async def _summary_ended(conversation_id: UUID) -> None:
    """Announce that the conversation is open again, and begin the work that waited for the summary."""
    await announce_state(conversation_id, await on_database(state_of, conversation_id), summary="ended")
    await follow_up(conversation_id)


@shared_task(name="chat.tasks.write_title")
def write_title(turn_id: str) -> None:
    background.run_in_background(titles.write_title(UUID(turn_id)))


@shared_task(name="chat.tasks.sweep_turns")
def sweep_turns() -> None:
    """End turns of a dead worker, and begin work that it or the broker has lost. Runs every 5 s."""
    turns = store.find_stale()
    for turn_id in turns.interrupted:
        background.run_in_background(_recover(turn_id))
    for turn_id in turns.unclaimed:
        TURNS.put(turn_id)
    for conversation_id in resuming.find_due():
        background.run_in_background(follow_up(conversation_id))
    for conversation_id in sending.find_due():
        enqueue("chat.tasks.send_next", conversation_id)
    for run_id in runs.find_due():
        enqueue("chat.tasks.advance_run", run_id)
    for task_id in drafts.find_unclaimed():
        enqueue("chat.tasks.draft_checklist", task_id)


def end_lost_summaries(lost: QuerySet[SummaryJob]) -> None:
    """End summary jobs that are late or lost, and begin the next work in their conversations."""
    for conversation_id in jobs.end_lost(lost):
        background.run_in_background(_summary_ended(conversation_id))


async def _recover(turn_id: UUID) -> None:
    conversation = await runner.recover(turn_id)
    if conversation is not None:
        await follow_up(conversation)


@shared_task(name="chat.tasks.forget_requests")
def forget_requests() -> None:
    create_turn.delete_old_conversations()
    erasing.erase_old()
    forget_old_facts()


@shared_task(name="chat.tasks.begin_memory_passes")
def begin_memory_passes() -> None:
    """Look for facts in conversations that are finished. Runs every five minutes."""
    passes.begin_due()


@shared_task(name="chat.tasks.propose_facts")
def propose_facts(job_id: str) -> None:
    background.run_in_background(passes.run(UUID(job_id)))


@shared_task(name="chat.tasks.sum_usage")
def sum_usage() -> None:
    """Sum the usage of days that have ended. Runs every ten minutes. Most runs find no such day."""
    sum_days()


@shared_task(name="chat.tasks.import_conversations")
def import_conversations(import_id: str) -> None:
    imports.run(UUID(import_id))


@shared_task(name="chat.tasks.undo_import")
def undo_import(import_id: str) -> None:
    import_undo.run(UUID(import_id))


@shared_task(name="chat.tasks.count_imported")
def count_imported(import_id: str) -> None:
    counting.run(UUID(import_id))


@shared_task(name="chat.tasks.replay")
def replay(replay_id: str) -> None:
    replays.run_replay(UUID(replay_id))


@shared_task(name="chat.tasks.read_all")
def read_all(reading_id: str) -> None:
    background.run_in_background(readings.run_reading(UUID(reading_id)))


@shared_task(name="chat.tasks.tidy_conversations")
def tidy_conversations() -> None:
    """Erase rows that were deleted a day ago, also from the disk of Redis, and old uploads of failed imports.

    Runs every minute.
    """
    erasing.erase_due()
    erasing.erase_messages()
    rewrite_if_due()
    imports.sweep_uploads()


@worker_ready.connect
def _start(sender: Any, **kwargs: Any) -> None:
    global _taking
    background.submit(runner.warm_up()).result()
    metrics.serve()
    memory.watch()
    watchdog = ConsumerWatchdog(sender, list(sender.app.amqp.queues.consume_from))
    if "turns" in watchdog.queues:
        _taking = background.submit(take_turns())
    background.submit(watchdog.watch())
    background.submit(schedule.run_overdue_tasks_forever(lambda: watchdog.stalled or _draining))
    background.submit(report_queues(watchdog.queues, lambda: watchdog.stalled or _draining))
    if settings.ALIVE_FILE:
        background.submit(touch_life_file(Path(settings.ALIVE_FILE), lambda: watchdog.stalled or _draining))


@worker_shutting_down.connect
def _end(**kwargs: Any) -> None:
    """Give running answers some time to finish, then interrupt them.

    Their text is stored, and another worker continues them.
    """
    global _draining
    _draining = True
    if _taking is not None:
        _taking.cancel()
    background.cancel_background_tasks(settings.DRAIN_SECONDS)
    threading.Thread(target=_exit_after_drain, name="end", daemon=True).start()


def _exit_after_drain() -> None:
    """End the process after `DRAIN_SECONDS`, since Celery would wait for its threads without a limit.

    Another worker resumes interrupted work, as it does for a dead worker.
    """
    time.sleep(settings.DRAIN_SECONDS)
    with suppress(TimeoutError):
        background.wait_for_background_tasks(STORE_TIMEOUT)
    _close_sessions()
    background.exit_process(0)


@worker_shutdown.connect
def _wait(sender: Any, **kwargs: Any) -> None:
    """Wait for the event loop, then end the process. Celery waits only for its tasks, which have returned already."""
    background.wait_for_background_tasks()
    _close_sessions()
    background.exit_process(sender.exitcode or 0)


def _close_sessions() -> None:
    """End the sessions with tool servers, so that no program of a server outlives the worker."""
    with suppress(TimeoutError):
        background.submit(close_sessions()).result(SESSION_CLOSE_TIMEOUT)


async def follow_up(conversation_id: UUID) -> None:
    """Begin the work that is due in a conversation once an answer or a summary has ended.

    The work: an interrupted answer, the waiting message, the run's next step, the summary, the person's next draft of a
    checklist, the title. The decision depends on the rows alone, so the call may be repeated at any time. If the worker
    is killed in here or the database is down, the sweeper finds the work that was not begun.
    """
    try:
        pages_change = await on_database(_start_due_work, conversation_id)
    except (DatabaseError, InterfaceError):
        logger.warning("conversation %s: follow-up work waits, the database is unavailable", conversation_id)
        return
    if pages_change:
        await announce(conversation_id, state_hint(conversation_id))


def _start_due_work(conversation_id: UUID) -> bool:
    """Begin the work that is due. Returns whether open pages must show a change."""
    due = follow_ups(conversation_id)
    if due.line:
        queue_next(conversation_id)
    run = runs.find_in_conversation(conversation_id) if due.run else None
    resumed = due.interrupted and resuming.resume(conversation_id)
    if due.message:
        sending.send_next(conversation_id)
    if run is not None:
        runs.advance(run)
    if due.summary:
        for job in jobs.queued_in(conversation_id):
            enqueue(SUMMARIES.task, job)
    if due.draft:
        for task_id in drafts.find_due_for_owner(conversation_id):
            enqueue("chat.tasks.draft_checklist", task_id)
    if due.untitled and (titled := titles.claim_title(conversation_id)):
        enqueue("chat.tasks.write_title", titled)
    return resumed or due.message or run is not None
