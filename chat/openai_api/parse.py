"""A request of `chat/completions`, checked: what it asks for, or an error that names the parameter.

What does not change what an answer means (user, metadata, …) is accepted and not passed on. What would change it and
cannot be honoured is refused, rather than answered as if it had not been said.
"""

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.http import HttpRequest

from chat.openai_api.errors import refused
from chat.prompts.turn_context import MAX_TOOLS, NO_PARAMETERS, TOOL_NAME, ProgramOptions
from chat.turns.store import storable
from core.errors import ProductError
from core.json_bodies import load
from llm.types.model_call import EFFORTS, Sampling, ToolChoice, ToolDefinition

MAX_BODY = 8 * 1024 * 1024  # bytes, as the web server takes at most
MAX_VALUES = 48_000_000  # bytes in memory: lists of a million tokens for an embedder
MAX_STOPS, MAX_STOP = 4, 1_000
NO_LIMIT = -1  # of several clients, as “max_tokens”
MAX_TOKENS = 10_000_000
MAX_MESSAGES = 10_000
MAX_IMAGES = 50
NAMED = 16  # digits of an image's SHA-256 that its file is named by
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.IGNORECASE | re.ASCII)
VERBOSITIES = ("low", "medium", "high")
LARGEST_SEED = 2**63 - 1
# The values that say no more than leaving the parameter out would.
_HONOURED: dict[str, Callable[[Any], bool]] = {
    "n": lambda value: value == 1,
    "logprobs": lambda value: value is False,
    "top_logprobs": lambda value: value == 0,
    "logit_bias": lambda value: value == {},
    "modalities": lambda value: value == ["text"],
    "audio": lambda value: False,
    "moderation": lambda value: False,
    "store": lambda value: value is False,
    "service_tier": lambda value: value in ("auto", "default"),
    "web_search_options": lambda value: False,
    "functions": lambda value: value == [],
    "function_call": lambda value: value == "none",
}


@dataclass(frozen=True)
class Picture:
    """`where` names it in errors."""

    media_type: str
    data: bytes
    where: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """Of its file. By its content, as people's files are not: by that it is known again."""
        return f"{self.digest[:NAMED]}{mimetypes.guess_extension(self.media_type) or ''}"


def is_picture(name: str, digest: str) -> bool:
    """Whether a file of this name and SHA-256 came in a request."""
    return name.startswith(digest[:NAMED])


@dataclass(slots=True)
class Row:
    """`parts` as in `chat.models.Message`. Results of tools are in the row of the message that called them."""

    role: str
    parts: list[dict[str, Any]]
    pictures: list[Picture] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """`instructions` is what the system and developer messages say, wherever they stand."""

    instructions: str
    rows: list[Row]

    @property
    def question(self) -> int:
        """The index of the last user message."""
        return max(index for index, row in enumerate(self.rows) if row.role == "user")

    @property
    def pictures(self) -> list[Picture]:
        return [picture for row in self.rows for picture in row.pictures]


@dataclass(frozen=True, slots=True)
class Wanted:
    model: str
    history: History
    options: ProgramOptions
    stream: bool
    include_usage: bool


def body_of(request: HttpRequest) -> dict[str, Any]:
    """Raises `request_too_large` (413) and `invalid_json`."""
    raw = request.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        most = f"The request is larger than {MAX_BODY // 1024 // 1024} MiB. Send less, or smaller images."
        raise ProductError("request_too_large", most, status=413)
    try:
        body = storable(load(raw, MAX_VALUES))
    except (ValueError, RecursionError) as error:
        raise refused(None, "The request is not valid JSON.", "invalid_json") from error
    if not isinstance(body, dict):
        raise refused(None, "The request must be a JSON object.", "invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def read(body: Mapping[str, Any], *, replaces_system: bool = False) -> Wanted:
    """`body` without members that are null. `replaces_system`: see `chat.prompts.turn_context.ProgramOptions`."""
    for name, honoured in _HONOURED.items():
        if name in body and not honoured(body[name]):
            sentence = f"“{name}” is not supported with this value. Leave it out."
            raise refused(name, sentence, "unsupported_parameter")
    for name in ("model", "messages"):
        if name not in body:
            raise refused(name, f"You must provide “{name}”.", "missing_required_parameter")
    history = _read_messages(body["messages"])
    return Wanted(
        model=_typed(body, "model", str, ""),
        history=history,
        options=replace(_options(body, history.instructions), replaces_system=replaces_system),
        stream=_typed(body, "stream", bool, False),
        include_usage=bool(_typed(body, "stream_options", dict, {}).get("include_usage")),
    )


def _options(body: Mapping[str, Any], instructions: str) -> ProgramOptions:
    tools = _tools(body)
    choice, named = _choice(body.get("tool_choice", "auto"), tools)
    return ProgramOptions(
        instructions=instructions,
        temperature=_number(body, "temperature", 0, 2),
        max_output=_max_output(body),
        stop=_stop(body.get("stop", [])),
        tools=tools,
        tool_choice=choice,
        required_tool=named,
        parallel_tool_calls=_typed(body, "parallel_tool_calls", bool, True),
        sampling=_read_sampling(body),
        response_format=_read_format(body.get("response_format", {"type": "text"})),
    )


def _typed(body: Mapping[str, Any], name: str, kind: type[Any], default: Any) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind):
        word = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}[kind]
        raise refused(name, f"“{name}” must be {word}.", "invalid_type")
    return value


def _max_output(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if name in body:
            value = body[name]
            if value == NO_LIMIT and not isinstance(value, bool):
                return None
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
                raise refused(name, f"“{name}” must be a whole number from 1, or -1 for no limit.")
            return value
    return None


def _stop(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise refused("stop", f"“stop” must be a text or a list of at most {MAX_STOPS}.")
    if not all(isinstance(each, str) and 0 < len(each) <= MAX_STOP for each in stops):
        raise refused("stop", f"Each of “stop” must be a text of 1 to {MAX_STOP:,} characters.")
    return tuple(stops)


def _tools(body: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    given = _typed(body, "tools", list, [])
    if len(given) > MAX_TOOLS:
        raise refused("tools", f"At most {MAX_TOOLS} tools can be offered.")
    tools = tuple(_tool(tool, f"tools[{number}]") for number, tool in enumerate(given))
    if len({tool.name for tool in tools}) < len(tools):
        raise refused("tools", "Two tools have the same name.")
    return tools


def _tool(given: Any, where: str) -> ToolDefinition:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or given.get("type") != "function":
        raise refused(where, "A tool is an object of the type “function” with “function”.", "unsupported_tool")
    name, described = function.get("name"), function.get("description") or ""
    parameters = function.get("parameters") or NO_PARAMETERS
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise refused(f"{where}.function.name", "A tool's name has 1 to 64 letters, digits, hyphens and underscores.")
    if not isinstance(described, str) or not isinstance(parameters, dict):
        raise refused(f"{where}.function", "“description” must be a text and “parameters” a JSON schema.")
    return ToolDefinition(name, described, parameters)


def _choice(given: Any, tools: tuple[ToolDefinition, ...]) -> tuple[ToolChoice, str | None]:
    """What is chosen, and the name of the one tool that is demanded, if one is."""
    if given in ("auto", "none"):
        return given, None
    names = {tool.name for tool in tools}
    if given == "required" and names:
        return "required", None
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if isinstance(function, dict) and function.get("name") in names:
        return "required", function["name"]
    raise refused("tool_choice", "“tool_choice” is auto, none, required, or one of the “tools” by its name.")


def _read_sampling(body: Mapping[str, Any]) -> Sampling:
    """What says no more than leaving it out would is left out: some providers cannot be told it."""
    verbosity = _word(body, "verbosity", VERBOSITIES)
    return Sampling(
        top_p=_unless(1, _number(body, "top_p", 0, 1)),
        presence_penalty=_unless(0, _number(body, "presence_penalty", -2, 2)),
        frequency_penalty=_unless(0, _number(body, "frequency_penalty", -2, 2)),
        seed=_seed(body),
        reasoning_effort=_word(body, "reasoning_effort", EFFORTS),
        verbosity=None if verbosity == "medium" else verbosity,
    )


def _number(body: Mapping[str, Any], name: str, least: int, most: int) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise refused(name, f"“{name}” must be a number from {least} to {most}.")
    return float(value)


def _unless(neutral: float, value: float | None) -> float | None:
    return None if value == neutral else value


def _seed(body: Mapping[str, Any]) -> int | None:
    value = body.get("seed")
    if value is not None and (type(value) is not int or abs(value) > LARGEST_SEED):
        raise refused("seed", "“seed” must be a whole number of at most 64 bits.")
    return value


def _word(body: Mapping[str, Any], name: str, words: Collection[str]) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and value in words):
        return value
    raise refused(name, f"“{name}” must be one of {', '.join(words)}.")


def _read_format(given: Any) -> dict[str, Any] | None:
    """What `llm.types.model_call.ModelRequest` wants; None for text, the default."""
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {"type": kind, "json_schema": _schema(given.get("json_schema"))}
    raise refused("response_format", "“response_format” is an object of the type text, json_object or json_schema.")


def _schema(given: Any) -> dict[str, Any]:
    where = "response_format.json_schema"
    if not isinstance(given, dict):
        raise refused(where, "“json_schema” must be an object with “name” and “schema”.", "invalid_type")
    members = {name: value for name, value in given.items() if value is not None}
    if not isinstance(members.get("name"), str) or not TOOL_NAME.fullmatch(members["name"]):
        raise refused(f"{where}.name", "A format's name has 1 to 64 letters, digits, hyphens and underscores.")
    for name, kind, word in (("schema", dict, "a JSON schema"), ("description", str, "a text")):
        if not isinstance(members.get(name, kind()), kind):
            raise refused(f"{where}.{name}", f"“{name}” must be {word}.", "invalid_type")
    if "schema" not in members:
        raise refused(f"{where}.schema", "You must provide the “schema” of the answer.", "missing_required_parameter")
    if not isinstance(members.get("strict", False), bool):
        raise refused(f"{where}.strict", "“strict” must be true or false.", "invalid_type")
    return {name: members[name] for name in ("name", "description", "schema", "strict") if name in members}


def _read_messages(given: Any) -> History:
    if not isinstance(given, list) or not given:
        raise refused("messages", "“messages” must be a list of at least one message.")
    if len(given) > MAX_MESSAGES:
        raise refused("messages", f"These are more than {MAX_MESSAGES:,} messages. Leave out the oldest.")
    reader = _Reader()
    for number, message in enumerate(given):
        reader.add(message, f"messages[{number}]")
    reader.require_answered(f"messages[{len(given) - 1}]")
    history = History("\n\n".join(text for text in reader.instructions if text.strip()), reader.rows)
    if not any(row.role == "user" for row in history.rows):
        raise refused("messages", "There is nothing to answer: send a message with the role “user”.")
    if len(history.pictures) > MAX_IMAGES:
        raise refused("messages", f"These are more than {MAX_IMAGES} images. Leave out the oldest.")
    return history


class _Reader:
    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.rows: list[Row] = []
        self._open: set[str] = set()  # calls of the newest message that have no result yet

    def add(self, message: Any, where: str) -> None:
        if not isinstance(message, dict):
            raise refused(where, "A message is an object with “role” and “content”.")
        match message.get("role"):
            case "system" | "developer":
                self.instructions.append(_text(message.get("content"), f"{where}.content"))
            case "user":
                self.require_answered(where)
                self.rows.append(_user(message.get("content"), f"{where}.content"))
            case "assistant":
                self.require_answered(where)
                self._assistant(message, where)
            case "tool":
                self._tool(message, where)
            case _:
                raise refused(f"{where}.role", "“role” is one of system, developer, user, assistant and tool.")

    def require_answered(self, where: str) -> None:
        if self._open:
            missing = ", ".join(sorted(self._open))
            sentence = f"A message with “tool_calls” must be followed by the result of each; missing: {missing}."
            raise refused(where, sentence)

    def _assistant(self, message: dict[str, Any], where: str) -> None:
        content, calls = message.get("content"), message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise refused(f"{where}.tool_calls", "“tool_calls” must be a list.")
        if content is None and not calls:
            raise refused(f"{where}.content", "A message of the assistant has “content” or “tool_calls”.")
        text = "" if content is None else _text(content, f"{where}.content")
        parts = [{"type": "text", "text": text}] if text else []
        parts += [_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]
        self._open = {part["id"] for part in parts if part["type"] == "tool_call"}
        self.rows.append(Row("assistant", parts))

    def _tool(self, message: dict[str, Any], where: str) -> None:
        call = message.get("tool_call_id")
        if not isinstance(call, str) or call not in self._open:
            sentence = "A message with the role “tool” must answer a call of the assistant's message before it."
            raise refused(f"{where}.tool_call_id", sentence)
        self._open.remove(call)
        result = {"type": "tool_result", "id": call, "error": False, "documents": []}
        self.rows[-1].parts.append({**result, "text": _text(message.get("content"), f"{where}.content")})


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise refused(where, "A call is an object with “id”, the type “function” and “function”.")
    fields = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments", "")}
    for name, value in fields.items():
        if not isinstance(value, str) or (name != "arguments" and not value):
            raise refused(where, f"“{name}” of a call must be a text.")
    return {"type": "tool_call", **fields}


def _text(content: Any, where: str) -> str:
    """Of a text or a list of text parts."""
    return "\n\n".join(part for part, picture in _content(content, where) if picture is None)


def _user(content: Any, where: str) -> Row:
    texts, pictures = [], []
    for text, picture in _content(content, where, images=True):
        texts += [text] if picture is None else []
        pictures += [picture] if picture is not None else []
    return Row("user", [{"type": "text", "text": "\n\n".join(texts)}], pictures)


def _content(content: Any, where: str, *, images: bool = False) -> Iterator[tuple[str, Picture | None]]:
    if isinstance(content, str):
        yield content, None
        return
    if not isinstance(content, list):
        raise refused(where, "“content” must be a text or a list of parts.")
    for number, part in enumerate(content):
        place = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "refusal") and isinstance(part.get(kind), str):
            yield part[kind], None
        elif kind == "image_url" and images:
            yield "", _picture(part.get("image_url"), f"{place}.image_url")
        else:
            known = "text and image_url" if images else "text"
            raise refused(place, f"The parts that can be sent here are {known}.", "unsupported_content")


def _picture(given: Any, where: str) -> Picture:
    url = given.get("url") if isinstance(given, dict) else given
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or found is None:
        sentence = "Send the image itself, as data:image/png;base64,…: the server fetches no addresses for programs."
        raise refused(where, sentence, "unsupported_image_url")
    try:
        data = base64.b64decode(url[found.end() :], validate=True)
    except binascii.Error as error:
        raise refused(where, "The image is not valid base64.", "invalid_image") from error
    if not data:
        raise refused(where, "The image is empty.", "invalid_image")
    return Picture(found[1].lower(), data, where)
