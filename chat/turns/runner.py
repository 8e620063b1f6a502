"""Carry out one turn.

1. `run_turn` claims the turn and makes its context (`_claim`), in one hop to the database.
2. `_Run.carry_out` starts a publisher, which sends events to readers, and `_work`.
3. `_work` runs three tasks: `_ask` asks the model, `keep_checkpoints` writes the row and checks rights, and the third
   one waits for a stop.
4. `_ask` runs `llm.agent_loop`, which calls `_prepare` before each step. `_plan` plans the prompt and stores the call.
5. `_handle_event` handles the loop's events: reports, learnt facts, reasoning.
6. `_end` publishes the rest, checks citations, completes the rows and notifies readers. Then `_learn_from_usage`
   updates the model.

`recover` ends a turn whose worker has died.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import cast
from uuid import UUID

from django.db import DatabaseError
from opentelemetry.trace import SpanKind

from accounts.access.rights import rights_of
from chat.citations.judging import check_in_time
from chat.citations.services import check
from chat.context import cache
from chat.context.results import ResultRoom
from chat.documents.numbers import assign_numbers
from chat.ledger.asking import Billing
from chat.ledger.models import ModelCall
from chat.memory.choosing import store_use
from chat.models import SummaryJob, Turn
from chat.models.queries import ClaimedTurn, claim
from chat.prompts import builder
from chat.prompts import report as reports
from chat.prompts.builder import model_request
from chat.prompts.history import MessageCounts, store_counts
from chat.prompts.report import CallReport, PlannedRequest
from chat.prompts.turn_context import (
    TurnContext,
    context_of_claimed_turn,
    with_definitions_that_fit,
    with_offered_tools,
)
from chat.realtime import signals, turn_stream
from chat.realtime.event_stream import announce, announce_state
from chat.realtime.events import Event, EventType
from chat.summaries import due
from chat.tools.files import SEARCH_GUIDANCE
from chat.tools.results import ResultKeeper
from chat.tools.toolbox import NO_TOOLS
from chat.turns import store
from chat.turns.emitter import Answer, guard_tools, load_answer
from chat.turns.keeper import keep_checkpoints
from chat.turns.rights import TurnUses, get_uses, require_rights
from chat.turns.store import INTERRUPTED, UNEXPECTED, Ending, TurnOutcome, last_event
from core.background import first_on_database, on_database, run_to_completion, with_retries
from core.errors import ModelError, ProductError
from core.logs import tracing
from core.logs.context import log_context
from core.logs.metrics import FIRST_TOKEN, STOPS, TOKENS, TURNS, WRITTEN
from core.sentences import Sentence
from llm import agent_loop
from llm.learning import (
    check_truncation,
    learn_image_limit,
    learn_refused_window,
    learn_served_window,
    names_window,
    record_calls,
)
from llm.models import Model, Provider
from llm.services import (
    LearntFact,
    cache_rule,
    current_outage,
    first_available,
    learn_fact,
    learn_ratio,
    note_outage,
    shared_client,
)
from llm.tools.mcp import tools_changed
from llm.tools.servers import SessionScope
from llm.truncation import CallReported, SentTokens, Truncation, TruncationSuspicion
from llm.types.model_call import (
    STREAM,
    AllocatedWindow,
    HandedOver,
    LoopEvent,
    ModelMessage,
    ParametersLeftOut,
    StepFinished,
    TextBecameReasoning,
    Usage,
)
from llm.types.tools import Tool

SMALLER_WINDOW = 0.95  # factor on the window with which a prompt was refused
REPORT_DELAY = 0.02  # seconds after which the request to the model has been sent
RESEND_INTERVAL = 1.0  # seconds after which events that Redis did not accept are sent again, together with newer ones

logger = logging.getLogger(__name__)
_running: "set[asyncio.Task[None]]" = set()
WRITTEN.set_function(lambda: len(_running))


async def warm_up() -> None:
    """Build the providers' clients and the first connections before the first turn needs them."""
    for provider in await on_database(lambda: list(Provider.objects.filter(enabled=True))):
        shared_client(provider)
    with suppress(*turn_stream.CONNECTION_ERRORS):
        await turn_stream.read_events("warm-up")


async def run_turn(turn_id: UUID, claim_ended: asyncio.Event) -> UUID | None:
    """Carry out a queued turn to its end, and return the id of its conversation. A cancelled turn ends as interrupted.

    Does nothing and returns None if the turn is not queued: another worker has claimed it, or it was stopped.
    `claim_ended` is set once the claim has succeeded or failed.
    """
    try:
        claimed = await run_to_completion(first_on_database(_claim, turn_id))
    finally:
        claim_ended.set()
    if claimed is None:
        return None
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs has its task
    if task.cancelling():
        task.cancel()  # repeat a cancellation that came during the claim, when there was no work to interrupt yet
    _running.add(task)
    turn = claimed[0].turn
    identity = {"request_id": turn.request_id, "user_id": turn.conversation.owner_id, "turn_id": turn.pk}
    try:
        with (
            log_context(identity),
            tracing.span("answer", SpanKind.CONSUMER, turn_id=str(turn.pk), request_id=turn.request_id),
        ):
            await _Run(*claimed).carry_out()
    finally:
        _running.discard(task)
    return turn.conversation_id


def _claim(turn_id: UUID) -> tuple[ClaimedTurn, TurnContext | None, ModelError | None] | None:
    """Claim the turn and make its context in one call: every hop to the database delays the first token.

    If the turn's model has an outage, the context is for a fallback, and the outage is the last value. The context is
    None if the model was removed or switched off, or if no fallback is available.
    """
    claimed = claim(turn_id)
    if claimed is None:
        return None
    model = claimed.turn.model
    if model is None or not model.usable:
        return claimed, None, None
    outage = current_outage(model)
    if outage is None:
        return claimed, context_of_claimed_turn(claimed, model), None
    allowed = rights_of(claimed.turn.conversation.owner, claimed.version).models
    fallback = first_available(model, allowed=allowed)
    return claimed, context_of_claimed_turn(claimed, fallback) if fallback is not None else None, outage


class _Run:
    """The work of one claimed turn. `context` is the context for the current model, which may be a fallback."""

    context: TurnContext
    tools: dict[str, Tool]

    def __init__(self, claimed: ClaimedTurn, first_context: TurnContext | None, outage: ModelError | None) -> None:
        turn = self.turn = claimed.turn
        self._claimed = claimed
        self._first_context = first_context
        self._outage = outage  # the outage of the turn's own model, or of the fallback before the current model
        self.answer = Answer(str(turn.pk))
        self._results = ResultKeeper(turn.conversation, turn.answer_id)
        self._own_tools = NO_TOOLS
        self._sessions = SessionScope(turn.conversation.owner_id, turn.conversation_id, turn.slot)
        self.reports: list[CallReport] = []
        self._sent_tokens = SentTokens(0)  # tokens of the newest call
        self._images = 0  # images in the newest call
        self._answer_limit = 0  # most tokens that the newest call allows for its answer
        self._calls: list[CallReported] = []
        # The server's own window, and the tokens of that call.
        self._served_window: tuple[AllocatedWindow, int] | None = None
        self._window_caps: dict[UUID, int | None] = {}  # by the id of each model used in this turn
        # By model id: the last prompt in this conversation (`_prompts`) and in this turn (`_answered`).
        self._prompts = {
            each.model_id: cache.parse_sent_prompt(cast("cache.StoredPrompt", each.prompt))
            for each in claimed.earlier_prompts
        }
        self._answered: dict[UUID, cache.SentPrompt] = {}
        self._current_prompt: cache.SentPrompt | None = None
        self._reminders: dict[int, str] = {}  # in an append-only turn, by the number of messages added before
        self._others_messages = 0  # number of messages that earlier models have added to this turn
        self._fallback_notes: list[Sentence] = []  # why a fallback is used; empty for the turn's own model
        self._storing: list[asyncio.Task[None]] = []
        self._storing_order = asyncio.Lock()  # an older report must not overwrite a newer one
        self._counted: list[MessageCounts] = []  # token counts of messages, not stored yet
        self._unpublished: list[Event] = []
        self._news = asyncio.Event()
        self._closed = asyncio.Event()

    async def carry_out(self) -> None:
        model_name = self.turn.model.name if self.turn.model else ""
        conversation = str(self.turn.conversation_id)
        message = str(self.turn.answer_id)
        self.answer.emit(EventType.RUN_STARTED, conversation=conversation, message=message, model=model_name)
        self._news.set()
        publisher = asyncio.create_task(self._publish())
        notice = {
            "type": "turn.started",
            "turn": str(self.turn.pk),
            "conversation": conversation,
            "message": message,
        }
        hint = asyncio.create_task(announce(self.turn.conversation_id, notice))
        ending = await self._work(publisher)
        self.answer.close()
        await run_to_completion(self._end(ending, publisher))
        await asyncio.gather(hint, return_exceptions=True)

    async def _work(self, publisher: "asyncio.Task[None]") -> Ending:
        """Ask the model until it has answered, or until a stop, a lost right or an error ends the turn."""
        model = asyncio.create_task(self._ask())
        keeper = asyncio.create_task(keep_checkpoints(self.turn, self.answer, self._uses))
        stop = asyncio.create_task(signals.wait_for_stop(self.turn.pk))
        others = (keeper, stop)
        try:
            await asyncio.wait([model, publisher, *others], return_when=asyncio.FIRST_COMPLETED)
            # A complete answer counts, even if a stop came at the same moment.
            if model.done():
                return await model
            if keeper.done() and not keeper.exception() and (sentence := keeper.result()):
                return Ending(Turn.Status.FAILED, "right_lost", sentence)
            if stop.done() or (keeper.done() and not keeper.exception()):
                return Ending(Turn.Status.STOPPED)
            failure = publisher.exception() if publisher.done() else keeper.exception()
            logger.error("turn %s cannot continue", self.turn.pk, exc_info=failure)
            return UNEXPECTED
        except asyncio.CancelledError:
            return INTERRUPTED
        finally:
            for task in (model, *others):
                task.cancel()
            await asyncio.gather(model, *others, return_exceptions=True)

    async def _ask(self) -> Ending:
        try:
            context = self._first_context
            model = self.turn.model
            if context is None or model is None:
                sentence = Sentence(
                    "The model of this answer was removed or turned off. Choose another model and try again."
                )
                raise ProductError("model_gone", sentence)
            if self._outage is not None and context.model != model:
                await self._fall_back(model, context.model, self._outage)
            else:
                await self._begin(context)
            cycles = self.context.profile.max_cycles
            async with aclosing(agent_loop.run(self._prepare, self._results, max_steps=cycles)) as events:
                async for event in events:
                    await self._handle_event(event)
                    self.answer.add(event)
                    self._news.set()
            return self._complete()
        except ProductError as error:
            logger.warning("turn %s failed: %s", self.turn.pk, error.code)  # a provider's text may quote the prompt
            return store.error_ending(error, self._outage, self.context.model.name if self._fallback_notes else "")
        except Exception:
            logger.exception("turn %s failed", self.turn.pk)
            return UNEXPECTED

    async def _handle_event(self, event: LoopEvent) -> None:
        """Handle an event of the loop: update the report, the model's row, and the data for later steps."""
        if isinstance(event, ParametersLeftOut):
            self.context, self._sent_tokens = reports.without(self.reports[-1], event, self.context, self._sent_tokens)
            if STREAM in event.names:
                await self._learn_fact("whole_answers")
        elif isinstance(event, TextBecameReasoning):
            await self._learn_fact("untagged_reasoning")
        elif isinstance(event, StepFinished):
            await self._handle_step(event)
        elif isinstance(event, HandedOver):
            own = self._without_others_reasoning(event.added)
            await on_database(store.store_reasoning, self.turn, own, self._reminders)

    async def _learn_fact(self, fact: LearntFact) -> None:
        """Store a fact about the model. A database error is ignored, since the next answer shows the fact again."""
        with suppress(DatabaseError):
            await on_database(partial(learn_fact, self.context.model, fact, value=True))

    async def _begin(self, context: TurnContext) -> None:
        require_rights(context, self.turn.conversation)
        # Offer the tools before any other use of the context, so that decisions after the answer see the same tools.
        self._own_tools = context.toolbox
        self.context = context
        await self._offer_tools()

    async def _offer_tools(self) -> None:
        """Offer the tools that the servers list now, beside the product's own tools."""
        own_tools = replace(self.context, toolbox=self._own_tools)
        self._use_tools_of(await with_offered_tools(own_tools, self._sessions))

    async def _choose_definitions(self) -> None:
        """Choose again which tools are listed by name: the model has loaded some, or there is less room."""
        self._use_tools_of(await asyncio.to_thread(with_definitions_that_fit, self.context))

    def _use_tools_of(self, context: TurnContext) -> None:
        self.context = context
        self.tools = guard_tools(context.toolbox, self.answer, self._news.set)
        self.answer.external = frozenset(tool.name for tool in context.toolbox.external)

    def _uses(self) -> TurnUses | None:
        """Return the rights that the turn uses; None before `_begin`."""
        return get_uses(self.context) if hasattr(self, "context") else None

    async def _next_model(self, outage: ModelError, added: Sequence[ModelMessage]) -> None:
        """Continue with a fallback after the messages that the turn has added. Raises `outage` if there is none."""
        failed = self.context.model
        note_outage(failed, outage)
        model = await on_database(first_available, self.turn.model or failed, failed, self.context.rights.models)
        if model is None:
            raise outage
        reasoned = any(message.reasoning is not None for message in added)
        self._others_messages = len(added)
        self._reminders = {}
        await self._fall_back(failed, model, outage, reasoned=reasoned)
        self.reports[-1]["notes"].append(self._fallback_notes[0].dump())

    async def _fall_back(self, failed: Model, model: Model, outage: ModelError, *, reasoned: bool = False) -> None:
        """Use `model` for the rest of the turn. `reasoned`: the turn already has reasoning of an earlier model."""
        self._outage = outage
        self._fallback_notes = reports.fallen_back(failed.name, model.name, outage.sentence, reasoned=reasoned)
        await on_database(store.fall_back, self.turn, model, outage.code)
        self.answer.emit(
            EventType.MODEL_FALLBACK,
            model=model.name,
            instead_of=failed.name,
            code=outage.code,
            detail=outage.sentence.dump(),
        )
        self._news.set()
        searched = any(part.get("name") == SEARCH_GUIDANCE.name for part in self.answer.parts)
        await self._begin(await on_database(partial(context_of_claimed_turn, searched=searched), self._claimed, model))

    async def _prepare(self, step_plan: agent_loop.StepPlan, added: Sequence[ModelMessage]) -> agent_loop.PreparedCall:
        """Prepare the next model call for the loop. `added`: the messages of this turn so far."""
        if step_plan.previous_error is not None and step_plan.previous_error.unavailable:
            await self._next_model(step_plan.previous_error, added)
        if tools_changed(self._sessions):
            await self._offer_tools()
        elif (on_demand := self.context.toolbox.on_demand) is not None and on_demand.outdated:
            await self._choose_definitions()
        added = self._without_others_reasoning(added)
        refused: Sentence | None = None
        if step_plan.previous_error is not None and step_plan.previous_error.code in agent_loop.SHRINKABLE_CODES:
            refused = await on_database(self._shrink_prompt, step_plan.previous_error)
            await self._choose_definitions()
        prepared = await first_on_database(self._plan, self.context, step_plan, added, refused)
        if step_plan.previous_error is None and builder.worth_counting(self.context, prepared.planned.prompt):
            plan = partial(self._plan, step_plan=step_plan, added=added, refused=refused)
            prepared = await reports.with_provider_count(self.context, prepared, plan)
        planned, report, request = prepared
        prompt = planned.prompt
        self.answer.sources.add_documents(planned.documents.citable)
        self.reports.append(report)
        room = ResultRoom(prompt.report.limit, prompt.report.left)
        self._results.begin_step(room, self.context.tokenizer, self.context.texts, report["notes"])
        self._store_reports()
        self.answer.emit(
            EventType.CONTEXT_REPORT,
            limit=prompt.report.limit,
            used=prompt.report.used,
            left_out=prompt.report.without_room,
            refused=report["refused"],
        )
        self._news.set()
        return agent_loop.PreparedCall(
            shared_client(self.context.model.provider), request, self.tools, self.answer.external
        )

    def _without_others_reasoning(self, added: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the turn's messages without the reasoning of earlier models."""
        others = (replace(message, reasoning=None) for message in added[: self._others_messages])
        return [*others, *added[self._others_messages :]]

    def _store_reports(self) -> None:
        """Store the reports once the request has been sent, so that they do not delay the first token."""

        async def in_order() -> None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), REPORT_DELAY)
            if self._closed.is_set():
                return  # the end of the turn stores them
            async with self._storing_order:
                counted, self._counted = self._counted, []
                await on_database(self._store_report, list(self.reports), counted)

        self._storing.append(asyncio.create_task(in_order()))

    def _store_report(self, calls: list[CallReport], counted: Sequence[MessageCounts]) -> None:
        store.store_report(self.turn, calls)
        store_counts(counted)

    def _shrink_prompt(self, refusal: ModelError) -> Sentence:
        """Plan smaller prompts for the rest of this turn. Return a sentence for the report.

        A limit that a refusal proves is stored for the model. A limit that it only suggests applies to this
        conversation alone.
        """
        context = self.context
        before = context.window
        report = self.reports[-1]
        model = context.model
        counted = report["used"] + report["tools_tokens"]
        if refusal.code == "too_many_images":
            if refusal.limit is not None and learn_image_limit(model, refusal.limit, self._images):
                return reports.images_refused(self._images, refusal.limit)
            self.context = replace(context, image_cap=max(1, self._images // 2))
            return reports.images_refused(self._images, None)
        limit = refusal.limit
        if names_window(refusal, counted, self._answer_limit) and learn_refused_window(model, refusal, counted):
            self.context = replace(context, window_cap=None)
            return reports.refused(before, model.window)
        if limit is not None and refusal.is_account_limit:
            self.context = replace(context, window_cap=min(limit, before))
            return reports.refused_for_account(limit, refusal.requested or counted)
        if limit is not None and refusal.requested is not None and limit < refusal.requested:
            # The server counts more tokens than we do: the window shrinks by the same factor, and a little more.
            smaller = int(before * limit / refusal.requested * SMALLER_WINDOW)
        else:
            smaller = context.window_for_prompt(counted // 2)
        self.context = replace(context, window_cap=min(smaller, int(before * SMALLER_WINDOW)))
        self._window_caps[model.pk] = self.context.window_cap
        return reports.refused_without_limit(before, self.context.window)

    def _plan(
        self,
        context: TurnContext,
        step_plan: agent_loop.StepPlan,
        added: Sequence[ModelMessage],
        refused: Sentence | None,
    ) -> PlannedRequest:
        store.store_reasoning(self.turn, added, self._reminders)
        added_messages = builder.added_messages(self.turn.answer_id, added)
        searched, web_unopened = builder.searches_of([c.name for each in added for c in each.tool_calls], context)
        step = builder.CallStep(
            searched=searched,
            last=step_plan.last,
            undefined=step_plan.without_tool_definitions,
            first=step_plan.number == 1,
            web_unopened=web_unopened,
            reminders={number: text for number, text in self._reminders.items() if number < len(added)},
        )
        planned = builder.plan(context, self._claimed.leaf, added_messages, step=step, later=self._counted)
        assign_numbers(self.turn.conversation, list(planned.documents.numbers.assigned))
        if planned.memory is not None and step_plan.number == 1:
            store_use(self.turn.conversation, planned.memory, str(planned.summary.pk) if planned.summary else "")
        prompt = planned.prompt
        builder.log_trimmed(context, prompt)
        if context.model.provider.append_only and prompt.messages[-1].section == "reminder":
            self._reminders[len(added)] = prompt.messages[-1].text or ""
        request = model_request(context, prompt, step)
        self._sent_tokens = builder.sent_tokens(context, prompt, request)
        self._images = sum(len(message.images) for message in request.messages)
        self._answer_limit = request.max_output or context.room.reserved_output
        fingerprint = self._current_prompt = builder.fingerprint(context, prompt, step)
        before = self._prompts.get(context.model.pk)
        other_model = self._claimed.prompted or bool(self._prompts)
        entry = cache.forecast(fingerprint, before, cache_rule(context.model), other_model=other_model)
        report = reports.stored(context, planned, cycle=step_plan.number, refused=refused, cache=entry)
        report["notes"] += [sentence.dump() for sentence in self._fallback_notes]
        store.store_requested_calls(self.turn, [*self.reports, report])
        request = replace(request, previous_answer=before.answer if before is not None else "")
        return PlannedRequest(planned, report, request)

    def _complete(self) -> Ending:
        if self.answer.wrote or self.answer.handed_over:
            return Ending(Turn.Status.DONE)
        return store.empty_answer_ending(self.answer.finish_reason, self.answer.finish_detail)

    async def _publish(self) -> None:
        """Append events to the stream: the first at once, then at intervals. Return when the last one is sent.

        While Redis is unavailable, the events stay in memory and the answer continues. Its row still gets the text.
        """
        late = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            await self._news.wait()
            self._news.clear()
            finished = self._closed.is_set()  # read before draining: later events set `_news` again
            self._unpublished += self.answer.drain()
            try:
                if self._unpublished:
                    await turn_stream.append(self.turn.pk, self._unpublished, RESEND_INTERVAL)
                self._unpublished = []
            except turn_stream.CONNECTION_ERRORS:
                if finished:
                    raise
                self._news.set()
            if finished:
                return
            due = clock() + (wait := self.answer.interval(len(_running), late))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._closed.wait()
            late = max(0.0, clock() - due)

    async def _end(self, ending: Ending, publisher: "asyncio.Task[None]") -> None:
        """Flush the text, complete the rows, and then tell readers that the turn is over."""
        self._closed.set()
        self._news.set()
        published = (await asyncio.gather(publisher, return_exceptions=True))[0]
        if isinstance(published, BaseException):
            logger.warning("turn %s: its stream lacks events (%s)", self.turn.pk, published)
        await self._check_citations(ending)
        last, payload = last_event(
            ending, self.answer.usage_row(), self.answer.finish_reason, self.answer.finish_detail
        )
        self.answer.emit_payload(last, payload)
        events = [*self._unpublished, *self.answer.drain()]
        await asyncio.gather(*self._storing, return_exceptions=True)
        state = await with_retries(partial(self._store_end, ending))
        if state is None:
            return
        self._count(ending)
        try:
            await turn_stream.append(self.turn.pk, events)
        except turn_stream.CONNECTION_ERRORS:
            logger.warning("turn %s has ended, but Redis is unavailable: readers use the row", self.turn.pk)
        await announce_state(self.turn.conversation_id, state)
        await self._learn_from_usage(ending)

    async def _check_citations(self, ending: Ending) -> None:
        """Compare the citations of a complete answer with their passages. A failure must not lose the answer."""
        if ending.status != Turn.Status.DONE or not any(part.get("citations") for part in self.answer.parts):
            return
        conversation = self.turn.conversation
        judge = self.context.workspace.citation_model_id
        billing = Billing(conversation, ModelCall.Purpose.CITATIONS, conversation.owner_id, token=self.turn.token_id)
        find = partial(check, conversation, self.answer.parts, self.answer.sources)
        checks, note = await check_in_time(find, billing, self.context.texts, judge)
        self.reports[-1]["notes"] += [note.dump()] if note else []
        for each in checks:
            self.answer.emit(
                EventType.CITATION_CHECK,
                part=each.part,
                checked=each.checked,
                doubts=each.doubts,
                places=each.places,
            )
        if doubts := sum(len(each.doubts) for each in checks):
            self.reports[-1]["notes"].append(reports.doubted(doubts, sum(each.checked for each in checks)).dump())

    def _store_end(self, ending: Ending) -> str | None:
        """End the turn. Return the state of its conversation, or None if another process has ended the turn."""
        answer = self.answer
        store_counts(self._counted)
        self._counted = []
        outcome = TurnOutcome(
            answer.parts,
            answer.seq,
            usage=answer.usage_row(),
            calls=self.reports,
            summary=self._summary(ending),
            prompts=self._answered,
            window_caps=self._window_caps,
            finish_reason=answer.finish_reason,
            first_token=answer.waited(self.turn.created),
            finish_detail=answer.finish_detail,
            of_run=self._claimed.run_step is not None,
            version=self._claimed.version,
        )
        state = store.end_turn(self.turn, ending, outcome)
        if state is not None and ending.status == Turn.Status.STOPPED:
            requested, ended = Turn.objects.values_list("stop_asked", "finished").get(pk=self.turn.pk)
            STOPS.observe((ended - requested).total_seconds() if requested and ended else 0)
        return state

    def _count(self, ending: Ending) -> None:
        """Count the turn for Prometheus and for traces."""
        TURNS.labels(ending.status).inc()
        tracing.note(status=ending.status, code=ending.code)
        if not self.reports:
            return
        model = self.context.model.name
        for kind in ("input", "output", "cached_input", "reasoning"):
            TOKENS.labels(model, kind).inc(self.answer.usage_row().get(kind) or 0)
        if (waited := self.answer.waited(self.turn.created)) is not None:
            FIRST_TOKEN.labels(model).observe(waited / 1_000)

    def _summary(self, ending: Ending) -> SummaryJob | None:
        """Return the summary job that is due after this turn. None is due after a failed answer."""
        if not self.reports or self.turn.model is None or ending.status not in (Turn.Status.DONE, Turn.Status.STOPPED):
            return None
        # A summary serves the next prompt, which goes to the turn's own model. An unproven limit must not cause one.
        context = replace(self.context, model=self.turn.model, window_cap=None, image_cap=None)
        text = "".join(part["text"] for part in self.answer.parts if part["type"] == "text")
        return due.plan_job_after(context, self.reports[-1], self.turn, text)

    async def _handle_step(self, step: StepFinished) -> None:
        """Complete the call's report with the usage that the provider reports, and compare it with the prompt."""
        call = self.reports[-1]
        model = self.context.model
        usage = step.usage
        if self._current_prompt is not None:
            answered = replace(self._current_prompt, reported=step.cache_reported, answer=step.answer_id)
            self._prompts[model.pk] = self._answered[model.pk] = answered
        if usage is None:
            return
        call["usage"] = asdict(usage)
        if step.cache_reported:
            counted = call["used"] + call["tools_tokens"]
            sent = self._prompts[model.pk]
            call["cache"] = cache.with_usage(call["cache"], sent, usage.within_totals(), counted, step.changed_part)
        await self._compare_usage(usage)
        if step.reason == "tool_calls":  # the turn continues, and its worker may be killed before the end
            self._store_reports()

    async def _compare_usage(self, usage: Usage) -> None:
        """Compare the tokens that the server reports with the prompt that was sent.

        A proven truncation is reported. A suspicion is shown once per conversation and has no other effect.
        """
        model = self.context.model
        report = self.reports[-1]
        sent = self._sent_tokens
        truncation, allocated = await check_truncation(model, sent, usage)
        self._calls.append(CallReported(sent, usage, doubted=truncation is not None))
        if allocated is not None and allocated.window is not None:
            self._served_window = allocated, sent.total
        if isinstance(truncation, Truncation):
            report["unread"] = truncation.missing
            report["notice"] = reports.truncated(truncation).dump()
            report["notes"].append(report["notice"])
        elif isinstance(truncation, TruncationSuspicion) and await on_database(self._first_suspicion):
            report["notice"] = reports.suspected(truncation).dump()
            report["notes"].append(report["notice"])

    def _first_suspicion(self) -> bool:
        """Return whether no notice about this model's counts was shown in this conversation yet."""
        if any(call["notice"] for call in self.reports):
            return False
        earlier = Turn.objects.filter(conversation=self.turn.conversation_id, answer__model=self.context.model)
        return not earlier.exclude(context_notice="").exclude(pk=self.turn.pk).exists()

    async def _learn_from_usage(self, ending: Ending) -> None:
        """Learn from the provider's reports: the window of its server, and how it counts tokens.

        The ratio of counts is learnt only if the usage of all calls was reported and no report is doubted.
        """
        if not self.reports:
            return
        model = self.context.model
        with suppress(DatabaseError):
            if self._served_window is not None:
                await on_database(learn_served_window, model, *self._served_window)
            await on_database(record_calls, model, self._calls)
            counted = sum(report["used"] + report["tools_tokens"] for report in self.reports)
            doubted = any(call.doubted for call in self._calls)
            if ending.status == Turn.Status.DONE and self.answer.calls == len(self.reports) and not doubted:
                reported = sum(call.read for call in self._calls)
                await on_database(learn_ratio, model=model, counted=counted, reported=reported)


async def recover(turn_id: UUID) -> UUID | None:
    """End a turn whose worker is gone. Its text is completed from the stream, which is ahead of the row.

    Return the id of its conversation, or None if another process has ended the turn.
    """
    turn = await on_database(store.load_stale_turn, turn_id)
    if turn is None:
        return None
    answer = await load_answer(turn)
    last, payload = last_event(INTERRUPTED, {})
    answer.emit_payload(last, payload)
    events = answer.drain()
    of_run = await on_database(store.is_run_step, turn)
    outcome = TurnOutcome(
        answer.parts,
        answer.seq,
        calls=turn.report.get("calls", []),
        requested=turn.asked,
        of_run=of_run,
    )
    if not await on_database(store.end_turn, turn, INTERRUPTED, outcome):
        return None
    TURNS.labels(INTERRUPTED.status).inc()
    await turn_stream.append(turn.pk, events)
    logger.warning("turn %s was interrupted: its worker was lost", turn.pk)
    return turn.conversation_id
