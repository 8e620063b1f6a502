"""Archives (ZIP) as folders: one page a file."""

import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from files.extraction.nested.dispatch import Inner
from files.extraction.readers.archive import Archive
from files.extraction.readers.result import Extracted, ExtractionError, paged

_APART = ("__MACOSX/", ".DS_Store", "Thumbs.db")  # what systems put there for themselves


def read(path: Path, media_type: str, inner: Inner) -> Extracted:
    """`# name` and the text of each file; those that could not be read are named and counted."""
    archive = Archive(path)
    left_out: Counter[str] = Counter()
    names = sorted(name for name in archive.names if not name.endswith("/") and not _is_apart(name))
    if not names:
        raise ExtractionError("empty")
    return paged(media_type, _files(archive, names, inner, left_out), left_out=left_out)


def _is_apart(name: str) -> bool:
    return any(part in name for part in _APART)


def _files(archive: Archive, names: list[str], inner: Inner, left_out: Counter[str]) -> Iterator[str]:
    for name in names:
        try:
            with archive.open(name) as member:
                found = inner.read(member.read(), name.rpartition("/")[2])
        except ExtractionError as error:
            if error.code == "bomb":
                raise
            yield _unread(name, error.sentence, left_out)
        except (zipfile.BadZipFile, OSError, EOFError, ValueError):
            yield _unread(name, ExtractionError("damaged").sentence, left_out)
        else:
            if found.width is not None:
                left_out["pictures"] += 1
            yield f"# {name}\n\n{found.text}"


def _unread(name: str, why: str, left_out: Counter[str]) -> str:
    left_out["members"] += 1
    return f"# {name}\n\n[Not read: {why}]"
