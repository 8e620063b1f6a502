"""Read facts about models from the responses of servers, by the shape of the response. No I/O.

To add a server:

1. Write a function here that turns its description of a model into `ModelFacts`.
2. If its list of models has these facts, add the function to `_SHAPES`, with a member that only this server sends.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, cast

from llm.types.facts import ModelFacts

LEAST_WINDOW = 256  # tokens; the least that a row accepts
MAX_TOKENS = 100_000_000  # ten times the largest window on offer
MAX_PRICE = Decimal(1_000_000)  # US dollars per million tokens
LEAST_ALLOCATED = 4096  # tokens of the window that Ollama allocates on the smallest machine
YEARS = range(2020, 2200)
NATIVE_WINDOW = 32_768  # tokens of the window to request from Ollama if the size that fits its memory is unknown

EFFORTS = ("low", "medium", "high", "xhigh", "max")  # reasoning efforts of Anthropic's models

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A server's description of one model. Its methods return None for impossible values and note them in `strange`."""

    value: Any
    strange: list[str]

    def at(self, *path: str) -> Any:
        """Return the value at this path; None if it is missing."""
        value = self.value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def tokens(self, *path: str, least: int = 1) -> int | None:
        value = self.at(*path)
        return self._checked(path, value if type(value) is int and least <= value <= MAX_TOKENS else None)

    def window(self, *path: str) -> int | None:
        return self.tokens(*path, least=LEAST_WINDOW)

    def flag(self, *path: str) -> bool | None:
        value = self.at(*path)
        return self._checked(path, value if type(value) is bool else None)

    def holds(self, word: str, *path: str) -> bool | None:
        """Return whether the list at this path contains this word."""
        value = self.at(*path)
        return self._checked(path, word in value if isinstance(value, list) else None)

    def price(self, *path: str) -> str | None:
        """Return the price per million tokens. The server gives the price per token, as a number or a text."""
        value = self.at(*path)
        price = None
        if type(value) in (int, float, str):
            try:
                price = Decimal(str(value).strip()) * 1_000_000
            except InvalidOperation:
                price = None
        sound = price is not None and price.is_finite() and 0 <= price <= MAX_PRICE
        return self._checked(path, f"{round(price, 6).normalize():f}" if price is not None and sound else None)

    def day(self, *path: str) -> str | None:
        value = self.at(*path)
        day = None
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
                day = moment.astimezone(UTC).date() if moment.tzinfo else moment.date()
            except (ValueError, OverflowError):
                day = None
        return self._checked(path, day.isoformat() if day and day.year in YEARS else None)

    def _checked(self, path: Sequence[str], checked: Value | None) -> Value | None:
        """Return the checked value. If the check rejected the value at this path, add that value to `strange`."""
        if checked is None and (value := self.at(*path)) is not None:
            self.strange.append(f"{'.'.join(path)} is {value!r:.60}")
        return checked


Shape = Callable[[ModelDescription], ModelFacts]


def facts(
    *,
    context_window: int | None = None,
    max_output: int | None = None,
    vision: bool | None = None,
    tools: bool | None = None,
    reasoning: bool | None = None,
    efforts: list[str] | None = None,
    input_price: str | None = None,
    output_price: str | None = None,
    cached_input_price: str | None = None,
    cache_write_price: str | None = None,
    retires_on: str | None = None,
    chat: bool | None = None,
) -> ModelFacts:
    """Return the facts that are not None. Only the exception is a fact of `chat`: that a model does not answer."""
    values = {
        "chat": False if chat is False else None,
        "context_window": context_window,
        "max_output": max_output,
        "vision": vision,
        "tools": tools,
        "reasoning": reasoning,
        "efforts": efforts,
        "input_price": input_price,
        "output_price": output_price,
        "cached_input_price": cached_input_price,
        "cache_write_price": cache_write_price,
        "retires_on": retires_on,
    }
    return cast("ModelFacts", {name: value for name, value in values.items() if value is not None})


def smaller(*counts: int | None) -> int | None:
    """Return the smallest count that is not None."""
    return min((count for count in counts if count is not None), default=None)


def merged(one: ModelFacts, other: ModelFacts) -> ModelFacts:
    """Merge the facts of two servers with the same model so that they hold for both: smaller window, higher price."""
    first: Mapping[str, Any] = one
    second: Mapping[str, Any] = other
    both = {**first, **second}
    for name in first.keys() & second.keys():
        pair = (first[name], second[name])
        both[name] = max(pair, key=Decimal) if name.endswith("_price") else min(pair)
    return cast("ModelFacts", both)


def vllm(model: ModelDescription) -> ModelFacts:
    return facts(context_window=model.window("max_model_len"))


def openrouter(model: ModelDescription) -> ModelFacts:
    """Read OpenRouter's description. The model and its provider each have a context length; the smaller one counts."""
    return facts(
        context_window=smaller(model.window("context_length"), model.window("top_provider", "context_length")),
        max_output=model.tokens("top_provider", "max_completion_tokens"),
        vision=model.holds("image", "architecture", "input_modalities"),
        tools=model.holds("tools", "supported_parameters"),
        reasoning=model.holds("reasoning", "supported_parameters"),
        input_price=model.price("pricing", "prompt"),
        output_price=model.price("pricing", "completion"),
        cached_input_price=model.price("pricing", "input_cache_read"),
        cache_write_price=model.price("pricing", "input_cache_write"),
    )


def groq(model: ModelDescription) -> ModelFacts:
    return facts(context_window=model.window("context_window"), max_output=model.tokens("max_completion_tokens"))


def mistral(model: ModelDescription) -> ModelFacts:
    return facts(
        context_window=model.window("max_context_length"),
        vision=model.flag("capabilities", "vision"),
        tools=model.flag("capabilities", "function_calling"),
        chat=model.flag("capabilities", "completion_chat"),
        retires_on=model.day("deprecation"),
    )


def anthropic(model: ModelDescription) -> ModelFacts:
    """Read Anthropic's description.

    All its models call tools. An active model without a date has no planned retirement, so an earlier date is removed.
    """
    model_facts = facts(
        context_window=model.window("max_input_tokens"),
        max_output=model.tokens("max_tokens"),
        vision=model.flag("capabilities", "image_input", "supported"),
        tools=True,
        reasoning=model.flag("capabilities", "thinking", "supported"),
        efforts=[each for each in EFFORTS if model.flag("capabilities", "effort", each, "supported")] or None,
        retires_on=model.day("retires_at"),
    )
    if model.at("lifecycle") == "active" and model.at("retires_at") is None:
        model_facts["retires_on"] = None
    return model_facts


def gemini(model: ModelDescription) -> ModelFacts:
    return facts(
        context_window=model.window("inputTokenLimit"),
        max_output=model.tokens("outputTokenLimit"),
        reasoning=model.flag("thinking"),
        chat=model.holds("generateContent", "supportedGenerationMethods"),
    )


def ollama(model: ModelDescription, allocated: int | None, *, native: bool) -> ModelFacts:
    """Read Ollama's description of a model.

    `allocated`: the window of the loaded model, if it is loaded. `native`: each request sets the window, so `allocated`
    is ignored. The training window is only an upper limit, since most machines have too little memory for it.
    """
    info = model.at("model_info")
    family = info.get("general.architecture") if isinstance(info, Mapping) else None
    trained = model.window("model_info", f"{family}.context_length") if family else None
    parameters = model.at("parameters")
    num_ctx = re.search(r"^num_ctx\s+(\d{1,9})\s*$", parameters, re.MULTILINE) if isinstance(parameters, str) else None
    window = (None if native else allocated) or (
        int(num_ctx[1]) if num_ctx and int(num_ctx[1]) >= LEAST_WINDOW else None
    )
    if window is None and trained and (native or trained <= LEAST_ALLOCATED):
        window = min(trained, NATIVE_WINDOW)
    return facts(
        context_window=smaller(window, trained) if window else None,
        vision=model.holds("vision", "capabilities"),
        tools=model.holds("tools", "capabilities"),
        reasoning=model.holds("thinking", "capabilities"),
        chat=model.holds("completion", "capabilities"),
    )


def llama_cpp(model: ModelDescription) -> ModelFacts:
    """Read llama.cpp's `/props`. It gives the window of each slot, not the training window."""
    return facts(
        context_window=model.window("default_generation_settings", "n_ctx"),
        vision=model.flag("modalities", "vision"),
        tools=model.flag("chat_template_caps", "supports_tool_calls"),
    )


def lm_studio(model: ModelDescription, name: str) -> ModelFacts:
    """Read LM Studio's description. The window is that of the loaded instance with this name.

    If no instance has the name, the smallest window of all instances counts. Without instances it is unknown.
    """
    instances = [each for each in model.at("loaded_instances") or () if isinstance(each, Mapping)]
    of_name = [each for each in instances if each.get("id") == name] or instances
    return facts(
        context_window=smaller(
            *(ModelDescription(each, model.strange).window("config", "context_length") for each in of_name)
        ),
        vision=model.flag("capabilities", "vision"),
        tools=model.flag("capabilities", "trained_for_tool_use"),
        chat=False if model.at("type") in ("embedding", "embeddings") else None,
    )


ANSWERING_MODES = ("chat", "completion", "responses")  # of LiteLLM; others are embedding, rerank, image_generation, ...


def litellm(model: ModelDescription) -> ModelFacts:
    """Read LiteLLM's description. `max_tokens` limits the answer."""
    answer = model.tokens("max_output_tokens")
    return facts(
        context_window=model.window("max_input_tokens"),
        max_output=model.tokens("max_tokens") if answer is None else answer,
        vision=model.flag("supports_vision"),
        tools=model.flag("supports_function_calling"),
        reasoning=model.flag("supports_reasoning"),
        chat=None if model.at("mode") in (None, *ANSWERING_MODES) else False,
        input_price=model.price("input_cost_per_token"),
        output_price=model.price("output_cost_per_token"),
        cached_input_price=model.price("cache_read_input_token_cost"),
        cache_write_price=model.price("cache_creation_input_token_cost"),
    )


# Functions that read a row in a list of models, by a member of the row. The first member that the row has decides.
_SHAPES: tuple[tuple[str, Shape], ...] = (
    ("max_model_len", vllm),
    ("context_length", openrouter),
    ("context_window", groq),
    ("max_context_length", mistral),
    ("max_input_tokens", anthropic),
)


def rows(body: Any, member: str = "data") -> list[Mapping[str, Any]]:
    """Return the rows of a list; none if the response has another shape."""
    listed = body.get(member) if isinstance(body, Mapping) else body
    return [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []


def read_list(body: Any, strange: list[str]) -> dict[str, ModelFacts]:
    """Return the facts in a list of models (`/v1/models`), by name. An adapter inherits facts from its base model."""
    by_name: dict[str, ModelFacts] = {}
    parents: dict[str, str] = {}
    for row in rows(body):
        name = row.get("id")
        if not isinstance(name, str):
            continue
        shape = next((shape for field, shape in _SHAPES if field in row), None)
        by_name[name] = _read(shape, row, name, strange) if shape else {}
        if isinstance(row.get("parent"), str):
            parents[name] = row["parent"]
    return {name: by_name.get(parents.get(name, ""), ModelFacts()) | own for name, own in by_name.items()}


def read_models(described: Iterable[tuple[Any, Any]], shape: Shape, strange: list[str]) -> dict[str, ModelFacts]:
    """Return the facts of (name, description) pairs, by name. Descriptions with the same name are merged."""
    by_name: dict[str, ModelFacts] = {}
    for name, description in described:
        if isinstance(name, str):
            model_facts = _read(shape, description, name, strange)
            by_name[name] = merged(by_name[name], model_facts) if name in by_name else model_facts
    return by_name


def _read(shape: Shape, description: Any, name: str, strange: list[str]) -> ModelFacts:
    """Return the facts of one description. Add its impossible values to `strange`, with the model's name."""
    notes: list[str] = []
    model_facts = shape(ModelDescription(description, notes))
    strange.extend(f"{name:.60}: {note}" for note in notes)
    return model_facts
