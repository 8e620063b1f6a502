"""What the readers of all protocols share: from the events of a server to those of a step.

Each event passes these filters, in this order:

1. `thoughts`: reasoning that stands in the text is reasoning.
2. `written_calls`: calls that stand in the text are calls, for models that are known to write them so.
3. Ids of calls are unique within the step.
4. A step that ended with `tool_calls` and has none did not come to a good end.
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

COMPLETE = ("stop", "tool_calls")  # ends of a step that the model chose


class StepFilter:
    """The filters of one step. `replays_text`: the protocol's state of reasoning holds the text as it came."""

    def __init__(self, request: ModelRequest, *, replays_text: bool) -> None:
        inside = request.untagged_reasoning and request.sampling.reasoning_effort != "none"
        self._thoughts = ThoughtFilter(begins_inside=inside)
        offered = request.tools if request.written_calls and request.tool_choice != "none" else ()
        self._written = WrittenCallFilter({tool.name for tool in offered}) if offered else None
        self._replays_text = replays_text
        self._ids: set[str] = set()
        self._renamed = False

    def pass_on(self, events: Iterable[StepEvent]) -> Iterator[StepEvent]:
        for event in events:
            match event:
                case TextDelta(text):
                    if text:
                        yield from self._of_text(self._thoughts.feed(text))
                case ReasoningDelta(text):
                    if text:
                        self._thoughts.separate()
                        yield event
                case ToolCallStarted():
                    yield from self._of_text(self._thoughts.end_text())
                    if self._written is not None:
                        yield from self._written.flush()
                    yield self._with_own_id(event)
                case StepFinished():
                    yield from self._finish(event)
                case _:
                    yield event

    def _of_text(self, events: Iterable[TextEvent]) -> Iterator[StepEvent]:
        for event in events:
            if self._written is None:
                yield event
            elif isinstance(event, TextDelta):
                yield from self._written.feed(event.text)
            else:
                if isinstance(event, TextBecameReasoning):
                    yield from self._written.flush()
                yield event

    def _with_own_id(self, event: ToolCallStarted) -> ToolCallStarted:
        """Some gateways give all calls of an answer one id."""
        id_, number = event.id, 2
        while id_ in self._ids:
            id_, number = f"{event.id}_{number}", number + 1
        self._ids.add(id_)
        if id_ == event.id:
            return event
        self._renamed = True
        return replace(event, id=id_)

    def _finish(self, event: StepFinished) -> Iterator[StepEvent]:
        yield from self._of_text(self._thoughts.finish(complete=event.reason in COMPLETE))
        if self._written is not None:
            text, calls = self._written.finish()
            if text:
                yield TextDelta(text)
            for index, call in enumerate(calls, len(self._ids)):
                yield self._with_own_id(ToolCallStarted(index, f"call_{index}", call.name))
                yield ToolCallDelta(index, call.arguments)
            if calls and event.reason == "stop":
                event = replace(event, reason="tool_calls")
        if event.reason == "tool_calls" and not self._ids:
            event = replace(event, reason="other", detail=event.detail or "tool_calls")
        if self._replays_text and event.reason != "pause" and (self._thoughts.found or self._renamed):
            event = replace(event, reasoning=None)  # it would bring back what was taken out of the text
        yield event
