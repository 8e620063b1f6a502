"""The messages of a request, checked, as the rows that they will be."""

import base64
import binascii
import hashlib
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from chat.openai_api.errors import refused

MAX_MESSAGES = 10_000
MAX_IMAGES = 50
NAMED = 16  # digits of an image's SHA-256 that its file is named by
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w=.+-]+)*;base64,", re.IGNORECASE | re.ASCII)


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


def read_messages(given: Any) -> History:
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
