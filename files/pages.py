"""What people and programs get of files: where they are used, their text in windows of whole pages, the originals."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from io import SEEK_END
from typing import IO, Any
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.db.models.functions import Length, Substr
from django.http import StreamingHttpResponse
from django.utils.functional import cached_property
from django.utils.http import content_disposition_header

from accounts.models import User
from core.errors import ProductError
from core.requests import identifier
from core.sentences import Sentence
from files import services
from files.models import File, FileText, RecognisedPage
from files.models.file import Uses
from readers.api import RECOGNISED, WordPlace, places_of_passage, unpacked

WINDOW = 60_000  # characters shown at a time
MOST_PIECES = 50  # pages shown at a time
LISTED = 100  # files on one page of the list
CHUNK = 256 * 1024  # bytes
NOT_READ = "application/octet-stream"  # the media type of a file of which no reader has said what it is
SHOWN = {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf", "text/plain"}
# Browsers refuse to show a PDF in a sandboxed document; its viewer is a sandbox of its own.
_POLICY = {"application/pdf": "default-src 'none'; object-src 'self'; frame-ancestors 'none'"}
_SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"


def file_list(user: User, after: object = None) -> tuple[list[File], UUID | None]:
    """One page of one's own files, newest first, and its last id if there are more. `after` is such an id."""
    rows = File.objects.owned_by(user).order_by("-id")  # ids grow with time
    if after:
        rows = rows.filter(pk__lt=identifier(after, "file"))
    found = list(rows[: LISTED + 1])
    files = with_uses(user, found[:LISTED])
    return files, files[-1].pk if len(found) > LISTED else None


def with_uses(user: User, files: list[File]) -> list[File]:
    """The same rows, each with its `uses`, by one query."""
    entries: Any = File._meta.get_field("project_entries").related_model  # an app above this one has it
    projects: Any = entries._meta.get_field("project").related_model
    visible = Exists(projects.objects.visible_to(user).filter(pk=OuterRef("project")))
    rows = entries.objects.select_related("project").annotate(seen=visible)
    found: dict[UUID, list[Any]] = {file.pk: [] for file in files}
    for entry in rows.filter(file__in=files):
        found[entry.file_id].append(entry)
    for file in files:
        seen = [entry.project for entry in found[file.pk] if entry.seen]
        file.uses = Uses(seen, len(found[file.pk]) - len(seen))
    return files


@dataclass(frozen=True, slots=True)
class Piece:
    """Characters [start, end) of a page, usually all of it; `page` is 0 where there are none."""

    page: int
    start: int
    end: int
    text: str = ""

    @property
    def recognised(self) -> bool:
        """Whether its text was recognised on a picture."""
        return self.text.startswith(RECOGNISED)

    def marked(self, start: int, end: int) -> tuple[str, str, str]:
        """The text before, in and after the passage [start, end) of the file."""
        first = min(max(start, self.start), self.end) - self.start
        last = min(max(end, self.start), self.end) - self.start
        return self.text[:first], self.text[first:last], self.text[last:]


@dataclass(frozen=True, slots=True)
class Window:
    """`previous` and `next` are where the windows beside it start, if there are any."""

    pieces: list[Piece]
    previous: int | None
    next: int | None


class Reading:
    """A file's text, of which only what is shown is fetched. Raises `no_text` (404) for a file without a stored one."""

    def __init__(self, file: File) -> None:
        row = FileText.objects.filter(file=file).annotate(length=Length("text")).values("spans", "length").first()
        if row is None:
            raise ProductError("no_text", "This file has no text yet, or none could be read from it.", status=404)
        self.file = file
        self.length: int = row["length"]
        self.spans: list[tuple[int, int]] = [(start, end) for start, end in row["spans"]]

    def start_of(self, page: int) -> int:
        """Raises `no_such_page` (404) for a page that the file does not have; pages count from 1."""
        if not 1 <= page <= len(self.spans):
            raise ProductError(
                "no_such_page", Sentence("The file has {spans} pages.", spans=len(self.spans)), status=404
            )
        return self.spans[page - 1][0]

    def holds(self, start: int, end: int, *, page: int | None = None) -> bool:
        """Whether there are such characters, beginning on this page if one is named."""
        if page is not None and bisect_right(self.spans, start, key=lambda span: span[0]) != page:
            return False
        return start < end <= self.length

    def on_page(self, page: int, start: int, end: int) -> tuple[str, str]:
        """What of the passage [start, end) stands on a page, and the page's text before it. Raises `no_such_page`."""
        piece = Piece(page, self.start_of(page), self.spans[page - 1][1])
        before, passage, _ = self._with_text([piece])[0].marked(start, end)
        return passage, before

    def places(self, page: int, before: str, passage: str) -> list[WordPlace]:
        """Where a passage stands on a page that was recognised, if that is known; `before` is the text before it."""
        kept = RecognisedPage.objects.filter(file=self.file, page=page).values_list("places", flat=True)
        packed = kept.first() if passage else None
        return places_of_passage(unpacked(bytes(packed)), before, passage) if packed else []

    def without_places(self, pieces: Iterable[Piece]) -> set[int]:
        """Pages whose text was recognised without telling where its words stand, so that nothing is marked on them."""
        recognised = {piece.page for piece in pieces if piece.recognised}
        known = RecognisedPage.objects.filter(file=self.file, page__in=recognised).values_list("page", flat=True)
        return recognised - set(known) if recognised else set()

    def at(self, position: int) -> Window:
        """The window that holds the character at `position`; the last one for a position beyond the end."""
        windows = self._windows
        number = 0
        while number + 1 < len(windows) and windows[number + 1][0].start <= position:
            number += 1
        pieces = self._with_text(windows[number])
        return Window(
            pieces,
            windows[number - 1][0].start if number else None,
            windows[number + 1][0].start if number + 1 < len(windows) else None,
        )

    @cached_property
    def _windows(self) -> list[list[Piece]]:
        windows: list[list[Piece]] = [[]]
        for piece in self._pieces():
            window = windows[-1]
            if window and (piece.end - window[0].start > WINDOW or len(window) == MOST_PIECES):
                window = []
                windows.append(window)
            window.append(piece)
        return windows

    def _pieces(self) -> Iterator[Piece]:
        spans = self.spans or [(0, self.length)]
        for page, (start, end) in enumerate(spans, start=1 if self.spans else 0):
            yield Piece(page, start, min(end, start + WINDOW))
            for cut in range(start + WINDOW, end, WINDOW):
                yield Piece(page, cut, min(end, cut + WINDOW))

    def _with_text(self, pieces: list[Piece]) -> list[Piece]:
        start, end = pieces[0].start, pieces[-1].end
        part = Substr("text", start + 1, max(0, end - start))
        text: str = FileText.objects.filter(file=self.file).values_list(part, flat=True).get()
        return [Piece(each.page, each.start, each.end, text[each.start - start : each.end - start]) for each in pieces]


def download(file: File) -> StreamingHttpResponse:
    """The original. Whatever is in it, a browser neither guesses what it is nor runs it as ours.

    The caller has checked who may see the file. Raises `file_lost` (404).
    """
    media_type = file.media_type or NOT_READ
    return _streamed(services.open_blob(file=file), media_type, file.name, file.size)


def download_shown(file: File) -> StreamingHttpResponse:
    """What browsers are shown of a picture, which is the original if they can show that. As `download` in all else."""
    media_type, content = services.open_shown(file=file)
    content.seek(0, SEEK_END)
    size = content.tell()
    content.seek(0)
    return _streamed(content, media_type, file.name, size)


def _streamed(content: IO[bytes], media_type: str, name: str, size: int) -> StreamingHttpResponse:
    response = StreamingHttpResponse(_chunks(content))
    response["Content-Type"] = "text/plain; charset=utf-8" if media_type == "text/plain" else media_type
    response["Content-Length"] = str(size)
    response["Content-Disposition"] = content_disposition_header(media_type not in SHOWN, name) or "attachment"
    response["Content-Security-Policy"] = _POLICY.get(media_type, _SANDBOX)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


async def _chunks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(stream.read, CHUNK):
            yield chunk
    finally:
        stream.close()
