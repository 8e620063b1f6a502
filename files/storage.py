"""Contents of files in Django's default storage. Each content is stored once; the name of its blob is its SHA-256.

A picture in a format that browsers and models do not support has a second blob, `<name>.shown`, in a supported format.
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
DAY_SECONDS = 86_400  # seconds
SHA256 = re.compile(r"[0-9a-f]{64}")


class ContentTooLarge(Exception):
    pass


class StorageUnavailable(OSError):
    """The content cannot be read now: the bucket cannot be reached, or the local disk has no space for a copy."""


@dataclass(frozen=True, slots=True)
class ReceivedContent:
    """Content in a temporary local file, not stored yet."""

    content: TemporaryUploadedFile
    sha256: str
    size: int


@contextmanager
def receive(content: "Content[Any]", limit: int) -> Iterator[ReceivedContent]:
    """Write the content to a temporary file and hash it. Raises `ContentTooLarge` above `limit` bytes.

    Content whose known size is above the limit is refused before its first byte is read.
    """
    if (content.size or 0) > limit:
        raise ContentTooLarge
    digest = hashlib.sha256()
    size = 0
    with TemporaryUploadedFile("upload", None, 0, None) as copy:
        for chunk in content.chunks():
            size += len(chunk)
            if size > limit:
                raise ContentTooLarge
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        copy.seek(0)
        copy.size = size
        yield ReceivedContent(copy, digest.hexdigest(), size)


def store_content(received: ReceivedContent) -> str:
    """Store the content unless its blob exists, and return the name of the blob. Raises `storage_unavailable` (503).

    Call it in the transaction that adds the row. A lock keeps other transactions from storing or deleting the
    same content until this one ends.
    """
    name = _blob_name(received.sha256)
    lock(received.sha256)
    try:
        if not default_storage.exists(name):
            default_storage.save(name, received.content)
    except OSError as error:
        raise storage_error(error) from error
    return name


def store_ahead(received: ReceivedContent) -> None:
    """Store the content in a remote storage before the transaction begins. `store_content` then finds the blob.

    If no row is added, a sweep deletes the content later. Raises `storage_unavailable` (503).
    """
    if not is_remote():
        return
    name = _blob_name(received.sha256)
    try:
        with wait_outside():
            if not default_storage.exists(name):
                default_storage.save(name, received.content)
    except OSError as error:
        raise storage_error(error) from error


def is_remote() -> bool:
    """Return whether the storage is on another server, so that reads and writes wait for the network."""
    return not isinstance(default_storage, FileSystemStorage)


def wait_for_storage() -> AbstractContextManager[None]:
    """Return the context manager for reads and writes: `wait_outside` for a remote storage, else an empty one."""
    return wait_outside() if is_remote() else nullcontext()


def storage_error(error: OSError) -> ProductError:
    """Return `storage_unavailable` (503), and log the cause, such as a full disk or an unreachable bucket."""
    logger.error("the storage of files fails: %s", error)
    sentence = Sentence(
        "Files cannot be stored or opened now. Try again in a few minutes; if it lasts, tell your admin."
    )
    return ProductError("storage_unavailable", sentence, status=503, retry_after=60)


def release(sha256: str) -> None:
    """Delete the blob if no row needs it. Call it after the transaction that deleted a row.

    If the storage cannot be reached, `sweep` deletes the blob later.
    """
    try:
        with transaction.atomic():
            lock(sha256)
            if not File.objects.filter(sha256=sha256).exists():
                with wait_for_storage():
                    for name in (_blob_name(sha256), shown_blob_name(sha256)):
                        default_storage.delete(name)
    except (OSError, ProductError) as error:
        logger.warning("bytes of a file are deleted later: %s", error)


def sweep_unfinished() -> None:
    """Delete temporary files of uploads that are older than a day. Crashed processes leave such files behind."""
    cutoff = time.time() - DAY_SECONDS
    for path in Path(settings.FILE_UPLOAD_TEMP_DIR).glob("*.upload*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < cutoff:
                path.unlink()


def sweep(prefix: str) -> int:
    """Delete the blobs without a row whose names begin with `prefix`, two hexadecimal digits. Return their number.

    `release` is not called for all deleted rows: some are deleted with their owner, or by a process that then crashes.
    An upload that is being stored is safe, since `release` waits for its transaction and then checks again.
    """
    names = [name for directory in _list(prefix)[0] for name in _list(f"{prefix}/{directory}")[1]]
    blobs = {name for name in names if SHA256.fullmatch(name)}
    orphaned = blobs - set(File.objects.filter(sha256__in=blobs).values_list("sha256", flat=True))
    for sha256 in orphaned:
        release(sha256)
    return len(orphaned)


def _list(path: str) -> tuple[list[str], list[str]]:
    try:
        return default_storage.listdir(path)
    except FileNotFoundError:
        return [], []


def store_shown(sha256: str, content: bytes) -> None:
    """Store a picture in a format for browsers and models. The caller must hold the lock of a row of the file."""
    name = shown_blob_name(sha256)
    lock(sha256)
    if not default_storage.exists(name):
        default_storage.save(name, ContentFile(content))


@contextmanager
def local_path(file: File, *, shown: bool = False) -> Iterator[Path]:
    """Yield the path of a local file with the content, or with its `shown` format.

    For a remote storage the file is a temporary copy.

    Raises FileNotFoundError, and `StorageUnavailable` if a remote storage cannot be reached.
    """
    name = shown_blob_name(file.sha256) if shown else str(file.blob)
    try:
        path: Path | None = Path(default_storage.path(name))
    except NotImplementedError:  # raised by storages without local paths
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
        raise StorageUnavailable(str(error)) from error


def shown_blob_name(sha256: str) -> str:
    return f"{_blob_name(sha256)}.shown"


def _blob_name(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}"
