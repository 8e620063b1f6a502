"""One file of any kind: its reader is found by what its bytes say it is."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from readers.formats.media_types import (
    CONVERTED,
    DOC,
    DOCX,
    EPUB,
    HTML,
    IMAGES,
    MAIL,
    MBOX,
    MSG,
    ODP,
    ODT,
    OPEN_DOCUMENTS,
    PDF,
    PPT,
    PPTX,
    RTF,
    WORKBOOKS,
    XLS,
    XLSX,
    ZIP,
    media_type,
)
from readers.formats.result import Extracted, ReaderError
from readers.nested import memory

DEEPEST = 4  # files in each other
MOST_INNER = 1_000  # files in one, at all depths
MOST_INNER_BYTES = 200_000_000
MOST_KEYS = 1_000  # of members that ZIP closes; one of a file by itself takes as long as some of those
_KEYS_OF_A_FILE = 5

_READERS = {
    PDF: "formats.pdf",
    DOC: "older.word",
    PPT: "older.slides",
    DOCX: "formats.word",
    PPTX: "formats.slides",
    XLSX: "formats.sheets",
    EPUB: "formats.markup",
    HTML: "formats.markup",
    MAIL: "nested.mail",
    MBOX: "nested.mail",
    MSG: "nested.outlook",
    ZIP: "nested.folder",
}
_READERS |= dict.fromkeys(OPEN_DOCUMENTS, "formats.opendocument")
_READERS |= dict.fromkeys(WORKBOOKS, "formats.workbooks")
_READERS |= dict.fromkeys((*IMAGES, *CONVERTED), "formats.images")
_OTHERS = "formats.plain"
_OF_TEXT = ("formats.markup", "formats.plain")  # what has an encoding
_MAY_BE_PICTURES = (PDF, DOC, PPT, DOCX, PPTX, EPUB, RTF, ODT, ODP)


@dataclass(slots=True)
class Left:
    """What may still be read of files in files, so that no archive of archives is read for ever, and of how many keys
    may still be made of a password."""

    files: int = MOST_INNER
    bytes: int = MOST_INNER_BYTES
    keys: int = MOST_KEYS

    def take(self, size: int) -> None:
        """Raises `bomb` when there are more than anybody means to have read."""
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0:
            raise ReaderError("bomb")

    def take_keys(self, count: int = 1) -> None:
        """Raises `untried_inside`."""
        if count > self.keys:
            raise ReaderError("untried_inside")
        self.keys -= count


@dataclass(frozen=True, slots=True)
class Inner:
    """Reads what is in a file: `read` raises `ReaderError`, of which all but `bomb` are of the inner file alone.

    `password` is tried on what is protected in it.
    """

    left: Left
    password: str = ""
    depth: int = 0

    def read(self, content: bytes, name: str) -> Extracted:
        self.left.take(len(content))
        if self.depth >= DEEPEST:
            raise ReaderError("unsupported")
        with memory.opened(content) as path:
            try:
                return self._opened(path, name)
            except (ReaderError, MemoryError):
                raise
            except Exception as error:  # libraries raise almost anything about a damaged file
                raise ReaderError("damaged") from error

    def _opened(self, path: Path, name: str) -> Extracted:
        """Without a password first: most files need none, and to try one takes time."""
        deeper = replace(self, depth=self.depth + 1)
        try:
            return _read(path, name, "", "", deeper)
        except ReaderError as error:
            if error.code != "encrypted":
                raise
        if not self.password:
            raise ReaderError("locked_inside")
        self.left.take_keys(_KEYS_OF_A_FILE)
        try:
            return _read(path, name, "", self.password, deeper)
        except ReaderError as error:
            raise ReaderError("wrong_inside" if error.code == "wrong_password" else error.code) from error


def read(path: Path, name: str, encoding: str = "", password: str = "") -> Extracted:
    """`encoding` is that of a plain text or HTML, `password` that of a protected file or of what is in it, if they are
    known. Raises `ReaderError`.
    """
    return _read(path, name, encoding, password, Inner(Left(), password))


def _read(path: Path, name: str, encoding: str, password: str, inner: Inner) -> Extracted:
    with _unlocked(path, name, password) as (unlocked, kind):
        reader = _READERS.get(kind, _OTHERS)
        # By name, so that a file waits only for the libraries of its own kind: openpyxl alone takes longer than most
        # files.
        module = importlib.import_module(f"readers.{reader}")
        more: dict[str, str | bool] = {}
        if reader in _OF_TEXT:
            more = {"encoding": encoding}
        elif kind == PDF:
            more = {"password": password}
        elif kind in CONVERTED:
            more = {"convert": not inner.depth}  # of a picture in another file only its name is told
        nested = {"inner": inner} if reader.startswith("nested.") else {}
        extracted: Extracted = module.read(unlocked, kind, **more, **nested)
    if not (extracted.text.strip() or extracted.shown) and extracted.width is None:
        raise ReaderError("no_text" if kind in _MAY_BE_PICTURES else "empty")
    return extracted


@contextmanager
def _unlocked(path: Path, name: str, password: str) -> Iterator[tuple[Path, str]]:
    """The file and its media type; of one that a password protects what it opens, held in memory."""
    try:
        kind = media_type(path, name)
    except ReaderError as error:
        if error.code != "encrypted" or not password:
            raise
        with memory.opened(_opened_by(path, password)) as opened:
            yield opened, media_type(opened, name)
    else:
        if kind in (DOC, PPT, XLS) and password:  # which say only inside whether it is protected
            with memory.opened(_opened_by(path, password)) as opened:
                yield opened, kind
        else:
            yield path, kind


def _opened_by(path: Path, password: str) -> bytes:
    # Not imported before it is needed: few files are protected.
    content: bytes = importlib.import_module("readers.nested.unlocking").unlocked(path, password)
    return content
