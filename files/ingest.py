"""A file becomes text, tokens and chunks. The row is the truth: who claims it reads it, a lost claim writes nothing."""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import F, Min, QuerySet
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext_noop
from redis.exceptions import RedisError

from accounts.webhooks.services import emit
from core.background import STALE_AFTER, UNCLAIMED_AFTER, claim, heartbeat, stale_rows
from core.errors import ProductError
from core.sentences import Sentence
from files import passwords, storage
from files.index import chunking
from files.index.chunks import chunks_of
from files.models import Chunk, File, FileText, RecognisedPage
from files.registry import page_reader
from files.undrawn import forget_failures
from llm import tokens
from llm.models import Model
from readers.api import Extracted, ReaderError, Recogniser, closed_names, closed_notice, read, with_opened
from workspace.models.settings import workspace_at

SLOTS = 4  # files that one process reads at the same time; each takes up to 1 GiB
SLOTS_OF_PERSON = 2  # of those, so that files that take long do not hold up other people; about one for each processor
MAX_READS = 2
# One file may have bytes that cannot be opened. When three cannot, the storage is away, and no other file is tried.
MAX_PUT_BACK = 3
RESERVED_OUTPUT, BUFFER = 1_024, 40  # tokens; the defaults of docs/develop/context.md, “The room”
READABLE = (File.Status.READY, File.Status.TOO_LONG)
INTERRUPTED = gettext_noop("Reading it was cut off twice. Try again; if that fails too, upload it in parts.")
LOST = gettext_noop("Its bytes are gone from the storage. Upload it again.")

# What says that the storage, or Redis with the passwords of files, is away: no fault of the file, and no reading of it.
AWAY = (storage.StorageUnavailable, RedisError)

logger = logging.getLogger(__name__)
_slots = threading.BoundedSemaphore(SLOTS)


class PersonSlots:
    """Which people the slots of this process read for. A person gets `SLOTS_OF_PERSON` of them."""

    def __init__(self) -> None:
        self._taken: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def take(self, person: UUID) -> bool:
        """Return whether this person has a slot more now; it is to be given back."""
        with self._lock:
            free = self._taken[person] < SLOTS_OF_PERSON
            if free:
                self._taken[person] += 1
            return free

    def give_back(self, person: UUID) -> None:
        with self._lock:
            self._taken -= Counter([person])  # which forgets people with none

    def full(self) -> list[UUID]:
        """Return the people who get no more slots."""
        with self._lock:
            return [person for person, count in self._taken.items() if count >= SLOTS_OF_PERSON]


_of_people = PersonSlots()


def read_waiting(file_id: UUID) -> Iterator[UUID]:
    """Reads this file, then others that wait, and yields those that now have text.

    When all slots of this process are taken, it leaves the file to whoever gets done first: a task that waited for a
    slot would keep a thread from answering people. It also leaves the file when its owner has as many slots as one
    person gets, and reads files of others.
    """
    if not _slots.acquire(blocking=False):
        return
    put_back: list[UUID] = []
    try:
        next_file = File.objects.filter(pk=file_id).first()
        while next_file and len(put_back) < MAX_PUT_BACK:
            if _of_people.take(next_file.owner_id):
                try:
                    file = _claim(next_file.pk)
                    if file and _read(file):
                        yield file.pk
                except AWAY as error:
                    logger.warning("file %s waits to be read: %s", next_file.pk, error)
                    put_back.append(next_file.pk)
                finally:
                    _of_people.give_back(next_file.owner_id)
            next_file = _next_waiting(put_back)
    finally:
        _slots.release()


def unread() -> list[UUID]:
    """Some of those that nobody is reading; a file whose reader died twice is marked failed."""
    dead = stale_rows(_at(File.Status.PROCESSING))
    _give_up(dead.filter(attempt__gte=MAX_READS))
    dead.update(status=File.Status.UPLOADED, heartbeat=Now() - STALE_AFTER)
    return _first(stale_rows(_at(File.Status.UPLOADED), UNCLAIMED_AFTER))


def unindexed() -> list[UUID]:
    """Some of those that have text and nobody is indexing."""
    return _first(stale_rows(_at(*READABLE).filter(attempt__lt=File.MAX_INDEXINGS)))


def claim_index(file_id: UUID) -> File | None:
    """The file, ours to index; None when it is indexed, or somebody else is at it."""
    free = _at(*READABLE).filter(attempt=0) | stale_rows(_at(*READABLE))
    return File.objects.get(pk=file_id) if claim(free, file_id, attempt=F("attempt") + 1) else None


def claimed(file: File) -> "QuerySet[File]":
    """The row, as long as it is ours."""
    return File.objects.filter(pk=file.pk, attempt=file.attempt)


def largest_input() -> int | None:
    """Tokens that the largest usable model takes; None without models."""
    windows = [model.window for model in Model.objects.usable()]
    return max(windows) - RESERVED_OUTPUT - BUFFER if windows else None


def _at(*statuses: File.Status) -> "QuerySet[File]":
    return File.objects.filter(searchable=False, status__in=statuses)  # in the words of the index `file_unfinished`


def _first(files: "QuerySet[File]") -> list[UUID]:
    return list(files.order_by("heartbeat").values_list("pk", flat=True)[:SLOTS])


def _claim(file_id: UUID) -> File | None:
    waiting = File.objects.filter(status=File.Status.UPLOADED)
    claimed = claim(waiting, file_id, status=File.Status.PROCESSING, attempt=F("attempt") + 1)
    if claimed:
        forget_failures(file_id)
    return File.objects.filter(pk=file_id).first() if claimed else None


def _next_waiting(put_back: Sequence[UUID]) -> File | None:
    """Return the file to read next, besides those that were `put_back`: the one that has waited longest, of the person
    with the fewest files being read, who has slots left.

    Many uploads of one person do not hold up those of another. A file that is put back waits behind all others.
    """
    busy = Counter(_at(File.Status.PROCESSING).values_list("owner", flat=True))
    waiting = _at(File.Status.UPLOADED).exclude(pk__in=put_back).exclude(owner__in=_of_people.full())
    owners = waiting.values_list("owner", flat=True).annotate(since=Min("heartbeat")).order_by("since")
    owner = min(owners, key=lambda owner: busy[owner], default=None)
    return waiting.filter(owner=owner).order_by("heartbeat", "created", "pk").first()


def _read(file: File) -> bool:
    """Whether the file has text now. What is not the file's fault is logged, and the sweeper tries again.

    Raises what is `AWAY`; the file is put back then.
    """
    try:
        with heartbeat(claimed(file)):
            return _outcome(file)
    except AWAY:
        _put_back(file)
        raise
    except Exception:
        logger.exception("file %s could not be read", file.pk)
        return False


def _outcome(file: File) -> bool:
    try:
        with storage.local_path(file) as path:
            key = passwords.take(file)
            progress = partial(_recognising, file)
            extracted = read(
                path, file.name, file.chosen_encoding, key, recogniser=_recogniser(file), progress=progress
            )
    except ReaderError as error:
        return _fail(file, error.code, error.sentence.template)
    except FileNotFoundError:
        return _fail(file, "lost", LOST)
    return _store(file, _with_opened(file, extracted))


def _with_opened(file: File, extracted: Extracted) -> Extracted:
    """With what another password has opened in it before."""
    before = FileText.objects.filter(file=file).first() if closed_names(extracted) else None
    return with_opened(extracted, before.text, before.spans) if before else extracted


def _recogniser(file: File) -> Recogniser:
    """The model that the workspace has chosen to read scans, while it can be used; else the machine's program alone."""
    chosen = workspace_at().page_reader_id
    model = Model.objects.usable().filter(pk=chosen, vision=True).first() if chosen else None
    if model is None:
        return Recogniser()
    return Recogniser(model.name, partial(_page_text, model, file.owner_id))


def _page_text(model: Model, owner: UUID, picture: bytes) -> str:
    """Return what the model reads on a page. Raises `scan_unread`."""
    try:
        return page_reader()(model, owner, picture)
    except ProductError as error:
        raise ReaderError("scan_unread") from error


def _recognising(file: File, number: int, count: int) -> None:
    """What is said of the file while pages of it are recognised, each of which takes seconds."""
    claimed(file).filter(status=File.Status.PROCESSING).update(
        error=Sentence("Recognising text: page {number} of {count}.", number=number, count=count).dump()
    )


def _put_back(file: File) -> None:
    """It waits for the sweeper, and this was none of the times that it may be read."""
    ours = claimed(file).filter(status=File.Status.PROCESSING)
    ours.update(status=File.Status.UPLOADED, attempt=F("attempt") - 1, heartbeat=Now())


@transaction.atomic
def _give_up(dead: "QuerySet[File]") -> None:
    for file in dead.select_for_update().order_by("pk"):
        _fail(file, "interrupted", INTERRUPTED)


@transaction.atomic
def _fail(file: File, code: str, sentence: str) -> bool:
    """Returns that there is nothing to index."""
    if _finish(file, status=File.Status.FAILED, error_code=code, error=sentence):
        _tell(file, "file.failed", File.Status.FAILED, code=code, detail=sentence)
    return False


def _finish(file: File, **fields: object) -> bool:
    """Writes what became of the file, unless it was claimed anew or deleted meanwhile."""
    ours = claimed(file).filter(status=File.Status.PROCESSING)
    return bool(ours.update(**{"attempt": 0, "heartbeat": None, **fields}))


def _store(file: File, extracted: Extracted) -> bool:
    """Text, chunks and state, all or nothing. Returns whether there is anything to index."""
    size = _tokens(extracted)
    limit = largest_input()
    status = File.Status.TOO_LONG if limit is not None and size > limit else File.Status.READY
    still_closed = closed_notice(extracted)
    chunks = chunks_of(file, extracted.media_type, extracted.text, extracted.spans)
    with transaction.atomic():
        done = _finish(
            file,
            status=status,
            media_type=extracted.media_type,
            tokens={tokens.CATCH_ALL: size},
            pages=len(extracted.spans),
            width=extracted.width,
            height=extracted.height,
            error_code=File.HOLDS_LOCKED if still_closed else "",
            error="\n".join(
                Sentence(note.template, **note.values).dump() for note in (*extracted.notes, still_closed) if note
            ),
            encoding=extracted.encoding,
            chunker=chunking.VERSION,
            heartbeat=Now() if chunks else None,  # without one, the sweeper has nothing to do here
        )
        if done:
            if extracted.shown:
                storage.store_shown(file.sha256, extracted.shown)
            FileText.objects.update_or_create(file=file, defaults={"text": extracted.text, "spans": extracted.spans})
            RecognisedPage.objects.filter(file=file).delete()
            RecognisedPage.objects.bulk_create(
                RecognisedPage(file=file, page=number + 1, places=places) for number, places in extracted.places.items()
            )
            Chunk.objects.filter(file=file).delete()
            Chunk.objects.bulk_create(chunks, batch_size=500)
            _tell(file, "file.ready", status)
    return done and bool(chunks)


def _tell(file: File, event: str, status: File.Status, **more: str) -> None:
    ids = {"file": str(file.pk), "status": str(status), **more}
    emit(owner_id=file.owner_id, event=event, ids=ids, paths={"url": reverse("file-detail", args=[file.pk])})


def _tokens(extracted: Extracted) -> int:
    if extracted.width is not None and extracted.height is not None:
        return tokens.image_tokens(extracted.width, extracted.height)
    return tokens.count(extracted.text)
