"""Carries one turn out: claims it, asks the model, publishes what it says, keeps the rows, ends it."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer
from django.db import DatabaseError

from chat import documents, prompts, reports, streams
from chat.answers import Answer
from chat.endings import INTERRUPTED, UNEXPECTED, Ending, last_event
from chat.events import EventType
from chat.models import SummaryJob, Turn
from chat.options import options_of
from chat.requests import model_request
from chat.summaries import due
from chat.task_prompts import with_tasks
from chat.tools.choice import toolbox_for
from chat.tools.external import with_external_tools
from chat.tools.servers import with_server_tools
from chat.turn_rows import (
    Outcome,
    checkpoint,
    claim,
    dump,
    end,
    last_given,
    on_database,
    persistently,
    state_of,
    store_report,
)
from chat.waiting.approvals import Approvals
from llm import loop
from llm.errors import ProductError
from llm.messages import Message, ModelRequest
from llm.models import Provider
from llm.services import learn_ratio, learn_refusal, shared_client

CHECKPOINT_EVERY = 1.0  # seconds: what a killed worker can lose of the row; the stream has the rest

logger = logging.getLogger(__name__)
_running: "set[asyncio.Task[None]]" = set()


def group_of(conversation_id: UUID) -> str:
    """The channel group of everyone who looks at a conversation."""
    return f"conversation.{conversation_id}"


async def warm_up() -> None:
    """Builds the providers' clients and the first connections before the first turn needs them."""
    for provider in await on_database(lambda: list(Provider.objects.filter(enabled=True))):
        shared_client(provider)
    with suppress(*streams.CONNECTION_ERRORS):
        await streams.read("warm-up")


def interrupt_all() -> None:
    """For a worker that must go now: ends its running turns as interrupted. Call it on the turns' event loop."""
    for task in _running:
        task.cancel()


async def run(turn_id: UUID) -> None:
    """Does nothing when the turn is not queued: another worker has it, or it was stopped."""
    claimed = await on_database(_claim, turn_id)
    if claimed is None:
        return
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has its task
    _running.add(task)
    try:
        await _Run(*claimed).carry_out()
    finally:
        _running.discard(task)


def _claim(turn_id: UUID) -> tuple[Turn, prompts.Setting | None] | None:
    """The turn and its setting, in one go: every hop to the database delays the first token."""
    turn = claim(turn_id)
    if turn is None:
        return None
    if turn.model is None:
        return turn, None
    place, asked_at = prompts.place_of(turn.conversation), turn.user_message.created
    setting = prompts.setting(user=turn.conversation.owner, model=turn.model, place=place, asked_at=asked_at)
    setting = with_tasks(setting, turn)
    toolbox, options = toolbox_for(setting, turn.user_message.text), options_of(turn.options)
    return turn, replace(setting, toolbox=toolbox, options=options, summarised=getattr(turn, "has_summary", True))


class _Run:
    """`setting` is None when the turn's model has been removed."""

    def __init__(self, turn: Turn, setting: prompts.Setting | None) -> None:
        self.turn = turn
        self.setting = setting
        self.answer = Answer(str(turn.pk))
        self.reports: list[dict[str, Any]] = []
        self._storing: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._closed = asyncio.Event()

    async def carry_out(self) -> None:
        model_name = self.turn.model.name if self.turn.model else ""
        identity = {"conversation": str(self.turn.conversation_id), "message": str(self.turn.answer_id)}
        self.answer.emit(EventType.RUN_STARTED, **identity, model=model_name)
        self._news.set()
        publisher = asyncio.create_task(self._publish())
        hint = asyncio.create_task(
            announce(self.turn.conversation_id, {"type": "turn.started", "turn": str(self.turn.pk), **identity})
        )
        ending = await self._work(publisher)
        self.answer.close()
        await self._end(ending, publisher)
        await asyncio.gather(hint, return_exceptions=True)

    async def _work(self, publisher: "asyncio.Task[None]") -> Ending:
        """Asks the model until it has answered, or until something else ends the turn first."""
        model = asyncio.create_task(self._ask())
        keeper = asyncio.create_task(self._keep())
        stop = asyncio.create_task(streams.wait_for_stop(self.turn.pk))
        others = (keeper, stop)
        try:
            await asyncio.wait([model, publisher, *others], return_when=asyncio.FIRST_COMPLETED)
            # A model that has finished has finished, even when a stop came in the same moment.
            if model.done():
                return await model
            if stop.done() or (keeper.done() and not keeper.exception()):
                return Ending(Turn.Status.STOPPED)
            failure = publisher.exception() if publisher.done() else keeper.exception()
            logger.error("turn %s cannot go on", self.turn.pk, exc_info=failure)
            return UNEXPECTED
        except asyncio.CancelledError:
            return INTERRUPTED
        finally:
            for task in (model, *others):
                task.cancel()
            await asyncio.gather(model, *others, return_exceptions=True)

    async def _ask(self) -> Ending:
        try:
            setting = self.setting
            if setting is None:
                raise ProductError("model_gone", "The model of this answer was removed. Choose another and try again.")
            setting = with_external_tools(await with_server_tools(setting))
            prepare = partial(self._prepare, setting)
            client = shared_client(setting.model.provider)
            tools = Approvals(self.answer, self._news.set).guarded(setting.toolbox)
            self.answer.external = frozenset(tool.name for tool in setting.toolbox.external)
            bounds: Any = {"external": self.answer.external, "max_cycles": setting.profile.max_cycles}
            async with aclosing(loop.run(client, prepare, tools, **bounds)) as events:
                async for event in events:
                    self.answer.add(event)
                    self._news.set()
            return self._complete()
        except ProductError as error:
            retryable = getattr(error, "retryable", True)
            logger.warning("turn %s failed: %s", self.turn.pk, error)
            return Ending(Turn.Status.FAILED, error.code, error.detail, retryable)
        except Exception:
            logger.exception("turn %s failed", self.turn.pk)
            return UNEXPECTED

    async def _prepare(self, setting: prompts.Setting, cycle: loop.Cycle, added: Sequence[Message]) -> ModelRequest:
        planned, report, request = await on_database(self._plan, setting, cycle, added)
        prompt = planned.prompt
        self.answer.sources.learn(planned.documents.given)
        self.reports.append(report)
        # Beside the model call, not before it: the first token need not wait for this row.
        self._storing.append(asyncio.create_task(on_database(store_report, self.turn, list(self.reports))))
        self.answer.emit(
            EventType.CONTEXT_REPORT,
            limit=prompt.report.limit,
            used=prompt.report.used,
            left_out=len(prompt.report.dropped) + prompt.report.unloaded,
            refused=report["refused"],
        )
        self._news.set()
        return request

    def _plan(
        self, setting: prompts.Setting, cycle: loop.Cycle, added: Sequence[Message]
    ) -> tuple[prompts.Planned, dict[str, Any], ModelRequest]:
        refused = ""
        if cycle.refused is not None:
            refused = learn_refusal(setting.model, cycle.refused.limit)
        added_messages = prompts.added_messages(self.turn.answer_id, added)
        step = prompts.Step(
            searched=any(call.name in setting.toolbox.searching for each in added for call in each.tool_calls),
            last=cycle.last,
            first=cycle.number == 1,
        )
        planned = prompts.plan(setting, last_given(self.turn), added_messages, step=step)
        documents.give_numbers(self.turn.conversation, list(planned.documents.numbers.known))
        prompt = planned.prompt
        prompts.log_trimmed(setting, prompt)
        report = reports.stored(setting, planned, cycle=cycle.number, refused=refused)
        return planned, report, model_request(setting, prompt, step)

    def _complete(self) -> Ending:
        if self.answer.wrote or self.answer.handed_over:
            return Ending(Turn.Status.DONE)
        return Ending(
            Turn.Status.FAILED,
            "empty_answer",
            "The model finished without writing anything. Try again.",
            retryable=True,
        )

    async def _publish(self) -> None:
        """Appends events to the stream: the first at once, then at intervals, until all are out after the close."""
        while True:
            await self._news.wait()
            self._news.clear()
            finished = self._closed.is_set()  # looked at before draining: what comes later wakes us once more
            events = self.answer.drain()
            if events:
                await streams.append(self.turn.pk, events)
            if finished:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self.answer.interval(len(_running)))

    async def _keep(self) -> None:
        """Heartbeat and checkpoint every second. Returns when a stop was asked for or the turn is not ours any more."""
        while True:
            await asyncio.sleep(CHECKPOINT_EVERY)
            parts, seq = dump(self.answer.parts).replace("\\u0000", ""), self.answer.seq
            stopped = await persistently(partial(checkpoint, self.turn, parts, seq))
            if stopped is not False:
                return

    async def _end(self, ending: Ending, publisher: "asyncio.Task[None]") -> None:
        """Flushes the text, completes the rows, and only then says that the turn is over."""
        self._closed.set()
        self._news.set()
        published = (await asyncio.gather(publisher, return_exceptions=True))[0]
        if isinstance(published, BaseException):
            logger.warning("turn %s: its events are not all in the stream (%s)", self.turn.pk, published)
        last, payload = last_event(ending, self.answer.usage_row(), self.answer.finish_reason)
        self.answer.emit(last, **payload)
        events = self.answer.drain()
        await asyncio.gather(*self._storing, return_exceptions=True)
        outcome = Outcome(
            self.answer.parts, self.answer.seq, self.answer.usage_row(), self.reports, self._summary(ending)
        )
        work = partial(end, self.turn, ending, outcome)
        if not await persistently(work):
            return
        try:
            await streams.append(self.turn.pk, events)
        except streams.CONNECTION_ERRORS:
            logger.warning("turn %s has ended, but Redis is away: readers find it in its row", self.turn.pk)
        await announce_state(self.turn.conversation_id)
        await self._learn(ending)

    def _summary(self, ending: Ending) -> SummaryJob | None:
        """The job that this turn asks for; an answer that failed is no answer to go on from."""
        if self.setting is None or not self.reports or ending.status not in (Turn.Status.DONE, Turn.Status.STOPPED):
            return None
        said = "".join(part["text"] for part in self.answer.parts if part["type"] == "text")
        return due.job_after(self.setting, self.reports[-1], self.answer.last_usage, said)

    async def _learn(self, ending: Ending) -> None:
        """The model's ratio of reported to counted prompt tokens, from a turn whose every call was reported."""
        counted = sum(report["used"] + report["tools_tokens"] for report in self.reports)
        model, reported = self.turn.model, self.answer.usage.input
        if model is not None and ending.status == Turn.Status.DONE and self.answer.calls == len(self.reports):
            with suppress(DatabaseError):
                await on_database(learn_ratio, model=model, counted=counted, reported=reported)


async def announce_state(conversation_id: UUID, **more: str) -> None:
    state = await on_database(state_of, conversation_id)
    hint = {"type": "conversation.state", "conversation": str(conversation_id), "state": state}
    await announce(conversation_id, {**hint, **more})


async def announce(conversation_id: UUID, hint: dict[str, str]) -> None:
    """A hint to open pages; a page that misses it sees the same at its next request."""
    layer = get_channel_layer()
    try:
        if layer is not None:
            await layer.group_send(group_of(conversation_id), hint)
    except streams.CONNECTION_ERRORS:
        logger.warning("no hint to open pages: Redis is away")
