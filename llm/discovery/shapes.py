"""Read facts about models from the answers of servers, by the shape of the answer. No I/O.

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

MIN_WINDOW = 256  # tokens; the least that a row accepts
MAX_TOKENS = 100_000_000  # ten times the largest window on offer
MAX_PRICE = Decimal(1_000_000)  # US dollars per million tokens
MIN_ALLOCATED = 4096  # tokens; Ollama allocates at least this window, even on a small machine
PLAUSIBLE_YEARS = range(2020, 2200)
# Tokens of the window to request from Ollama. The window that fits into its memory is unknown.
DEFAULT_NATIVE_WINDOW = 32_768

ANTHROPIC_EFFORTS = ("low", "medium", "high", "xhigh", "max")  # reasoning efforts of Anthropic's models

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A server's description of one model.

    Its methods return None for impossible values, and add a note about them to `impossible_values`.
    """

    value: Any
    impossible_values: list[str]

    def get(self, *path: str) -> Any:
        """Return the value at this path; None if it is missing."""
        value = self.value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def tokens(self, *path: str, minimum: int = 1) -> int | None:
        value = self.get(*path)
        return self._note_if_rejected(path, value if type(value) is int and minimum <= value <= MAX_TOKENS else None)

    def window(self, *path: str) -> int | None:
        return self.tokens(*path, minimum=MIN_WINDOW)

    def flag(self, *path: str) -> bool | None:
        value = self.get(*path)
        return self._note_if_rejected(path, value if type(value) is bool else None)

    def contains(self, word: str, *path: str) -> bool | None:
        """Return whether the list at this path contains this word."""
        value = self.get(*path)
        return self._note_if_rejected(path, word in value if isinstance(value, list) else None)

    def price(self, *path: str) -> str | None:
        """Return the price per million tokens. The server sends the price per token, as a number or a text."""
        value = self.get(*path)
        price = None
        if type(value) in (int, float, str):
            try:
                price = Decimal(str(value).strip()) * 1_000_000
            except InvalidOperation:
                price = None
        is_possible = price is not None and price.is_finite() and 0 <= price <= MAX_PRICE
        return self._note_if_rejected(
            path, f"{round(price, 6).normalize():f}" if price is not None and is_possible else None
        )

    def day(self, *path: str) -> str | None:
        value = self.get(*path)
        day = None
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
                day = moment.astimezone(UTC).date() if moment.tzinfo else moment.date()
            except (ValueError, OverflowError):
                day = None
        return self._note_if_rejected(path, day.isoformat() if day and day.year in PLAUSIBLE_YEARS else None)

    def _note_if_rejected(self, path: Sequence[str], checked: Value | None) -> Value | None:
        """Return the checked value.

        None means that the check rejected the value at this path. Then a note about the value is added to
        `impossible_values`.
        """
        if checked is None and (value := self.get(*path)) is not None:
            self.impossible_values.append(f"{'.'.join(path)} is {value!r:.60}")
        return checked


Shape = Callable[[ModelDescription], ModelFacts]


def make_facts(
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
    """Return the facts that are not None. `chat` is a fact only if it is False: the model does not chat."""
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


def smallest(*counts: int | None) -> int | None:
    """Return the smallest count that is not None."""
    return min((count for count in counts if count is not None), default=None)


def merge_facts(one: ModelFacts, other: ModelFacts) -> ModelFacts:
    """Merge the facts of two servers of the same model so that they hold for both: smaller window, higher price."""
    first: Mapping[str, Any] = one
    second: Mapping[str, Any] = other
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        pair = (first[name], second[name])
        merged[name] = max(pair, key=Decimal) if name.endswith("_price") else min(pair)
    return cast("ModelFacts", merged)


def read_vllm(model: ModelDescription) -> ModelFacts:
    return make_facts(context_window=model.window("max_model_len"))


def read_openrouter(model: ModelDescription) -> ModelFacts:
    """Read OpenRouter's description. The model and its provider each have a context length. The smaller one counts."""
    return make_facts(
        context_window=smallest(model.window("context_length"), model.window("top_provider", "context_length")),
        max_output=model.tokens("top_provider", "max_completion_tokens"),
        vision=model.contains("image", "architecture", "input_modalities"),
        tools=model.contains("tools", "supported_parameters"),
        reasoning=model.contains("reasoning", "supported_parameters"),
        input_price=model.price("pricing", "prompt"),
        output_price=model.price("pricing", "completion"),
        cached_input_price=model.price("pricing", "input_cache_read"),
        cache_write_price=model.price("pricing", "input_cache_write"),
    )


def read_groq(model: ModelDescription) -> ModelFacts:
    return make_facts(context_window=model.window("context_window"), max_output=model.tokens("max_completion_tokens"))


def read_mistral(model: ModelDescription) -> ModelFacts:
    return make_facts(
        context_window=model.window("max_context_length"),
        vision=model.flag("capabilities", "vision"),
        tools=model.flag("capabilities", "function_calling"),
        chat=model.flag("capabilities", "completion_chat"),
        retires_on=model.day("deprecation"),
    )


def read_anthropic(model: ModelDescription) -> ModelFacts:
    """Read Anthropic's description.

    All its models call tools. An active model without a date is not to be retired, so an earlier date is removed.
    """
    model_facts = make_facts(
        context_window=model.window("max_input_tokens"),
        max_output=model.tokens("max_tokens"),
        vision=model.flag("capabilities", "image_input", "supported"),
        tools=True,
        reasoning=model.flag("capabilities", "thinking", "supported"),
        efforts=[each for each in ANTHROPIC_EFFORTS if model.flag("capabilities", "effort", each, "supported")] or None,
        retires_on=model.day("retires_at"),
    )
    if model.get("lifecycle") == "active" and model.get("retires_at") is None:
        model_facts["retires_on"] = None
    return model_facts


def read_gemini(model: ModelDescription) -> ModelFacts:
    return make_facts(
        context_window=model.window("inputTokenLimit"),
        max_output=model.tokens("outputTokenLimit"),
        reasoning=model.flag("thinking"),
        chat=model.contains("generateContent", "supportedGenerationMethods"),
    )


def read_ollama(model: ModelDescription, allocated: int | None, *, native: bool) -> ModelFacts:
    """Read Ollama's description of a model.

    `allocated`: the window of the model if it is loaded. `native`: each request sets the window, so `allocated` is
    ignored. The training window is only an upper limit, since most machines have too little memory for it.
    """
    info = model.get("model_info")
    family = info.get("general.architecture") if isinstance(info, Mapping) else None
    training_window = model.window("model_info", f"{family}.context_length") if family else None
    parameters = model.get("parameters")
    num_ctx = re.search(r"^num_ctx\s+(\d{1,9})\s*$", parameters, re.MULTILINE) if isinstance(parameters, str) else None
    window = (None if native else allocated) or (int(num_ctx[1]) if num_ctx and int(num_ctx[1]) >= MIN_WINDOW else None)
    if window is None and training_window and (native or training_window <= MIN_ALLOCATED):
        window = min(training_window, DEFAULT_NATIVE_WINDOW)
    return make_facts(
        context_window=smallest(window, training_window) if window else None,
        vision=model.contains("vision", "capabilities"),
        tools=model.contains("tools", "capabilities"),
        reasoning=model.contains("thinking", "capabilities"),
        chat=model.contains("completion", "capabilities"),
    )


def read_llama_cpp(model: ModelDescription) -> ModelFacts:
    """Read llama.cpp's `/props`. Its window is that of each slot, not the training window."""
    return make_facts(
        context_window=model.window("default_generation_settings", "n_ctx"),
        vision=model.flag("modalities", "vision"),
        tools=model.flag("chat_template_caps", "supports_tool_calls"),
    )


def read_lm_studio(model: ModelDescription, name: str) -> ModelFacts:
    """Read LM Studio's description. The window is that of the loaded instance with this name.

    If no instance has the name, it is the smallest window of all instances. Without instances it is unknown.
    """
    instances = [each for each in model.get("loaded_instances") or () if isinstance(each, Mapping)]
    instances_of_name = [each for each in instances if each.get("id") == name] or instances
    return make_facts(
        context_window=smallest(
            *(
                ModelDescription(each, model.impossible_values).window("config", "context_length")
                for each in instances_of_name
            )
        ),
        vision=model.flag("capabilities", "vision"),
        tools=model.flag("capabilities", "trained_for_tool_use"),
        chat=False if model.get("type") in ("embedding", "embeddings") else None,
    )


CHAT_MODES = ("chat", "completion", "responses")  # of LiteLLM; its other modes are embedding, rerank and more


def read_litellm(model: ModelDescription) -> ModelFacts:
    """Read LiteLLM's description. `max_tokens` limits the answer."""
    answer = model.tokens("max_output_tokens")
    return make_facts(
        context_window=model.window("max_input_tokens"),
        max_output=model.tokens("max_tokens") if answer is None else answer,
        vision=model.flag("supports_vision"),
        tools=model.flag("supports_function_calling"),
        reasoning=model.flag("supports_reasoning"),
        chat=None if model.get("mode") in (None, *CHAT_MODES) else False,
        input_price=model.price("input_cost_per_token"),
        output_price=model.price("output_cost_per_token"),
        cached_input_price=model.price("cache_read_input_token_cost"),
        cache_write_price=model.price("cache_creation_input_token_cost"),
    )


# Functions that read a row in a list of models, each by a member of the row. The first of these members that the row
# has decides.
_SHAPES: tuple[tuple[str, Shape], ...] = (
    ("max_model_len", read_vllm),
    ("context_length", read_openrouter),
    ("context_window", read_groq),
    ("max_context_length", read_mistral),
    ("max_input_tokens", read_anthropic),
)


def list_rows(body: Any, member: str = "data") -> list[Mapping[str, Any]]:
    """Return the rows of a list; empty if the answer has another shape."""
    values = body.get(member) if isinstance(body, Mapping) else body
    return [row for row in values if isinstance(row, Mapping)] if isinstance(values, list) else []


def read_list(body: Any, impossible_values: list[str]) -> dict[str, ModelFacts]:
    """Return the facts in a list of models (`/v1/models`), by name. An adapter inherits facts from its base model."""
    by_name: dict[str, ModelFacts] = {}
    parents: dict[str, str] = {}
    for row in list_rows(body):
        name = row.get("id")
        if not isinstance(name, str):
            continue
        shape = next((shape for field, shape in _SHAPES if field in row), None)
        by_name[name] = _read_description(shape, row, name, impossible_values) if shape else {}
        if isinstance(row.get("parent"), str):
            parents[name] = row["parent"]
    return {name: by_name.get(parents.get(name, ""), ModelFacts()) | own for name, own in by_name.items()}


def read_models(
    descriptions: Iterable[tuple[Any, Any]], shape: Shape, impossible_values: list[str]
) -> dict[str, ModelFacts]:
    """Return the facts of (name, description) pairs, by name. Descriptions with the same name are merged."""
    by_name: dict[str, ModelFacts] = {}
    for name, description in descriptions:
        if isinstance(name, str):
            model_facts = _read_description(shape, description, name, impossible_values)
            by_name[name] = merge_facts(by_name[name], model_facts) if name in by_name else model_facts
    return by_name


def _read_description(shape: Shape, description: Any, name: str, impossible_values: list[str]) -> ModelFacts:
    """Return the facts of one description. Add its impossible values to `impossible_values`, with the model's name."""
    notes: list[str] = []
    model_facts = shape(ModelDescription(description, notes))
    impossible_values.extend(f"{name:.60}: {note}" for note in notes)
    return model_facts
