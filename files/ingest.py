"""Read a file: turn its bytes into text, tokens and chunks.

1. `read_waiting` claims the file as a job (`READS`), then other waiting files. It needs a slot of this process.
2. `_read_and_store` has `readers` read the bytes in a confined process; a model may read scanned pages.
3. A recording is not read: the workspace's speech server transcribes it, if there is one.
4. `_store` writes text, chunks and status in one transaction, unless the claim is lost.
5. `index_waiting` indexes each file that has chunks (`INDEXINGS`). It needs a slot of this process, too.
6. If a reader is lost, the sweeper lets its file wait again. After `MAX_READS` lost readers, the file fails.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import UUID

from django.db import transaction
from django.db.models import F, Min, Q, QuerySet
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.translation import gettext_noop
from redis.exceptions import RedisError

from accounts.webhooks.services import emit
from core.background import STALE_AFTER
from core.errors import ProductError
from core.jobs import NO_ROWS, JobKind
from core.sentences import Sentence
from files import passwords, storage
from files.index import chunking
from files.index.chunks import build_chunks
from files.index.indexing import index_chunks
from files.models import Chunk, File, FileText, RecognisedPage, SpeechServer
from files.registry import page_reader
from files.speech.recordings import read_recording, sound_of
from files.speech.services import active_server
from files.undrawn import forget_failures
from llm import tokens
from llm.models import Model
from readers.api import Extracted, ReaderError, Recogniser, closed_names, closed_notice, read, with_opened
from workspace.models.settings import workspace_at

SLOTS = 4  # files that one process reads at the same time; each takes up to 1 GiB
# Files that one process indexes at the same time; each is in memory with all its chunks. Indexing holds Python's lock
# most of the time, so more slots take more memory and hardly less time.
INDEXING_SLOTS = 2
# Recordings that one process has transcribed at the same time. Each may take minutes, so they do not get all slots.
SOUND_SLOTS = 2
SLOTS_PER_PERSON = 2  # slots for one person, so that slow files do not hold up other people; about one per processor
MAX_READS = 2
# One file may have bytes that cannot be opened. After this many such files, the storage counts as unavailable.
MAX_PUT_BACK = 3
# In tokens; the defaults in docs/develop/context.md, “The room”.
RESERVED_OUTPUT = 1_024
BUFFER = 40
READABLE = (File.Status.READY, File.Status.TOO_LONG)
INTERRUPTED = gettext_noop("Reading it was interrupted twice. Try again; if that fails too, upload it in parts.")
BYTES_LOST = gettext_noop("The storage has lost its content. Upload it again.")


class NoSoundSlot(Exception):
    """All slots for recordings are in use. The file waits for one of them."""


# The storage, Redis with the passwords of files, or a slot is not available. That does not count as an attempt on the
# file.
UNAVAILABLE_ERRORS = (storage.StorageUnavailable, RedisError, NoSoundSlot)

READS = JobKind(
    model=File,
    task="files.tasks.read_file",
    waiting=Q(status=File.Status.UPLOADED),
    running=Q(status=File.Status.PROCESSING),
    resumable=NO_ROWS,  # a file whose reader was lost waits in its owner's line again, see `requeue_lost`
    on_claim={"status": File.Status.PROCESSING},
    max_tries=MAX_READS,
    swept=Q(searchable=False),  # the index `file_unfinished`
    batch=SLOTS,
)
INDEXINGS = JobKind(
    model=File,
    task="files.tasks.index_file",
    waiting=Q(status__in=READABLE, searchable=False, attempt=0),
    running=Q(status__in=READABLE, searchable=False),
    resumable=Q(status__in=READABLE, searchable=False),
    unclaimed_after=STALE_AFTER,
    max_tries=File.MAX_INDEXINGS,
    batch=SLOTS,
)

logger = logging.getLogger(__name__)
_slots = threading.BoundedSemaphore(SLOTS)
_sound_slots = threading.BoundedSemaphore(SOUND_SLOTS)
_indexing_slots = threading.BoundedSemaphore(INDEXING_SLOTS)


class PersonSlots:
    """Slots of this process by person. A person gets at most `SLOTS_PER_PERSON` slots."""

    def __init__(self) -> None:
        self._taken: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def take(self, person: UUID) -> bool:
        """Take a slot for this person. Returns False if the person has none left. The caller gives the slot back."""
        with self._lock:
            free = self._taken[person] < SLOTS_PER_PERSON
            if free:
                self._taken[person] += 1
            return free

    def release_slot(self, person: UUID) -> None:
        with self._lock:
            self._taken -= Counter([person])  # this removes people at zero

    def full(self) -> list[UUID]:
        """Return the people without a slot left."""
        with self._lock:
            return [person for person, count in self._taken.items() if count >= SLOTS_PER_PERSON]


_person_slots = PersonSlots()


def read_waiting(file_id: UUID) -> Iterator[UUID]:
    """Read this file, then other waiting files. Yield the ids of the files that now have text.

    If all slots of this process are in use, it reads nothing, since a task that waits for a slot would hold a thread. A
    running call then reads the file later. If the file's owner has no slot left, it reads files of other people.
    """
    if not _slots.acquire(blocking=False):
        return
    put_back: list[UUID] = []
    try:
        next_file = File.objects.filter(pk=file_id).first()
        while next_file and len(put_back) < MAX_PUT_BACK:
            if _person_slots.take(next_file.owner_id):
                try:
                    file = READS.claim(next_file.pk)
                    if file and _read(file):
                        yield file.pk
                except UNAVAILABLE_ERRORS as error:
                    logger.warning("reading of file %s was postponed: %s", next_file.pk, error)
                    put_back.append(next_file.pk)
                finally:
                    _person_slots.release_slot(next_file.owner_id)
            next_file = _next_waiting(put_back)
    finally:
        _slots.release()


def index_waiting(file_id: UUID) -> None:
    """Index this file, then other files that wait to be indexed.

    If all slots of this process are in use, it indexes nothing, as `read_waiting` does.
    """
    next_id: UUID | None = file_id
    while next_id is not None and _indexing_slots.acquire(blocking=False):
        try:
            while next_id is not None:
                _index(next_id)
                next_id = _next_to_index()
        finally:
            _indexing_slots.release()
        next_id = _next_to_index()  # the task of a file that was stored just now may have met no free slot


def give_up_reading(file: File) -> None:
    """Fail a file that has lost `MAX_READS` readers."""
    _fail(file, "interrupted", INTERRUPTED)


def requeue_lost(lost: "QuerySet[File]") -> None:
    """Put files whose reader was lost back into the queue of their owner."""
    lost.update(status=File.Status.UPLOADED, heartbeat=Now() - STALE_AFTER)


def largest_input() -> int | None:
    """Return the tokens that fit into the largest usable model; None without models."""
    windows = [model.window for model in Model.objects.usable()]
    return max(windows) - RESERVED_OUTPUT - BUFFER if windows else None


def _next_waiting(put_back: Sequence[UUID]) -> File | None:
    """Return the file to read next: the oldest one of the person with slots left and the fewest files being read.

    So many uploads of one person do not hold up another person. A file that was put back waits behind all others. Files
    in `put_back` are not tried again now.
    """
    busy = Counter(File.objects.filter(READS.swept & READS.running).values_list("owner", flat=True))
    waiting = File.objects.filter(READS.swept & READS.waiting).exclude(pk__in=put_back)
    waiting = waiting.exclude(owner__in=_person_slots.full())
    owners = waiting.values_list("owner", flat=True).annotate(since=Min("heartbeat")).order_by("since")
    owner = min(owners, key=lambda owner: busy[owner], default=None)
    return waiting.filter(owner=owner).order_by("heartbeat", "created", "pk").first()


def _next_to_index() -> UUID | None:
    """Return the file that has waited longest to be indexed. A file without chunks has no heartbeat."""
    waiting = File.objects.filter(INDEXINGS.waiting, heartbeat__isnull=False).order_by("heartbeat", "pk")
    return waiting.values_list("pk", flat=True).first()


def _index(pk: UUID) -> None:
    """Claim a file and index it. Errors are logged, and the sweeper tries again."""
    file = INDEXINGS.claim(pk)
    if file is None:
        return
    try:
        with INDEXINGS.alive(file), suppress(File.DoesNotExist):  # the file may be deleted meanwhile
            index_chunks(file)
    except Exception:
        logger.exception("file %s could not be indexed", pk)


def _read(file: File) -> bool:
    """Read a claimed file. Returns whether it has text now.

    Raises an error of `UNAVAILABLE_ERRORS`, after it has put the file back. Other errors are logged, and the sweeper
    tries again.
    """
    try:
        forget_failures(file.pk)
        with READS.alive(file):
            return _read_and_store(file)
    except UNAVAILABLE_ERRORS:
        _put_back(file)
        raise
    except Exception:
        logger.exception("file %s could not be read", file.pk)
        return False


def _read_and_store(file: File) -> bool:
    try:
        with storage.local_path(file) as path:
            server = active_server(SpeechServer.Kind.TRANSCRIPTION)
            if server is not None and (sound := sound_of(path, file.name)):
                return _transcribe_and_store(file, server, path, sound)
            key = passwords.take(file)
            progress = partial(_store_progress, file)
            extracted = read(
                path, file.name, file.chosen_encoding, key, recogniser=_choose_recogniser(file), progress=progress
            )
    except ReaderError as error:
        return _fail(file, error.code, error.sentence.template)
    except FileNotFoundError:
        return _fail(file, "lost", BYTES_LOST)
    return _store(file, _keep_opened_members(file, extracted))


def _transcribe_and_store(file: File, server: SpeechServer, path: Path, media_type: str) -> bool:
    if not _sound_slots.acquire(blocking=False):
        raise NoSoundSlot
    try:
        recording = read_recording(server, path, media_type, file.owner_id)
    except ProductError as error:
        return _fail(file, error.code, error.sentence)
    finally:
        _sound_slots.release()
    return _store(file, recording.extracted, recording.notes)


def _keep_opened_members(file: File, extracted: Extracted) -> Extracted:
    """Return the extracted text together with the members that an earlier password has opened."""
    earlier = FileText.objects.filter(file=file).first() if closed_names(extracted) else None
    return with_opened(extracted, earlier.text, earlier.spans) if earlier else extracted


def _choose_recogniser(file: File) -> Recogniser:
    """Return a recogniser with the workspace's model for scans if it is usable, else with Tesseract alone."""
    reader_id = workspace_at().page_reader_id
    model = Model.objects.usable().filter(pk=reader_id, vision=True).first() if reader_id else None
    if model is None:
        return Recogniser()
    return Recogniser(model.name, partial(_recognise_page, model, file.owner_id))


def _recognise_page(model: Model, owner: UUID, picture: bytes) -> str:
    """Return the text of a page as the model reads it. Raises `scan_unread`."""
    try:
        return page_reader()(model, owner, picture)
    except ProductError as error:
        raise ReaderError("scan_unread") from error


def _store_progress(file: File, number: int, count: int) -> None:
    """Store which page is being recognised, as progress for the user: each page takes seconds."""
    READS.claimed(file).update(
        error=Sentence("Recognising text: page {number} of {count}.", number=number, count=count).dump()
    )


def _put_back(file: File) -> None:
    """Let the file wait for the sweeper, without counting this attempt."""
    READS.claimed(file).update(status=File.Status.UPLOADED, attempt=F("attempt") - 1, heartbeat=Now())


@transaction.atomic
def _fail(file: File, code: str, reason: Sentence | str) -> bool:
    """Mark a claimed file as failed, and send its webhooks. Returns False, since there is nothing to index."""
    sentence = Sentence.of(reason)
    if _finish(file, status=File.Status.FAILED, error_code=code, error=sentence.dump()):
        _send_webhooks(file, "file.failed", File.Status.FAILED, code=code, detail=sentence.english)
    return False


def _finish(file: File, **fields: object) -> bool:
    """End the reading and set these columns. Returns False if the claim was lost or the file was deleted."""
    return bool(READS.claimed(file).update(**{"attempt": 0, "heartbeat": None, **fields}))


def _store(file: File, extracted: Extracted, notes: Sequence[Sentence] = ()) -> bool:
    """Store text, chunks and status in one transaction. Returns whether there are chunks to index.

    `notes`: sentences about the text, before those of the reader.
    """
    size = _count_tokens(extracted)
    limit = largest_input()
    status = File.Status.TOO_LONG if limit is not None and size > limit else File.Status.READY
    still_closed = closed_notice(extracted)
    reader_notes = [Sentence(note.template, **note.values) for note in (*extracted.notes, still_closed) if note]
    chunks = build_chunks(file, extracted.media_type, extracted.text, extracted.spans)
    with transaction.atomic():
        ended = _finish(
            file,
            status=status,
            media_type=extracted.media_type,
            tokens={tokens.CATCH_ALL: size},
            pages=len(extracted.spans),
            width=extracted.width,
            height=extracted.height,
            error_code=File.HOLDS_LOCKED if still_closed else "",
            error="\n".join(each.dump() for each in (*notes, *reader_notes)),
            encoding=extracted.encoding,
            chunker=chunking.VERSION,
            heartbeat=Now() if chunks else None,  # the sweeper skips a row without a heartbeat
        )
        if ended:
            if extracted.shown:
                storage.store_shown(file.sha256, extracted.shown)
            FileText.objects.update_or_create(file=file, defaults={"text": extracted.text, "spans": extracted.spans})
            RecognisedPage.objects.filter(file=file).delete()
            RecognisedPage.objects.bulk_create(
                RecognisedPage(file=file, page=number + 1, places=places) for number, places in extracted.places.items()
            )
            Chunk.objects.filter(file=file).delete()
            Chunk.objects.bulk_create(chunks, batch_size=500)
            _send_webhooks(file, "file.ready", status)
    return ended and bool(chunks)


def _send_webhooks(file: File, event: str, status: File.Status, **more: str) -> None:
    ids = {"file": str(file.pk), "status": str(status), **more}
    emit(owner_id=file.owner_id, event=event, ids=ids, paths={"url": reverse("file-detail", args=[file.pk])})


def _count_tokens(extracted: Extracted) -> int:
    if extracted.width is not None and extracted.height is not None:
        return tokens.image_tokens(extracted.width, extracted.height)
    return tokens.count(extracted.text)
