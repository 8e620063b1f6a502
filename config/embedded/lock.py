"""One supervisor for one data directory."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.embedded.errors import StartError

LEFTOVER_SECONDS = 20.0


@contextmanager
def held(data: Path) -> Iterator[int]:
    """Yields a descriptor for children to inherit. Raises StartError when another supervisor holds the directory.

    Two locks: the supervisor's own, and one that each child holds as well, for as long as it lives. So a start soon
    after the supervisor was killed waits until the last process that writes here is gone.
    """
    with (data / "up.lock").open("a+") as own, (data / "children.lock").open("a") as shared:
        if not _locked(own.fileno()):
            own.seek(0)
            holder = own.read().strip() or "unknown"
            raise StartError(
                f"The data directory {data} is in use by another `manage.py up` (process {holder});"
                " stop that one first, or set DATA_DIR to another directory."
            )
        own.truncate(0)
        own.write(f"{os.getpid()}\n")
        own.flush()
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while not _locked(shared.fileno()):
            if time.monotonic() > deadline:
                raise StartError(f"Processes of an earlier start still use {data}; `fuser -k {shared.name}` ends them.")
            time.sleep(0.05)
        yield shared.fileno()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
