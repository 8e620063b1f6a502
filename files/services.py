"""All changes to files, for pages, the API, commands and tasks."""

import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

from django.conf import settings
from django.core.files.base import File as Content
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from accounts.access.holds import require_free
from accounts.access.rights import require
from accounts.limits.holding import standing_limit
from accounts.models import Limit, Right, User
from core.audit.services import record
from core.background import enqueue
from core.errors import NotFound, ProductError
from core.locks import lock
from core.requests import get_or_404, identifier
from core.sentences import Sentence
from files import ingest, passwords, storage
from files.encodings import ENCODINGS
from files.models import File, FileText
from files.registry import stored_rows, temporary_condition
from llm import tokens
from readers.api import SENTENCES

MAX_NAME = 255
MAX_SEVERAL = 100  # files that are deleted at once
RETRY_AFTER = 3600  # seconds; a program should not retry soon, since only its user can free storage
_JPEG = b"\xff\xd8\xff"
# Control characters, and characters that reverse the text direction, which can display "txt.exe" as "exe.txt".
_UNWANTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def upload(*, user: User, name: str, content: "Content[Any]", with_conversation: bool = False) -> File:
    """Store a file that a user or their program sends. Raises `right_missing` (403), and as `store`."""
    require(user, Right.UPLOAD)
    return store(user=user, name=name, content=content, with_conversation=with_conversation)


def store(*, user: User, name: str, content: "Content[Any]", with_conversation: bool = False) -> File:
    """Store a file. Its text and tokens follow in the background.

    1. The content is written to a temporary file and hashed.
    2. If the user has a file with this content, it is returned, with `repeated` set.
    3. The user's storage limit is checked.
    4. A remote storage gets the content, before the transaction begins.
    5. In a transaction the content is stored if it is new, the storage is reserved, and the row is created.

    The bytes of equal content are stored once, with a row for each user. `name` may be a path; its last part is used.
    `with_conversation`: a program's request, a tool's result or an attached conversation brings the file, so it goes
    with its conversations.
    Raises `file_too_large` (413), `storage_full` and `limit_reached` (429), `empty_file`.
    """
    try:
        with storage.receive(content, settings.MAX_UPLOAD_BYTES) as received:
            if not received.size:
                raise ProductError("empty_file", "The file is empty. Choose another one.")
            if repeated := _find_repeated(user, name, received.sha256, with_conversation=with_conversation):
                return repeated
            require_storage(user, received.size)
            storage.store_ahead(received)
            with transaction.atomic():
                blob = storage.store_content(received)
                # Its lock has ended another upload of the same content.
                if repeated := _find_repeated(user, name, received.sha256, with_conversation=with_conversation):
                    return repeated
                reserve_storage(user, received.size)
                file = File.objects.create(
                    owner=user,
                    name=clean_name(name),
                    size=received.size,
                    sha256=received.sha256,
                    blob=blob,
                    heartbeat=timezone.now(),
                    with_conversation=with_conversation,
                )
                transaction.on_commit(partial(enqueue, "files.tasks.read_file", file.pk))
    except storage.ContentTooLarge as error:
        raise ProductError(
            "file_too_large",
            Sentence(
                "The file is larger than {most} MB, which is the maximum for uploads. Split it and upload the parts.",
                most=round(settings.MAX_UPLOAD_BYTES / 1_000_000),
            ),
            status=413,
        ) from error
    return file


def _find_repeated(user: User, name: str, sha256: str, *, with_conversation: bool) -> File | None:
    """Return the user's file with this content and note the upload. None if there is none. Reads a failed file again.

    The kind of the name counts, since the same bytes can be read as a text or as a table. Nothing is noted if a
    conversation brought the file and another one brings it again: it goes with the last of them.
    """
    rows = File.objects.owned_by(user).filter(sha256=sha256)
    suffix = _suffix(clean_name(name))
    lasting = rows.exclude(pk__in=rows.filter(temporary_condition()).values("pk")).order_by("pk")
    file = next((row for row in lasting if _suffix(row.name) == suffix), None)
    if file is None:
        return None
    row = File.objects.filter(pk=file.pk)
    if with_conversation and file.with_conversation:
        exists = row.exists()
    else:
        exists = row.update(uploaded_again=timezone.now()) > 0
    if not exists:  # it was deleted meanwhile
        return None
    if file.status == File.Status.FAILED:
        retry(user=user, file=file)
    file.repeated = True
    return file


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def stored_bytes(user: User) -> int:
    """Return the bytes that a user has in storage, including exports that wait for their import.

    Equal content counts once for each row.
    """
    return sum(rows.aggregate(total=Sum("size", default=0))["total"] for rows in stored_rows(user))


def storage_limit(user: User) -> int | None:
    """Return the most bytes that a user may store: the setting or a lower limit. None: no limit."""
    limit = standing_limit(user.pk, Limit.Unit.STORAGE)
    bounds = [settings.STORED_BYTES or None, None if limit is None else int(limit)]
    return min((bound for bound in bounds if bound is not None), default=None)


def require_storage(user: User, size: int) -> None:
    """Check that the user may store `size` more bytes, before anything is stored. Simultaneous uploads may all pass.

    Raises `storage_full` and `limit_reached` (429).
    """
    _require_storage(user, size, storage_limit(user))


def reserve_storage(user: User, size: int) -> None:
    """Check as `require_storage`, and lock out the user's other uploads until the end of the transaction.

    Call it in the transaction that adds the row, after the bytes are stored. So no upload waits while another upload is
    being written to storage. Bytes without a row are swept later.
    """
    most = storage_limit(user)
    if most is not None:
        lock(f"stored:{user.pk}")
        _require_storage(user, size, most)


def _require_storage(user: User, size: int, most: int | None) -> None:
    if most is None:
        return
    stored = stored_bytes(user)
    if stored + size > most:
        raise ProductError(
            "storage_full" if most == settings.STORED_BYTES else "limit_reached",
            Sentence(
                "Your uploads take {stored} MB, and {most} MB is the maximum. Delete files or failed imports "
                "that you no longer need, then upload this one again.",
                stored=round(stored / 1_000_000),
                most=round(most / 1_000_000),
            ),
            status=429,
            retry_after=RETRY_AFTER,
        )


def clean_name(name: str) -> str:
    """Return the last part of a path, printable, at most 255 characters, with its suffix; “file” if nothing is left."""
    last = _UNWANTED.sub("", unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]).strip()
    if len(last) > MAX_NAME:
        stem, dot, suffix = last.rpartition(".")
        ending = dot + suffix if stem and len(suffix) < 20 else ""
        last = last[: MAX_NAME - len(ending)] + ending
    return last if last.strip(".") else "file"


def delete(*, user: User, file: File) -> None:
    """Delete a file with its text and chunks. The bytes are deleted with the last file that has them.

    Raises `legal_hold` (409).
    """
    _require_owner(user, file)
    with transaction.atomic():
        require_free(file)
        # With the lock, a worker that is adding rows to the file finishes before Django collects the rows to delete.
        if File.objects.select_for_update().filter(pk=file.pk).exists():
            transaction.on_commit(partial(storage.release, file.sha256))
            record(user=user, action="file.deleted", row=file)
            file.delete()


def own_files(user: User, ids: Sequence[str]) -> list[File]:
    """Return these files of the user, newest first.

    Raises `no_file` if there are none, `too_many_files` above `MAX_SEVERAL`, and `NotFound` for a file of another user.
    """
    keys = {identifier(each, "file") for each in ids[: MAX_SEVERAL + 1]}
    if not keys:
        raise ProductError("no_file", "No file is ticked. Tick one or several, then delete.")
    if len(keys) > MAX_SEVERAL:
        raise ProductError("too_many_files", Sentence("Delete at most {most} files at once.", most=MAX_SEVERAL))
    rows = list(File.objects.owned_by(user).filter(pk__in=keys).order_by("-id"))
    if len(rows) < len(keys):
        raise NotFound("file")
    return rows


@transaction.atomic
def delete_several(*, user: User, files: Sequence[File]) -> None:
    """Delete all of these files, or none. Raises the errors of `delete`."""
    for file in files:
        delete(user=user, file=file)


def retry(*, user: User, file: File) -> None:
    """Read a failed file again, or retry a failed indexing. Raises `not_failed` (409) for other files."""
    _require_owner(user, file)
    row = File.objects.filter(pk=file.pk)
    now = timezone.now()
    failed = row.filter(status=File.Status.FAILED)
    unindexed = row.filter(status__in=ingest.READABLE, searchable=False, attempt__gte=File.MAX_INDEXINGS)
    if failed.update(status=File.Status.UPLOADED, error_code="", error="", attempt=0, heartbeat=now):
        task = "files.tasks.read_file"
    elif unindexed.update(attempt=0, heartbeat=now):
        task = "files.tasks.index_file"
    else:
        raise ProductError("not_failed", "This file has not failed, so there is nothing to try again.", status=409)
    file.refresh_from_db()
    transaction.on_commit(partial(enqueue, task, file.pk))


def reread(*, user: User, file: File, encoding: str = "", password: str = "") -> None:
    """Read a file again from its bytes. Its text, tokens and chunks are replaced.

    `encoding`: the encoding of a text, a key of `ENCODINGS`; empty to detect it. `password`: for a protected file, or
    for files in an archive. It is stored only for this reading. Raises `unknown_encoding`, `bad_password`, and
    `being_read` (409) for a file that is already being read.
    """
    _require_owner(user, file)
    if len(password) > passwords.MAX_PASSWORD_LENGTH or not password.isprintable():
        raise ProductError("bad_password", "A password is one line of at most 1,000 characters. Enter it again.")
    if encoding and encoding not in ENCODINGS:
        raise ProductError("unknown_encoding", SENTENCES["unknown_encoding"])
    row = File.objects.filter(pk=file.pk).exclude(status__in=File.UNREAD)
    if password:
        passwords.store(file, password)  # before the update, since a worker may read the file right after it
    updated = row.update(
        status=File.Status.UPLOADED,
        searchable=False,
        error_code="",
        error="",
        attempt=0,
        heartbeat=timezone.now(),
        chosen_encoding=encoding,
    )
    if not updated:
        passwords.take(file)
        raise ProductError("being_read", "This file is being read. Wait for the end, then try again.", status=409)
    file.refresh_from_db()
    transaction.on_commit(partial(enqueue, "files.tasks.read_file", file.pk))


def open_blob(*, file: File) -> IO[bytes]:
    """Open the original. The caller has checked who may see it, and closes the stream.

    Raises `file_lost` (404) and `storage_unavailable` (503).
    """
    try:
        with storage.wait_for_storage():
            return file.blob.open("rb")
    except (FileNotFoundError, ValueError) as error:  # ValueError: the row has no name of a blob
        raise ProductError("file_lost", ingest.BYTES_LOST, status=404) from error
    except OSError as error:
        raise storage.storage_error(error) from error


def open_shown(*, file: File) -> tuple[str, IO[bytes]]:
    """Open the version of a picture for browsers and models. Returns its media type and the stream.

    This is the original if browsers and models support its format. Raises as `open_blob`.
    """
    if not file.converted:
        return file.media_type, open_blob(file=file)
    try:
        with storage.wait_for_storage():
            stream = default_storage.open(storage.shown_blob_name(file.sha256), "rb")
    except FileNotFoundError as error:
        raise ProductError("file_lost", ingest.BYTES_LOST, status=404) from error
    except OSError as error:
        raise storage.storage_error(error) from error
    signature = stream.read(len(_JPEG))
    stream.seek(0)
    return "image/jpeg" if signature == _JPEG else "application/pdf" if file.pages else "image/png", stream


def get_token_count(*, file: File, tokenizer: str = tokens.CATCH_ALL) -> int | None:
    """Return the tokens of the file's text or image; None for a file that is not read yet. Counts once per tokenizer.

    Raises LookupError for an unknown tokenizer.
    """
    if file.status not in ingest.READABLE:
        return None
    if tokenizer not in file.tokens:
        store_tokens(file=file, tokenizer=tokenizer, count=_count_tokens(file, tokenizer))
    return int(file.tokens[tokenizer])


def store_tokens(*, file: File, tokenizer: str, count: int) -> None:
    """Store a count by the name of the tokenizer, or by `name/kind` for a count of something other than the text."""
    with transaction.atomic():
        locked = File.objects.select_for_update().only("tokens").get(pk=file.pk)
        locked.tokens[tokenizer] = count
        locked.save(update_fields=["tokens"])
    file.tokens = locked.tokens


def visible_file(user: User, pk: object) -> File:
    """Return a file that the user may see. Raises `NotFound`."""
    return get_or_404(File.objects.visible_to(user), pk, "file")


def _count_tokens(file: File, tokenizer: str) -> int:
    if file.width is not None and file.height is not None:
        return tokens.image_tokens(file.width, file.height)
    text = FileText.objects.only("text").get(file=file).text
    return tokens.count(text, tokenizer)


def _require_owner(user: User, file: File) -> None:
    if file.owner_id != user.pk:
        raise NotFound("file")
