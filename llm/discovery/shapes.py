"""What servers say of their models, read by the shape of what they say; no I/O.

Facts of a model are named as the fields of `llm.models.Model` and can be stored as JSON: windows and answers in tokens,
prices as text in US dollars a million tokens, the day of retirement in ISO 8601. What is not said is not there.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

LEAST_WINDOW, MOST_TOKENS = 256, 100_000_000  # what a row takes, and ten times the largest window on offer
MOST_PRICE = Decimal(1_000_000)  # US dollars a million tokens
LEAST_ALLOCATED = 4096  # tokens that an Ollama server gives a model on the smallest machine
YEARS = range(2020, 2200)
NATIVE_WINDOW = 32_768  # tokens that an Ollama server is asked for when nobody has said how many fit its memory

EFFORTS = ("low", "medium", "high", "xhigh", "max")  # of Anthropic's models

Facts = dict[str, Any]
Taken = TypeVar("Taken")


@dataclass(frozen=True, slots=True)
class Said:
    """What a server says of one model. What cannot be is as if it were not said, and noted in `strange`."""

    value: Any
    strange: list[str]

    def at(self, *path: str) -> Any:
        value = self.value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def tokens(self, *path: str, least: int = 1) -> int | None:
        value = self.at(*path)
        return self._taken(path, value if type(value) is int and least <= value <= MOST_TOKENS else None)

    def window(self, *path: str) -> int | None:
        return self.tokens(*path, least=LEAST_WINDOW)

    def flag(self, *path: str) -> bool | None:
        value = self.at(*path)
        return self._taken(path, value if type(value) is bool else None)

    def holds(self, word: str, *path: str) -> bool | None:
        """Whether a list of words has this one."""
        value = self.at(*path)
        return self._taken(path, word in value if isinstance(value, list) else None)

    def price(self, *path: str) -> str | None:
        """Of what is said in US dollars a token, as a number or its text."""
        value, price = self.at(*path), None
        if type(value) in (int, float, str):
            try:
                price = Decimal(str(value).strip()) * 1_000_000
            except InvalidOperation:
                price = None
        sound = price is not None and price.is_finite() and 0 <= price <= MOST_PRICE
        return self._taken(path, f"{round(price, 6).normalize():f}" if price is not None and sound else None)

    def day(self, *path: str) -> str | None:
        value, day = self.at(*path), None
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
                day = moment.astimezone(UTC).date() if moment.tzinfo else moment.date()
            except (ValueError, OverflowError):
                day = None
        return self._taken(path, day.isoformat() if day and day.year in YEARS else None)

    def _taken(self, path: Sequence[str], taken: Taken | None) -> Taken | None:
        if taken is None and (value := self.at(*path)) is not None:
            self.strange.append(f"{'.'.join(path)} is {value!r:.60}")
        return taken


def facts(**said: Any) -> Facts:
    return {name: value for name, value in said.items() if value is not None}


def smaller(*counts: int | None) -> int | None:
    return min((count for count in counts if count is not None), default=None)


def joined(one: Facts, other: Facts) -> Facts:
    """What holds whichever of two servers of one name answers: the smaller window, what both can, the higher price."""
    both = one | other
    for name in one.keys() & other.keys():
        pair = (one[name], other[name])
        both[name] = max(pair, key=Decimal) if name.endswith("_price") else min(pair)
    return both


def vllm(said: Said) -> Facts:
    return facts(context_window=said.window("max_model_len"))


def openrouter(said: Said) -> Facts:
    """The model has one length, the provider that serves it another; the smaller holds."""
    return facts(
        context_window=smaller(said.window("context_length"), said.window("top_provider", "context_length")),
        max_output=said.tokens("top_provider", "max_completion_tokens"),
        vision=said.holds("image", "architecture", "input_modalities"),
        tools=said.holds("tools", "supported_parameters"),
        reasoning=said.holds("reasoning", "supported_parameters"),
        input_price=said.price("pricing", "prompt"),
        output_price=said.price("pricing", "completion"),
        cached_input_price=said.price("pricing", "input_cache_read"),
        cache_write_price=said.price("pricing", "input_cache_write"),
    )


def groq(said: Said) -> Facts:
    return facts(context_window=said.window("context_window"), max_output=said.tokens("max_completion_tokens"))


def mistral(said: Said) -> Facts:
    return facts(
        context_window=said.window("max_context_length"),
        vision=said.flag("capabilities", "vision"),
        tools=said.flag("capabilities", "function_calling"),
        retires_on=said.day("deprecation"),
    )


def anthropic(said: Said) -> Facts:
    """All of them call tools. Without a date an active model is not to be retired, whatever was said before."""
    found = facts(
        context_window=said.window("max_input_tokens"),
        max_output=said.tokens("max_tokens"),
        vision=said.flag("capabilities", "image_input", "supported"),
        tools=True,
        reasoning=said.flag("capabilities", "thinking", "supported"),
        efforts=[each for each in EFFORTS if said.flag("capabilities", "effort", each, "supported")] or None,
        retires_on=said.day("retires_at"),
    )
    if said.at("lifecycle") == "active" and said.at("retires_at") is None:
        found["retires_on"] = None
    return found


def gemini(said: Said) -> Facts:
    return facts(
        context_window=said.window("inputTokenLimit"),
        max_output=said.tokens("outputTokenLimit"),
        reasoning=said.flag("thinking"),
    )


def ollama(said: Said, allocated: int | None, *, native: bool) -> Facts:
    """`allocated`: the window the model is loaded with, if it is. `native`: its protocol says with every request the
    window wanted, so what the model is loaded with for somebody else says nothing.

    What a model was trained for is more than most machines have memory for, so it is but an upper limit.
    """
    info = said.at("model_info")
    family = info.get("general.architecture") if isinstance(info, Mapping) else None
    trained = said.window("model_info", f"{family}.context_length") if family else None
    parameters = said.at("parameters")
    typed = re.search(r"^num_ctx\s+(\d{1,9})\s*$", parameters, re.MULTILINE) if isinstance(parameters, str) else None
    window = (None if native else allocated) or (int(typed[1]) if typed and int(typed[1]) >= LEAST_WINDOW else None)
    if window is None and trained and (native or trained <= LEAST_ALLOCATED):
        window = min(trained, NATIVE_WINDOW)
    return facts(
        context_window=smaller(window, trained) if window else None,
        vision=said.holds("vision", "capabilities"),
        tools=said.holds("tools", "capabilities"),
        reasoning=said.holds("thinking", "capabilities"),
    )


def llama_cpp(said: Said) -> Facts:
    """Of `/props`: the window of each slot, not that which the model was trained for."""
    return facts(
        context_window=said.window("default_generation_settings", "n_ctx"),
        vision=said.flag("modalities", "vision"),
        tools=said.flag("chat_template_caps", "supports_tool_calls"),
    )


def lm_studio(said: Said, name: str) -> Facts:
    """The window of what is loaded under this name; while nothing is, only what the model can do is known."""
    instances = [each for each in said.at("loaded_instances") or () if isinstance(each, Mapping)]
    of_name = [each for each in instances if each.get("id") == name] or instances
    return facts(
        context_window=smaller(*(Said(each, said.strange).window("config", "context_length") for each in of_name)),
        vision=said.flag("capabilities", "vision"),
        tools=said.flag("capabilities", "trained_for_tool_use"),
    )


def litellm(said: Said) -> Facts:
    """`max_tokens` is that of the answer."""
    answer = said.tokens("max_output_tokens")
    return facts(
        context_window=said.window("max_input_tokens"),
        max_output=said.tokens("max_tokens") if answer is None else answer,
        vision=said.flag("supports_vision"),
        tools=said.flag("supports_function_calling"),
        reasoning=said.flag("supports_reasoning"),
        input_price=said.price("input_cost_per_token"),
        output_price=said.price("output_cost_per_token"),
        cached_input_price=said.price("cache_read_input_token_cost"),
        cache_write_price=said.price("cache_creation_input_token_cost"),
    )


# A row of a list of models has the shape of the first whose field it has.
_SHAPES: tuple[tuple[str, Callable[[Said], Facts]], ...] = (
    ("max_model_len", vllm),
    ("context_length", openrouter),
    ("context_window", groq),
    ("max_context_length", mistral),
    ("max_input_tokens", anthropic),
)


def rows(body: Any, member: str = "data") -> list[Mapping[str, Any]]:
    """The rows of a list, whatever else came instead of it."""
    found = body.get(member) if isinstance(body, Mapping) else body
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def listed(body: Any, strange: list[str]) -> dict[str, Facts]:
    """What a list of models (`/v1/models`) says, by name. An adapter that says nothing has what its model has."""
    found: dict[str, Facts] = {}
    parents: dict[str, str] = {}
    for row in rows(body):
        name = row.get("id")
        if not isinstance(name, str):
            continue
        shape = next((shape for field, shape in _SHAPES if field in row), None)
        found[name] = _noted(shape, Said(row, strange), name) if shape else {}
        if isinstance(row.get("parent"), str):
            parents[name] = row["parent"]
    return {name: found.get(parents.get(name, ""), {}) | said for name, said in found.items()}


def of_models(
    described: Iterable[tuple[Any, Any]], shape: Callable[[Said], Facts], strange: list[str]
) -> dict[str, Facts]:
    """What is said of (name, description) pairs, by name; what is said of one name twice is joined."""
    found: dict[str, Facts] = {}
    for name, description in described:
        if isinstance(name, str):
            said = _noted(shape, Said(description, strange), name)
            found[name] = joined(found[name], said) if name in found else said
    return found


def _noted(shape: Callable[[Said], Facts], said: Said, name: str) -> Facts:
    """The facts; what is strange among them is noted with the model's name."""
    notes: list[str] = []
    found = shape(Said(said.value, notes))
    said.strange.extend(f"{name:.60}: {note}" for note in notes)
    return found
