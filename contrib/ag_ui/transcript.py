"""Collect the messages of a run as its client sees them. A MESSAGES_SNAPSHOT event repeats them."""

from dataclasses import dataclass, field

import ag_ui.core as agui


@dataclass(slots=True)
class _TranscriptMessage:
    role: str
    deltas: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # ids
    call_id: str = ""  # in a tool message: the id of the call


@dataclass(slots=True)
class _TranscriptCall:
    name: str
    deltas: list[str] = field(default_factory=list)


class Transcript:
    """Collects the messages of a run from its events."""

    def __init__(self) -> None:
        self._messages: dict[str, _TranscriptMessage] = {}
        self._calls: dict[str, _TranscriptCall] = {}

    def add_event(self, event: agui.BaseEvent) -> None:
        """Add the contents of an event. Events without contents are ignored."""
        match event:
            case agui.TextMessageStartEvent():
                self._messages.setdefault(event.message_id, _TranscriptMessage("assistant"))
            case agui.ReasoningMessageStartEvent():
                self._messages.setdefault(event.message_id, _TranscriptMessage("reasoning"))
            case agui.TextMessageContentEvent() | agui.ReasoningMessageContentEvent():
                self._messages[event.message_id].deltas.append(event.delta)
            case agui.ToolCallStartEvent():
                self._calls[event.tool_call_id] = _TranscriptCall(event.tool_call_name)
                parent = event.parent_message_id or event.tool_call_id
                self._messages.setdefault(parent, _TranscriptMessage("assistant")).calls.append(event.tool_call_id)
            case agui.ToolCallArgsEvent():
                self._calls[event.tool_call_id].deltas.append(event.delta)
            case agui.ToolCallResultEvent():
                text = (
                    event.content if isinstance(event.content, str) else ""
                )  # events of `translation` always have text
                self._messages[event.message_id] = _TranscriptMessage("tool", [text], call_id=event.tool_call_id)

    def mark_as_reasoning(self, message: str) -> None:
        """Turn the assistant message with this id into a reasoning message."""
        if message in self._messages:
            self._messages[message].role = "reasoning"

    def messages(self) -> list[agui.Message]:
        return [self._message(id_, message) for id_, message in self._messages.items()]

    def _message(self, id_: str, message: _TranscriptMessage) -> agui.Message:
        text = "".join(message.deltas)
        if message.role == "reasoning":
            return agui.ReasoningMessage(id=id_, role="reasoning", content=text)
        if message.role == "tool":
            return agui.ToolMessage(id=id_, role="tool", content=text, tool_call_id=message.call_id)
        calls = [self._call(call_id) for call_id in message.calls]
        return agui.AssistantMessage(id=id_, role="assistant", content=text or None, tool_calls=calls or None)

    def _call(self, id_: str) -> agui.ToolCall:
        call = self._calls[id_]
        function = agui.FunctionCall(name=call.name, arguments="".join(call.deltas))
        return agui.ToolCall(id=id_, type="function", function=function)
