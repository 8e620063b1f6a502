"""Check a request of `chat/completions` and return its parts, or raise an error that names the parameter.

Parameters that do not change the meaning of an answer (user, metadata, …) are accepted and not passed on. Unsupported
parameters that would change it are refused, so that no answer ignores them silently.
"""

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.http import HttpRequest

from chat.models.parts import MessagePart
from chat.openai_api.errors import refused
from chat.prompts.turn_context import MAX_TOOLS, NO_PARAMETERS, TOOL_NAME, ProgramOptions
from chat.turns.store import storable
from core.errors import ProductError
from core.json_bodies import load
from core.json_types import JsonObject
from llm.types.model_call import EFFORTS, Sampling, ToolChoice, ToolDefinition

MAX_BODY = 8 * 1024 * 1024  # bytes, the limit of the web server
MAX_VALUES = 48_000_000  # bytes in memory, enough for lists of a million tokens for an embedder
MAX_STOPS = 4
MAX_STOP = 1_000  # characters
NO_LIMIT = -1  # several clients send this as “max_tokens”
MAX_TOKENS = 10_000_000
MAX_MESSAGES = 10_000
MAX_IMAGES = 50
NAME_DIGITS = 16  # digits of an image's SHA-256 in the name of its file
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.IGNORECASE | re.ASCII)
VERBOSITIES = ("low", "medium", "high")
LARGEST_SEED = 2**63 - 1
# For each unsupported parameter, whether a value means the same as leaving the parameter out.
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
    """An image of a request. `where` is its place in the request, for error messages."""

    media_type: str
    data: bytes
    where: str

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the image's file.

        The name begins with the digest, so `is_picture` can recognise it. Names of users' files do not.
        """
        return f"{self.digest[:NAME_DIGITS]}{mimetypes.guess_extension(self.media_type) or ''}"


def is_picture(name: str, digest: str) -> bool:
    """Return whether a file with this name and SHA-256 came in a request."""
    return name.startswith(digest[:NAME_DIGITS])


@dataclass(slots=True)
class RequestMessage:
    """A message of the request, as it is stored. Results of tools are parts of the message that called them."""

    role: str
    parts: list[MessagePart]
    pictures: list[Picture] = field(default_factory=list)


@dataclass(slots=True)
class RequestHistory:
    """The messages of a request. `instructions` is the text of all system and developer messages."""

    instructions: str
    rows: list[RequestMessage]

    @property
    def question(self) -> int:
        """Return the index of the last user message."""
        return max(index for index, row in enumerate(self.rows) if row.role == "user")

    @property
    def pictures(self) -> list[Picture]:
        """Return the images of all messages, in order."""
        return [picture for row in self.rows for picture in row.pictures]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A checked request of `chat.completions`."""

    model: str
    history: RequestHistory
    options: ProgramOptions
    stream: bool
    include_usage: bool


def body_of(request: HttpRequest) -> JsonObject:
    """Return the members of the body that are not null. Raises `request_too_large` (413) and `invalid_json`."""
    raw = request.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        sentence = f"The request is larger than {MAX_BODY // 1024 // 1024} MiB. Send less, or smaller images."
        raise ProductError("request_too_large", sentence, status=413)
    try:
        body = storable(load(raw, MAX_VALUES))
    except (ValueError, RecursionError) as error:
        raise refused(None, "The request is not valid JSON.", "invalid_json") from error
    if not isinstance(body, dict):
        raise refused(None, "The request must be a JSON object.", "invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def parse(body: JsonObject, *, replaces_system: bool = False) -> CompletionRequest:
    """Check the body of a request, which has no null members, and return its parts. Raises `ProductError` (400).

    `replaces_system`: see `chat.prompts.turn_context.ProgramOptions`.
    """
    for name, honoured in _HONOURED.items():
        if name in body and not honoured(body[name]):
            sentence = f"“{name}” is not supported with this value. Leave it out."
            raise refused(name, sentence, "unsupported_parameter")
    for name in ("model", "messages"):
        if name not in body:
            raise refused(name, f"You must provide “{name}”.", "missing_required_parameter")
    history = _read_messages(body["messages"])
    return CompletionRequest(
        model=_typed(body, "model", str, ""),
        history=history,
        options=replace(_options(body, history.instructions), replaces_system=replaces_system),
        stream=_typed(body, "stream", bool, False),
        include_usage=bool(_typed(body, "stream_options", dict, {}).get("include_usage")),
    )


def _options(body: JsonObject, instructions: str) -> ProgramOptions:
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


def _typed(body: JsonObject, name: str, kind: type[Any], default: Any) -> Any:
    """Return a member of this type, or the default."""
    value = body.get(name, default)
    if not isinstance(value, kind):
        word = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}[kind]
        raise refused(name, f"“{name}” must be {word}.", "invalid_type")
    return value


def _max_output(body: JsonObject) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if name in body:
            value = body[name]
            if value == NO_LIMIT and not isinstance(value, bool):
                return None
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
                raise refused(name, f"“{name}” must be a whole number from 1, or -1 for no limit.")
            return value
    return None


def _stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise refused("stop", f"“stop” must be a text or a list of at most {MAX_STOPS}.")
    if not all(isinstance(each, str) and 0 < len(each) <= MAX_STOP for each in stops):
        raise refused("stop", f"Each of “stop” must be a text of 1 to {MAX_STOP:,} characters.")
    return tuple(stops)


def _tools(body: JsonObject) -> tuple[ToolDefinition, ...]:
    values = _typed(body, "tools", list, [])
    if len(values) > MAX_TOOLS:
        raise refused("tools", f"At most {MAX_TOOLS} tools can be offered.")
    tools = tuple(_tool(value, f"tools[{number}]") for number, value in enumerate(values))
    if len({tool.name for tool in tools}) < len(tools):
        raise refused("tools", "Two tools have the same name.")
    return tools


def _tool(value: Any, where: str) -> ToolDefinition:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or value.get("type") != "function":
        raise refused(where, "A tool is an object of the type “function” with “function”.", "unsupported_tool")
    name = function.get("name")
    description = function.get("description") or ""
    parameters = function.get("parameters") or NO_PARAMETERS
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise refused(f"{where}.function.name", "A tool's name has 1 to 64 letters, digits, hyphens and underscores.")
    if not isinstance(description, str) or not isinstance(parameters, dict):
        raise refused(f"{where}.function", "“description” must be a text and “parameters” a JSON schema.")
    return ToolDefinition(name, description, parameters)


def _choice(value: Any, tools: tuple[ToolDefinition, ...]) -> tuple[ToolChoice, str | None]:
    """Return the tool choice, and the name of the one tool that is required, if any."""
    if value in ("auto", "none"):
        return value, None
    names = {tool.name for tool in tools}
    if value == "required" and names:
        return "required", None
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if isinstance(function, dict) and function.get("name") in names:
        return "required", function["name"]
    raise refused("tool_choice", "“tool_choice” is auto, none, required, or one of the “tools” by its name.")


def _read_sampling(body: JsonObject) -> Sampling:
    """Return the sampling parameters. Default values are left out, since some providers refuse these parameters."""
    verbosity = _word(body, "verbosity", VERBOSITIES)
    return Sampling(
        top_p=_unless(1, _number(body, "top_p", 0, 1)),
        presence_penalty=_unless(0, _number(body, "presence_penalty", -2, 2)),
        frequency_penalty=_unless(0, _number(body, "frequency_penalty", -2, 2)),
        seed=_seed(body),
        reasoning_effort=_word(body, "reasoning_effort", EFFORTS),
        verbosity=None if verbosity == "medium" else verbosity,
    )


def _number(body: JsonObject, name: str, least: int, most: int) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise refused(name, f"“{name}” must be a number from {least} to {most}.")
    return float(value)


def _unless(neutral: float, value: float | None) -> float | None:
    return None if value == neutral else value


def _seed(body: JsonObject) -> int | None:
    value = body.get("seed")
    if value is not None and (type(value) is not int or abs(value) > LARGEST_SEED):
        raise refused("seed", "“seed” must be a whole number of at most 64 bits.")
    return value


def _word(body: JsonObject, name: str, words: Collection[str]) -> str | None:
    value = body.get(name)
    if value is None or (isinstance(value, str) and value in words):
        return value
    raise refused(name, f"“{name}” must be one of {', '.join(words)}.")


def _read_format(value: Any) -> JsonObject | None:
    """Return the response format for `llm.types.model_call.ModelRequest`, None for text, the default."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        return {"type": kind, "json_schema": _schema(value.get("json_schema"))}
    raise refused("response_format", "“response_format” is an object of the type text, json_object or json_schema.")


def _schema(value: Any) -> JsonObject:
    where = "response_format.json_schema"
    if not isinstance(value, dict):
        raise refused(where, "“json_schema” must be an object with “name” and “schema”.", "invalid_type")
    members = {name: member for name, member in value.items() if member is not None}
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


def _read_messages(value: Any) -> RequestHistory:
    if not isinstance(value, list) or not value:
        raise refused("messages", "“messages” must be a list of at least one message.")
    if len(value) > MAX_MESSAGES:
        raise refused("messages", f"These are more than {MAX_MESSAGES:,} messages. Leave out the oldest.")
    reader = _MessagesReader()
    for number, message in enumerate(value):
        reader.add(message, f"messages[{number}]")
    reader.require_answered(f"messages[{len(value) - 1}]")
    history = RequestHistory("\n\n".join(text for text in reader.instructions if text.strip()), reader.rows)
    if not any(row.role == "user" for row in history.rows):
        raise refused("messages", "There is nothing to answer: send a message with the role “user”.")
    if len(history.pictures) > MAX_IMAGES:
        raise refused("messages", f"These are more than {MAX_IMAGES} images. Leave out the oldest.")
    return history


class _MessagesReader:
    """Reads the messages of a request one after the other."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.rows: list[RequestMessage] = []
        self._open: set[str] = set()  # ids of the newest message's calls that have no result yet

    def add(self, message: Any, where: str) -> None:
        """Read the next message. `where` is its place. Raises `ProductError` (400)."""
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
        """Raise `ProductError` (400) if a tool call has no result."""
        if self._open:
            missing = ", ".join(sorted(self._open))
            sentence = f"A message with “tool_calls” must be followed by the result of each; missing: {missing}."
            raise refused(where, sentence)

    def _assistant(self, message: JsonObject, where: str) -> None:
        content = message.get("content")
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise refused(f"{where}.tool_calls", "“tool_calls” must be a list.")
        if content is None and not calls:
            raise refused(f"{where}.content", "A message of the assistant has “content” or “tool_calls”.")
        text = "" if content is None else _text(content, f"{where}.content")
        call_parts = [_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]
        self._open = {part["id"] for part in call_parts}
        text_parts: list[MessagePart] = [{"type": "text", "text": text}] if text else []
        self.rows.append(RequestMessage("assistant", [*text_parts, *call_parts]))

    def _tool(self, message: JsonObject, where: str) -> None:
        call = message.get("tool_call_id")
        if not isinstance(call, str) or call not in self._open:
            sentence = "A message with the role “tool” must answer a call of the assistant's message before it."
            raise refused(f"{where}.tool_call_id", sentence)
        self._open.remove(call)
        text = _text(message.get("content"), f"{where}.content")
        self.rows[-1].parts.append({"type": "tool_result", "id": call, "error": False, "documents": [], "text": text})


def _call(call: Any, where: str) -> MessagePart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise refused(where, "A call is an object with “id”, the type “function” and “function”.")
    values = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments", "")}
    texts: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(value, str) or (name != "arguments" and not value):
            raise refused(where, f"“{name}” of a call must be a text.")
        texts[name] = value
    return {"type": "tool_call", "id": texts["id"], "name": texts["name"], "arguments": texts["arguments"]}


def _text(content: Any, where: str) -> str:
    """Return the text of a content that is a text or a list of text parts."""
    return "\n\n".join(part for part, picture in _content(content, where) if picture is None)


def _user(content: Any, where: str) -> RequestMessage:
    texts: list[str] = []
    pictures: list[Picture] = []
    for text, picture in _content(content, where, images=True):
        texts += [text] if picture is None else []
        pictures += [picture] if picture is not None else []
    return RequestMessage("user", [{"type": "text", "text": "\n\n".join(texts)}], pictures)


def _content(content: Any, where: str, *, images: bool = False) -> Iterator[tuple[str, Picture | None]]:
    """Yield the parts of a content: texts, and images with an empty text."""
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
            kinds = "text and image_url" if images else "text"
            raise refused(place, f"The parts that can be sent here are {kinds}.", "unsupported_content")


def _picture(value: Any, where: str) -> Picture:
    url = value.get("url") if isinstance(value, dict) else value
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or match is None:
        sentence = "Send the image itself, as data:image/png;base64,…: the server fetches no addresses for programs."
        raise refused(where, sentence, "unsupported_image_url")
    try:
        data = base64.b64decode(url[match.end() :], validate=True)
    except binascii.Error as error:
        raise refused(where, "The image is not valid base64.", "invalid_image") from error
    if not data:
        raise refused(where, "The image is empty.", "invalid_image")
    return Picture(match[1].lower(), data, where)
