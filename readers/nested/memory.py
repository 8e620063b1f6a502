"""Let readers open bytes like a file: a confined process may not write files."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_file(content: bytes) -> Iterator[Path]:
    """Yield a path of the content, valid within the context. It is in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("inner")
        try:
            with os.fdopen(os.dup(handle), "wb") as out:
                out.write(content)
            yield Path(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)
    else:
        with tempfile.NamedTemporaryFile() as out:
            out.write(content)
            out.flush()
            yield Path(out.name)
