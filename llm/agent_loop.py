"""Run the answer loop. A step is one model call; a turn is steps until the model answers without calling tools.

1. `run` starts a step. Step `max_steps` forbids tools. If the model calls one nevertheless and writes no text, one more
   step follows, without tool definitions. So a turn has at most `max_steps` + 1 steps.
2. `_run_step` asks the caller to prepare the call, makes it, and passes its events on. If another request may avoid
   a refusal, it prepares the call again.
3. `_run_calls` runs the step's tool calls concurrently. The caller processes each output, and may shorten a long one.
4. The calls and their results are added to the turn, and the next step begins.

Events come from nested async generators: the turn, its steps, and the model call of each step.
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
from llm.step_filters.valid_calls import is_object, resolve_name
from llm.types.model_call import (
    FinishReason,
    HandedOver,
    LoopEvent,
    ModelMessage,
    ModelRequest,
    ParametersLeftOut,
    ProviderClient,
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

MAX_STEPS = 6
MAX_CALLS = 16  # per step; further calls return an error to the model
TRUNCATED_CALL = (
    "Your answer reached the output limit inside this call, so the call is incomplete and was not run. Call again with "
    "shorter arguments, or split the work into several calls."
)
FORBIDDEN_CALL = "Tools are no longer allowed in this turn, so this call was not run. Answer now, with what you know."
# Codes of errors after which another request to the same model may succeed, and of those for which it must be smaller.
RETRYABLE_CODES = ("context_too_long", "too_many_images", "responses_only")
SHRINKABLE_CODES = ("context_too_long", "too_many_images")
MAX_SHRINK_RETRIES = 4  # retries of a prompt that is too long or has too many images; each is smaller

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of a turn, for which the caller prepares a model call.

    `number` counts from 1. `last`: the step must not call tools. `without_tool_definitions`: the request must not even
    define tools, since the model called one in a step that forbids calls. `previous_error`: the provider's error, if
    the request must be prepared again: the prompt was too long or had too many images, the model needs another protocol
    (which the client has remembered), or the provider is not available.
    """

    number: int
    last: bool
    previous_error: ModelError | None = None
    without_tool_definitions: bool = False


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """One model call, ready to be made: the client, the request, and the tools that the model may call.

    `external`: names of tools that the client of the API runs itself.
    """

    provider: ProviderClient
    request: ModelRequest
    tools: Mapping[str, Tool]
    external: Collection[str] = ()


# Returns the output to send to the model, such as a shortened one. The number counts the calls of this step that still
# need an output, including this one.
OutputProcessor = Callable[[ToolCall, ToolOutput, int], Awaitable[ToolOutput]]
# Returns the next call, given the messages that the turn has added so far. If a provider is not available and no
# fallback is left, it raises the provider's error.
Prepare = Callable[[StepPlan, Sequence[ModelMessage]], Awaitable[PreparedCall]]


@dataclass(slots=True)
class _Step:
    """The progress of one step. `started`: an event of the answer was passed on, so the call cannot be repeated."""

    call: PreparedCall = field(init=False)
    started: bool = False
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)
    reasoning: ReasoningState | None = None
    reason: FinishReason = "stop"

    def add(self, event: StepEvent) -> None:
        self.started = self.started or not isinstance(event, ParametersLeftOut)
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
            self.reasoning = event.reasoning
            self.reason = event.reason

    @property
    def truncated_call(self) -> int | None:
        """Return the index of the call in which the answer reached the output limit; None if there is no such call."""
        if self.reason not in ("length", "context_window") or not self.calls:
            return None
        last = len(self.calls) - 1
        arguments = "".join(self.arguments[last])
        return last if not arguments.strip() or not is_object(arguments) else None

    @property
    def has_text(self) -> bool:
        return any(not text.isspace() for text in self.text if text)

    def message(self, calls: tuple[ToolCall, ...]) -> ModelMessage:
        """Return the step as a message with these calls."""
        return ModelMessage("assistant", "".join(self.text), tool_calls=calls, reasoning=self.reasoning)

    def finished_calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            replace(call, arguments="".join(pieces)) for call, pieces in zip(self.calls, self.arguments, strict=True)
        )


async def keep_output(_call: ToolCall, output: ToolOutput, _waiting: int) -> ToolOutput:
    return output


async def run(
    prepare: Prepare, process_output: OutputProcessor = keep_output, *, max_steps: int = MAX_STEPS
) -> AsyncGenerator[LoopEvent, None]:
    """Yield the events of a turn, in order. Step `max_steps` forbids tools.

    Some servers ignore this, and the model still calls a tool. If it wrote no text in that step, it gets one more
    request without tool definitions. A call of an external tool ends the turn. Other calls of that step do not run,
    since no later step could use their results.

    Raises `core.errors.ModelError` and the errors of `prepare`. Closing the iterator stops the model and the tools.
    """
    turn_messages: list[ModelMessage] = []
    for number in range(1, max_steps + 2):
        plan = StepPlan(number, last=number >= max_steps, without_tool_definitions=number > max_steps)
        yield StepStarted(number)
        step = _Step()
        async with aclosing(_run_step(prepare, plan, turn_messages, step)) as events:
            async for event in events:
                yield event
        calls = step.finished_calls()
        handed_over = tuple(call for call in calls if call.name in step.call.external)
        for call in handed_over:
            yield ToolRunStarted(call, Sentence.verbatim(call.name))
        if handed_over and handed_over == calls:  # otherwise some calls would come back without a result
            yield HandedOver((*turn_messages, step.message(calls)))
        if handed_over or not calls or plan.without_tool_definitions or (plan.last and step.has_text):
            return
        results: list[ToolRunFinished] = []
        async with aclosing(
            _refuse_calls(calls) if plan.last else _run_calls(calls, step, process_output)
        ) as tool_events:
            async for tool_event in tool_events:
                if isinstance(tool_event, ToolRunFinished):
                    results.append(tool_event)
                yield tool_event
        turn_messages.append(step.message(tuple(each.call for each in results)))
        turn_messages += [
            ModelMessage("tool", each.text, tool_call_id=each.call.id, result=each.result, files=each.files)
            for each in results
        ]


async def _run_calls(
    calls: Sequence[ToolCall], step: _Step, process_output: OutputProcessor
) -> AsyncGenerator[ToolRunStarted | ToolRunFinished, None]:
    """Run the calls concurrently. Yield their results in the order of the calls, as the model expects."""
    tools = step.call.tools
    for call in calls:
        yield ToolRunStarted(call, _call_label(call, tools))
    running = [
        asyncio.create_task(_run_call(number, call, tools, truncated=number == step.truncated_call))
        for number, call in enumerate(calls)
    ]
    try:
        for number, (call, task) in enumerate(zip(calls, running, strict=True)):
            output = await process_output(call, await task, len(calls) - number)
            used_call = call if output.arguments is None else replace(call, arguments=_to_json(output.arguments))
            yield ToolRunFinished(used_call, output.text, output.error, output.data, output.result, output.files)
    finally:
        for task in running:
            task.cancel()


async def _refuse_calls(calls: Sequence[ToolCall]) -> AsyncGenerator[ToolRunStarted | ToolRunFinished, None]:
    """Yield an error result for each call, since tools are no longer allowed."""
    for call in calls:
        yield ToolRunStarted(call, Sentence.verbatim(call.name[:100]))
    for call in calls:
        yield ToolRunFinished(call, FORBIDDEN_CALL, error=True)


def _to_json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


async def _run_step(
    prepare: Prepare, plan: StepPlan, turn_messages: Sequence[ModelMessage], step: _Step
) -> AsyncGenerator[StepEvent, None]:
    """Make one model call. Prepare it again if the provider refuses it for a known reason or is not available.

    A model gets one retry for each error code, and `MAX_SHRINK_RETRIES` retries for a prompt that is too long or has
    too many images. After the first event of the answer there is no retry, so that no text is repeated.
    """
    retries: Counter[tuple[ProviderClient, str, str]] = Counter()
    while True:
        call = await prepare(plan, turn_messages)
        step.call = call
        try:
            tool_names = {*call.tools, *call.external}
            async with aclosing(call.provider.stream(call.request)) as events:
                async for event in events:
                    if isinstance(event, ToolCallStarted):
                        event = replace(event, name=resolve_name(event.name, tool_names))
                    step.add(event)
                    yield event
            return
        except ModelError as error:
            attempt = (call.provider, call.request.model, error.code)
            retryable = error.unavailable or error.code in RETRYABLE_CODES
            max_retries = MAX_SHRINK_RETRIES if error.code in SHRINKABLE_CODES else 1
            if step.started or retries[attempt] >= max_retries or not retryable:
                raise
            retries[attempt] += 1
            plan = replace(plan, previous_error=error)


def _call_label(call: ToolCall, tools: Mapping[str, Tool]) -> Sentence:
    try:
        return tools[call.name].label(parse_arguments(call))
    except (KeyError, BadArguments):
        return Sentence.verbatim(call.name[:100])


async def _run_call(number: int, call: ToolCall, tools: Mapping[str, Tool], *, truncated: bool) -> ToolOutput:
    """Run one call. Its data lists the requests that left the workspace.

    `truncated`: the call is incomplete, so it is not run.
    """
    if truncated:
        return ToolOutput(TRUNCATED_CALL, error=True)
    with noting() as requests:
        output = await _run_tool_call(number, call, tools)
    return replace(output, data={**output.data, "outgoing": requests}) if requests else output


async def _run_tool_call(number: int, call: ToolCall, tools: Mapping[str, Tool]) -> ToolOutput:
    """Return the output of a call. If it cannot run, the output has the reason, so that the turn goes on."""
    if number >= MAX_CALLS:
        return ToolOutput(f"Only {MAX_CALLS} calls of one step are run. This call was not run.", error=True)
    tool = tools.get(call.name)
    if tool is None:
        available = ", ".join(sorted(tools)) or "none"
        return ToolOutput(f"There is no tool of this name. Available: {available}.", error=True)
    try:
        return await run_tool(tool, parse_arguments(call))
    except BadArguments as error:
        # The next prompt must not repeat arguments that are too long.
        replacement = {"left_out": len(call.arguments)} if len(call.arguments) > MAX_ARGUMENTS else None
        return ToolOutput(str(error), error=True, arguments=replacement)
    except Exception:
        logger.exception("tool %s failed", tool.definition.name)
        return ToolOutput("The tool failed with an internal error. Continue without it.", error=True)
