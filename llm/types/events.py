"""What happens while a model answers: the events of one step, and those the loop adds around steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llm.types.messages import ReasoningState, ToolCall

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """`index` numbers the calls of one step from 0, in the order the model began them."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the JSON text of call `index`'s arguments."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them.

    `input` includes `cached_input`, which was read from the provider's cache, and `cache_written`, which was put there;
    `output` includes `reasoning`.
    """

    input: int
    output: int
    cached_input: int = 0
    reasoning: int = 0
    cache_written: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached_input + other.cached_input,
            self.reasoning + other.reasoning,
            self.cache_written + other.cache_written,
        )


@dataclass(frozen=True, slots=True)
class ParametersLeftOut:
    """The model refuses these parameters of the request, by their names in OpenAI's protocol, so they were not sent."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The last event of a step. `usage` is None when the provider reports none.

    `reasoning`: what the provider wants back with the results of the step's tool calls.
    """

    reason: FinishReason
    usage: Usage | None = None
    reasoning: ReasoningState | None = None


StepEvent = TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta | ParametersLeftOut | StepFinished


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A model call begins; `cycle` counts from 1."""

    cycle: int


@dataclass(frozen=True, slots=True)
class ToolRunStarted:
    """The arguments are complete and the tool begins; `label` says to a person what it does."""

    call: ToolCall
    label: str


@dataclass(frozen=True, slots=True)
class ToolRunFinished:
    """`text` is what the model will see, `data` what the page may show; `error` tells whether the tool failed.

    The arguments of `call` are those the tool really used, which may be more than the model wrote.
    """

    call: ToolCall
    text: str
    error: bool
    data: Mapping[str, Any] = field(default_factory=dict)


LoopEvent = StepEvent | StepStarted | ToolRunStarted | ToolRunFinished
