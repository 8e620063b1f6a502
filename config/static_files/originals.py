"""The static files where they stand: in `static/` and in the packages."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from django.contrib.staticfiles.finders import get_finders

from config.static_files.apps import CollectedFilesConfig


def fingerprint() -> str:
    """A hash of all names and contents, and of how they are processed; some 15 ms for 300 files of 5 MB."""
    found = hashlib.blake2b(digest_size=20)
    for name, path in sorted([*_processing(), *_files()]):
        content = path.read_bytes()
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    for finder in get_finders():
        for path, storage in finder.list(CollectedFilesConfig.ignore_patterns):
            yield f"{getattr(storage, 'prefix', None) or ''}/{path}", Path(storage.path(path))


def _processing() -> Iterator[tuple[str, Path]]:
    for path in Path(__file__).parent.glob("*.py"):
        yield path.name, path
