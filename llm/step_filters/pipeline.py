"""Filter the events that a model server sends, for all protocols.

Each event passes these filters, in this order:

1. `thoughts`: reasoning in the text becomes reasoning events.
2. `written_calls`: tool calls in the text become tool-call events.
3. Ids of tool calls become unique within the step.
4. A step that ended with `tool_calls` but has no call gets the reason `other`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from llm.step_filters.thoughts import TextEvent, ThoughtFilter
from llm.step_filters.written_calls import WrittenCallFilter
from llm.types.model_call import (
    ModelRequest,
    ReasoningDelta,
    StepEvent,
    StepFinished,
    TextBecameReasoning,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)

COMPLETE_REASONS = ("stop", "tool_calls")  # finish reasons of a step that the model ended by itself


class StepFilter:
    """The filters of one step. `replays_text`: the protocol's reasoning state contains the unfiltered text."""

    def __init__(self, request: ModelRequest, *, replays_text: bool) -> None:
        begins_inside = request.untagged_reasoning and request.sampling.reasoning_effort != "none"
        self._thought_filter = ThoughtFilter(begins_inside=begins_inside)
        call_tools = request.tools if request.written_calls and request.tool_choice != "none" else ()
        self._call_filter = WrittenCallFilter({tool.name for tool in call_tools}) if call_tools else None
        self._replays_text = replays_text
        self._ids: set[str] = set()
        self._ids_changed = False

    def filter_events(self, events: Iterable[StepEvent]) -> Iterator[StepEvent]:
        """Yield the filtered events."""
        for event in events:
            match event:
                case TextDelta(text):
                    if text:
                        yield from self._filter_text(self._thought_filter.feed(text))
                case ReasoningDelta(text):
                    if text:
                        self._thought_filter.note_separate_reasoning()
                        yield event
                case ToolCallStarted():
                    yield from self._filter_text(self._thought_filter.end_text())
                    if self._call_filter is not None:
                        yield from self._call_filter.flush()
                    yield self._with_unique_id(event)
                case StepFinished():
                    yield from self._finish(event)
                case _:
                    yield event

    def _filter_text(self, events: Iterable[TextEvent]) -> Iterator[StepEvent]:
        for event in events:
            if self._call_filter is None:
                yield event
            elif isinstance(event, TextDelta):
                yield from self._call_filter.feed(event.text)
            else:
                if isinstance(event, TextBecameReasoning):
                    yield from self._call_filter.flush()
                yield event

    def _with_unique_id(self, event: ToolCallStarted) -> ToolCallStarted:
        """Return the event with a unique id. Some gateways give all calls of an answer the same id."""
        id_ = event.id
        number = 2
        while id_ in self._ids:
            id_ = f"{event.id}_{number}"
            number += 1
        self._ids.add(id_)
        if id_ == event.id:
            return event
        self._ids_changed = True
        return replace(event, id=id_)

    def _finish(self, event: StepFinished) -> Iterator[StepEvent]:
        yield from self._filter_text(self._thought_filter.finish(complete=event.reason in COMPLETE_REASONS))
        if self._call_filter is not None:
            text, calls = self._call_filter.finish()
            if text:
                yield TextDelta(text)
            for index, call in enumerate(calls, len(self._ids)):
                yield self._with_unique_id(ToolCallStarted(index, f"call_{index}", call.name))
                yield ToolCallDelta(index, call.arguments)
            if calls and event.reason == "stop":
                event = replace(event, reason="tool_calls")
        if event.reason == "tool_calls" and not self._ids:
            event = replace(event, reason="other", detail=event.detail or "tool_calls")
        if self._replays_text and event.reason != "pause" and (self._thought_filter.has_reasoning or self._ids_changed):
            event = replace(event, reasoning=None)  # it includes the text or the ids from before the filters
        yield event
