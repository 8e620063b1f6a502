"""Find the tool calls that a model writes as text, for models whose row says that they do so.

Small models, and servers without a parser for a model's format, send calls as a part of the answer:

* Hermes and Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
* Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`
* GLM: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`
* Llama 3.x: `<function=NAME>{…}</function>`, `<|python_tag|>{"name": …, "parameters": {…}}`, or the object alone
* Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}]` and `[TOOL_CALLS]NAME[ARGS]{…}`
* any of them: the object in a fenced block

Text that may be a call is held back until the step ends, or until its block ends and is no call. Only names of the
request's tools become calls. Everything else stays text.

To add a format: 1. add its marker to `_MARKERS`; 2. add its block to `_BLOCK`; 3. read the block in `_read_block`.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.json_types import JsonObject
from llm.step_filters.valid_calls import is_plain, resolved_name
from llm.types.model_call import TextDelta

MAX_WAITING = 70_000  # characters, a little more than the longest call; longer text is passed on
MAX_CALLS = 64  # calls in one step

_MARKERS = ("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]")
_FENCE = "```"
_MAX_MARKER_LENGTH = max(map(len, _MARKERS))
_BEGINNING = re.compile("|".join(map(re.escape, (*_MARKERS, _FENCE))))
_INFO = re.compile(r"[ \t]{0,9}[\w-]{0,40}[ \t]{0,9}\n?")  # the info string of a fenced block
_BLOCK = re.compile(
    r"<tool_call>(?P<call>.*?)(?:</tool_call>|(?=<tool_call>)|\Z)"
    r"|<function=(?P<name>[^>\s]{1,200})>(?P<body>.*?)(?:</function>|\Z)"
    r"|<\|python_tag\|>(?P<python>.*?)(?:<\|eom_id\|>|<\|eot_id\|>|\Z)"
    r"|\[TOOL_CALLS\](?P<mistral>.*?)(?=\[TOOL_CALLS\]|\Z)"
    r"|```[ \t]{0,9}[\w-]{0,40}[ \t]{0,9}\n?(?P<fenced>.*?)(?:```|\Z)",
    re.DOTALL,
)
_FUNCTION = re.compile(r"<function=([^>\s]{1,200})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]{1,200})>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_MISTRAL = re.compile(r"\s{0,9}([\w-]{1,200})\s{0,9}(?:\[CALL_ID\]\s{0,9}\w{1,100}\s{0,9})?(?:\[ARGS\])?\s{0,9}(?=\{)")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call that was written as text."""

    name: str
    arguments: str  # a JSON object


def parse_calls(text: str, tools: Collection[str]) -> tuple[str, list[WrittenCall]]:
    """Return the text without its calls of these tools, and the calls. Text without calls is unchanged."""
    json_calls = _of_json(text, tools)
    if json_calls:
        return "", json_calls
    calls: list[WrittenCall] = []
    pieces: list[str] = []
    at = 0
    for block in _BLOCK.finditer(text):
        calls_of_block = _read_block(block, tools)
        if calls_of_block and len(calls) + len(calls_of_block) <= MAX_CALLS:
            calls += calls_of_block
            pieces.append(text[at : block.start()])
            at = block.end()
    return ("".join([*pieces, text[at:]]).strip(), calls) if calls else (text, [])


def _read_block(block: re.Match[str], tools: Collection[str]) -> list[WrittenCall]:
    if (call := block["call"]) is not None:
        return _of_json(call, tools) or _of_function(call, tools) or _of_glm(call, tools)
    if (name := block["name"]) is not None:
        return _named(name, _parameters(block["body"]), tools)
    if (mistral := block["mistral"]) is not None:
        match = _MISTRAL.match(mistral)
        return _named(match[1], _object(mistral[match.end() :]), tools) if match else _of_json(mistral, tools)
    if (python := block["python"]) is not None:
        return _of_json(python, tools)
    return _of_json(block["fenced"] or "", tools)


def _of_json(text: str, tools: Collection[str]) -> list[WrittenCall]:
    """Return the calls in a text that is only JSON: an object, a list of objects, or several objects in a row."""
    values: list[Any] = []
    text = text.strip()
    at = 0
    while at < len(text) and len(values) <= MAX_CALLS:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        at = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n;,"))
    calls = [call for value in values for call in _of_value(value, tools)]
    return calls if len(calls) == len(values) else []


def _of_value(value: Any, tools: Collection[str]) -> list[WrittenCall]:
    if not isinstance(value, Mapping):
        return []
    if isinstance(function := value.get("function"), Mapping):
        value = function
    arguments = next((value[key] for key in ("arguments", "parameters", "args") if key in value), None)
    if isinstance(arguments, str):
        arguments = _object(arguments)
    name = value.get("name") or (function if isinstance(function, str) else None)
    return _named(name, arguments, tools)


def _of_function(text: str, tools: Collection[str]) -> list[WrittenCall]:
    calls = [_named(match[1], _parameters(match[2]), tools) for match in _FUNCTION.finditer(text)]
    return [call for each in calls for call in each]


def _of_glm(text: str, tools: Collection[str]) -> list[WrittenCall]:
    name, *pairs = text.split("<arg_key>")
    arguments: JsonObject = {}
    for pair in pairs:
        key, _, value = pair.partition("</arg_key>")
        arguments[key.strip()] = _value(value.partition("<arg_value>")[2].partition("</arg_value>")[0])
    return _named(name.strip(), arguments, tools) if is_plain(name.strip()) else []


def _parameters(body: str) -> Mapping[str, Any] | None:
    if not body.strip():
        return {}
    parameters = {match[1]: _value(match[2]) for match in _PARAMETER.finditer(body)}
    return parameters or _object(body)


def _value(text: str) -> Any:
    """Return the value of a parameter. These formats write numbers and lists as JSON, but strings without quotes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value, _ = _DECODER.raw_decode(text.strip() or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _named(name: Any, arguments: Any, tools: Collection[str]) -> list[WrittenCall]:
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        return []
    name = resolved_name(name, tools)
    return [WrittenCall(name, json.dumps(dict(arguments), ensure_ascii=False))] if name in tools else []


class WrittenCallFilter:
    """Filter that removes the calls of these `tools` from the text of one step."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._waiting = ""
        self._started = False  # text other than white space was passed on

    def feed(self, text: str) -> Iterator[TextDelta]:
        """Yield the text that cannot be a part of a call."""
        self._waiting += text
        yield from self._pass_on(self._undecided_from())

    def flush(self) -> Iterator[TextDelta]:
        """Yield the waiting text."""
        yield from self._pass_on(len(self._waiting))

    def finish(self) -> tuple[str, list[WrittenCall]]:
        """Return the rest of the text, and the calls."""
        waiting = self._waiting
        self._waiting = ""
        return parse_calls(waiting, self._tools)

    def _undecided_from(self) -> int:
        """Return how many characters can be passed on: those before a call, or before text that may become one."""
        text = self._waiting
        if len(text) > MAX_WAITING:
            return len(text)
        if not self._started and text.lstrip()[:1] in ("", "{", "["):
            return 0
        at = 0
        while beginning := _BEGINNING.search(text, at):
            if beginning[0] != _FENCE:
                return beginning.start()
            end = text.find(_FENCE, beginning.end())
            if end < 0 or _of_json(_INFO.sub("", text[beginning.end() : end], count=1), self._tools):
                return beginning.start()
            at = end + len(_FENCE)  # a block that is no call
        return len(text) - self._beginning_at_end(text[at:])

    @staticmethod
    def _beginning_at_end(text: str) -> int:
        tail = text[-_MAX_MARKER_LENGTH:]
        for length in range(len(tail), 0, -1):
            if any(marker.startswith(tail[-length:]) for marker in (*_MARKERS, _FENCE)):
                return length
        return 0

    def _pass_on(self, length: int) -> Iterator[TextDelta]:
        text = self._waiting[:length]
        self._waiting = self._waiting[length:]
        if text:
            self._started = self._started or bool(text.strip())
            yield TextDelta(text)
