"""Read ZIP archives as folders, with one page per file."""

import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import Archive
from readers.formats.result import Extracted, ReaderError, paged_result
from readers.nested import closed
from readers.nested.dispatch import NestedReader

_SYSTEM_FILES = ("__MACOSX/", ".DS_Store", "Thumbs.db")


def read(path: Path, media_type: str, inner: NestedReader) -> Extracted:
    """Return `# name` and the text of each file. Unreadable files are listed and counted."""
    archive = Archive(path, locked=True)
    left_out: Counter[str] = Counter()
    names = sorted(name for name in archive.names if not name.endswith("/") and not _is_system_file(name))
    if not names:
        raise ReaderError("empty")
    extracted = paged_result(media_type, _files(path, archive, names, inner, left_out), left_out=left_out)
    if not inner.depth and (code := closed.refusal(extracted, inner.password)):
        raise ReaderError(code)
    return extracted


def _is_system_file(name: str) -> bool:
    return any(part in name for part in _SYSTEM_FILES)


def _files(
    path: Path, archive: Archive, names: list[str], inner: NestedReader, left_out: Counter[str]
) -> Iterator[str]:
    for name in names:
        try:
            extracted = inner.read(_content(path, archive, name, inner), name.rpartition("/")[2])
        except ReaderError as error:
            if error.code == "bomb":
                raise
            left_out["members"] += error.code not in closed.CODES  # `closed_names` finds these
            yield _unread(name, error)
        except (zipfile.BadZipFile, OSError, EOFError, ValueError):
            left_out["members"] += 1
            yield _unread(name, ReaderError("damaged"))
        else:
            if extracted.width is not None:
                left_out["pictures"] += 1
            yield f"# {name}\n\n{extracted.text}"


def _content(path: Path, archive: Archive, name: str, inner: NestedReader) -> bytes:
    """Return the content of a member. A protected member is decrypted with the password."""
    if name not in archive.locked:
        with archive.open(name) as member:
            return member.read()
    if not inner.password:
        raise ReaderError("locked_inside")
    inner.left.take_keys()
    from readers.nested.unlocking import decrypt_member  # noqa: PLC0415 - few files are protected

    try:
        return decrypt_member(path, archive, name, inner.password)
    except ReaderError as error:
        raise ReaderError("wrong_inside" if error.code == "wrong_password" else error.code) from error


def _unread(name: str, error: ReaderError) -> str:
    return f"# {name}\n\n[Not read: {error.sentence}]"
