"""Copy stored objects to files of the same names, and back. Stored objects never change, so copies stay valid."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj

from django.core.files.base import File
from django.core.files.storage import default_storage

from core.private_files import close_file, make_private, open_private


def object_names(place: str = "") -> Iterator[str]:
    """Yield the names of all stored objects. Files in the top folder are skipped, since they are unfinished uploads."""
    try:
        directories, files = default_storage.listdir(place)
    except FileNotFoundError:
        return
    if place:
        yield from (f"{place}/{each}" for each in sorted(files))
    for each in sorted(directories):
        yield from object_names(f"{place}/{each}" if place else each)


def copy_out(target: Path) -> int:
    """Copy the new objects and return their number.

    Skips objects that are deleted meanwhile, since no row needs them.
    """
    copied = 0
    directory = None
    for name in object_names():
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
    """Copy the files back into the storage, and return the number of copied files."""
    copied = 0
    for path in sorted(each for each in source.rglob("*") if each.is_file() and each.suffix != ".partial"):
        name = path.relative_to(source).as_posix()
        if default_storage.exists(name):
            if default_storage.size(name) == path.stat().st_size:
                continue
            default_storage.delete(name)  # an incomplete object from an interrupted restore
        with path.open("rb") as file:
            default_storage.save(name, File(file))
        copied += 1
    return copied
