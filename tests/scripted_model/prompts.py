"""A prompt as a model reads it, from a request in any of the scripted model's protocols."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool. Ollama's protocol has no ids: there `id` is empty."""

    id: str
    name: str


@dataclass(frozen=True)
class PromptMessage:
    """One message: the calls that it makes, or the id of the call that it answers.

    Messages of one role that a protocol puts into one are apart here, as they are in the others.
    """

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    paused: bool = False  # an answer in which the model paused, and which it is to go on with


@dataclass(frozen=True)
class Prompt:
    """The messages of a request, and the names of the tools that it offers."""

    messages: tuple[PromptMessage, ...]
    tools: tuple[str, ...] = ()

    @cached_property
    def system(self) -> str:
        """Return the texts of all system messages, in their order."""
        return "\n\n".join(message.text for message in self.messages if message.role in ("system", "developer"))

    @cached_property
    def current(self) -> int:
        """Return the index after the newest complete answer: the current turn begins there, or above it a text of the
        workspace."""
        answers = [n for n, each in enumerate(self.messages) if _is_complete(each)]
        return answers[-1] + 1 if answers else 0


def _is_complete(message: PromptMessage) -> bool:
    return message.role == "assistant" and not message.calls and not message.paused


def of_completions(body: Body) -> Prompt:
    """Read a request of Chat Completions, or of Ollama's own protocol."""
    messages = tuple(_completion(each) for each in body.get("messages") or () if isinstance(each, Mapping))
    return Prompt(messages, _names(each.get("function") for each in body.get("tools") or ()))


def of_messages(body: Body) -> Prompt:
    """Read a request of Anthropic's Messages."""
    system = body.get("system") or ()
    messages = [PromptMessage("system", text) for text in _texts(system)]
    for each in body.get("messages") or ():
        messages += _blocks(str(each.get("role")), each.get("content") or ())
    return Prompt(tuple(messages), _names(body.get("tools") or ()))


def of_responses(body: Body) -> Prompt:
    """Read a request of OpenAI's Responses. Calls that follow one another, or an answer's text, are one message."""
    messages = [PromptMessage("system", str(body["instructions"]))] if body.get("instructions") else []
    items = body.get("input") or ()
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        match item.get("type", "message"):
            case "message":
                messages.append(PromptMessage(item["role"], "\n".join(_texts(item["content"]))))
            case "function_call_output":
                messages.append(PromptMessage("tool", str(item["output"]), answers=item["call_id"]))
            case "function_call":
                before = messages.pop() if messages and messages[-1].role == "assistant" else None
                calls = (*(before.calls if before else ()), ToolCall(item["call_id"], item["name"]))
                messages.append(PromptMessage("assistant", before.text if before else "", calls))
    return Prompt(tuple(messages), _names(body.get("tools") or ()))


def _completion(message: Body) -> PromptMessage:
    calls = tuple(
        ToolCall(str(call.get("id", "")), str(call.get("function", {}).get("name")))
        for call in message.get("tool_calls") or ()
    )
    answers = str(message.get("tool_call_id", "")) if message.get("role") == "tool" else None
    return PromptMessage(str(message.get("role")), "\n".join(_texts(message.get("content"))), calls, answers)


def _blocks(role: str, content: str | Sequence[Body]) -> Iterator[PromptMessage]:
    """Yield a message for each text and each result; the texts and calls of an answer are one."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if role == "assistant":
        text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        calls = [ToolCall(str(block["id"]), str(block["name"])) for block in blocks if block.get("type") == "tool_use"]
        paused = bool(blocks) and blocks[-1].get("type") == "server_tool_use"
        yield PromptMessage(role, text, tuple(calls), paused=paused)
        return
    for block in blocks:
        match block.get("type"):
            case "text":
                yield PromptMessage(role, str(block["text"]))
            case "tool_result":
                text = "\n".join(_texts(block.get("content")))
                yield PromptMessage("tool", text, answers=str(block.get("tool_use_id")))


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a content: one text, or a list of parts. Images have none."""
    if isinstance(content, str):
        yield content
        return
    for part in content or ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]


def _names(definitions: Any) -> tuple[str, ...]:
    """Return the names of the tools that are offered.

    A definition without a description offers none: Anthropic's API wants one for each call of the history.
    """
    offered = (each for each in definitions if isinstance(each, Mapping) and each.get("description"))
    return tuple(str(each["name"]) for each in offered if "name" in each)
