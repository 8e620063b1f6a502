"""Import the conversations of another product, or an export of Glasshouse.

1. `start_import` stores the upload and the row. A worker claims it (`run`).
2. `_import_export` reads the export in a confined process. It stores each conversation in a transaction of its own
   (`storing`, `own_conversations`), and the lists and files of an own export (`restoring`). The journal lists the rows
   that the import created.
3. `_import_export` deletes the upload at the end, and starts the count of tokens (`counting`).

If a worker is lost, the next one starts again, and recognises stored conversations by their source. A user can pause an
import; the worker stops at its next save. The upload of a failed or paused import is kept for `Import.KEPT_FOR`, so
that it can continue. `chat.conversations.import_undo` removes the rows that an import created.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_noop
from uuid_utils.compat import uuid7

from accounts.access.holds import require_free, without_holds
from accounts.access.rights import require
from accounts.models import Right, User
from accounts.realtime import News, notify
from chat.conversations.importing.confined import read_entries
from chat.conversations.importing.counting import COUNTING_JOBS
from chat.conversations.importing.journal import ImportJournal
from chat.conversations.importing.own_conversations import find_existing, store_own_conversation
from chat.conversations.importing.reading import UnusableConversation
from chat.conversations.importing.restoring import OwnLists
from chat.conversations.importing.results import ExportEntry, FilePiece, ImportResult, ListEntry, Outcome
from chat.conversations.importing.storing import ForeignRows
from chat.conversations.importing.stream import not_an_export_error
from chat.models import Conversation, Import, ImportedRow
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.jobs import JobKind
from core.permissions import Action, has_right
from core.requests import get_or_404
from core.sentences import Sentence
from files.services import require_storage, reserve_storage
from files.storage import storage_error, wait_for_storage

STALE_AFTER = timedelta(seconds=60)
MAX_TRIES = 3  # workers in a row that may be lost before one has stored a new row
SAVE_INTERVAL = 1.0  # seconds
UPLOAD_FOLDER = "imports"  # folder in the storage
UNFINISHED_UPLOAD_AGE = timedelta(days=1)

# An import renews its heartbeat when it saves its progress, so an import whose storage hangs is taken over, too.
IMPORTS = JobKind(
    model=Import,
    task="chat.tasks.import_conversations",
    waiting=Q(status=Import.Status.QUEUED),
    running=Q(status=Import.Status.RUNNING),
    resumable=Q(status=Import.Status.RUNNING),
    on_claim={"status": Import.Status.RUNNING, "imported": 0, "known": 0, "skipped": 0},
    stale_after=STALE_AFTER,
    tries_column="tries",
    max_tries=MAX_TRIES,
)

logger = logging.getLogger(__name__)


def start_import(*, user: User, name: str, content: "File[Any]") -> Import:
    """Store an upload and queue its import.

    Raises `right_missing` (403), `file_too_large` (413), `storage_full` (429), `storage_unavailable` (503), and
    `import_running` (429) while another import is under way.
    """
    require(user, Right.UPLOAD)
    if (content.size or 0) > settings.MAX_UPLOAD_BYTES:
        most = Sentence("{number} MB", number=round(settings.MAX_UPLOAD_BYTES / 1_000_000))
        detail = Sentence(
            "This is larger than {most}, the maximum for uploads. Upload only the file conversations.json.", most=most
        )
        raise ProductError("file_too_large", detail, status=413)
    pk = uuid7()
    size = content.size or 0
    require_storage(user, size)
    _require_no_other_import(user)
    with _convert_storage_errors():
        default_storage.exists(f"{UPLOAD_FOLDER}/{pk}")  # fails early if the storage does not answer
        blob = default_storage.save(f"{UPLOAD_FOLDER}/{pk}", content)
    try:
        return _create_import(user, pk, name, blob, size)
    except ProductError:
        _delete_upload(blob)
        raise


@transaction.atomic
def _create_import(user: User, pk: UUID, name: str, blob: str, size: int) -> Import:
    _lock_owner(user)
    reserve_storage(user, size)
    job = Import.objects.create(pk=pk, owner=user, name=name[:255] or "export", blob=blob, size=size)
    record(user=user, action="conversation.imported", row=job, changes={"bytes": size})
    IMPORTS.hand_over(job.pk)
    return job


@contextmanager
def _convert_storage_errors() -> Iterator[None]:
    try:
        with wait_for_storage():
            yield
    except OSError as error:
        raise storage_error(error) from error


def _lock_owner(owner: User) -> None:
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # concurrent requests run one after the other
    _require_no_other_import(owner)


def _require_no_other_import(owner: User) -> None:
    if Import.objects.visible_to(owner).live().exists():
        detail = Sentence("An import is under way. Wait until it has ended.")
        raise ProductError("import_running", detail, status=429, retry_after=30)


def retry_import(*, user: User, job: Import) -> None:
    """Continue a failed or paused import from its upload. Staff may continue imports of others.

    Raises `not_failed` and `upload_gone` (409), and `import_running` (429) while another import of its owner runs.
    """
    require_owner(user, job, "change")
    with transaction.atomic():
        _lock_owner(job.owner)
        failed = Import.objects.kept().filter(pk=job.pk)
        if not failed.update(
            status=Import.Status.QUEUED,
            tries=0,
            progress=0,
            heartbeat=timezone.now(),
            error_code="",
            error_detail="",
            finished=None,
        ):
            if Import.objects.filter(pk=job.pk, status__in=Import.RESUMABLE).exists():
                detail = Sentence("The upload was deleted. Upload the export again.")
                raise ProductError("upload_gone", detail, status=409)
            detail = Sentence("This import has not failed and is not paused, so it cannot be tried again.")
            raise ProductError("not_failed", detail, status=409)
        IMPORTS.hand_over(job.pk)
    job.refresh_from_db()


def pause_import(*, user: User, job: Import) -> None:
    """Pause an import. Its conversations stay, and `retry_import` continues it. Staff may pause imports of others.

    The worker stops within a second, or after its current conversation. Raises `NotFound` and `not_running` (409).
    """
    require_owner(user, job, "change")
    running = Import.objects.filter(pk=job.pk, status__in=Import.PAUSABLE)
    if not running.update(status=Import.Status.PAUSED, finished=timezone.now()):
        detail = Sentence("This import is not under way, so it cannot be paused.")
        raise ProductError("not_running", detail, status=409)
    job.refresh_from_db()
    notify(job.owner_id, News.CONVERSATIONS)


def remove_import(*, user: User, job: Import) -> None:
    """Remove an import with its upload. Its conversations stay. Staff may remove the imports of others.

    Raises `import_under_way` (409) if the import has not ended, and `legal_hold` (409).
    """
    require_owner(user, job, "delete")
    with transaction.atomic():
        row = Import.objects.select_for_update().filter(pk=job.pk).first()
        if row is None:
            return
        if row.live:
            detail = Sentence("This import is under way. Remove it after it has ended.")
            raise ProductError("import_under_way", detail, status=409)
        require_free(row)
        row.delete()
        if row.blob:
            transaction.on_commit(partial(_delete_upload, str(row.blob)))


def _delete_upload(blob: str) -> None:
    """Delete the bytes. If the storage is unavailable, `sweep_uploads` deletes them later."""
    try:
        with _convert_storage_errors():
            default_storage.delete(blob)
    except ProductError as error:
        logger.warning("an upload is deleted later: %s", error.code)


def require_owner(user: User, job: Import, right: Action) -> None:
    """Raise `NotFound` unless the import is the user's, or the user has this right as staff."""
    if job.owner_id != user.pk and not has_right(user, right, job):
        raise NotFound("import")


def sweep_uploads() -> None:
    """Delete the uploads of imports that failed or were paused too long ago, and uploads without a row.

    The uploads of a deleted user have no row.
    """
    now = timezone.now()
    without_holds(Import.objects.kept()).filter(finished__lt=now - Import.KEPT_FOR).update(blob="", size=0)
    try:
        stored = {f"{UPLOAD_FOLDER}/{name}" for name in default_storage.listdir(UPLOAD_FOLDER)[1]}
    except FileNotFoundError:
        return
    for blob in stored - set(Import.objects.filter(blob__in=stored).values_list("blob", flat=True)):
        with suppress(FileNotFoundError):
            if (
                default_storage.get_modified_time(blob) < now - UNFINISHED_UPLOAD_AGE
            ):  # a newer upload may still get its row
                default_storage.delete(blob)


def visible_import(user: User, pk: UUID) -> Import:
    """Return an import of the user. Raises `NotFound`."""
    return get_or_404(Import.objects.visible_to(user), pk, "import")


def run(pk: UUID) -> None:
    """Claim an import and carry it out. The row stores the result or the error."""
    job = IMPORTS.claim(pk, "owner")
    if job is None:
        return
    try:
        _import_export(job)
    except ProductError as error:
        _fail(job, error.code, error.sentence)
    except OSError:
        logger.exception("import %s cannot be read", pk)
        detail = Sentence("The uploaded file could not be read from the storage. Try again, or upload it again.")
        _fail(job, "upload_lost", detail)


def give_up(job: Import) -> None:
    """End an import that keeps losing its worker."""
    detail = Sentence("Reading this export ended the worker several times. Upload it in smaller parts.")
    _fail(job, "import_gave_up", detail)


def _import_export(job: Import) -> None:
    saved = time.monotonic()
    results: list[ImportResult] = []
    recognised = False
    journal = ImportJournal(job)
    lists = OwnLists(job.owner, journal)
    foreign = ForeignRows(job.owner, journal)
    with default_storage.open(job.blob) as upload:
        for entry, percent in read_entries(upload, job.name):
            match entry:
                case ExportEntry():
                    recognised |= entry.recognised
                    result = _import_conversation(entry, lists, foreign, journal)
                    results.append(result)
                    _count_outcome(job, result)
                case ListEntry():
                    recognised = True
                    results += lists.take_list(entry)
                case FilePiece():
                    lists.take_piece(entry)
            job.progress = percent
            # The first new row is progress, so that an import of any length survives any number of lost workers.
            is_first_progress = bool(job.tries and journal.added)
            if is_first_progress or time.monotonic() - saved > SAVE_INTERVAL:
                saved = time.monotonic()
                job.tries = 0 if journal.added else job.tries
                if not _save(job, heartbeat=Now(), tries=job.tries):
                    return  # the claim is lost
    if results and not recognised:
        raise not_an_export_error()
    if _save(
        job,
        status=Import.Status.DONE,
        finished=timezone.now(),
        progress=100,
        results=results,
        counting=True,
        heartbeat=Now(),
        blob="",
        size=0,
    ):
        default_storage.delete(job.blob)
        COUNTING_JOBS.hand_over(job.pk)


def _count_outcome(job: Import, result: ImportResult) -> None:
    match result["outcome"]:
        case "imported":
            job.imported += 1
        case "known":
            job.known += 1
        case "skipped":
            job.skipped += 1


def _import_conversation(
    entry: ExportEntry, lists: OwnLists, foreign: ForeignRows, journal: ImportJournal
) -> ImportResult:
    """Import one conversation, in a transaction of its own."""
    result: ImportResult = {"title": entry.title, "outcome": "skipped", "why": entry.why, "conversation": None}
    try:
        if entry.own is not None:
            if (existing := find_existing(lists, entry.own)) is not None:
                return existing_result(existing, journal)
            with transaction.atomic():
                stored, losses = store_own_conversation(lists, entry.own)
                journal.add(ImportedRow.Kind.CONVERSATION, stored.pk, losses)
        elif entry.foreign is not None:
            if (existing := foreign.existing(entry.foreign)) is not None:
                return existing_result(existing, journal)
            stored, losses = foreign.store(entry.foreign)
        else:
            return result
    except UnusableConversation as error:
        return {**result, "why": error.sentence.dump()}
    except IntegrityError:  # two imports of the same export at once
        return {**result, "outcome": "known", "why": gettext_noop("It is being imported already.")}
    except DatabaseError:
        logger.exception("import %s: a conversation could not be stored", journal.job.pk)
        return {**result, "why": gettext_noop("It could not be stored.")}
    return {
        "title": stored.title, "outcome": "imported", "why": losses.dump(), "conversation": str(stored.pk)
    }  # fmt: skip


def existing_result(conversation: Conversation, journal: ImportJournal) -> ImportResult:
    """Return the result for a conversation that is already stored, and restore it if it was deleted.

    If this import created it before an interruption, the result is the same as without the interruption.
    """
    why = gettext_noop("It was imported before.")
    outcome: Outcome = "known"
    if (own := journal.conversation(conversation.pk)) is not None:
        why = own.why.dump()
        outcome = "imported"
    if conversation.deleted is not None:
        with transaction.atomic():
            Conversation.objects.filter(pk=conversation.pk).update(deleted=None)
            why = gettext_noop("It was imported before and deleted. It is restored now.")
            journal.add(ImportedRow.Kind.CONVERSATION, conversation.pk, Sentence(why))
        outcome = "imported"
    return {"title": conversation.title, "outcome": outcome, "why": why, "conversation": str(conversation.pk)}


def _fail(job: Import, code: str, detail: Sentence) -> None:
    _save(job, status=Import.Status.FAILED, finished=timezone.now(), error_code=code, error_detail=detail)


def _save(job: Import, **fields: Any) -> bool:
    """Store the progress of an import and other columns. Return False if the claim is lost."""
    progress = {"progress": job.progress, "imported": job.imported, "known": job.known, "skipped": job.skipped}
    saved = IMPORTS.claimed(job).update(**{**progress, **fields})
    notify(job.owner_id, News.CONVERSATIONS)  # not for each conversation, since an export may have thousands
    return bool(saved)
