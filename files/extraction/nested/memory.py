"""Bytes that readers open like a file: a confined process may write none."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msoffcrypto
from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

from files.extraction.readers.result import ExtractionError


@contextmanager
def opened(content: bytes) -> Iterator[Path]:
    """Under a path that holds until the end; in memory, where the system has such files."""
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


def decrypted(path: Path, password: str) -> bytes:
    """What Office has encrypted (MS-OFFCRYPTO). Raises `wrong_password`, `protected`, `damaged`."""
    out = io.BytesIO()
    tempfile.TemporaryFile = io.BytesIO  # type: ignore[assignment]  # the library asks for a file, which a confined process may not write
    with path.open("rb") as source:
        try:
            document = msoffcrypto.OfficeFile(source)
            if not document.is_encrypted():
                return path.read_bytes()
            document.load_key(password=password)
            document.decrypt(out)
        except InvalidKeyError as error:
            raise ExtractionError("wrong_password") from error
        except DecryptionError as error:
            raise ExtractionError("protected") from error
        except (FileFormatError, ParseError) as error:
            raise ExtractionError("damaged") from error
    return out.getvalue()
