"""Pages of PDFs as pictures. A separate process draws each page.

1. A page that failed recently is refused at once (`files.undrawn`).
2. The requests of one user are served one after the other. A passage may be on two pages, whose pictures a browser
   requests at the same time, so a few requests wait; the next one is refused with 429.
3. A process draws two pages at the same time, for all users together.

A waiting request holds no connection to the database.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.http import HttpResponse
from django.utils.translation import gettext_noop

from accounts.models import User
from core.errors import ProductError
from core.outside import wait_outside
from core.sentences import Sentence
from files import storage
from files.ingest import BYTES_LOST
from files.models import File
from files.pages import StoredText
from files.undrawn import recent_failure, remember_failure
from readers.api import ReaderError, WordPlace, draw_marked_page

MAX_CONCURRENT_DRAWINGS = 2  # pages per process
MAX_WAITING_PER_PERSON = 2  # waiting requests per user, in addition to the request whose page is being drawn
TURN_TIMEOUT = 20.0  # seconds that a request waits for its turn
RETRY_AFTER = 5  # seconds after which a refused request may be sent again
MAX_MARKED_LENGTH = 10_000  # characters of a passage to search for on a page
BROWSER_CACHE_SECONDS = 600  # seconds that a browser keeps the picture of a page
LOCKED = gettext_noop(
    "It is protected with a password that is not stored, so its pages cannot be drawn. Read its text instead."
)
UNDRAWN = gettext_noop(
    "This page cannot be drawn: it is damaged or too complex. Read its text, or download the original."
)
BUSY = gettext_noop("Too many pages are being drawn at the moment. Try again in a few seconds.")
ONE_AT_A_TIME = gettext_noop("Several of your pages already wait to be drawn. Try again in a few seconds.")


def picture_response(user: User, file: File, page: int, passage: tuple[int, int] | None = None) -> HttpResponse:
    """Return a page of a PDF as JPEG, with the characters [start, end) of the file's text marked on it.

    Pages count from 1. If the passage is not found on the page, nothing is marked. The caller has checked that the user
    may see the file. Raises `no_pictures` (409) for a file without such pages, `no_such_page` (404), `not_drawn` (422)
    for a page that cannot be drawn, `too_many_pictures` (429), `busy` (503), `file_lost` (404).
    """
    if not file.has_page_pictures:
        sentence = Sentence("Only pages of PDFs are shown as pictures. Read its text, or download the original.")
        raise ProductError("no_pictures", sentence, status=409)
    text = StoredText(file)
    marked, before = text.passage_on_page(page, *(passage or (0, 0)))
    places = text.places(page, before, marked)
    with wait_outside(), _turns.turn(user.pk):
        code = recent_failure(file.pk, page)
        if code is not None:
            raise _drawing_error(code)
        jpeg = _draw(file, page, "" if places else marked[:MAX_MARKED_LENGTH], before, places)
    response = HttpResponse(jpeg, content_type="image/jpeg")
    response["Cache-Control"] = f"private, max-age={BROWSER_CACHE_SECONDS}"
    return response


def _draw(file: File, page: int, marked: str, before: str, places: list[WordPlace]) -> bytes:
    if not _drawing.acquire(timeout=TURN_TIMEOUT):
        raise ProductError("busy", BUSY, status=503, retry_after=RETRY_AFTER)
    try:
        with storage.local_path(file, shown=file.converted) as path:
            return draw_marked_page(path, page - 1, marked, sum(map(str.isalnum, before)), places)
    except ReaderError as error:
        remember_failure(file.pk, page, error.code)
        raise _drawing_error(error.code) from error
    except FileNotFoundError as error:
        raise ProductError("file_lost", BYTES_LOST, status=404) from error
    except storage.StorageUnavailable as error:
        raise storage.storage_error(error) from error
    finally:
        _drawing.release()


def _drawing_error(code: str) -> ProductError:
    sentence = LOCKED if code == "encrypted" else UNDRAWN
    return ProductError("not_drawn", sentence, status=422)


class PersonalTurns:
    """Serves one request of each user at a time in this process. A few more wait, others are refused."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[UUID] = set()
        self._waiting: Counter[UUID] = Counter()

    @contextmanager
    def turn(self, person: UUID) -> Iterator[None]:
        """Run the block when it is the user's turn. Raises `too_many_pictures` (429)."""
        with self._changed:
            self._take(person)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(person)
                self._changed.notify_all()

    def _take(self, person: UUID) -> None:
        refusal = ProductError("too_many_pictures", ONE_AT_A_TIME, status=429, retry_after=RETRY_AFTER)
        if person in self._busy:
            if self._waiting[person] >= MAX_WAITING_PER_PERSON:
                raise refusal
            self._waiting[person] += 1
            try:
                free = self._changed.wait_for(lambda: person not in self._busy, TURN_TIMEOUT)
            finally:
                self._waiting -= Counter([person])  # also removes the key of a user without waiting requests
            if not free:
                raise refusal
        self._busy.add(person)


_drawing = threading.BoundedSemaphore(MAX_CONCURRENT_DRAWINGS)
_turns = PersonalTurns()
