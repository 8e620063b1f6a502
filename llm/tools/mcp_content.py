"""Turn the raw result of an MCP tool into text for the model and files.

1. `to_output` goes through the parts of the result. One bad part does not affect the others.
2. Text and links become text. An image, a sound or an embedded resource becomes a file, and the text names it.
3. The text of an embedded text resource is also a part of the text.
"""

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from core.text import clean
from llm.types.tools import ToolFile, ToolOutput

MAX_ADDRESS = 2_000  # characters of a resource's address, name or description
MAX_FILES = 8  # files of one result; more files are only named
MAX_NAME = 200  # characters of a file's name
NO_TEXT_NOTE = "The tool gave no text."
# Media types that do not show the kind of a file. Parts have `text/plain` for any text, so the name shows more.
_GENERIC_TYPES = ("", "text/plain", "application/octet-stream")
_MEDIA_TYPE = re.compile(r"[a-z]{1,20}/[a-z0-9][a-z0-9.+-]{0,80}")
_PATH_OR_CONTROL = re.compile(r"[\x00-\x1f\x7f/\\]")


def to_output(result: Mapping[str, Any], tool: str) -> ToolOutput:
    """Return the output for the result of `tool`. An image or a sound without a name is named after the tool."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    parts = _ResultParts(tool)
    text = "\n".join([parts.add(block) for block in blocks])
    structured = result.get("structuredContent")
    if not text.strip() and structured is not None:
        text = clean(json.dumps(structured, ensure_ascii=False))
    text = text or NO_TEXT_NOTE
    return ToolOutput(text, error=result.get("isError") is True, full_text=text, tool_files=tuple(parts.files))


class _ResultParts:
    """Collector of the files of one result."""

    def __init__(self, tool: str) -> None:
        self.files: list[ToolFile] = []
        self._tool = tool
        self._names: set[str] = set()

    def add(self, block: Any) -> str:
        """Return the text of a part, and collect its file."""
        if not isinstance(block, Mapping):
            return clean(block) if isinstance(block, str) else "[not text, not shown]"
        kind = clean(str(block.get("type", "part")))[:50]
        if kind == "text" and isinstance(block.get("text"), str):
            return clean(block["text"])
        if kind in ("image", "audio"):
            return self._add_media(kind, block)
        resource = block.get("resource")
        if kind == "resource" and isinstance(resource, Mapping):
            return self._add_resource(resource)
        if kind == "resource_link" and _text_member(block, "uri"):
            return _describe_link(block)
        return f"[{kind}: not text, not shown]"

    def _add_media(self, kind: str, block: Mapping[str, Any]) -> str:
        content = _decode(block.get("data"))
        if not content:
            return f"[{kind}: damaged, not shown]"
        return self._add_file(kind, self._tool, _media_type(block), content, image=kind == "image")

    def _add_resource(self, resource: Mapping[str, Any]) -> str:
        address = _text_member(resource, "uri")
        name = _name_in_address(address) or self._tool
        media_type = _media_type(resource)
        text = resource.get("text")
        if isinstance(text, str):
            text_shown = clean(text)
            lines = [f"[{address}]"] if address else []
            if text_shown.strip():
                line = self._add_file(
                    "resource", name, media_type or "text/plain", text_shown.encode(), text_included=True
                )
                lines = [*lines, line, text_shown]
            return "\n".join(lines)
        content = _decode(resource.get("blob"))
        if not content:
            return f"[resource: {address or 'without an address'}, damaged or empty, not shown]"
        line = self._add_file("resource", name, media_type, content, image=media_type.startswith("image/"))
        return f"[{address}]\n{line}" if address else line

    def _add_file(
        self,
        kind: str,
        name: str,
        media_type: str,
        content: bytes,
        *,
        image: bool = False,
        text_included: bool = False,
    ) -> str:
        """Collect a file. Return the line that names it in the text."""
        if len(self.files) == MAX_FILES:
            return f"[{kind}: not kept, since a result has at most {MAX_FILES} files]"
        unique = self._unique_name(_file_name(name, media_type))
        self.files.append(ToolFile(unique, content, image, text_included))
        return f"[{kind}: the file {unique}]"

    def _unique_name(self, name: str) -> str:
        stem, dot, suffix = name.rpartition(".") if "." in name[1:] else (name, "", "")
        number = 1
        while name in self._names:
            number += 1
            name = f"{stem}-{number}{dot}{suffix}"
        self._names.add(name)
        return name


def _describe_link(block: Mapping[str, Any]) -> str:
    about = (_text_member(block, "name"), _text_member(block, "uri"), _text_member(block, "mimeType"))
    description = _text_member(block, "description")
    line = " ".join(filter(None, about))
    return f"[resource_link: {line}]" + (f" {description}" if description else "")


def _file_name(name: str, media_type: str) -> str:
    """Return a name for a file of this type. A name without a suffix gets the suffix of the type."""
    plain = _PATH_OR_CONTROL.sub("_", name)[-MAX_NAME:]
    if "." in plain[1:-1] and media_type in _GENERIC_TYPES:
        return plain
    guessed, _ = mimetypes.guess_type(plain)
    suffix = (mimetypes.guess_extension(media_type) or _guess_suffix(media_type)) if media_type else None
    return plain if suffix is None or guessed == media_type or plain.lower().endswith(suffix) else f"{plain}{suffix}"


def _guess_suffix(media_type: str) -> str | None:
    """Return a suffix for a type of image, sound or video that Python does not know, such as .wav for audio/wav."""
    kind, _, subtype = media_type.partition("/")
    suffix = subtype.removeprefix("x-")
    return f".{suffix}" if kind in ("image", "audio", "video") and suffix.isalnum() else None


def _name_in_address(address: str) -> str:
    """Return the last part of a resource's address; empty if it has none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return unquote(parts.path.rstrip("/").rpartition("/")[2] or parts.netloc).strip()


def _media_type(block: Mapping[str, Any]) -> str:
    media_type = _text_member(block, "mimeType").partition(";")[0].strip().lower()
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else ""


def _decode(data: Any) -> bytes:
    """Return the bytes of a base64 text; empty if it is invalid."""
    if not isinstance(data, str):
        return b""
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _text_member(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return clean(value)[:MAX_ADDRESS] if isinstance(value, str) else ""
