"""Private files that the product writes outside of its data directory, such as backups.

They contain password hashes and messages, and other accounts of the machine can often read the folder. So their modes
depend neither on the umask nor on an earlier file.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from core.sentences import Sentence

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
OTHERS_MODE_BITS = 0o077  # permissions of group and others


def open_private(path: Path) -> IO[bytes]:
    """Open a new file for writing that only its owner can read. It replaces an earlier file."""
    with suppress(FileNotFoundError):
        path.unlink()  # a process that has the earlier file open must not read the new content
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.fchmod(handle, FILE_MODE)  # the umask may have removed permissions of the owner
        return open(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def make_private(directory: Path, *, below: Path) -> None:
    """Create the directory and its parents below `below`, with mode 0700. Existing ones get this mode, too."""
    parents = [directory, *directory.parents]
    for each in reversed(parents[: parents.index(below)]):
        each.mkdir(DIRECTORY_MODE, exist_ok=True)
        if each.stat().st_mode & 0o777 != DIRECTORY_MODE:
            each.chmod(DIRECTORY_MODE)


def close_file(path: Path) -> None:
    """Remove the permissions of others on a file, which an earlier version of the product may have set."""
    if path.stat().st_mode & OTHERS_MODE_BITS:
        path.chmod(FILE_MODE)


def make_target(directory: Path) -> Sentence | None:
    """Create the directory that an operator has named. Return a warning if it exists and is open to others.

    An existing directory keeps its mode, since it may contain files for other people.
    """
    if not directory.exists():
        directory.mkdir(DIRECTORY_MODE, parents=True)
        directory.chmod(DIRECTORY_MODE)
        return None
    mode = directory.stat().st_mode & 0o777
    if not mode & OTHERS_MODE_BITS:
        return None
    return Sentence(
        "The folder {directory} is open to other users of this machine (mode {mode}). The files that are written to it "
        "are readable only by their owner. Run chmod 700 {directory2}, unless others need the folder.",
        directory=str(directory),
        mode=f"{mode:o}",
        directory2=str(directory),
    )
