"""Read a file of any kind, and the files within it, with the reader for its media type."""

import importlib
import logging
from collections.abc import Callable, Iterator
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
    XLS,
    XLSB,
    XLSX,
    ZIP,
    is_compound,
    media_type,
)
from readers.formats.result import Extracted, ReaderError
from readers.nested import memory

MAX_DEPTH = 4  # levels of nested files
MAX_INNER = 1_000  # nested files in one file, at all depths
MAX_INNER_BYTES = 200_000_000
MAX_KEYS = 1_000  # key derivations for archive members; a whole protected file counts as `_KEYS_PER_FILE`
MAX_DEFAULTS = 50
_KEYS_PER_FILE = 5

_READERS = {
    PDF: "formats.pdf",
    DOC: "older.word",
    PPT: "older.slides",
    DOCX: "formats.word",
    PPTX: "formats.slides",
    XLSX: "formats.sheets",
    XLSB: "formats.binary_sheets",
    XLS: "older.sheets",
    EPUB: "formats.markup",
    HTML: "formats.markup",
    MAIL: "nested.mail",
    MBOX: "nested.mail",
    MSG: "nested.outlook",
    ZIP: "nested.folder",
}
_READERS |= dict.fromkeys(OPEN_DOCUMENTS, "formats.opendocument")
_READERS |= dict.fromkeys((*IMAGES, *CONVERTED), "formats.images")
_FALLBACK_READER = "formats.plain"
# Less strict readers, for files that the reader of their kind cannot read.
_SECOND_READERS = dict.fromkeys((XLSX, XLSB, XLS), "formats.workbooks")
_FINAL_ERRORS = (
    "encrypted",
    "protected",
    "bomb",
    "entities",
    "too_large",
)  # a second reader would raise these errors, too
_WITH_ENCODING = ("formats.markup", "formats.plain")
_DOCUMENTS = (DOC, PPT, DOCX, PPTX, EPUB, RTF, ODT, ODP)  # kinds that may have pictures instead of text
# The password with which Excel encrypts a workbook whose structure is locked. Excel opens such files without asking.
_DEFAULT_PASSWORD = "VelvetSweatshop"  # noqa: S105 - Excel's own, which everybody knows


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RemainingWork:
    """The remaining limits for nested files: their number, their bytes, and the keys derived from a password.

    `defaults`: files that are tried with Excel's default password, each of which takes as long as a key.
    """

    files: int = MAX_INNER
    bytes: int = MAX_INNER_BYTES
    keys: int = MAX_KEYS
    defaults: int = MAX_DEFAULTS

    def take(self, size: int) -> None:
        """Count one more file of this size. Raises `bomb` if a limit is exceeded."""
        self.files -= 1
        self.bytes -= size
        if self.files < 0 or self.bytes < 0:
            raise ReaderError("bomb")

    def take_keys(self, count: int = 1) -> None:
        """Count derived keys. Raises `untried_inside` if the limit is exceeded."""
        if count > self.keys:
            raise ReaderError("untried_inside")
        self.keys -= count


@dataclass(frozen=True, slots=True)
class NestedReader:
    """Reader of the files within a file. It tries `password` on protected files."""

    left: RemainingWork
    password: str = ""
    depth: int = 0

    def read(self, content: bytes, name: str) -> Extracted:
        """Return the text of a nested file. Raises `ReaderError`. The code `bomb` must fail the outer file, too."""
        self.left.take(len(content))
        if self.depth >= MAX_DEPTH:
            raise ReaderError("unsupported")
        with memory.as_file(content) as path:
            try:
                return self._read_unlocked(path, name)
            except (ReaderError, MemoryError):
                raise
            except Exception as error:  # libraries may raise any error for a damaged file
                raise ReaderError("damaged") from error

    def _read_unlocked(self, path: Path, name: str) -> Extracted:
        """Read a file, first without the password: most files need none, and trying a password takes time."""
        deeper = replace(self, depth=self.depth + 1)
        try:
            return _read(path, name, "", "", deeper)
        except ReaderError as error:
            if error.code != "encrypted":
                raise
        if not self.password:
            raise ReaderError("locked_inside")
        self.left.take_keys(_KEYS_PER_FILE)
        try:
            return _read(path, name, "", self.password, deeper)
        except ReaderError as error:
            raise ReaderError("wrong_inside" if error.code == "wrong_password" else error.code) from error


def read(path: Path, name: str, encoding: str = "", password: str = "") -> Extracted:
    """Return the text of a file. Raises `ReaderError`.

    `encoding`: the encoding of plain text or HTML; empty to detect it. `password`: the password of a protected file, or
    of the files in it; empty for none.
    """
    return _read(path, name, encoding, password, NestedReader(RemainingWork(), password))


def _read(path: Path, name: str, encoding: str, password: str, inner: NestedReader) -> Extracted:
    try:
        return _read_with(path, name, encoding, password, inner)
    except ReaderError as error:
        if error.code != "encrypted" or password or inner.left.defaults <= 0 or not is_compound(path):
            raise
        inner.left.defaults -= 1
        try:
            return _read_with(path, name, encoding, _DEFAULT_PASSWORD, inner)
        except ReaderError as second_error:
            if second_error.code in ("encrypted", "wrong_password", "protected", "damaged"):
                raise error from second_error
            raise
        except Exception as library_error:  # libraries may raise any error for unusual encryption
            raise error from library_error


def _read_with(path: Path, name: str, encoding: str, password: str, inner: NestedReader) -> Extracted:
    with _unlocked(path, name, password) as (unlocked, kind):
        reader = _READERS.get(kind, _FALLBACK_READER)
        extracted: Extracted
        if reader in _WITH_ENCODING:
            extracted = _load_reader(reader)(unlocked, kind, encoding=encoding)
        elif kind == PDF:
            extracted = _load_reader(reader)(unlocked, kind, password=password)
        elif kind in CONVERTED:
            extracted = _load_reader(reader)(unlocked, kind, convert=not inner.depth)  # a nested picture is only named
        elif reader.startswith("nested."):
            extracted = _load_reader(reader)(unlocked, kind, inner=inner)
        elif kind in _SECOND_READERS:
            extracted = _read_with_fallback(unlocked, kind, reader, _SECOND_READERS[kind])
        else:
            extracted = _load_reader(reader)(unlocked, kind)
    if not (extracted.text.strip() or extracted.shown) and extracted.width is None:
        if kind == PDF or extracted.left_out.get("pictures"):
            raise ReaderError("no_text")
        raise ReaderError("wordless" if kind in _DOCUMENTS else "empty")
    return extracted


def _load_reader(name: str) -> Callable[..., Extracted]:
    """Return the function that reads a kind of file.

    Imported by name, so that a file waits only for the libraries of its own kind.
    """
    read_file: Callable[..., Extracted] = importlib.import_module(f"readers.{name}").read
    return read_file


def _read_with_fallback(path: Path, kind: str, first: str, second: str) -> Extracted:
    """Return the result of the first reader, or of the second if the first fails. Raises the error of the second."""
    try:
        return _load_reader(first)(path, kind)
    except MemoryError:
        raise
    except ReaderError as error:
        if error.code in _FINAL_ERRORS:
            raise
    except Exception as error:  # libraries may raise any error for an odd file
        logger.info("read by a second reader: %r", error)
    return _load_reader(second)(path, kind)


@contextmanager
def _unlocked(path: Path, name: str, password: str) -> Iterator[tuple[Path, str]]:
    """Yield the file and its media type. For a protected file, yield its decrypted content, in memory."""
    try:
        kind = media_type(path, name)
    except ReaderError as error:
        if error.code != "encrypted" or not password:
            raise
        with memory.as_file(_decrypt(path, password)) as opened:
            yield opened, media_type(opened, name)
    else:
        if kind in (DOC, PPT, XLS) and password:  # only their content shows whether they are protected
            with memory.as_file(_decrypt(path, password)) as opened:
                yield opened, kind
        else:
            yield path, kind


def _decrypt(path: Path, password: str) -> bytes:
    from readers.nested.unlocking import decrypt_document  # noqa: PLC0415 - few files are protected

    return decrypt_document(path, password)
