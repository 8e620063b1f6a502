"""The messages that a run has told, as its client has them: what a snapshot of them holds."""

from dataclasses import dataclass, field

import ag_ui.core as agui


@dataclass(slots=True)
class _Told:
    role: str
    pieces: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # ids
    answers: str = ""  # of a tool's message: the id of the call


@dataclass(slots=True)
class _ToldCall:
    name: str
    pieces: list[str] = field(default_factory=list)


class Transcript:
    """Notes the events of a run."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self._calls: dict[str, _ToldCall] = {}

    def note(self, event: agui.BaseEvent) -> None:
        match event:
            case agui.TextMessageStartEvent():
                self._told.setdefault(event.message_id, _Told("assistant"))
            case agui.ReasoningMessageStartEvent():
                self._told.setdefault(event.message_id, _Told("reasoning"))
            case agui.TextMessageContentEvent() | agui.ReasoningMessageContentEvent():
                self._told[event.message_id].pieces.append(event.delta)
            case agui.ToolCallStartEvent():
                self._calls[event.tool_call_id] = _ToldCall(event.tool_call_name)
                parent = event.parent_message_id or event.tool_call_id
                self._told.setdefault(parent, _Told("assistant")).calls.append(event.tool_call_id)
            case agui.ToolCallArgsEvent():
                self._calls[event.tool_call_id].pieces.append(event.delta)
            case agui.ToolCallResultEvent():
                text = event.content if isinstance(event.content, str) else ""  # ours is always text
                self._told[event.message_id] = _Told("tool", [text], answers=event.tool_call_id)

    def became_reasoning(self, message: str) -> None:
        if message in self._told:
            self._told[message].role = "reasoning"

    def messages(self) -> list[agui.Message]:
        return [self._message(id_, told) for id_, told in self._told.items()]

    def _message(self, id_: str, told: _Told) -> agui.Message:
        text = "".join(told.pieces)
        if told.role == "reasoning":
            return agui.ReasoningMessage(id=id_, role="reasoning", content=text)
        if told.role == "tool":
            return agui.ToolMessage(id=id_, role="tool", content=text, tool_call_id=told.answers)
        calls = [self._call(each) for each in told.calls]
        return agui.AssistantMessage(id=id_, role="assistant", content=text or None, tool_calls=calls or None)

    def _call(self, id_: str) -> agui.ToolCall:
        call = self._calls[id_]
        function = agui.FunctionCall(name=call.name, arguments="".join(call.pieces))
        return agui.ToolCall(id=id_, type="function", function=function)
