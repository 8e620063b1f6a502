"""Store and read the files of a request, before its turn begins."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from django.core.files.base import ContentFile

from accounts.access.holds import without_holds
from accounts.models import User
from chat.models import Conversation, Turn
from chat.openai_api.errors import invalid_request
from chat.openai_api.request import FileReference, RequestFile, SentFile
from chat.openai_api.uploads import find_file
from chat.realtime.event_stream import threaded
from core.background import run_to_completion
from core.errors import ProductError
from files import services
from files.models import File

READING_TIMEOUT = 60.0  # seconds in which the files of a request must be read
READING_INTERVAL = 0.05  # seconds between two queries for their status
MAX_CANDIDATES = 10  # earlier files with the same content and name that are looked at


@asynccontextmanager
async def request_files(user: User, sent: Sequence[RequestFile]) -> AsyncIterator[list[File]]:
    """Yield a file that has been read for each file of a request, in the same order.

    Files that are stored for the request are deleted at the end of the block, unless it has attached them to a message.
    Raises `file_not_found` (404), `invalid_image` and `invalid_file` (400), and `files_not_ready` (503) if they are not
    read within `READING_TIMEOUT`.
    """
    if not sent:
        yield []
        return
    stored: list[UUID] = []
    try:
        yield await _read_files(await threaded(_store_files)(user, sent, stored), sent)
    finally:
        if stored:
            await run_to_completion(threaded(_delete_unattached)(user, stored))


async def _read_files(files: list[File], sent: Sequence[RequestFile]) -> list[File]:
    """Return the files when they have been read."""
    try:
        async with asyncio.timeout(READING_TIMEOUT):
            while any(file.unread for file in files):
                await asyncio.sleep(READING_INTERVAL)
                files = await threaded(_reload)(files)
    except TimeoutError as error:
        sentence = "The files could not be read in time. Upload them with POST /v1/files, and name them by their ids."
        raise ProductError("files_not_ready", sentence, status=503) from error
    for file, each in zip(files, sent, strict=True):
        if file.status == File.Status.FAILED or (each.shown and not file.is_image):
            what = "an image that models can be shown" if each.shown else "a file that can be read"
            sentence = f"This is not {what}. {file.problem.english}".strip()
            raise invalid_request(each.where, sentence, "invalid_image" if each.shown else "invalid_file")
    return files


def _store_files(user: User, sent: Sequence[RequestFile], stored: list[UUID]) -> list[File]:
    """Return a row for each file. Content that an earlier request sent is not stored twice.

    Programs repeat the files of a conversation in every request. The ids of new rows are added to `stored`.
    """
    rows: dict[tuple[str, str], File] = {}
    for each in sent:
        key = _key(each)
        if key in rows:
            continue
        if isinstance(each, FileReference):
            rows[key] = find_file(user, each.id, each.where)
        elif (earlier := _find_sent_before(user, each)) is not None:
            rows[key] = earlier
        else:
            content = ContentFile(each.data)
            rows[key] = services.upload(user=user, name=each.name, content=content, with_conversation=True)
            if not rows[key].repeated:  # otherwise the user has it already
                stored.append(rows[key].pk)
    return [rows[_key(each)] for each in sent]


def _delete_unattached(user: User, stored: Sequence[UUID]) -> None:
    """Delete the files that no message has. A file on legal hold stays."""
    for file in without_holds(
        File.objects.owned_by(user).filter(pk__in=stored, attachments=None, project_entries=None)
    ):
        services.delete(user=user, file=file)


def _key(file: RequestFile) -> tuple[str, str]:
    return ("", file.id) if isinstance(file, FileReference) else (file.digest, file.name)


def _find_sent_before(user: User, sent: SentFile) -> File | None:
    """Return the file with the same content and name from an earlier request, if any.

    It is deleted together with the requests that use it.
    """
    name = services.clean_name(sent.name)
    rows = File.objects.owned_by(user).filter(
        attachments__message__conversation__origin=Conversation.Origin.API,
        sha256=sent.digest,
        name=name,
        status=File.Status.READY,
    )
    if not sent.filename:
        return rows.first()
    for row in rows.distinct()[:MAX_CANDIDATES]:
        turns = Turn.objects.filter(conversation__messages__attachments__file=row)
        if turns.filter(options__sent_files__contains=[str(row.pk)]).exists():
            return row
    return None


def _reload(files: Iterable[File]) -> list[File]:
    """Return the files as they are stored now. A deleted file counts as failed."""
    rows = File.objects.in_bulk([file.pk for file in files])
    return [rows[file.pk] if file.pk in rows else _mark_as_deleted(file) for file in files]


def _mark_as_deleted(file: File) -> File:
    file.status = File.Status.FAILED
    return file
