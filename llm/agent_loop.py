"""The one answer loop: a step is one model call; a turn is steps until the model answers without calling tools.

Events come from async generators, one inside the other: the turn, its steps, and the model call of each.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import ModelError
from core.net.outgoing import noting
from core.sentences import Sentence
from llm.step_filters.valid_calls import is_object, resolved_name
from llm.types.model_call import (
    FinishReason,
    HandedOver,
    LoopEvent,
    Message,
    ModelRequest,
    ParametersLeftOut,
    Provider,
    ReasoningState,
    StepEvent,
    StepFinished,
    StepStarted,
    TextBecameReasoning,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolRunFinished,
    ToolRunStarted,
)
from llm.types.tools import MAX_ARGUMENTS, BadArguments, Tool, ToolOutput, parse_arguments, run_tool

MAX_CYCLES = 6
MAX_CALLS = 16  # of one step; a model that asks for more is told so
CUT_CALL = (
    "Your answer reached its greatest length inside this call, so the call has no end and was not run. Call again with "
    "shorter arguments, or do it in several calls."
)
FORBIDDEN = "No tool can be called any more, so this call was not run. Answer now, with what you know."
# Errors after which a request that is prepared otherwise, for the same model, may be accepted.
PREPARED_AGAIN = ("context_too_long", "too_many_images", "responses_only")
SMALLER_AGAIN = ("context_too_long", "too_many_images")
MAX_SMALLER = 4  # times that a prompt which is refused as too long is sent again with less

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cycle:
    """One model call of a turn. `number` counts from 1; `last`: no tools any more; `undefined`: not even their
    definitions are sent, since the model has called one all the same.

    `refused` is the provider's error when this cycle's request must be prepared otherwise: its prompt was too long, the
    model speaks another protocol, which the client has taken note of, or the provider is not available.
    """

    number: int
    last: bool
    refused: ModelError | None = None
    undefined: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One model call, ready to be made: what is sent to whom, and the tools that the model may call.

    `external`: names of tools that whoever asks runs.
    """

    provider: Provider
    request: ModelRequest
    tools: Mapping[str, Tool]
    external: Collection[str] = ()


# Given a call, its output, and how many calls of the step are still without one, this one included: the output as the
# model gets it.
Settle = Callable[[ToolCall, ToolOutput, int], Awaitable[ToolOutput]]
# Given the cycle and the messages this turn has added, the call to make. Raises the error of a provider that is not
# available when there is no other to ask.
Prepare = Callable[[Cycle, Sequence[Message]], Awaitable[Call]]


@dataclass(slots=True)
class _Step:
    """What one step has said so far. `begun`: any of it has been told."""

    asked: Call = field(init=False)
    begun: bool = False
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    reasoning: ReasoningState | None = None
    reason: FinishReason = "stop"

    def add(self, event: StepEvent) -> None:
        self.begun = self.begun or not isinstance(event, ParametersLeftOut)
        if isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, TextBecameReasoning):
            self.text.clear()
        elif isinstance(event, ToolCallStarted):
            self.calls.append(ToolCall(event.id, event.name, ""))
            self.arguments.append([])
        elif isinstance(event, ToolCallDelta):
            self.arguments[event.index].append(event.arguments)
        elif isinstance(event, StepFinished):
            self.reasoning, self.reason = event.reasoning, event.reason

    @property
    def cut_call(self) -> int | None:
        """The number of the call in which the answer reached its greatest length; None where it did not."""
        if self.reason not in ("length", "context_window") or not self.calls:
            return None
        last = len(self.calls) - 1
        arguments = "".join(self.arguments[last])
        return last if not arguments.strip() or not is_object(arguments) else None

    @property
    def wrote(self) -> bool:
        return any(not text.isspace() for text in self.text if text)

    def said(self, calls: tuple[ToolCall, ...]) -> Message:
        return Message("assistant", "".join(self.text), tool_calls=calls, reasoning=self.reasoning)

    def finished_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            replace(call, arguments="".join(pieces)) for call, pieces in zip(self.calls, self.arguments, strict=True)
        )


async def as_it_is(_call: ToolCall, output: ToolOutput, _waiting: int) -> ToolOutput:
    return output


async def run(
    prepare: Prepare, settle: Settle = as_it_is, *, max_cycles: int = MAX_CYCLES
) -> AsyncGenerator[LoopEvent, None]:
    """Yields everything that happens in a turn, in order. The last cycle forbids tools.

    Servers that ignore this let the model call one all the same. If it has written nothing else in the last cycle, it
    is asked once more, without any definitions of tools.

    A call of an external tool ends the turn, and other calls beside it do not run: nobody could be told their results.

    Raises `core.errors.ModelError` and whatever `prepare` raises. Closing the iterator stops the model and the tools.
    """
    added: list[Message] = []
    for number in range(1, max_cycles + 2):
        cycle = Cycle(number, last=number >= max_cycles, undefined=number > max_cycles)
        yield StepStarted(number)
        step = _Step()
        async with aclosing(_step(prepare, cycle, added, step)) as events:
            async for event in events:
                yield event
        calls = step.finished_calls()
        handed_over = tuple(call for call in calls if call.name in step.asked.external)
        for call in handed_over:
            yield ToolRunStarted(call, Sentence.verbatim(call.name))
        if handed_over and handed_over == calls:  # else some would come back without a result
            yield HandedOver((*added, step.said(calls)))
        if handed_over or not calls or cycle.undefined or (cycle.last and step.wrote):
            return
        finished: list[ToolRunFinished] = []
        async with aclosing(_forbid(calls) if cycle.last else _run_calls(calls, step, settle)) as runs:
            async for run in runs:
                if isinstance(run, ToolRunFinished):
                    finished.append(run)
                yield run
        added.append(step.said(tuple(each.call for each in finished)))
        added += [Message("tool", each.text, tool_call_id=each.call.id, result=each.result) for each in finished]


async def _run_calls(
    calls: Sequence[ToolCall], step: _Step, settle: Settle
) -> AsyncGenerator[ToolRunStarted | ToolRunFinished, None]:
    """Runs the calls side by side. Their results come in the order of the calls, in which the model expects them."""
    tools = step.asked.tools
    for call in calls:
        yield ToolRunStarted(call, _label(call, tools))
    running = [
        asyncio.create_task(_run_call(number, call, tools, cut=number == step.cut_call))
        for number, call in enumerate(calls)
    ]
    try:
        for number, (call, task) in enumerate(zip(calls, running, strict=True)):
            output = await settle(call, await task, len(calls) - number)
            used = call if output.arguments is None else replace(call, arguments=_json(output.arguments))
            yield ToolRunFinished(used, output.text, output.error, output.data, output.result)
    finally:
        for task in running:
            task.cancel()


async def _forbid(calls: Sequence[ToolCall]) -> AsyncGenerator[ToolRunStarted | ToolRunFinished, None]:
    """Tells the model that no call runs any more."""
    for call in calls:
        yield ToolRunStarted(call, Sentence.verbatim(call.name[:100]))
    for call in calls:
        yield ToolRunFinished(call, FORBIDDEN, error=True)


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


async def _step(
    prepare: Prepare, cycle: Cycle, added: Sequence[Message], step: _Step
) -> AsyncGenerator[StepEvent, None]:
    """One model call; again, prepared otherwise, when the provider says what is wrong with it or is not available.

    A model is asked once more for each reason, for a prompt that is too long up to `MAX_SMALLER` times, and none after
    the first token: nothing may be told twice.
    """
    known: Counter[tuple[Provider, str, str]] = Counter()
    while True:
        asked = step.asked = await prepare(cycle, added)
        try:
            names = {*asked.tools, *asked.external}
            async with aclosing(asked.provider.stream(asked.request)) as events:
                async for event in events:
                    if isinstance(event, ToolCallStarted):
                        event = replace(event, name=resolved_name(event.name, names))
                    step.add(event)
                    yield event
            return
        except ModelError as error:
            met = (asked.provider, asked.request.model, error.code)
            again = error.unavailable or error.code in PREPARED_AGAIN
            most = MAX_SMALLER if error.code in SMALLER_AGAIN else 1
            if step.begun or known[met] >= most or not again:
                raise
            known[met] += 1
            cycle = replace(cycle, refused=error)


def _label(call: ToolCall, tools: Mapping[str, Tool]) -> Sentence:
    try:
        return tools[call.name].label(parse_arguments(call))
    except (KeyError, BadArguments):
        return Sentence.verbatim(call.name[:100])


async def _run_call(number: int, call: ToolCall, tools: Mapping[str, Tool], *, cut: bool) -> ToolOutput:
    """With `outgoing` among its data: what left the workspace. `cut`: the call has no end, so it does not run."""
    if cut:
        return ToolOutput(CUT_CALL, error=True)
    with noting() as sent:
        output = await _output_of(number, call, tools)
    return replace(output, data={**output.data, "outgoing": sent}) if sent else output


async def _output_of(number: int, call: ToolCall, tools: Mapping[str, Tool]) -> ToolOutput:
    """A call that cannot run tells the model why, so that the turn goes on."""
    if number >= MAX_CALLS:
        return ToolOutput(f"Only {MAX_CALLS} calls of one step are run; this one was not.", error=True)
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return ToolOutput(f"There is no tool of this name. Available: {known}.", error=True)
    try:
        return await run_tool(tool, parse_arguments(call))
    except BadArguments as error:
        # Arguments without end must not come back in the next prompt.
        kept = {"left_out": len(call.arguments)} if len(call.arguments) > MAX_ARGUMENTS else None
        return ToolOutput(str(error), error=True, arguments=kept)
    except Exception:
        logger.exception("tool %s failed", tool.definition.name)
        return ToolOutput("The tool failed for a reason of its own. Go on without it.", error=True)
