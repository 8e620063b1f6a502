"""Find the tool calls that a model writes as text. Used for models whose rows have `written_calls`.

Small models, and servers without a parser for a model's format, send calls as a part of the answer:

* Hermes and Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
* Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`
* GLM: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`
* Llama 3.x: `<function=NAME>{…}</function>`, `<|python_tag|>{"name": …, "parameters": {…}}`, or the object alone
* Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}]` and `[TOOL_CALLS]NAME[ARGS]{…}`
* any of them: the object in a fenced block

Text that may be a call is held back until the step ends, or until its block turns out to be no call. Only calls of the
request's tools are extracted. Everything else stays text.

To add a format: 1. add its marker to `_MARKERS`; 2. add its block to `_BLOCK`; 3. read the block in `_read_block`.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.json_types import JsonObject
from llm.step_filters.valid_calls import is_plain, resolve_name
from llm.types.model_call import TextDelta

MAX_HELD_BACK = 70_000  # characters, slightly more than the longest call; longer text is passed on
MAX_CALLS = 64  # calls in one step

_MARKERS = ("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]")
_FENCE = "```"
_MAX_MARKER_LENGTH = max(map(len, _MARKERS))
_MARKER_OR_FENCE = re.compile("|".join(map(re.escape, (*_MARKERS, _FENCE))))
_INFO_STRING = re.compile(r"[ \t]{0,9}[\w-]{0,40}[ \t]{0,9}\n?")  # the info string of a fenced block
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
_MISTRAL_NAME = re.compile(
    r"\s{0,9}([\w-]{1,200})\s{0,9}(?:\[CALL_ID\]\s{0,9}\w{1,100}\s{0,9})?(?:\[ARGS\])?\s{0,9}(?=\{)"
)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A tool call that the model wrote as text."""

    name: str
    arguments: str  # a JSON object


def parse_calls(text: str, tools: Collection[str]) -> tuple[str, list[WrittenCall]]:
    """Return the text without its calls of these tools, and the calls. A text without calls stays unchanged."""
    json_calls = _calls_in_json(text, tools)
    if json_calls:
        return "", json_calls
    calls: list[WrittenCall] = []
    pieces: list[str] = []
    position = 0
    for block in _BLOCK.finditer(text):
        calls_of_block = _read_block(block, tools)
        if calls_of_block and len(calls) + len(calls_of_block) <= MAX_CALLS:
            calls += calls_of_block
            pieces.append(text[position : block.start()])
            position = block.end()
    return ("".join([*pieces, text[position:]]).strip(), calls) if calls else (text, [])


def _read_block(block: re.Match[str], tools: Collection[str]) -> list[WrittenCall]:
    if (call := block["call"]) is not None:
        return _calls_in_json(call, tools) or _calls_in_functions(call, tools) or _calls_in_glm_format(call, tools)
    if (name := block["name"]) is not None:
        return _calls_of_known_tool(name, _parse_parameters(block["body"]), tools)
    if (mistral := block["mistral"]) is not None:
        match = _MISTRAL_NAME.match(mistral)
        return (
            _calls_of_known_tool(match[1], _parse_object(mistral[match.end() :]), tools)
            if match
            else _calls_in_json(mistral, tools)
        )
    if (python := block["python"]) is not None:
        return _calls_in_json(python, tools)
    return _calls_in_json(block["fenced"] or "", tools)


def _calls_in_json(text: str, tools: Collection[str]) -> list[WrittenCall]:
    """Return the calls in a text that is only JSON: an object, a list of objects, or several objects in sequence."""
    values: list[Any] = []
    text = text.strip()
    position = 0
    while position < len(text) and len(values) <= MAX_CALLS:
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        values += value if isinstance(value, list) else [value]
        position = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n;,"))
    calls = [call for value in values for call in _calls_in_value(value, tools)]
    return calls if len(calls) == len(values) else []


def _calls_in_value(value: Any, tools: Collection[str]) -> list[WrittenCall]:
    if not isinstance(value, Mapping):
        return []
    if isinstance(function := value.get("function"), Mapping):
        value = function
    arguments = next((value[key] for key in ("arguments", "parameters", "args") if key in value), None)
    if isinstance(arguments, str):
        arguments = _parse_object(arguments)
    name = value.get("name") or (function if isinstance(function, str) else None)
    return _calls_of_known_tool(name, arguments, tools)


def _calls_in_functions(text: str, tools: Collection[str]) -> list[WrittenCall]:
    calls = [_calls_of_known_tool(match[1], _parse_parameters(match[2]), tools) for match in _FUNCTION.finditer(text)]
    return [call for each in calls for call in each]


def _calls_in_glm_format(text: str, tools: Collection[str]) -> list[WrittenCall]:
    name, *pairs = text.split("<arg_key>")
    arguments: JsonObject = {}
    for pair in pairs:
        key, _, value = pair.partition("</arg_key>")
        arguments[key.strip()] = _parse_value(value.partition("<arg_value>")[2].partition("</arg_value>")[0])
    return _calls_of_known_tool(name.strip(), arguments, tools) if is_plain(name.strip()) else []


def _parse_parameters(body: str) -> Mapping[str, Any] | None:
    if not body.strip():
        return {}
    parameters = {match[1]: _parse_value(match[2]) for match in _PARAMETER.finditer(body)}
    return parameters or _parse_object(body)


def _parse_value(text: str) -> Any:
    """Return the value of a parameter. These formats have numbers and lists as JSON, but strings without quotes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _parse_object(text: str) -> Mapping[str, Any] | None:
    try:
        value, _ = _DECODER.raw_decode(text.strip() or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _calls_of_known_tool(name: Any, arguments: Any, tools: Collection[str]) -> list[WrittenCall]:
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        return []
    name = resolve_name(name, tools)
    return [WrittenCall(name, json.dumps(dict(arguments), ensure_ascii=False))] if name in tools else []


class WrittenCallFilter:
    """Filter that removes the calls of `tools` from the text of one step."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._held_back = ""
        self._started = False  # text with more than white space was passed on

    def feed(self, text: str) -> Iterator[TextDelta]:
        """Yield the text that cannot be a part of a call."""
        self._held_back += text
        yield from self._pass_on(self._decided_length())

    def flush(self) -> Iterator[TextDelta]:
        """Yield the text that was held back."""
        yield from self._pass_on(len(self._held_back))

    def finish(self) -> tuple[str, list[WrittenCall]]:
        """Return the text that was held back without its calls, and these calls."""
        held_back = self._held_back
        self._held_back = ""
        return parse_calls(held_back, self._tools)

    def _decided_length(self) -> int:
        """Return the number of characters before a call, or before text that may become one."""
        text = self._held_back
        if len(text) > MAX_HELD_BACK:
            return len(text)
        if not self._started and text.lstrip()[:1] in ("", "{", "["):
            return 0
        position = 0
        while marker := _MARKER_OR_FENCE.search(text, position):
            if marker[0] != _FENCE:
                return marker.start()
            end = text.find(_FENCE, marker.end())
            if end < 0 or _calls_in_json(_INFO_STRING.sub("", text[marker.end() : end], count=1), self._tools):
                return marker.start()
            position = end + len(_FENCE)  # a block that is no call
        return len(text) - self._partial_marker_length(text[position:])

    @staticmethod
    def _partial_marker_length(text: str) -> int:
        """Return how many characters at the end of a text may be the beginning of a marker."""
        tail = text[-_MAX_MARKER_LENGTH:]
        for length in range(len(tail), 0, -1):
            if any(marker.startswith(tail[-length:]) for marker in (*_MARKERS, _FENCE)):
                return length
        return 0

    def _pass_on(self, length: int) -> Iterator[TextDelta]:
        text = self._held_back[:length]
        self._held_back = self._held_back[length:]
        if text:
            self._started = self._started or bool(text.strip())
            yield TextDelta(text)
