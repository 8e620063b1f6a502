"""The bytes of files, in Django's default storage, once per content: a blob's name is the SHA-256 of what it holds.

Beside the blob of a picture that neither browsers nor models take stands what they are shown instead, `<name>.shown`.
"""

import hashlib
import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.base import File as Content
from django.core.files.storage import FileSystemStorage, default_storage
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.db import transaction

from core.errors import ProductError
from core.locks import lock
from core.outside import wait_outside
from core.sentences import Sentence
from files.models import File

logger = logging.getLogger(__name__)
DAY = 86_400  # seconds
SHA256 = re.compile(r"[0-9a-f]{64}")


class TooLarge(Exception):
    pass


class Unavailable(OSError):
    """The bytes are not to be had now: the server of the bucket is away, or there is no room to copy them to."""


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes on the local disk, not stored yet."""

    content: TemporaryUploadedFile
    sha256: str
    size: int


@contextmanager
def received(content: "Content[Any]", limit: int) -> Iterator[Received]:
    """Writes the content to a temporary file while it is hashed, piece by piece; raises `TooLarge` above `limit` bytes.

    A content that tells its size is refused before its first byte is read.
    """
    if (content.size or 0) > limit:
        raise TooLarge
    digest = hashlib.sha256()
    size = 0
    with TemporaryUploadedFile("upload", None, 0, None) as copy:
        for piece in content.chunks():
            size += len(piece)
            if size > limit:
                raise TooLarge
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        copy.seek(0)
        copy.size = size
        yield Received(copy, digest.hexdigest(), size)


def keep(received: Received) -> str:
    """Stores the content unless it is there already, and returns the blob's name. Raises `storage_unavailable` (503).

    Call it in the transaction that adds the row: until it ends nobody else stores or deletes the same content.
    """
    name = _name(received.sha256)
    lock(received.sha256)
    try:
        if not default_storage.exists(name):
            default_storage.save(name, received.content)
    except OSError as error:
        raise unavailable(error) from error
    return name


def keep_ahead(received: Received) -> None:
    """Store the content before the transaction of `keep`, where the storage is another server.

    `keep` then only asks whether it is there. Content that gets no row is swept. Raises `storage_unavailable` (503).
    """
    if not is_elsewhere():
        return
    name = _name(received.sha256)
    try:
        with wait_outside():
            if not default_storage.exists(name):
                default_storage.save(name, received.content)
    except OSError as error:
        raise unavailable(error) from error


def is_elsewhere() -> bool:
    """Return whether the storage is another server, so that reading and writing wait for it."""
    return not isinstance(default_storage, FileSystemStorage)


def waiting() -> AbstractContextManager[None]:
    """Return the context in which the storage is read or written: `wait_outside` where it is another server."""
    return wait_outside() if is_elsewhere() else nullcontext()


def unavailable(error: OSError) -> ProductError:
    """What people are told when the disk is full, or the server of the bucket is away; the log says which."""
    logger.error("the storage of files fails: %s", error)
    sentence = Sentence(
        "Files cannot be stored or opened now. Try again in a few minutes; if it lasts, tell your admin."
    )
    return ProductError("storage_unavailable", sentence, status=503, retry_after=60)


def release(sha256: str) -> None:
    """Deletes the blob if no row needs it any more. Call it after the transaction that deleted one.

    Where the storage is away, `sweep` does it later.
    """
    try:
        with transaction.atomic():
            lock(sha256)
            if not File.objects.filter(sha256=sha256).exists():
                with waiting():
                    for name in (_name(sha256), shown_name(sha256)):
                        default_storage.delete(name)
    except (OSError, ProductError) as error:
        logger.warning("bytes of a file are deleted later: %s", error)


def sweep_unfinished() -> None:
    """Deletes what a process that died had received of uploads, a day later."""
    limit = time.time() - DAY
    for path in Path(settings.FILE_UPLOAD_TEMP_DIR).glob("*.upload*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < limit:
                path.unlink()


def sweep(prefix: str) -> int:
    """Deletes the blobs under two hexadecimal digits that no row needs, and returns how many those were.

    Rows go in ways that `release` does not see, with the person who owned them or with a process that died. What is
    being uploaded is safe: `release` waits for its transaction and looks again.
    """
    names = [name for directory in _listed(prefix)[0] for name in _listed(f"{prefix}/{directory}")[1]]
    blobs = {name for name in names if SHA256.fullmatch(name)}
    lost = blobs - set(File.objects.filter(sha256__in=blobs).values_list("sha256", flat=True))
    for sha256 in lost:
        release(sha256)
    return len(lost)


def _listed(place: str) -> tuple[list[str], list[str]]:
    try:
        return default_storage.listdir(place)
    except FileNotFoundError:
        return [], []


def keep_shown(sha256: str, content: bytes) -> None:
    """Stores what is shown of such a file instead of its own bytes. Call it in a transaction that holds a row of it."""
    name = shown_name(sha256)
    lock(sha256)
    if not default_storage.exists(name):
        default_storage.save(name, ContentFile(content))


@contextmanager
def local_path(file: File, *, shown: bool = False) -> Iterator[Path]:
    """The blob, or what is shown instead of it, as a file on this machine; a copy of it when the storage is elsewhere.

    Raises FileNotFoundError, and `Unavailable` while a storage elsewhere is.
    """
    name = shown_name(file.sha256) if shown else str(file.blob)
    try:
        path: Path | None = Path(default_storage.path(name))
    except NotImplementedError:  # how a storage says that it has no paths
        path = None
    if path and path.is_file():
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        _copy(name, copy)
        yield Path(copy.name)


def _copy(name: str, copy: "IO[bytes]") -> None:
    try:
        with default_storage.open(name, "rb") as blob:
            copyfileobj(blob, copy)
        copy.flush()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(str(error)) from error


def shown_name(sha256: str) -> str:
    return f"{_name(sha256)}.shown"


def _name(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}"
