"""Define one model call as plain values: the request, the events of the answer, and the client's interface.

Other layers have two other forms of a message: the row (`chat.models.Message`) and the engine's value
(`chat.context.types.ContextMessage`). This module uses neither. `StepEvent` lists the events of one step. `LoopEvent`
adds the events of the agent loop around it.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol, TypedDict

from core.json_types import JsonObject
from core.sentences import Sentence

Role = Literal["system", "user", "assistant", "tool"]
# Efforts of reasoning by OpenAI's names, from none to the highest. No model accepts all of them.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a user's message."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model.

    `arguments` is the JSON text exactly as the model wrote it. The arguments and the name may be invalid. Clients
    repair them when they send the call back (`llm.step_filters.valid_calls`).
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ReasoningState:
    """The reasoning of one step, in the form in which its provider wants it back. It is sent only to the same model.

    `items`: JSON objects in the provider's protocol, in the order received. Only the provider's client reads them. They
    are sent back unchanged. `tokens`: the step's reasoning by the provider's count, which is also the cost of sending
    it back.
    """

    items: tuple[JsonObject, ...]
    tokens: int = 0


# A `StoredResult` as stored in the database, in messages and in events; empty if the text is complete.
StoredResultJson = TypedDict(  # noqa: UP013 - `kept` is a name in stored rows, not in the code
    "StoredResultJson",
    {"tokens": int, "characters": int, "kept": int, "id": str, "head": int, "marker": int},
    total=False,
)


class ResultFile(TypedDict):
    """A file that a tool returned, as stored with the result. `file` is its id. `image`: pages can show it."""

    file: str
    name: str
    image: bool


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The sizes and the storage id of a tool's result that is too long for a prompt, or may become too long.

    `tokens` and `characters` are the sizes of the whole result. `stored`: the number of characters that are stored
    under `id`. A model uses this id to read more. Without an id nothing is stored. A marker in the text says what was
    left out. `head`: the number of characters before the marker. `marker`: its length. Without a marker the text is
    complete.
    """

    tokens: int
    characters: int
    stored: int = 0
    id: str = ""
    head: int = 0
    marker: int = 0

    @classmethod
    def from_json(cls, row: StoredResultJson) -> "StoredResult":
        """Return the value for its stored form. Rows of earlier versions lack some members."""
        return cls(
            row["tokens"],
            row["characters"],
            row.get("kept", 0),
            row.get("id", ""),
            row.get("head", 0),
            row.get("marker", 0),
        )

    def as_json(self) -> StoredResultJson:
        """Return the form for storage."""
        return {
            "tokens": self.tokens,
            "characters": self.characters,
            "kept": self.stored,
            "id": self.id,
            "head": self.head,
            "marker": self.marker,
        }


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a request to a model.

    Only user messages have `images`. Only assistant messages have `tool_calls` and `reasoning`. Only tool messages have
    `tool_call_id`, `result` and `files`; the last two are for planning and are not sent.
    """

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: ReasoningState | None = None
    result: StoredResult | None = None
    files: tuple[ResultFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """The description of a tool for a model. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters, with the names and ranges of OpenAI's protocol. None leaves the choice to the provider."""

    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None

    def specified_values(self) -> dict[str, float | str]:
        """Return the parameters that are not None, by name."""
        values: dict[str, float | str | None] = {
            "top_p": self.top_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
            "verbosity": self.verbosity,
        }
        return {name: value for name, value in values.items() if value is not None}


NO_SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class CacheRule:
    """The rule by which a provider's cache serves a prompt that begins like an earlier one.

    * `min_tokens`: the tokens of the shortest prefix that the cache serves.
    * `granularity`: the cache serves a multiple of this number of tokens.
    * `points`: the cache stores only prefixes that a request marks. A mark can be on `any` message, or only on a `user`
      message. Empty: the cache stores every prefix.
    * `lookback_blocks`: the number of content blocks before a mark that are searched for an earlier mark; 0 for all.
    * `lifetime`: seconds; None if unknown.
    * `depends_on_settings`: the cache serves no messages after a change of the effort, or of whether a tool is demanded
      or forbidden.
    * `reports_usage`: the provider reports how many tokens its cache served.
    """

    min_tokens: int = 1_024
    granularity: int = 1
    points: Literal["", "any", "user"] = ""
    lookback_blocks: int = 0
    lifetime: int | None = None
    depends_on_settings: bool = False
    reports_usage: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The request of one model call.

    * `model`: the provider's own name for the model.
    * `max_output`: tokens; None leaves the limit to the provider.
    * `tool_choice`: "auto" lets the model decide. "none" forbids calls; the definitions are still sent. "required"
      demands a call, of `required_tool` if that is set.
    * `response_format`: OpenAI's format for an answer in JSON: type `json_object`, or `json_schema` with its schema.
    * `window`: tokens of prompt and answer together, for servers that need to know it.
    * `remaining`: tokens of the window that remain after the prompt.
    * `counted`: tokens of the prompt with its tools by our count. The client uses them to explain a refusal.
    * `streaming`: the answer is requested piece by piece. Some servers refuse that.
    * `written_calls`: the model writes its tool calls as text.
    * `untagged_reasoning`: the model's text begins with reasoning that only a closing tag ends.
    * `cache_key`: requests that share a prefix have the same key.
    * `cache_points`: numbers of messages; the provider's cache should store the prompt up to each of them.
    * `previous_answer`: id of the previous answer. The provider then reports why its cache does not serve the prompt of
      that answer. Empty: there is no previous answer, but the next request will name this one. None: no report is
      requested.
    * `needed_tools`: names of tools that must be sent. Other tools are left out if the provider refuses them.
    """

    model: str
    messages: tuple[ModelMessage, ...]
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
    remaining: int | None = None
    counted: int | None = None
    cache_key: str = ""
    cache_points: tuple[int, ...] = ()
    previous_answer: str | None = None
    streaming: bool = True
    written_calls: bool = False
    untagged_reasoning: bool = False
    needed_tools: frozenset[str] = frozenset()


# The reason for the end of a step. `stop` and `tool_calls` are normal. After the others the answer is incomplete:
# `length`: it reached the limit of the request or of the model. `context_window`: the model's window is full.
# `pause`: the model waits for a request to continue. `refusal`: the model refused. `content_filter`: the provider did.
# `other`: the provider named an unknown reason, see `StepFinished.detail`.
FinishReason = Literal["stop", "tool_calls", "length", "context_window", "pause", "refusal", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the reasoning that people may read."""

    text: str


@dataclass(frozen=True, slots=True)
class TextBecameReasoning:
    """All text of this step so far was reasoning: a closing tag without an opening one has shown it."""


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool call begins. `index` numbers the calls of one step from 0, in the order the model began them."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the JSON text with the arguments of call `index`."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them.

    `input` includes `cached_input`, which was read from the provider's cache, and `cache_written`, which was written to
    it. `output` includes `reasoning`.
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

    def within_totals(self) -> "Usage":
        """Return the counts, each part limited to its total: providers may report more."""
        cached = min(self.cached_input, self.input)
        written = min(self.cache_written, self.input - cached)
        return Usage(self.input, self.output, cached, min(self.reasoning, self.output), written)


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """The expected cost of a call in US dollars: its prompt, 1,000 tokens of its answer, and the highest total."""

    prompt: Decimal
    answer_per_1000: Decimal
    at_most: Decimal


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a model, in US dollars per million tokens."""

    input: Decimal
    output: Decimal
    cached_input: Decimal
    cache_write: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one call in US dollars.

        Every token of the prompt has one of three prices: for reading from the cache, for writing to it, or the plain
        one. Sources: Anthropic, *Pricing* ("cache reads", "cache writes"); OpenAI, `cached_tokens` and
        `cache_write_tokens` of `response_usage`. Reasoning is part of the output and has its price.
        """
        counts = usage.within_totals()
        plain = counts.input - counts.cached_input - counts.cache_written
        kinds = (
            (plain, self.input),
            (counts.cached_input, self.cached_input),
            (counts.cache_written, self.cache_write),
            (counts.output, self.output),
        )
        return sum((tokens * price for tokens, price in kinds), Decimal(0)).scaleb(-6)

    def expected_cost(self, prompt: Usage, answer: int) -> ExpectedCost:
        """Return the cost of a future call. `prompt`: its expected usage. `answer`: tokens of the longest answer."""
        plain = Usage(prompt.input, 0)
        written = Usage(prompt.input, 0, cache_written=prompt.input)
        highest = max(map(self.cost, (prompt, plain, written)))
        return ExpectedCost(self.cost(prompt), self.cost(Usage(0, 1_000)), highest + self.cost(Usage(0, answer)))


STREAM = "stream"  # the name in `ParametersLeftOut` for an answer that was requested in one piece


@dataclass(frozen=True, slots=True)
class ParametersLeftOut:
    """Parameters that were not sent because the model refuses them, by their names in OpenAI's protocol.

    `tools`: names of tools that the provider refuses, or that exceed its limit.
    """

    names: tuple[str, ...]
    tools: tuple[str, ...] = ()


# The first part of a request that differs from an earlier one. The provider's cache cannot serve it and the parts after
# it.
ChangedPart = Literal["model", "system", "tools", "messages"]


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The last event of a step. `usage` is None when the provider reports none.

    `detail`: the provider's own word for the reason, if that is `other`. `reasoning`: the state that the provider wants
    back with the results of the step's tool calls. `cache_reported`: the provider reported how many tokens it read from
    its cache, possibly 0. `answer_id`: the provider's id for the answer. `changed_part`: the part of the request that
    differs from the request of `ModelRequest.previous_answer`, as the provider reports it.
    """

    reason: FinishReason
    usage: Usage | None = None
    reasoning: ReasoningState | None = None
    detail: str = ""
    cache_reported: bool = field(default=False, compare=False)
    answer_id: str = field(default="", compare=False)
    changed_part: ChangedPart | None = field(default=None, compare=False)


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
    """A step begins. `number`: its number in the turn, from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class ToolRunStarted:
    """The arguments of a call are complete, and its tool begins. `label` is the sentence that people see."""

    call: ToolCall
    label: Sentence


@dataclass(frozen=True, slots=True)
class ToolRunFinished:
    """A tool has ended. The model will see `text`, a page may show `data`. `error`: the tool failed.

    `call` has the arguments that the tool used, which may be more than the model wrote. `result` is set if the text is
    shortened, or may have to be shortened later. `files` are the stored files that the tool returned.
    """

    call: ToolCall
    text: str
    error: bool
    data: Mapping[str, Any] = field(default_factory=dict)
    result: StoredResult | None = None
    files: tuple[ResultFile, ...] = ()


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The turn ends with calls that the client runs itself. `added`: all messages of the turn, the calls last."""

    added: tuple[ModelMessage, ...]


LoopEvent = StepEvent | StepStarted | ToolRunStarted | ToolRunFinished | HandedOver


@dataclass(frozen=True, slots=True)
class AllocatedWindow:
    """The window, in tokens, that a local server has allocated for a model. None if it reports none now.

    `server`: its software, "ollama" or "llama.cpp".
    """

    server: str
    window: int | None


class ProviderClient(Protocol):
    """A client of one provider row. Coroutines of one event loop may share it."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yield the events of one model call, `StepFinished` last and exactly once.

        Raises `core.errors.ModelError`. Closing the iterator closes the HTTP stream at once.
        """
        ...

    async def list_models(self) -> list[str]:
        """Return the names of the models that the endpoint offers. Raises `core.errors.ModelError`."""
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's count of this prompt with its tools.

        None if it cannot count, or not within 2 seconds.
        """
        ...

    async def allocated_window(self, model: str) -> AllocatedWindow | None:
        """Return the window that the server has allocated for this model.

        None if it does not report it within 2 seconds.
        """
        ...

    async def close(self) -> None: ...
