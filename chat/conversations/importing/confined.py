"""Read an export in a separate process, so that a hostile file harms nothing else."""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from typing import IO

from django.utils.translation import gettext_noop

from chat.conversations.importing.reading import (
    MAX_FOLDER,
    MAX_TAGS,
    MAX_TITLE,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    Unusable,
    checked,
    list_of,
    moment,
    name_of,
    object_of,
    text_of,
)
from chat.conversations.importing.results import Entry, ExportEntry, FilePiece, ListEntry
from chat.conversations.importing.stream import damaged
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence
from readers.api import ENVIRONMENT, ROOT

SILENCE = 120.0  # seconds
MAX_SENTENCE_LENGTH = 1_000  # characters of a sentence from the process
MAX_SOURCE = 160  # characters
MAX_LINE = 80_000_000  # bytes per conversation
MAX_JOINED_FILES = 1_000  # of one answer, which may have been several messages
MAX_MODEL = 200  # characters of a model's name
MAX_LOSSES = 50  # kinds of losses
MAX_COUNT = 1_000_000_000
PIECE = 1024 * 1024  # bytes
_SENTENCES = {
    "took_too_long": gettext_noop(
        "Reading this export took too long. Upload its conversations in several smaller files."
    ),
    "too_much_memory": gettext_noop(
        "Reading this export took too much memory. Upload its conversations in several smaller files."
    ),
}
_SIGNALS = {signal.SIGXCPU: "took_too_long", signal.SIGKILL: "too_much_memory"}

logger = logging.getLogger(__name__)


def entries(upload: IO[bytes], name: str) -> Iterator[tuple[Entry | None, int]]:
    """Yield each entry, or None from time to time, with the percentage of the export that has been read.

    `name`: of the uploaded file.

    Raises a `ProductError` about the export.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "chat.conversations.importing", str(os.getpid()), name.replace("\0", "")],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=upload.fileno(),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        try:
            for line in _lines(process):
                if "error" in line:
                    return _end(line["error"])
                yield _entry(line)
            _broken(process.wait(SILENCE))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()
            errors.seek(0)
            if output := errors.read(4_000).decode(errors="replace"):
                logger.warning("reading an export: %s", output)


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[JsonObject]:
    if process.stdout is None:
        return
    buffer = bytearray()
    output = process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE):
                raise _failed("took_too_long")
            piece = os.read(output, PIECE)
            if not piece:
                return
            already_searched = len(buffer)
            buffer += piece
            if b"\n" in piece:
                *complete_lines, rest = buffer.split(b"\n")
                buffer = rest
                yield from map(_decoded, complete_lines)
            elif already_searched > MAX_LINE:
                raise damaged()


def _decoded(line: bytearray) -> JsonObject:
    """Decode a line from the process. It is untrusted, since a hostile file may control the process."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise damaged() from error
    if not isinstance(value, dict):
        raise damaged()
    return value


def _entry(line: JsonObject) -> tuple[Entry | None, int]:
    try:
        percent = min(100, max(0, int(line["percent"])))
        if "list" in line:
            return ListEntry(text_of(line["list"]), [*line["rows"]]), percent
        if "file" in line:
            return FilePiece(
                text_of(line["file"]), b64decode(line["data"], validate=True), line["last"] is True
            ), percent
        if "title" not in line:
            return None, percent
        foreign = _foreign(line["foreign"]) if "foreign" in line else None
        recognised = line["known"] is True
        own = line["own"] if isinstance(line.get("own"), dict) else None
        title = text_of(line["title"])[:MAX_TITLE]
        return ExportEntry(title, recognised, text_of(line["why"])[:MAX_SENTENCE_LENGTH], foreign, own), percent
    except (KeyError, TypeError, ValueError, AttributeError, Unusable) as error:
        raise damaged() from error


def _foreign(fields: JsonObject) -> ImportedConversation:
    messages: list[ImportedMessage] = []
    seen: set[str | None] = {None}
    for entry in fields["messages"]:
        files = [_file(object_of(file)) for file in entry["files"][:MAX_JOINED_FILES]]
        question = entry["question"] is True
        created = moment(entry["created"])
        message = ImportedMessage(
            str(entry["id"]),
            entry["parent"],
            question,
            text_of(entry["text"]),
            created,
            files,
            reasoning=text_of(entry["reasoning"]),
            model=text_of(entry["model"])[:MAX_MODEL],
        )
        if message.parent not in seen or message.id in seen:
            raise ValueError(message.id)
        seen.add(message.id)
        messages.append(message)
    return checked(
        ImportedConversation(
            source=text_of(fields["source"])[:MAX_SOURCE],
            title=text_of(fields["title"]),
            created=moment(fields["created"]),
            updated=moment(fields["updated"]),
            archived=fields["archived"] is True,
            messages=messages,
            leaf=fields["leaf"] if fields["leaf"] in seen else None,
            losses={
                text_of(name)[:20]: count
                for name, count in list(object_of(fields["losses"]).items())[:MAX_LOSSES]
                if isinstance(count, int) and 0 < count <= MAX_COUNT
            },
            tags=[text_of(tag) for tag in list_of(fields["tags"])[:MAX_TAGS]],
            folder=text_of(fields["folder"])[:MAX_FOLDER],
            pinned=fields["pinned"] is True,
        )
    )


def _file(fields: JsonObject) -> ImportedFile:
    return ImportedFile(
        name_of(fields["name"]) or "file",
        text=text_of(fields["text"]),
        data=text_of(fields["data"]),
        key=text_of(fields["key"])[:MAX_SOURCE],
    )


def _end(error: JsonObject | None) -> None:
    if error is not None:
        raise ProductError(text_of(error["code"])[:60], Sentence.load(text_of(error["detail"])[:MAX_SENTENCE_LENGTH]))


def _broken(status: int) -> None:
    if status > 0:
        logger.error("the process that reads exports ended with status %d", status)
        raise damaged()
    raise _failed(_SIGNALS[signal.Signals(-status)]) if -status in _SIGNALS else damaged()


def _failed(code: str) -> ProductError:
    return ProductError(code, _SENTENCES[code])
