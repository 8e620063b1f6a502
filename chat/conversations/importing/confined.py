"""Reads an export in a process of its own, so that a hostile one takes down nothing else."""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from django.utils.translation import gettext_noop

from chat.conversations.importing.reading import MAX_TITLE, Foreign, Said, Unusable, checked, moment, text_of
from chat.conversations.importing.stream import damaged
from core.errors import ProductError
from core.sentences import Sentence
from readers.api import ENVIRONMENT, ROOT

SILENCE = 120.0  # seconds
LONGEST_SENTENCE = 1_000  # characters of what the process stores as one
MAX_SOURCE = 160  # characters
MAX_LINE = 80_000_000  # bytes of a conversation
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


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation in an export: `foreign`, or `why` it cannot be imported. `known`: its shape is."""

    title: str
    known: bool
    why: str
    foreign: Foreign | None


def entries(upload: IO[bytes]) -> Iterator[tuple[Entry | None, int]]:
    """Each conversation, or None now and then, with how many percent of the export are read.

    Raises `ProductError` about the export.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "chat.conversations.importing", str(os.getpid())],
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
            if said := errors.read(4_000).decode(errors="replace"):
                logger.warning("reading an export: %s", said)


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    if process.stdout is None:
        return
    waiting, output = bytearray(), process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE):
                raise _failed("took_too_long")
            piece = os.read(output, PIECE)
            if not piece:
                return
            searched = len(waiting)
            waiting += piece
            if b"\n" in piece:
                *whole, rest = waiting.split(b"\n")
                waiting = rest
                yield from map(_decoded, whole)
            elif searched > MAX_LINE:
                raise damaged()


def _decoded(line: bytearray) -> dict[str, Any]:
    """What the process says is not trusted either: it may have come under the control of what it reads."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise damaged() from error
    if not isinstance(found, dict):
        raise damaged()
    return found


def _entry(line: dict[str, Any]) -> tuple[Entry | None, int]:
    try:
        percent = min(100, max(0, int(line["percent"])))
        if "title" not in line:
            return None, percent
        foreign = _foreign(line["foreign"]) if "foreign" in line else None
        return Entry(text_of(line["title"])[:MAX_TITLE], line["known"] is True, text_of(line["why"]), foreign), percent
    except (KeyError, TypeError, ValueError, AttributeError, Unusable) as error:
        raise damaged() from error


def _foreign(fields: dict[str, Any]) -> Foreign:
    messages: list[Said] = []
    seen: set[str | None] = {None}
    for each in fields["messages"]:
        files = [text_of(name)[:255] for name in each["files"]]
        question, created = each["question"] is True, moment(each["created"])
        said = Said(str(each["id"]), each["parent"], question, text_of(each["text"]), created, files)
        if said.parent not in seen or said.id in seen:
            raise ValueError(said.id)
        seen.add(said.id)
        messages.append(said)
    return checked(
        Foreign(
            source=text_of(fields["source"])[:MAX_SOURCE],
            title=text_of(fields["title"]),
            created=moment(fields["created"]),
            updated=moment(fields["updated"]),
            archived=fields["archived"] is True,
            messages=messages,
            leaf=fields["leaf"] if fields["leaf"] in seen else None,
        )
    )


def _end(error: dict[str, Any] | None) -> None:
    if error is not None:
        raise ProductError(text_of(error["code"])[:60], Sentence.load(text_of(error["detail"])[:LONGEST_SENTENCE]))


def _broken(status: int) -> None:
    if status > 0:
        logger.error("the process that reads exports ended with status %d", status)
        raise damaged()
    raise _failed(_SIGNALS[signal.Signals(-status)]) if -status in _SIGNALS else damaged()


def _failed(code: str) -> ProductError:
    return ProductError(code, _SENTENCES[code])
