"""One model call as plain values: what a model is sent, what happens while it answers, and who carries it out.

The row (`chat.models.Message`) and the engine's value (`chat.context.types.ContextMessage`) are other forms of a
message, each for its own layer; nothing here knows of them. The events are those of one step, and those that the agent
loop adds around steps.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from core.sentences import Sentence

Role = Literal["system", "user", "assistant", "tool"]
# How long a model may reason, from not at all upwards, in the words of OpenAI's protocol. No model takes them all.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class Image:
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text exactly as the model wrote it; it may be invalid, as may the name.

    Adapters mend both when they send the call back, see `llm.step_filters.valid_calls`.
    """

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
class StoredResult:
    """A tool's result that is too long for a prompt, or may become so, and what of it is stored.

    `tokens` and `characters` are those of the whole, `kept` the characters that are stored under `id`, by which a model
    reads on; without an id nothing is. `head` and `marker`: the characters of the text that stand before the marker in
    it, and those of the marker; without a marker the text is whole.
    """

    tokens: int
    characters: int
    kept: int = 0
    id: str = ""
    head: int = 0
    marker: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt.

    `images` only on user messages, `tool_calls` and `reasoning` only on assistant messages, `tool_call_id` and `result`
    only on tool messages; `result` is for planning and is not sent.
    """

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: ReasoningState | None = None
    result: StoredResult | None = None


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
class CacheRule:
    """What a provider's cache serves of a prompt that begins like an earlier one.

    `least`: tokens; a shorter beginning is not served; `step`: what is served is a multiple of it. `points`: only a
    beginning is kept after which a request asked for that, on `any` message or those of a `user`; empty: all of it is.
    `reach`: blocks of content that a point looks back for an earlier one; 0 for all. `kept`: seconds. `settings`: the
    messages are read again when a tool is demanded or forbidden, or the effort changes. `told`: it says what it served.
    """

    least: int = 1_024
    step: int = 1
    points: Literal["", "any", "user"] = ""
    reach: int = 0
    kept: int | None = None
    settings: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `model` is the provider's own name; `max_output` is in tokens; None leaves it to the provider.

    `tool_choice`: "auto" lets the model decide, "none" forbids calls (the definitions are still sent), "required"
    demands one, of `required_tool` where that is named. `response_format` is that of OpenAI's protocol for an answer
    in JSON: of the type `json_object`, or `json_schema` with its schema. `window`: the tokens that prompt and answer
    may have together, for servers that want to be told; `left`: those that the prompt leaves; `counted`: those of the
    prompt with its tools by our count, which help to understand a refusal.
    `streaming`: the answer is asked for piece by piece; some servers refuse that. `written_calls`: the model writes its
    tool calls as text. `untagged_reasoning`: its text begins with reasoning that only a closing tag ends.
    `cache_key` is the same for requests that share a beginning; `cache_points`: after so many messages the provider is
    asked to keep what it has read. `previous_answer`: the provider is asked why its cache does not serve what it was
    sent before it gave the answer of this id; empty: there is none yet, but it will be asked; None: it is not asked.
    `needed_tools`: names of tools without which the call fails; others that a provider refuses are left out.
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
    left: int | None = None
    counted: int | None = None
    cache_key: str = ""
    cache_points: tuple[int, ...] = ()
    previous_answer: str | None = None
    streaming: bool = True
    written_calls: bool = False
    untagged_reasoning: bool = False
    needed_tools: frozenset[str] = frozenset()


# Why a step ended. No end of an answer are: `length`, its greatest one, by the request's or the model's limit;
# `context_window`, the model's is full; `pause`, the model wants to be asked on; `refusal`, the model's own;
# `content_filter`, the provider's; `other`, a reason that is not known for a good end, see `StepFinished.detail`.
FinishReason = Literal["stop", "tool_calls", "length", "context_window", "pause", "refusal", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TextBecameReasoning:
    """All text of this step so far was reasoning: a closing tag has come without an opening one."""


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

    def sensible(self) -> "Usage":
        """With parts that are no more than what they are parts of, whatever the provider says."""
        cached = min(self.cached_input, self.input)
        written = min(self.cache_written, self.input - cached)
        return Usage(self.input, self.output, cached, min(self.reasoning, self.output), written)


@dataclass(frozen=True, slots=True)
class Expected:
    """US dollars: of the prompt as it is expected to be billed, of each 1,000 tokens of the answer, and the most that
    the call can come to."""

    prompt: Decimal
    answer_per_1000: Decimal
    at_most: Decimal


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs, in US dollars a million tokens."""

    input: Decimal
    output: Decimal
    cached_input: Decimal
    cache_write: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """US dollars of one call, exact: every token of the prompt is read from the cache, written to it, or plain.

        Providers bill so: Anthropic, *Pricing* ("cache reads", "cache writes"); OpenAI, `cached_tokens` and
        `cache_write_tokens` of `response_usage`. Reasoning is billed as the rest of the output, of which it is a part.
        """
        counts = usage.sensible()
        plain = counts.input - counts.cached_input - counts.cache_written
        kinds = (
            (plain, self.input),
            (counts.cached_input, self.cached_input),
            (counts.cache_written, self.cache_write),
            (counts.output, self.output),
        )
        return sum((tokens * price for tokens, price in kinds), Decimal(0)).scaleb(-6)

    def ahead(self, prompt: Usage, answer: int) -> "Expected":
        """What a call will cost that is not made yet: its prompt as it is expected to be billed, and tokens of the
        longest answer there can be."""
        plain, written = Usage(prompt.input, 0), Usage(prompt.input, 0, cache_written=prompt.input)
        dearest = max(map(self.cost, (prompt, plain, written)))
        return Expected(self.cost(prompt), self.cost(Usage(0, 1_000)), dearest + self.cost(Usage(0, answer)))


STREAM = "stream"  # among `ParametersLeftOut`: the answer was asked for whole


@dataclass(frozen=True, slots=True)
class ParametersLeftOut:
    """The model refuses these parameters of the request, by their names in OpenAI's protocol, so they were not sent.

    `tools`: names of tools that its provider refuses, or for which it has no room.
    """

    names: tuple[str, ...]
    tools: tuple[str, ...] = ()


# The part of a request that was not as before, so that the provider's cache could not serve what follows it.
Changed = Literal["model", "system", "tools", "messages"]


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The last event of a step. `usage` is None when the provider reports none.

    `detail`: the provider's own word where the reason is `other`. `reasoning`: what the provider wants back with the
    results of the step's tool calls. `cache_told`: it says what it read from its cache, be it nothing. `answer`: its id
    of the answer, and `changed` what it says has changed since the one that it was asked to compare with.
    """

    reason: FinishReason
    usage: Usage | None = None
    reasoning: ReasoningState | None = None
    detail: str = ""
    cache_told: bool = field(default=False, compare=False)
    answer: str = field(default="", compare=False)
    changed: Changed | None = field(default=None, compare=False)


StepEvent = (
    TextDelta
    | ReasoningDelta
    | TextBecameReasoning
    | ToolCallStarted
    | ToolCallDelta
    | ParametersLeftOut
    | StepFinished
)


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A model call begins; `cycle` counts from 1."""

    cycle: int


@dataclass(frozen=True, slots=True)
class ToolRunStarted:
    """The arguments are complete and the tool begins; `label` says to a person what it does."""

    call: ToolCall
    label: Sentence


@dataclass(frozen=True, slots=True)
class ToolRunFinished:
    """`text` is what the model will see, `data` what the page may show; `error` tells whether the tool failed.

    The arguments of `call` are those the tool really used, which may be more than the model wrote. `result`: of a text
    that is shortened or may become so.
    """

    call: ToolCall
    text: str
    error: bool
    data: Mapping[str, Any] = field(default_factory=dict)
    result: StoredResult | None = None


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The turn ends with calls that whoever asks runs. `added`: all that it has added, the step with the calls last."""

    added: tuple[Message, ...]


LoopEvent = StepEvent | StepStarted | ToolRunStarted | ToolRunFinished | HandedOver


@dataclass(frozen=True, slots=True)
class Allocated:
    """The window that a server of one's own has really given a model, in tokens; None where it does not say just now.

    `server`: which software it is, "ollama" or "llama.cpp".
    """

    server: str
    window: int | None


class Provider(Protocol):
    """A client of one provider row. Safe to share between coroutines of one event loop."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yields the events of one model call, `StepFinished` last and exactly once.

        Raises `core.errors.ModelError`. Closing the iterator closes the HTTP stream at once.
        """
        ...

    async def list_models(self) -> list[str]:
        """The names the endpoint offers; used to test a connection. Raises `core.errors.ModelError`."""
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """What the provider counts for this prompt with its tools; None where it does not, or not within 2 seconds."""
        ...

    async def allocated(self, model: str) -> Allocated | None:
        """The window that the server has given this model; None where nobody is there who says it within 2 seconds."""
        ...

    async def close(self) -> None: ...
