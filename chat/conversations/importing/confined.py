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
    MAX_FOLDER_NAME,
    MAX_TAGS,
    MAX_TITLE,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    UnusableConversation,
    as_file_name,
    as_list,
    as_object,
    as_text,
    check_conversation,
    parse_time,
)
from chat.conversations.importing.results import Entry, ExportEntry, FilePiece, ListEntry
from chat.conversations.importing.stream import damaged_error
from core.errors import ProductError
from core.json_types import JsonObject
from core.sentences import Sentence
from readers.api import ENVIRONMENT, ROOT

SILENCE_TIMEOUT = 120.0  # seconds
MAX_SENTENCE_LENGTH = 1_000  # characters of a sentence from the process
MAX_SOURCE_LENGTH = 160  # characters
MAX_LINE = 80_000_000  # bytes per conversation
MAX_JOINED_FILES = 1_000  # files of one answer, which may be joined from several messages
MAX_MODEL = 200  # characters of a model's name
MAX_LOSSES = 50  # kinds of losses
MAX_COUNT = 1_000_000_000
PIECE_BYTES = 1024 * 1024  # bytes
_ERROR_SENTENCES = {
    "took_too_long": gettext_noop(
        "Reading this export took too long. Upload its conversations in several smaller files."
    ),
    "too_much_memory": gettext_noop(
        "Reading this export took too much memory. Upload its conversations in several smaller files."
    ),
}
_ERROR_CODES = {signal.SIGXCPU: "took_too_long", signal.SIGKILL: "too_much_memory"}

logger = logging.getLogger(__name__)


def read_entries(upload: IO[bytes], name: str) -> Iterator[tuple[Entry | None, int]]:
    """Yield each entry with the percentage of the export that has been read. Between entries, yield None with it.

    `name`: the name of the uploaded file. Raises `took_too_long`, `too_much_memory`, `damaged_export`, and the
    errors that the process reports.
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
            for line in _read_lines(process):
                if "error" in line:
                    return _raise_reported_error(line["error"])
                yield _parse_entry(line)
            _raise_for_status(process.wait(SILENCE_TIMEOUT))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()
            errors.seek(0)
            if output := errors.read(4_000).decode(errors="replace"):
                logger.warning("reading an export: %s", output)


def _read_lines(process: "subprocess.Popen[bytes]") -> Iterator[JsonObject]:
    if process.stdout is None:
        return
    buffer = bytearray()
    output = process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_TIMEOUT):
                raise _limit_error("took_too_long")
            piece = os.read(output, PIECE_BYTES)
            if not piece:
                return
            already_searched = len(buffer)
            buffer += piece
            if b"\n" in piece:
                *complete_lines, rest = buffer.split(b"\n")
                buffer = rest
                yield from map(_decode_line, complete_lines)
            elif already_searched > MAX_LINE:
                raise damaged_error()


def _decode_line(line: bytearray) -> JsonObject:
    """Decode a line from the process. It is untrusted, since a hostile file may control the process."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise damaged_error() from error
    if not isinstance(value, dict):
        raise damaged_error()
    return value


def _parse_entry(line: JsonObject) -> tuple[Entry | None, int]:
    try:
        percent = min(100, max(0, int(line["percent"])))
        if "list" in line:
            return ListEntry(as_text(line["list"]), [*line["rows"]]), percent
        if "file" in line:
            return FilePiece(
                as_text(line["file"]), b64decode(line["data"], validate=True), line["last"] is True
            ), percent
        if "title" not in line:
            return None, percent
        conversation = _parse_conversation(line["foreign"]) if "foreign" in line else None
        recognised = line["known"] is True
        own = line["own"] if isinstance(line.get("own"), dict) else None
        title = as_text(line["title"])[:MAX_TITLE]
        return ExportEntry(title, recognised, as_text(line["why"])[:MAX_SENTENCE_LENGTH], conversation, own), percent
    except (KeyError, TypeError, ValueError, AttributeError, UnusableConversation) as error:
        raise damaged_error() from error


def _parse_conversation(fields: JsonObject) -> ImportedConversation:
    messages: list[ImportedMessage] = []
    ids: set[str | None] = {None}
    for entry in fields["messages"]:
        files = [_parse_file(as_object(file)) for file in entry["files"][:MAX_JOINED_FILES]]
        question = entry["question"] is True
        created = parse_time(entry["created"])
        message = ImportedMessage(
            str(entry["id"]),
            entry["parent"],
            question,
            as_text(entry["text"]),
            created,
            files,
            reasoning=as_text(entry["reasoning"]),
            model=as_text(entry["model"])[:MAX_MODEL],
        )
        if message.parent not in ids or message.id in ids:
            raise ValueError(message.id)
        ids.add(message.id)
        messages.append(message)
    return check_conversation(
        ImportedConversation(
            source=as_text(fields["source"])[:MAX_SOURCE_LENGTH],
            title=as_text(fields["title"]),
            created=parse_time(fields["created"]),
            updated=parse_time(fields["updated"]),
            archived=fields["archived"] is True,
            messages=messages,
            leaf=fields["leaf"] if fields["leaf"] in ids else None,
            losses={
                as_text(name)[:20]: count
                for name, count in list(as_object(fields["losses"]).items())[:MAX_LOSSES]
                if isinstance(count, int) and 0 < count <= MAX_COUNT
            },
            tags=[as_text(tag) for tag in as_list(fields["tags"])[:MAX_TAGS]],
            folder=as_text(fields["folder"])[:MAX_FOLDER_NAME],
            pinned=fields["pinned"] is True,
        )
    )


def _parse_file(fields: JsonObject) -> ImportedFile:
    return ImportedFile(
        as_file_name(fields["name"]) or "file",
        text=as_text(fields["text"]),
        data=as_text(fields["data"]),
        key=as_text(fields["key"])[:MAX_SOURCE_LENGTH],
    )


def _raise_reported_error(error: JsonObject | None) -> None:
    if error is not None:
        raise ProductError(as_text(error["code"])[:60], Sentence.load(as_text(error["detail"])[:MAX_SENTENCE_LENGTH]))


def _raise_for_status(status: int) -> None:
    if status > 0:
        logger.error("the process that reads exports ended with status %d", status)
        raise damaged_error()
    raise _limit_error(_ERROR_CODES[signal.Signals(-status)]) if -status in _ERROR_CODES else damaged_error()


def _limit_error(code: str) -> ProductError:
    return ProductError(code, _ERROR_SENTENCES[code])
