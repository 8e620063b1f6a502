"""Bringing along what was written in another product: the upload is stored, and a worker does the rest.

What a dead worker left is begun anew by the next: nothing comes twice. The upload of an import that failed is kept for
a while, to be tried again.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
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

from accounts.access.holds import free, require_free
from accounts.access.rights import require
from accounts.models import May, User
from accounts.realtime import News, tell
from chat.conversations.importing.confined import Entry, entries
from chat.conversations.importing.counting import COUNTS
from chat.conversations.importing.reading import MAX_TITLE, Foreign, Said
from chat.conversations.importing.stream import not_an_export
from chat.models import Attachment, Conversation, Import, Message
from chat.models.words import title_from
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.jobs import JobKind
from core.lines import first_line
from core.permissions import Action, has_right
from core.requests import get_or_404
from core.sentences import Sentence
from files.services import require_storage, reserve_storage
from files.storage import unavailable, waiting

STALE_AFTER = timedelta(seconds=60)
MAX_ATTEMPTS = 3
SAVE_EVERY = 1.0  # seconds
STEP = timedelta(milliseconds=1)
AT_ONCE = 500  # rows
FIRST = datetime(1990, 1, 1, tzinfo=UTC)
PLACE = "imports"  # in the storage
UNFINISHED = timedelta(days=1)

# An import renews its heartbeat when it saves its progress, so one whose storage hangs is taken over, too.
IMPORTS = JobKind(
    model=Import,
    task="chat.tasks.import_conversations",
    waiting=Q(status=Import.Status.QUEUED),
    running=Q(status=Import.Status.RUNNING),
    resumable=Q(status=Import.Status.RUNNING),
    on_claim={"status": Import.Status.RUNNING, "imported": 0, "known": 0, "skipped": 0},
    stale_after=STALE_AFTER,
    max_tries=MAX_ATTEMPTS,
)

logger = logging.getLogger(__name__)


def start_import(*, user: User, name: str, content: "File[Any]") -> Import:
    """Raises `right_missing` (403), `file_too_large` (413), `storage_full` (429), `storage_unavailable` (503), and
    `import_running` (429) while one is under way."""
    require(user, May.UPLOAD)
    if (content.size or 0) > settings.MAX_UPLOAD_BYTES:
        most = Sentence("{number} MB", number=round(settings.MAX_UPLOAD_BYTES / 1_000_000))
        detail = Sentence(
            "This is larger than {most}, the most that can be uploaded. Upload the conversations.json alone.", most=most
        )
        raise ProductError("file_too_large", detail, status=413)
    pk, size = uuid7(), content.size or 0
    require_storage(user, size)
    _require_none_live(user)
    with _storing():
        default_storage.exists(f"{PLACE}/{pk}")  # tells soon where it does not answer
        blob = default_storage.save(f"{PLACE}/{pk}", content)
    try:
        return _create(user, pk, name, blob, size)
    except ProductError:
        _delete_upload(blob)
        raise


@transaction.atomic
def _create(user: User, pk: UUID, name: str, blob: str, size: int) -> Import:
    _require_turn(user)
    reserve_storage(user, size)
    job = Import.objects.create(pk=pk, owner=user, name=name[:255] or "export", blob=blob, size=size)
    record(user=user, action="conversation.imported", row=job, changes={"bytes": size})
    IMPORTS.hand_over(job.pk)
    return job


@contextmanager
def _storing() -> Iterator[None]:
    try:
        with waiting():
            yield
    except OSError as error:
        raise unavailable(error) from error


def _require_turn(owner: User) -> None:
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # two at once come one after the other
    _require_none_live(owner)


def _require_none_live(owner: User) -> None:
    if Import.objects.visible_to(owner).live().exists():
        detail = Sentence("An import is under way. Wait until it is done.")
        raise ProductError("import_running", detail, status=429, retry_after=30)


def retry_import(*, user: User, job: Import) -> None:
    """Imports what is kept of a failed import again. Staff may do so for others.

    Raises `not_failed` and `upload_gone` (409), and `import_running` (429) while another of its owner is under way.
    """
    _require_owner(user, job, "change")
    with transaction.atomic():
        _require_turn(job.owner)
        waiting = {"status": Import.Status.QUEUED, "attempt": 0, "progress": 0, "heartbeat": timezone.now()}
        again = Import.objects.kept().filter(pk=job.pk)
        if not again.update(**waiting, error_code="", error_detail="", finished=None):
            if Import.objects.filter(pk=job.pk, status=Import.Status.FAILED).exists():
                detail = Sentence("The upload is no longer kept. Upload the export again.")
                raise ProductError("upload_gone", detail, status=409)
            detail = Sentence("This import has not failed, so there is nothing to try again.")
            raise ProductError("not_failed", detail, status=409)
        IMPORTS.hand_over(job.pk)
    job.refresh_from_db()


def remove_import(*, user: User, job: Import) -> None:
    """With its upload; the conversations that it brought stay. Staff may remove others'.

    Raises `import_under_way` (409) for one that has not ended, and `legal_hold` (409).
    """
    _require_owner(user, job, "delete")
    with transaction.atomic():
        found = Import.objects.select_for_update().filter(pk=job.pk).first()
        if found is None:
            return
        if found.live:
            detail = Sentence("This import is under way. Remove it when it is done.")
            raise ProductError("import_under_way", detail, status=409)
        require_free(found)
        found.delete()
        if found.blob:
            transaction.on_commit(partial(_delete_upload, str(found.blob)))


def _delete_upload(blob: str) -> None:
    """Delete the bytes; where the storage is away, `sweep_uploads` does it later."""
    try:
        with _storing():
            default_storage.delete(blob)
    except ProductError as error:
        logger.warning("an upload is deleted later: %s", error.code)


def _require_owner(user: User, job: Import, right: Action) -> None:
    if job.owner_id != user.pk and not has_right(user, right, job):
        raise NotFound("import")


def sweep_uploads() -> None:
    """Delete uploads whose import failed too long ago, and those that no row names, as of people who were deleted."""
    now = timezone.now()
    free(Import.objects.kept()).filter(finished__lt=now - Import.KEPT_FOR).update(blob="", size=0)
    try:
        there = {f"{PLACE}/{name}" for name in default_storage.listdir(PLACE)[1]}
    except FileNotFoundError:
        return
    for blob in there - set(Import.objects.filter(blob__in=there).values_list("blob", flat=True)):
        with suppress(FileNotFoundError):
            if default_storage.get_modified_time(blob) < now - UNFINISHED:  # a younger one may be about to have its row
                default_storage.delete(blob)


def visible_import(user: User, pk: UUID) -> Import:
    """Raises `NotFound`."""
    return get_or_404(Import.objects.visible_to(user), pk, "import")


def run(pk: UUID) -> None:
    """Claim an import and carry it out. Its end, good or bad, is stored in the row."""
    job = IMPORTS.claim(pk, "owner")
    if job is None:
        return
    try:
        _import(job)
    except ProductError as error:
        _end(job, status=Import.Status.FAILED, error_code=error.code, error_detail=error.sentence)
    except OSError:
        logger.exception("import %s cannot be read", pk)
        detail = Sentence("The uploaded file could not be read from the storage. Try again, or upload it again.")
        _end(job, status=Import.Status.FAILED, error_code="upload_lost", error_detail=detail)


def give_up(job: Import) -> None:
    """End an import that keeps losing its worker."""
    detail = Sentence("Reading this export ended the worker several times. Upload it in smaller parts.")
    _end(job, status=Import.Status.FAILED, error_code="import_gave_up", error_detail=detail)


def _import(job: Import) -> None:
    saved = time.monotonic()
    results, recognised = [], False
    with default_storage.open(job.blob) as upload:
        for entry, percent in entries(upload):
            if entry is not None:
                recognised |= entry.known
                result = _one(job, entry)
                results.append(result)
                setattr(job, result["outcome"], getattr(job, result["outcome"]) + 1)
            job.progress = percent
            if time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                if not _save(job, heartbeat=Now()):
                    return  # somebody else has taken it over
    if results and not recognised:
        raise not_an_export()
    _end(job, status=Import.Status.DONE, progress=100, results=results, counting=True, heartbeat=Now())


def _one(job: Import, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {"title": entry.title, "outcome": "skipped", "why": entry.why, "conversation": None}
    foreign = entry.foreign
    if foreign is None:
        return result
    try:
        there = Conversation.objects.filter(owner=job.owner, imported_from=foreign.source).first()
        if there is not None:
            return {**result, **_known(there)}
        made = store(job.owner, foreign)
    except IntegrityError:  # two imports of the same export at once
        return {**result, "outcome": "known", "why": gettext_noop("It is being imported already.")}
    except DatabaseError:
        logger.exception("import %s: a conversation could not be stored", job.pk)
        return {**result, "why": gettext_noop("It could not be stored.")}
    return {**result, "title": made.title, "outcome": "imported", "conversation": str(made.pk)}


def _known(there: Conversation) -> dict[str, Any]:
    found = {"title": there.title, "conversation": str(there.pk)}
    if there.deleted is None:
        return {**found, "outcome": "known", "why": gettext_noop("It was imported before.")}
    Conversation.objects.filter(pk=there.pk).update(deleted=None)
    return {**found, "outcome": "imported", "why": gettext_noop("It was imported before and deleted; now it is back.")}


def _end(job: Import, **fields: Any) -> None:
    done = fields["status"] == Import.Status.DONE
    if _save(job, finished=timezone.now(), **fields, **({"blob": "", "size": 0} if done else {})) and done:
        default_storage.delete(job.blob)
        COUNTS.hand_over(job.pk)


def _save(job: Import, **fields: Any) -> bool:
    """False when another worker has claimed the import, which was silent for too long."""
    counts = {name: getattr(job, name) for name in ("imported", "known", "skipped")}
    saved = IMPORTS.claimed(job).update(**{"progress": job.progress, **counts, **fields})
    tell(job.owner_id, News.CONVERSATIONS)  # here, not at each conversation: there are thousands
    return bool(saved)


@transaction.atomic
def store(owner: User, foreign: Foreign) -> Conversation:
    """Times are those of the export, and ids are made of them, so lists and branches keep their order."""
    now = timezone.now()
    created = _past(foreign.created, now)
    title = first_line(foreign.title, MAX_TITLE)[:MAX_TITLE] or title_from(foreign.messages[0].text)
    conversation = Conversation.objects.create(
        owner=owner, title=title, titled=True, archived=foreign.archived, imported_from=foreign.source
    )
    times = _times(foreign.messages, created, now)
    made = _messages(conversation, foreign.messages, times)
    Message.objects.bulk_create(made.values(), AT_ONCE)
    for key, message in made.items():
        message.created = times[key]  # the insert sets it to its own moment
    Message.objects.bulk_update(made.values(), ["created"], AT_ONCE)
    _attach(made, foreign.messages)
    leaf = made.get(foreign.leaf or "") or max(made.values(), key=lambda each: each.pk)
    updated = _past(foreign.updated or max(times.values()), now)
    Conversation.objects.filter(pk=conversation.pk).update(leaf=leaf, created=created, updated=updated)
    return conversation


def _times(said: list[Said], created: datetime, now: datetime) -> dict[str, datetime]:
    """Each after the message above it, whatever the export says."""
    times: dict[str, datetime] = {}
    for each in said:
        earliest = times[each.parent] + STEP if each.parent else created
        times[each.id] = max(earliest, _past(each.created or earliest, now))
    return times


def _messages(conversation: Conversation, said: list[Said], times: dict[str, datetime]) -> dict[str, Message]:
    made: dict[str, Message] = {}
    for each in said:
        parent = made[each.parent] if each.parent else None
        made[each.id] = Message(
            id=_id(times[each.id]),
            conversation=conversation,
            owner_id=conversation.owner_id,
            parent=parent,
            depth=parent.depth + 1 if parent else 0,
            role=Message.Role.USER if each.question else Message.Role.ASSISTANT,
            parts=[{"type": "text", "text": each.text}] if each.text else [],
        )
    return made


def _id(moment: datetime) -> UUID:
    return uuid7(nanoseconds=int(moment.timestamp() * 1_000_000_000))


def _past(moment: datetime | None, now: datetime) -> datetime:
    return min(max(moment, FIRST), now) if moment else now


def _attach(made: dict[str, Message], said: list[Said]) -> None:
    Attachment.objects.bulk_create(
        (
            Attachment(message=made[each.id], file=None, name=name, ordinal=number)
            for each in said
            for number, name in enumerate(each.files)
        ),
        AT_ONCE,
    )
