"""Hold a request of a program, in whichever protocol it came, and the checks that the protocols share.

`parse` (Chat Completions), `responses_parse` and `messages_parse` turn a body into a `ProgramRequest`. `create_turn`
creates the turn from it. So there is one way to create a turn, and each protocol only has its own reader and writer.

Parameters that do not change the meaning of an answer (user, metadata, …) are accepted and not passed on. Unsupported
parameters that would change it are refused, so that no answer ignores them silently.
"""

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.http import HttpRequest

from chat.models.parts import MessagePart
from chat.openai_api.errors import invalid_request
from chat.prompts.turn_context import MAX_TOOLS, NO_PARAMETERS, TOOL_NAME, ProgramOptions
from chat.turns.store import storable
from core.errors import ProductError
from core.json_bodies import load
from core.json_types import JsonObject
from llm.types.model_call import ToolDefinition

MAX_BODY = 8 * 1024 * 1024  # bytes, the limit of the web server
MAX_VALUES = 48_000_000  # bytes in memory, enough for lists of a million tokens for an embedder
MAX_STOPS = 4
MAX_STOP = 1_000  # characters
NO_LIMIT = -1  # several clients send this as “max_tokens”
MAX_TOKENS = 10_000_000
MAX_MESSAGES = 10_000
MAX_FILES = 50  # images and other files of one request
NAME_DIGITS = 16  # digits of an image's SHA-256 in the name of its file
VERBOSITIES = ("low", "medium", "high")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.IGNORECASE | re.ASCII)
_TYPE_WORDS = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}
NO_AUDIO = "Audio is not supported here. Send its transcript as text."


@dataclass(frozen=True)
class SentFile:
    """A file whose content came in a request. `where` is its place in the request, for error messages.

    `filename` is empty if the program sent no name. `shown`: the program sent it as an image for the model to see.
    """

    media_type: str
    data: bytes
    where: str
    filename: str = ""
    shown: bool = True

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of its row. Without a name of its own, it begins with the digest: see `is_picture`."""
        return self.filename or f"{self.digest[:NAME_DIGITS]}{mimetypes.guess_extension(self.media_type) or ''}"


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that the program uploaded earlier and names by its id. `shown` as in `SentFile`."""

    id: str
    where: str
    shown: bool = False


RequestFile = SentFile | FileReference


def is_picture(name: str, digest: str) -> bool:
    """Return whether a file with this name and SHA-256 came in a request, without a name of its own."""
    return name.startswith(digest[:NAME_DIGITS])


@dataclass(slots=True)
class RequestMessage:
    """A message of the request, as it is stored. Results of tools are parts of the message that called them."""

    role: str
    parts: list[MessagePart]
    files: list[RequestFile] = field(default_factory=list)


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
    def files(self) -> list[RequestFile]:
        """Return the files of all messages, in order."""
        return [file for row in self.rows for file in row.files]


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A checked request for an answer."""

    model: str
    history: RequestHistory
    options: ProgramOptions
    stream: bool
    include_usage: bool = False


class HistoryBuilder:
    """Collects the messages of a request in order. `param`: the member of the request that holds them."""

    def __init__(self, param: str) -> None:
        self._param = param
        self._instructions: list[str] = []
        self._rows: list[RequestMessage] = []
        self._calls: dict[str, RequestMessage] = {}  # by id
        self._open: set[str] = set()  # ids of calls that have no result yet
        self._shown: list[RequestFile] = []  # files of results that no message carries yet

    def instruct(self, text: str) -> None:
        """Add the text of a system or developer message."""
        self._instructions.append(text)

    def ask(self, texts: list[str], files: list[RequestFile]) -> None:
        """Add a message of the user."""
        shown, self._shown = self._shown, []
        self._rows.append(RequestMessage("user", [{"type": "text", "text": "\n\n".join(texts)}], [*shown, *files]))

    def answer(self, parts: list[MessagePart]) -> None:
        """Add a message of the assistant."""
        self._attach_shown_files()
        self._rows.append(RequestMessage("assistant", []))
        self.go_on(parts)

    def go_on(self, parts: list[MessagePart]) -> None:
        """Add parts to the assistant's message if that is the newest one, else to a new message."""
        self._attach_shown_files()
        if not self._rows or self._rows[-1].role != "assistant":
            self._rows.append(RequestMessage("assistant", []))
        row = self._rows[-1]
        row.parts += parts
        for part in parts:
            if part["type"] == "tool_call":
                self._calls[part["id"]] = row
                self._open.add(part["id"])

    def is_open(self, call: object) -> bool:
        """Return whether a call of this id waits for its result."""
        return isinstance(call, str) and call in self._open

    def result(self, call: str, text: str, *, error: bool = False) -> None:
        """Add the result of an open call, after the calls that were made together with it."""
        self._open.remove(call)
        parts = self._calls[call].parts
        place = next(n for n, part in enumerate(parts) if part["type"] == "tool_call" and part["id"] == call)
        while place < len(parts) and parts[place]["type"] in ("tool_call", "tool_result"):
            place += 1
        result: MessagePart = {"type": "tool_result", "id": call, "error": error, "documents": [], "text": text}
        parts.insert(place, result)

    def show(self, files: list[RequestFile]) -> None:
        """Add files that a result contains.

        Only messages of the user can have files: the next one, or a separate message if the assistant continues.
        """
        self._shown += files

    def _attach_shown_files(self) -> None:
        if self._shown:
            self.ask([], [])

    def require_answered(self, where: str, sentence: str) -> None:
        """Raise `ProductError` (400) if a tool call has no result. `sentence` names the protocol's rule."""
        if self._open:
            raise invalid_request(where, f"{sentence}; missing: {', '.join(sorted(self._open))}.")

    def history(self) -> RequestHistory:
        """Return the messages. Raises `ProductError` (400) if there is nothing to answer, or for too many files."""
        self._attach_shown_files()
        instructions = "\n\n".join(text for text in self._instructions if text.strip())
        history = RequestHistory(instructions, self._rows)
        if not any(row.role == "user" for row in history.rows):
            raise invalid_request(self._param, "There is nothing to answer: send a message with the role “user”.")
        if len(history.files) > MAX_FILES:
            raise invalid_request(
                self._param, f"At most {MAX_FILES} images and files can be sent. Leave out the oldest."
            )
        return history


def read_body(request: HttpRequest) -> JsonObject:
    """Return the members of the body that are not null. Raises `request_too_large` (413) and `invalid_json`."""
    raw = request.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        sentence = f"The request is larger than {MAX_BODY // 1024 // 1024} MiB. Send less, or smaller images."
        raise ProductError("request_too_large", sentence, status=413)
    try:
        body = storable(load(raw, MAX_VALUES))
    except (ValueError, RecursionError) as error:
        raise invalid_request(None, "The request is not valid JSON.", "invalid_json") from error
    if not isinstance(body, dict):
        raise invalid_request(None, "The request must be a JSON object.", "invalid_json")
    return {name: value for name, value in body.items() if value is not None}


def refuse_unsupported(body: JsonObject, honoured: Mapping[str, Callable[[Any], bool]]) -> None:
    """Refuse a parameter that the product cannot honour.

    `honoured` has, for each such parameter, whether a value means the same as leaving the parameter out.
    """
    for name, is_honoured in honoured.items():
        if name in body and not is_honoured(body[name]):
            sentence = f"“{name}” is not supported with this value. Leave it out."
            raise invalid_request(name, sentence, "unsupported_parameter")


def require_members(body: JsonObject, *names: str) -> None:
    """Refuse a request that lacks one of these members."""
    for name in names:
        if name not in body:
            raise invalid_request(name, f"You must provide “{name}”.", "missing_required_parameter")


def list_of_messages(body: JsonObject, name: str) -> list[Any]:
    """Return the list of messages in this member. Raises `ProductError` (400) if it is empty or too long."""
    value = body[name]
    if not isinstance(value, list) or not value:
        raise invalid_request(name, f"“{name}” must be a list of at least one message.")
    if len(value) > MAX_MESSAGES:
        raise invalid_request(name, f"At most {MAX_MESSAGES:,} messages can be sent. Leave out the oldest.")
    return value


def typed_member(body: JsonObject, name: str, kind: type[Any], default: Any, where: str = "") -> Any:
    """Return a member of this type, or the default. `where`: the place of the object that has the member."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise invalid_request(f"{where}{name}", f"“{name}” must be {_TYPE_WORDS[kind]}.", "invalid_type")
    return value


def number_member(body: JsonObject, name: str, least: int, most: int) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise invalid_request(name, f"“{name}” must be a number from {least} to {most}.")
    return float(value)


def unless_neutral(neutral: float, value: float | None) -> float | None:
    """Return the value; None for the neutral one, since some providers refuse the parameter."""
    return None if value == neutral else value


def choice_member(value: Any, where: str, words: Collection[str]) -> str | None:
    """Return one of the words, or None for a member that is missing."""
    if value is None or (isinstance(value, str) and value in words):
        return value
    name = where.rpartition(".")[2]
    raise invalid_request(where, f"“{name}” must be one of {', '.join(words)}.")


def max_output(body: JsonObject, *names: str) -> int | None:
    """Return the maximum number of tokens of an answer, from the first of these members that is present."""
    for name in names:
        if name in body:
            value = body[name]
            if value == NO_LIMIT and not isinstance(value, bool):
                return None
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
                raise invalid_request(name, f"“{name}” must be a whole number from 1, or -1 for no limit.")
            return value
    return None


def stop_texts(value: Any, name: str, most: int = MAX_STOPS) -> tuple[str, ...]:
    """Return the texts at which an answer ends."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or len(texts) > most:
        raise invalid_request(name, f"“{name}” must be a text or a list of at most {most}.")
    if not all(isinstance(each, str) and 0 < len(each) <= MAX_STOP for each in texts):
        raise invalid_request(name, f"Each of “{name}” must be a text of 1 to {MAX_STOP:,} characters.")
    return tuple(texts)


def read_tools(body: JsonObject, read: Callable[[Any, str], list[ToolDefinition]]) -> tuple[ToolDefinition, ...]:
    """Return the program's tools. `read` returns the tools of an entry from its value and its place."""
    values = typed_member(body, "tools", list, [])
    entries = (read(value, f"tools[{position}]") for position, value in enumerate(values[: MAX_TOOLS + 1]))
    definitions = tuple(tool for tools in entries for tool in tools)
    if len(values) > MAX_TOOLS or len(definitions) > MAX_TOOLS:
        raise invalid_request("tools", f"At most {MAX_TOOLS} tools can be offered.")
    if len({tool.name for tool in definitions}) < len(definitions):
        raise invalid_request("tools", "Two tools have the same name.")
    return definitions


def tool_definition(name: Any, description: Any, parameters: Any, where: str, schema: str) -> ToolDefinition:
    """Return a tool. `schema`: the protocol's word for the parameters."""
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise invalid_request(f"{where}.name", "A tool's name has 1 to 64 letters, digits, hyphens and underscores.")
    description, parameters = description or "", parameters or NO_PARAMETERS
    if not isinstance(description, str) or not isinstance(parameters, dict | Mapping):
        raise invalid_request(where, f"“description” must be a text and “{schema}” a JSON schema.")
    return ToolDefinition(name, description, parameters)


def read_schema(value: Any, where: str, *, named: bool = True) -> JsonObject:
    """Return the members of a JSON schema for the answer, as Chat Completions has them: name, schema, strict.

    `named`: the protocol has the program name the schema.
    """
    if not isinstance(value, dict):
        raise invalid_request(where, "“json_schema” must be an object with “name” and “schema”.", "invalid_type")
    members = {name: member for name, member in value.items() if member is not None}
    if named and (not isinstance(members.get("name"), str) or not TOOL_NAME.fullmatch(members["name"])):
        raise invalid_request(f"{where}.name", "A format's name has 1 to 64 letters, digits, hyphens and underscores.")
    for name, kind, words in (("schema", dict, "a JSON schema"), ("description", str, "a text")):
        if not isinstance(members.get(name, kind()), kind):
            raise invalid_request(f"{where}.{name}", f"“{name}” must be {words}.", "invalid_type")
    if "schema" not in members:
        raise invalid_request(
            f"{where}.schema", "You must provide the “schema” of the answer.", "missing_required_parameter"
        )
    if not isinstance(members.get("strict", False), bool):
        raise invalid_request(f"{where}.strict", "“strict” must be true or false.", "invalid_type")
    return {name: members[name] for name in ("name", "description", "schema", "strict") if name in members}


def call_part(call: Any, name: Any, arguments: Any, where: str) -> MessagePart:
    """Return the part for a call of one of the program's tools. `arguments` is JSON text."""
    texts: dict[str, str] = {}
    for member, value in (("id", call), ("name", name), ("arguments", arguments)):
        if not isinstance(value, str) or (member != "arguments" and not value):
            raise invalid_request(where, f"“{member}” of a call must be a text.")
        texts[member] = value
    return {"type": "tool_call", "id": texts["id"], "name": texts["name"], "arguments": texts["arguments"]}


def read_data_url(url: Any, where: str) -> SentFile:
    """Return the image in a `data:` URL. Raises `unsupported_image_url` and `invalid_image` (400)."""
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or match is None or not match[1].lower().startswith("image/"):
        sentence = "Send the image itself, as data:image/png;base64,…. The server does not fetch URLs for programs."
        raise invalid_request(where, sentence, "unsupported_image_url")
    return read_image(match[1], url[match.end() :], where)


def read_image(media_type: str, content: str, where: str) -> SentFile:
    """Return an image from its base64 text. Raises `invalid_image` (400)."""
    return SentFile(media_type.lower(), _decode_base64(content, where, "image"), where)


def read_document(content: Any, filename: Any, where: str, media_type: str = "") -> SentFile:
    """Return a file from base64 text or a `data:` URL. Raises `invalid_file` (400)."""
    if not isinstance(content, str) or not isinstance(filename or "", str):
        raise invalid_request(where, "Send the content of the file in base64, and its name as a text.", "invalid_file")
    match = _DATA_URL.match(content)
    kind = match[1] if match else media_type
    text = content[match.end() :] if match else content
    name = filename or f"file{mimetypes.guess_extension(kind) or ''}"
    return SentFile(kind.lower(), _decode_base64(text, where, "file"), where, name, shown=False)


def _decode_base64(content: str, where: str, kind: str) -> bytes:
    try:
        data = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_request(where, f"The {kind} is not valid base64.", f"invalid_{kind}") from error
    if not data:
        raise invalid_request(where, f"The {kind} is empty.", f"invalid_{kind}")
    return data


def file_reference(value: Any, where: str, *, shown: bool = False) -> FileReference:
    """Return a reference to a file that was uploaded earlier. Raises `invalid_type` (400)."""
    if not isinstance(value, str) or not value:
        raise invalid_request(where, "“file_id” must be the id of a file that you uploaded.", "invalid_type")
    return FileReference(value, where, shown)
