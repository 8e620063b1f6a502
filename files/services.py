"""Every change to files. Page, API, command and task all come through here."""

import re
import unicodedata
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
from accounts.limits.holding import most_at_once
from accounts.models import Limit, May, User
from core.audit.services import record
from core.background import enqueue
from core.errors import NotFound, ProductError
from core.locks import lock
from core.requests import get_or_404
from core.sentences import Sentence
from files import ingest, passwords, storage
from files.encodings import ENCODINGS
from files.models import File, FileText
from files.registry import stored_rows
from llm import tokens
from readers.api import SENTENCES

MAX_NAME = 255
LATER = 3600  # seconds: room is up to the person; programs that try again by themselves should not do so soon
_JPEG = b"\xff\xd8\xff"
# Control characters, and those that turn the direction of writing around to make "exe.txt" of "txt.exe".
_UNWANTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def upload(*, user: User, name: str, content: "Content[Any]") -> File:
    """What a person or their program sends. Raises `right_missing` (403), and what `store` raises."""
    require(user, May.UPLOAD)
    return store(user=user, name=name, content=content)


def store(*, user: User, name: str, content: "Content[Any]") -> File:
    """Stores the bytes and the row; text and tokens follow in the background.

    The same content again is another row on the same bytes. `name` may be a path; its last part is kept. Raises
    `file_too_large` (413), `storage_full` and `limit_reached` (429), `empty_file`.
    """
    try:
        with storage.received(content, settings.MAX_UPLOAD_BYTES) as received:
            if not received.size:
                raise ProductError("empty_file", "The file is empty. Choose one with something in it.")
            require_room(user, received.size)
            storage.keep_ahead(received)
            with transaction.atomic():
                blob = storage.keep(received)
                take_room(user, received.size)
                file = File.objects.create(
                    owner=user,
                    name=clean_name(name),
                    size=received.size,
                    sha256=received.sha256,
                    blob=blob,
                    heartbeat=timezone.now(),
                )
                transaction.on_commit(partial(enqueue, "files.tasks.read_file", file.pk))
    except storage.TooLarge as error:
        raise ProductError(
            "file_too_large",
            Sentence(
                "The file is larger than {most} MB, the most that can be uploaded. Split it and upload the parts.",
                most=round(settings.MAX_UPLOAD_BYTES / 1_000_000),
            ),
            status=413,
        ) from error
    return file


def stored_bytes(user: User) -> int:
    """What somebody has in the storage, with exports that wait to be imported; the same content twice counts twice."""
    return sum(rows.aggregate(total=Sum("size", default=0))["total"] for rows in stored_rows(user))


def most_stored(user: User) -> int | None:
    """Bytes: what everybody may have, or less where a limit says so; None where nothing does."""
    limit = most_at_once(user.pk, Limit.Unit.STORAGE)
    said = [settings.STORED_BYTES or None, None if limit is None else int(limit)]
    return min((each for each in said if each is not None), default=None)


def require_room(user: User, size: int) -> None:
    """Before anything is stored; of two at once both may pass. Raises `storage_full` and `limit_reached` (429)."""
    _require_room(user, size, most_stored(user))


def take_room(user: User, size: int) -> None:
    """As `require_room`, one after the other: in the transaction that adds the row, once the bytes are stored, so that
    no upload waits while the storage takes another one of its person. Bytes that find no room are swept."""
    most = most_stored(user)
    if most is not None:
        lock(f"stored:{user.pk}")
        _require_room(user, size, most)


def _require_room(user: User, size: int, most: int | None) -> None:
    if most is None:
        return
    stored = stored_bytes(user)
    if stored + size > most:
        raise ProductError(
            "storage_full" if most == settings.STORED_BYTES else "limit_reached",
            Sentence(
                "What you have uploaded takes {stored} MB, and {most} MB are the most. "
                "Delete files or failed imports that you no longer need, then upload this one again.",
                stored=round(stored / 1_000_000),
                most=round(most / 1_000_000),
            ),
            status=429,
            retry_after=LATER,
        )


def clean_name(name: str) -> str:
    """The last part of a path, printable, at most 255 characters, with its suffix; `file` when nothing is left."""
    last = _UNWANTED.sub("", unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]).strip()
    if len(last) > MAX_NAME:
        stem, dot, suffix = last.rpartition(".")
        ending = dot + suffix if stem and len(suffix) < 20 else ""
        last = last[: MAX_NAME - len(ending)] + ending
    return last if last.strip(".") else "file"


def delete(*, user: User, file: File) -> None:
    """The text and chunks go with the row, the bytes with the last row that has them. Raises `legal_hold` (409)."""
    _require_owner(user, file)
    with transaction.atomic():
        require_free(file)
        # Locked first: a worker that is adding rows to the file gets done before they are collected for deletion.
        if File.objects.select_for_update().filter(pk=file.pk).exists():
            transaction.on_commit(partial(storage.release, file.sha256))
            record(user=user, action="file.deleted", row=file)
            file.delete()


def retry(*, user: User, file: File) -> None:
    """Reads a failed file again, or indexes one whose indexing was given up. Raises `not_failed` (409) for others."""
    _require_owner(user, file)
    mine = File.objects.filter(pk=file.pk)
    fresh = {"attempt": 0, "heartbeat": timezone.now()}
    failed = mine.filter(status=File.Status.FAILED)
    if failed.update(status=File.Status.UPLOADED, error_code="", error="", **fresh):
        task = "files.tasks.read_file"
    elif mine.filter(status__in=ingest.READABLE, searchable=False, attempt__gte=File.MAX_INDEXINGS).update(**fresh):
        task = "files.tasks.index_file"
    else:
        raise ProductError("not_failed", "This file has not failed, so there is nothing to try again.", status=409)
    file.refresh_from_db()
    transaction.on_commit(partial(enqueue, task, file.pk))


def reread(*, user: User, file: File, encoding: str = "", password: str = "") -> None:
    """Reads a file once more, from its bytes: text, tokens and chunks are made anew.

    `encoding` is that of a text, as a key of `ENCODINGS`; empty, it is found. `password` is that of a protected file,
    or of files in it, kept for this reading only. Raises `unknown_encoding`, `bad_password`, `being_read` (409) for a
    file that is being read already.
    """
    _require_owner(user, file)
    if len(password) > passwords.MOST or not password.isprintable():
        raise ProductError("bad_password", "A password is one line of at most 1,000 characters. Enter it again.")
    if encoding and encoding not in ENCODINGS:
        raise ProductError("unknown_encoding", SENTENCES["unknown_encoding"])
    mine = File.objects.filter(pk=file.pk).exclude(status__in=File.UNREAD)
    again = {"status": File.Status.UPLOADED, "searchable": False, "error_code": "", "error": ""}
    if password:
        passwords.keep(file, password)  # first: whoever gets done with another file may take this one at once
    if not mine.update(attempt=0, heartbeat=timezone.now(), chosen_encoding=encoding, **again):
        passwords.take(file)
        raise ProductError("being_read", "This file is being read at the moment. Wait until it is done.", status=409)
    file.refresh_from_db()
    transaction.on_commit(partial(enqueue, "files.tasks.read_file", file.pk))


def open_blob(*, file: File) -> IO[bytes]:
    """The original. The caller has checked who may see it, and closes it. Raises `file_lost` (404), and
    `storage_unavailable` (503)."""
    try:
        with storage.waiting():
            return file.blob.open("rb")
    except (FileNotFoundError, ValueError) as error:  # ValueError: the row names no bytes
        raise ProductError("file_lost", ingest.LOST, status=404) from error
    except OSError as error:
        raise storage.unavailable(error) from error


def open_shown(*, file: File) -> tuple[str, IO[bytes]]:
    """What browsers and models are shown of a picture, and its media type: the original, if they take its kind.

    As `open_blob` in all else.
    """
    if not file.converted:
        return file.media_type, open_blob(file=file)
    try:
        with storage.waiting():
            shown = default_storage.open(storage.shown_name(file.sha256), "rb")
    except FileNotFoundError as error:
        raise ProductError("file_lost", ingest.LOST, status=404) from error
    except OSError as error:
        raise storage.unavailable(error) from error
    mark = shown.read(len(_JPEG))
    shown.seek(0)
    return "image/jpeg" if mark == _JPEG else "application/pdf" if file.pages else "image/png", shown


def tokens_of(*, file: File, tokenizer: str = tokens.CATCH_ALL) -> int | None:
    """How many tokens the file's text has, or its image; None while it is unknown. Counted once per tokenizer.

    Raises LookupError for an unknown tokenizer.
    """
    if file.status not in ingest.READABLE:
        return None
    if tokenizer not in file.tokens:
        store_tokens(file=file, tokenizer=tokenizer, count=_counted(file, tokenizer))
    return int(file.tokens[tokenizer])


def store_tokens(*, file: File, tokenizer: str, count: int) -> None:
    """Keeps a count under a tokenizer's name, or under `name/what` for a count of something else than the text."""
    with transaction.atomic():
        fresh = File.objects.select_for_update().only("tokens").get(pk=file.pk)
        fresh.tokens[tokenizer] = count
        fresh.save(update_fields=["tokens"])
    file.tokens = fresh.tokens


def visible_file(user: User, pk: object) -> File:
    """Raises `NotFound`."""
    return get_or_404(File.objects.visible_to(user), pk, "file")


def _counted(file: File, tokenizer: str) -> int:
    if file.width is not None and file.height is not None:
        return tokens.image_tokens(file.width, file.height)
    text = FileText.objects.only("text").get(file=file).text
    return tokens.count(text, tokenizer)


def _require_owner(user: User, file: File) -> None:
    if file.owner_id != user.pk:
        raise NotFound("file")
