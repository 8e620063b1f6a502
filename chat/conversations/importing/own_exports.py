"""Read an export of Glasshouse itself, in the confined process: a zip, or the JSON of one conversation.

A line has the `percent` that is read and one of these:

- `list`, the name of a list such as `personas`, and its `rows`;
- `file`, the id of a file, and `data`, its next bytes in base64; `last` ends the file;
- `title`, `known` and `own`, a conversation; without `own`, the reason `why` it cannot be imported.
"""

import json
import re
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from typing import IO, Any

from chat.conversations.importing.reading import MAX_TITLE, as_text
from chat.conversations.importing.stream import (
    CONVERSATION_FILE,
    MAX_ENTRIES,
    MAX_JSON,
    ZIP_ERRORS,
    damaged_error,
    too_large_error,
)
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence

CONVERSATION_FORMAT = "glasshouse.conversation/1"
WORKSPACE_FORMAT = "glasshouse.workspace/1"
# The order in which they are read. A list refers only to rows of earlier lists.
LIST_NAMES = ("settings", "files", "personas", "projects", "prompts", "profile", "memory", "tasks")
MAX_MEMBER_BYTES = 40_000_000  # bytes of one JSON file, unpacked
MAX_FILE_BYTES = 4_000_000_000  # bytes of all files, unpacked
PIECE_BYTES = 512 * 1024  # bytes of a file in one line
_CONVERSATION_PATH = re.compile(r"json/[^/]+\.json")


def single_conversation(upload: IO[bytes]) -> JsonObject | None:
    """Return the conversation if the upload is the JSON of one, else None. The upload is at its start afterwards."""
    start = upload.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    size = upload.seek(0, 2)
    upload.seek(0)
    if not start.startswith(b"{") or size > MAX_MEMBER_BYTES:
        return None
    try:
        body = json.loads(upload.read())
    except (ValueError, RecursionError):
        return None
    finally:
        upload.seek(0)
    return body if isinstance(body, dict) and body.get("format") == CONVERSATION_FORMAT else None


def is_own_zip(upload: IO[bytes]) -> bool:
    """Return whether the upload is a zip of Glasshouse. The upload is at its start afterwards."""
    own = False
    if zipfile.is_zipfile(upload):
        upload.seek(0)
        try:
            with zipfile.ZipFile(upload) as archive:
                names = archive.namelist()
        except ZIP_ERRORS:
            names = []
        others = any(CONVERSATION_FILE.fullmatch(name) for name in names)
        own = not others and any(_CONVERSATION_PATH.fullmatch(name) or name == "manifest.json" for name in names)
    upload.seek(0)
    return own


def zip_lines(upload: IO[bytes]) -> Iterator[JsonObject]:
    """Yield the lines of a zip. Raises `damaged_export` and `export_too_large`."""
    try:
        with zipfile.ZipFile(upload) as archive:
            yield from _archive_lines(archive)
    except ZIP_ERRORS as error:
        raise damaged_error() from error


def conversation_line(body: JsonObject, percent: int = 100) -> JsonObject:
    title = " ".join(as_text(body.get("title")).split())[:MAX_TITLE]
    return {"percent": percent, "title": title, "known": True, "why": "", "own": body}


def _archive_lines(archive: zipfile.ZipFile) -> Iterator[JsonObject]:
    names = archive.namelist()
    if len(names) > MAX_ENTRIES:
        raise too_large_error(Sentence("It has more than {most} files.", most=MAX_ENTRIES))
    conversations = sorted(name for name in names if _CONVERSATION_PATH.fullmatch(name))
    steps = len(LIST_NAMES) + len(conversations)
    left = MAX_JSON
    for step, name in enumerate(LIST_NAMES):
        if f"{name}.json" not in names:
            continue
        percent = 100 * step // steps
        content = _read_member(archive, f"{name}.json")
        left -= len(content)
        if left < 0:
            raise too_large_error(Sentence("Its lists are larger than {most} MB unpacked.", most=MAX_JSON // 1_000_000))
        body = _decode_json(content)
        rows = body if isinstance(body, list) else []
        yield {"percent": percent, "list": name, "rows": rows}
        if name == "files":
            yield from _file_lines(archive, rows, percent)
    for step, name in enumerate(conversations, start=len(LIST_NAMES)):
        yield _conversation_or_error_line(archive, name, 100 * step // steps)


def _conversation_or_error_line(archive: zipfile.ZipFile, name: str, percent: int) -> JsonObject:
    """Return the line of a conversation. If it cannot be read, the line says why, and the export is read on."""
    try:
        body = _decode_json(_read_member(archive, name))
    except ProductError as error:
        why = error.sentence
    except MemoryError:
        why = Sentence("Reading it took too much memory.")
    else:
        if isinstance(body, dict) and body.get("format") == CONVERSATION_FORMAT:
            return conversation_line(body, percent)
        why = Sentence("It does not have the format of a conversation of Glasshouse.")
    return {"percent": percent, "title": name[5:-5][:MAX_TITLE], "known": True, "why": why.dump()}


def _file_lines(archive: zipfile.ZipFile, rows: list[Any], percent: int) -> Iterator[JsonObject]:
    """Yield the bytes of each file in the list. A file without an entry in the zip has no lines."""
    names = set(archive.namelist())
    left = MAX_FILE_BYTES
    for row in rows:
        if not isinstance(row, dict) or row.get("path") not in names:
            continue
        with archive.open(row["path"]) as content:
            while piece := content.read(PIECE_BYTES):
                left -= len(piece)
                if left < 0:
                    most = MAX_FILE_BYTES // 1_000_000
                    raise too_large_error(Sentence("Its files are larger than {most} MB unpacked.", most=most))
                yield {"percent": percent, "file": row.get("id"), "data": b64encode(piece).decode(), "last": False}
        yield {"percent": percent, "file": row.get("id"), "data": "", "last": True}


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        content = member.read(MAX_MEMBER_BYTES + 1)
    if len(content) > MAX_MEMBER_BYTES:
        most = MAX_MEMBER_BYTES // 1_000_000
        raise too_large_error(Sentence("{name} is larger than {most} MB unpacked.", name=name[:100], most=most))
    return content


def _decode_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise damaged_error() from error
