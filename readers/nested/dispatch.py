"""Read a file of any kind with the reader for its media type, and the files within it."""

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

DEEPEST = 4  # levels of nested files
MOST_INNER = 1_000  # files in one, at all depths
MOST_INNER_BYTES = 200_000_000
MOST_KEYS = 1_000  # derived for members of archives; one for a whole file takes as long as several of these
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
_WITH_ENCODING = ("formats.markup", "formats.plain")
_MAY_BE_PICTURES = (PDF, DOC, PPT, DOCX, PPTX, EPUB, RTF, ODT, ODP)


@dataclass(slots=True)
class RemainingWork:
    """Work that is still allowed for nested files: files, their bytes, and keys that are derived from a password."""

    files: int = MOST_INNER
    bytes: int = MOST_INNER_BYTES
    keys: int = MOST_KEYS

    def take(self, size: int) -> None:
        """Count one more file of this size. Raises `bomb` beyond the limits."""
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0:
            raise ReaderError("bomb")

    def take_keys(self, count: int = 1) -> None:
        """Count more derived keys. Raises `untried_inside` beyond the limit."""
        if count > self.keys:
            raise ReaderError("untried_inside")
        self.keys -= count


@dataclass(frozen=True, slots=True)
class Inner:
    """Reader of the files within a file. `password` is tried on protected files in it."""

    left: RemainingWork
    password: str = ""
    depth: int = 0

    def read(self, content: bytes, name: str) -> Extracted:
        """Return the text of an inner file. Raises `ReaderError`; all codes but `bomb` concern the inner file alone."""
        self.left.take(len(content))
        if self.depth >= DEEPEST:
            raise ReaderError("unsupported")
        with memory.opened(content) as path:
            try:
                return self._opened(path, name)
            except (ReaderError, MemoryError):
                raise
            except Exception as error:  # libraries may raise any error for a damaged file
                raise ReaderError("damaged") from error

    def _opened(self, path: Path, name: str) -> Extracted:
        """Read a file without a password first: most files need none, and a try takes time."""
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
    """Return the text of a file. Raises `ReaderError`.

    `encoding`: of plain text or HTML; "": it is found. `password`: of a protected file or of the files in it; "": none.
    """
    return _read(path, name, encoding, password, Inner(RemainingWork(), password))


def _read(path: Path, name: str, encoding: str, password: str, inner: Inner) -> Extracted:
    with _unlocked(path, name, password) as (unlocked, kind):
        reader = _READERS.get(kind, _OTHERS)
        # By name, so that a file waits only for the libraries of its own kind: openpyxl alone takes longer than most
        # files.
        read_file = importlib.import_module(f"readers.{reader}").read
        extracted: Extracted
        if reader in _WITH_ENCODING:
            extracted = read_file(unlocked, kind, encoding=encoding)
        elif kind == PDF:
            extracted = read_file(unlocked, kind, password=password)
        elif kind in CONVERTED:
            extracted = read_file(unlocked, kind, convert=not inner.depth)  # a nested picture is only named
        elif reader.startswith("nested."):
            extracted = read_file(unlocked, kind, inner=inner)
        else:
            extracted = read_file(unlocked, kind)
    if not (extracted.text.strip() or extracted.shown) and extracted.width is None:
        raise ReaderError("no_text" if kind in _MAY_BE_PICTURES else "empty")
    return extracted


@contextmanager
def _unlocked(path: Path, name: str, password: str) -> Iterator[tuple[Path, str]]:
    """Yield the file and its media type; for a protected file its unlocked content, in memory."""
    try:
        kind = media_type(path, name)
    except ReaderError as error:
        if error.code != "encrypted" or not password:
            raise
        with memory.opened(_opened_by(path, password)) as opened:
            yield opened, media_type(opened, name)
    else:
        if kind in (DOC, PPT, XLS) and password:  # only their content says whether they are protected
            with memory.opened(_opened_by(path, password)) as opened:
                yield opened, kind
        else:
            yield path, kind


def _opened_by(path: Path, password: str) -> bytes:
    # Not imported before it is needed: few files are protected.
    content: bytes = importlib.import_module("readers.nested.unlocking").unlocked(path, password)
    return content
