"""Private files that the product writes outside of its data directory, such as backups.

They hold hashes of passwords and messages, and other accounts of the machine may often enter the folder. So the modes
depend neither on the umask nor on an earlier file.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from core.sentences import Sentence

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
OTHERS = 0o077  # the rights of group and others


def open_private(path: Path) -> IO[bytes]:
    """Open a file for writing, anew or in place of an earlier one, that only its owner may read."""
    with suppress(FileNotFoundError):
        path.unlink()  # a process that has the earlier file open must not read the new content
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(handle, FILE_MODE)  # the umask may have taken the owner's own rights away
        return open(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def make_private(directory: Path, *, below: Path) -> None:
    """Make the directory and its parents below `below`, or take others' rights to them away."""
    parents = [directory, *directory.parents]
    for each in reversed(parents[: parents.index(below)]):
        each.mkdir(DIRECTORY_MODE, exist_ok=True)
        if each.stat().st_mode & 0o777 != DIRECTORY_MODE:
            each.chmod(DIRECTORY_MODE)


def close_file(path: Path) -> None:
    """Take away the rights of others to a file, which an earlier version may have given."""
    if path.stat().st_mode & OTHERS:
        path.chmod(FILE_MODE)


def make_target(directory: Path) -> Sentence | None:
    """Make the directory that an operator has named; return a warning where it exists and is open to others.

    Its mode stays then: it may hold other files, for other people.
    """
    if not directory.exists():
        directory.mkdir(DIRECTORY_MODE, parents=True)
        directory.chmod(DIRECTORY_MODE)
        return None
    mode = directory.stat().st_mode & 0o777
    if not mode & OTHERS:
        return None
    return Sentence(
        "{directory} was there and is open to others of this machine (mode {mode}). What is written into it is for "
        "its owner alone; run chmod 700 {directory2} unless others need the folder.",
        directory=str(directory),
        mode=f"{mode:o}",
        directory2=str(directory),
    )
