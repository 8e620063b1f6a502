"""The parts of a scripted answer, and how a request chooses one."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from llm.tokens import CATCH_ALL, NamedTokenizer

DEFAULT_TEXT = "This is the scripted model speaking."
MODEL_PREFIX = "scripted:"

TITLE_PROMPT = "Write a title"  # how the product asks for one; answered by the script's `title`, a text or a step
SUMMARY_FORM = "# The form"  # as above; `summary` is the text or the whole step, by default a short good summary
DEFAULT_SUMMARY = "## Earlier\nThey greeted each other.\n\n## Now\nThey go on talking."
_SCRIPT_LINE = re.compile(r"^[ \t]*script:[ \t]*(\{.*\})[ \t]*$", re.MULTILINE)
_TOKEN = re.compile(r"\s*\S{1,8}|\s+")
_TOKENIZER = NamedTokenizer(CATCH_ALL)


class BadScript(ValueError):
    """The script cannot be played; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error answer. `code` goes where the protocol keeps its machine-readable name; `body` replaces the JSON."""

    status: int = 500
    message: str = "The scripted model was told to fail."
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One streamed piece. `index` numbers tool calls; `text` of a "call" is its name."""

    kind: Literal["reasoning", "text", "call", "arguments"]
    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One answer. Times are seconds; the counts of `*_after` are pieces (reasoning, text and tool call alike).

    `usage`: False sends none, a mapping has `input`, `output`, `cached`, `reasoning`; None computes it roughly.
    `raw`: payloads of server-sent events sent as they are, in place of everything else. `whole`: JSON that answers
    with status 200 even where a stream was asked for. `limit_style`: how a prompt above `context_limit` is refused,
    "openai", "llamacpp", "anthropic", or a name in `refusals.TOO_LONG`; `image_limit`: the most images of a request.
    `early_headers`: they come at once, not with the first piece. `hangs_times`: the first so many requests get nothing.
    `streaming`: the server "ignored" that a stream was asked for and answers whole, or "refused" it. `must_reason`: a
    request that switches reasoning off is refused.
    """

    ttft: float = 0.0
    interval: float = 0.0
    text: str | None = None
    tokens: int | None = None
    reasoning: str = ""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, int] | Literal[False] | None = None
    finish: str | None = None
    error: Failure | None = None
    error_times: int | None = None
    hangs_times: int = 0
    cut_after: int | None = None
    malformed_after: int | None = None
    silent_after: int | None = None
    early_headers: bool = False
    context_limit: int | None = None
    limit_style: str | None = None
    image_limit: int | None = None
    streaming: Literal["ignored", "refused"] | None = None
    must_reason: bool = False
    raw: Sequence[Any] | None = None
    whole: Any = None


_STEP_FIELDS = {each.name for each in fields(Step)}
_FREE = {"note", "title", "summary"}


def parse_step(value: Any) -> Step:
    if not isinstance(value, Mapping):
        raise BadScript("a step is a JSON object")
    if unknown := value.keys() - _STEP_FIELDS - _FREE:
        raise BadScript(f"a step has no field {sorted(unknown)[0]!r}")
    members = {key: item for key, item in value.items() if key not in _FREE}
    if isinstance(members.get("error"), Mapping):
        try:
            members["error"] = Failure(**members["error"])
        except TypeError as error:
            raise BadScript(f"error: {error}") from error
    return Step(**members)


def parse_script(value: Any) -> tuple[Step, ...]:
    """`{"steps": [step, ...]}` or one step. Free fields: `note` tells equal scripts apart; `title`, `summary`."""
    if isinstance(value, Mapping) and "steps" in value:
        steps = tuple(parse_step(step) for step in value["steps"])
        if not steps:
            raise BadScript("steps is empty")
        return steps
    return (parse_step(value),)


def split_tokens(text: str) -> list[str]:
    """Pieces of at most eight visible characters, each with the white space before it; joined they are the text."""
    return _TOKEN.findall(text)


def text_tokens(step: Step) -> list[str]:
    if step.tokens is not None:
        return ["t0", *(f" t{number}" for number in range(1, step.tokens))][: step.tokens]
    if step.text is None and not (step.tool_calls or step.reasoning):
        return split_tokens(DEFAULT_TEXT)
    return split_tokens(step.text or "")


def expected_text(step: Step | Mapping[str, Any], pieces: int | None = None) -> str:
    """Return the text of a step, or only that of its first `pieces` text tokens."""
    return "".join(text_tokens(step if isinstance(step, Step) else parse_step(step))[:pieces])


def call_arguments(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def call_id(call: Mapping[str, Any], index: int, cycle: int) -> str:
    return str(call.get("id") or f"call_{cycle}_{index}")


def pieces_of(step: Step) -> list[Piece]:
    pieces = [Piece("reasoning", token) for token in split_tokens(step.reasoning)]
    pieces += [Piece("text", token) for token in text_tokens(step)]
    for index, call in enumerate(step.tool_calls):
        arguments = call_arguments(call)
        pieces.append(Piece("call", str(call["name"]), index))
        pieces += [Piece("arguments", arguments[at : at + 12], index) for at in range(0, len(arguments), 12)]
    return pieces


@dataclass(frozen=True, slots=True)
class Chosen:
    """The step to play. `key` is the same for every request that plays this step of this script."""

    key: str
    number: int
    step: Step


def choose(body: Mapping[str, Any], scripts: Mapping[str, tuple[Step, ...]]) -> Chosen:
    """Finds the script by model name, or in the newest user message that has a line `script: {json}`.

    The step's number is the number of assistant messages after that user message (for a script by name: after the
    newest message that a person wrote), so that a cycle of tool calls walks through the steps. The last one repeats.
    Raises `BadScript`, and `LookupError` when the name is unknown.
    """
    messages = [message for message in body.get("messages", ()) if isinstance(message, Mapping)]
    if str(body.get("system") or message_text(messages[0] if messages else {})).startswith(TITLE_PROMPT):
        return Chosen("title", 0, _title(messages))
    model = str(body.get("model", ""))
    summarises = SUMMARY_FORM in str(body.get("system") or message_text(messages[0] if messages else {}))
    name = model.removeprefix(MODEL_PREFIX)
    by_name = name != model or name in scripts
    if summarises and not by_name:
        return _summary(message_text(messages[-1]))
    if by_name:
        if name not in scripts:
            raise LookupError(name)
        # What a user message says right after a tool's result is a reminder, not the question.
        reminded = [message.get("role") for message in messages[-2:]] == ["tool", "user"]
        questions = messages[:-1] if reminded else messages
        return _at(name, scripts[name], questions, _newest(questions, lambda text: bool(text.strip())))
    holder = _newest(messages, lambda text: _SCRIPT_LINE.search(text) is not None)
    if holder is None:
        return Chosen("", 0, Step())
    source = _SCRIPT_LINE.findall(message_text(messages[holder]))[-1]
    try:
        script = parse_script(json.loads(source))
    except (json.JSONDecodeError, TypeError) as error:
        raise BadScript(f"the script line is not JSON: {error}") from error
    return _at(source, script, messages, holder)


def _title(messages: Sequence[Mapping[str, Any]]) -> Step:
    scripts = _SCRIPT_LINE.findall(message_text(messages[-1]))
    title = json.loads(scripts[0]).get("title", "") if scripts else ""
    return parse_step(title) if isinstance(title, Mapping) else Step(text=str(title))


def _summary(text: str) -> Chosen:
    """Choose the summary of the newest script that has one."""
    for source in reversed(_SCRIPT_LINE.findall(text)):
        summary = json.loads(source).get("summary")
        if summary is not None:
            step = parse_step(summary) if isinstance(summary, Mapping) else Step(text=str(summary))
            return Chosen(f"summary {source}", 0, step)
    return Chosen("summary", 0, Step(text=DEFAULT_SUMMARY))


def _at(key: str, script: tuple[Step, ...], messages: Sequence[Mapping[str, Any]], holder: int | None) -> Chosen:
    after = messages if holder is None else messages[holder + 1 :]
    number = min(sum(message.get("role") == "assistant" for message in after), len(script) - 1)
    return Chosen(f"{number} {key}", number, script[number])


def _newest(messages: Sequence[Mapping[str, Any]], holds: Callable[[str], bool]) -> int | None:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user" and holds(message_text(messages[index])):
            return index
    return None


def message_text(message: Mapping[str, Any]) -> str:
    """The text a person wrote, in either protocol's shape; tool results are not part of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def rough_tokens(value: Any) -> int:
    """A quarter of the characters of every text in a request's messages, system prompt and tools, rounded up."""
    return -(-sum(map(len, _texts(value))) // 4)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in ("role", "type", "data", "url"):
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """Return the input tokens that the scripted model reports, and compares with `context_limit`.

    It is never less than the real tokens: an estimate by characters would be too low for dense text such as digits, and
    look like a truncated prompt.
    """
    texts = [body.get("system", ""), body.get("messages", []), body.get("tools", [])]
    return max(rough_tokens(texts), sum(map(_TOKENIZER.count, _texts(texts))))
