"""The objects of the storage as files of the same names. None changes once it is there, so a copy stays good."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj

from django.core.files.base import File
from django.core.files.storage import default_storage

from core.private_files import close_file, make_private, open_private


def names(place: str = "") -> Iterator[str]:
    """Of everything that is stored; what lies at the top is still arriving."""
    try:
        directories, files = default_storage.listdir(place)
    except FileNotFoundError:
        return
    if place:
        yield from (f"{place}/{each}" for each in sorted(files))
    for each in sorted(directories):
        yield from names(f"{place}/{each}" if place else each)


def copy_out(target: Path) -> int:
    """Copies what is not there yet and returns how many those were. What goes meanwhile has lost its row before."""
    copied, directory = 0, None
    for name in names():
        copy = target / name
        if copy.parent != directory:
            directory = copy.parent
            make_private(directory, below=target.parent)
        if copy.exists():
            close_file(copy)
            continue
        partial = copy.with_name(f"{copy.name}.partial")
        with suppress(FileNotFoundError):
            with default_storage.open(name) as stored, open_private(partial) as written:
                copyfileobj(stored, written)
            partial.rename(copy)
            copied += 1
    return copied


def copy_in(source: Path) -> int:
    """The other way round, back into the storage."""
    copied = 0
    for path in sorted(each for each in source.rglob("*") if each.is_file() and each.suffix != ".partial"):
        name = path.relative_to(source).as_posix()
        if default_storage.exists(name):
            if default_storage.size(name) == path.stat().st_size:
                continue
            default_storage.delete(name)  # half of it, of a restore that was broken off
        with path.open("rb") as file:
            default_storage.save(name, File(file))
        copied += 1
    return copied
