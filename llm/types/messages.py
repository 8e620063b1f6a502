"""What a model is sent: plain values, the provider's minimal input.

The row (`chat.models.Message`) and the engine's value (`chat.context.types.ContextMessage`) are other forms of a
message, each for its own layer; nothing here knows of them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class Image:
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text exactly as the model wrote it; it may be invalid."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """What a provider wants back of the reasoning of one step: sent unchanged, and only to the model that made it.

    `items` are JSON values in the shape of that provider's protocol, in the order received; nobody but its adapter
    looks into them. `tokens`: what the step's reasoning cost, by the provider's count; sent back it costs that again.
    """

    items: tuple[Any, ...]
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt.

    `images` only on user messages, `tool_calls` and `reasoning` only on assistant messages, `tool_call_id` only on
    tool messages.
    """

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: ReasoningState | None = None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """`parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model is to choose its words, in the names and ranges of OpenAI's protocol; None leaves it open."""

    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `model` is the provider's own name; `max_output` is in tokens; None leaves it to the provider.

    `tool_choice`: "auto" lets the model decide, "none" forbids calls (the definitions are still sent), "required"
    demands one, of `required_tool` where that is named. `response_format` is that of OpenAI's protocol for an answer
    in JSON: of the type `json_object`, or `json_schema` with its schema. `window`: the tokens that prompt and answer
    may have together, for servers that want to be told. `cache_key` is the same for requests that share a beginning.
    """

    model: str
    messages: tuple[Message, ...]
    max_output: int | None
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    required_tool: str | None = None
    several_system_messages: bool = True
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = NO_SAMPLING
    response_format: Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    window: int | None = None
    cache_key: str = ""
