"""Show files to users and programs: lists with their uses, texts in windows of whole pages, and downloads."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import SEEK_END
from typing import IO, Any, NamedTuple, Self
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, TextChoices, Value
from django.db.models.functions import Length, Lower, Substr
from django.http import StreamingHttpResponse
from django.utils.functional import cached_property
from django.utils.http import content_disposition_header
from django.utils.translation import gettext_lazy

from accounts.models import User
from core.errors import ProductError
from core.requests import identifier
from core.sentences import Sentence
from files import services
from files.models import File, FileText, RecognisedPage
from files.models.file import FileUses
from readers.api import RECOGNISED, WordPlace, places_of_passage, unpack_places

WINDOW_CHARACTERS = 60_000  # characters shown at a time
MAX_PIECES = 50  # pages shown at a time
FILES_PER_PAGE = 100  # files on one page of the list
MAX_WORDS = 100  # characters of the words that a list is narrowed by
CHUNK_BYTES = 256 * 1024  # bytes
UNREAD_TYPE = "application/octet-stream"  # the media type of a file that no reader has identified
PREVIEW_TYPES = {"image/png", "image/jpeg", "image/webp", "image/gif", "application/pdf", "text/plain"}
# Browsers refuse to show a PDF in a sandboxed document; their viewer is a sandbox itself.
_POLICY = {"application/pdf": "default-src 'none'; object-src 'self'; frame-ancestors 'none'"}
_SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"


class FileOrder(TextChoices):
    """Orders of the list of files."""

    NEWEST = "", gettext_lazy("Newest first")
    NAME = "name", gettext_lazy("By name")
    MAX_SIZE = "largest", gettext_lazy("Largest first")


class FileKind(TextChoices):
    """Kinds of files that the list is narrowed to."""

    ALL = "", gettext_lazy("All files")
    DOCUMENT = "document", gettext_lazy("Documents")
    IMAGE = "image", gettext_lazy("Pictures")
    FAILED = "failed", gettext_lazy("Failed")


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of the list: with these words in the name, of this kind, in this order."""

    words: str = ""
    kind: FileKind = FileKind.ALL
    order: FileOrder = FileOrder.NEWEST

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Return the listing of an address. Unknown kinds and orders count as none."""
        kind, order = query.get("kind", ""), query.get("order", "")
        return cls(
            words=query.get("q", "")[:MAX_WORDS].replace("\0", " ").strip(),
            kind=FileKind(kind) if kind in FileKind.values else FileKind.ALL,
            order=FileOrder(order) if order in FileOrder.values else FileOrder.NEWEST,
        )

    @property
    def narrows(self) -> bool:
        return bool(self.words or self.kind)

    @property
    def query(self) -> str:
        """Return the part of an address that has this listing; empty for the usual one."""
        names = {"q": self.words, "kind": self.kind.value, "order": self.order.value}
        return urlencode({name: value for name, value in names.items() if value})

    def select(self, rows: QuerySet[File]) -> QuerySet[File]:
        for word in self.words.split():
            rows = rows.filter(name__icontains=word)
        match self.kind:
            case FileKind.IMAGE:
                rows = rows.exclude(width=None)
            case FileKind.DOCUMENT:
                rows = rows.filter(width=None)
            case FileKind.FAILED:
                rows = rows.filter(status=File.Status.FAILED)
        match self.order:
            case FileOrder.NAME:
                return rows.annotate(folded=Lower("name")).order_by("folded", "id")
            case FileOrder.MAX_SIZE:
                return rows.order_by("-size", "-id")
        return rows.order_by("-id")  # ids grow with time

    def below(self, rows: QuerySet[File], last: File) -> QuerySet[File]:
        """Return the rows that come after the file `last` in this order."""
        match self.order:
            case FileOrder.NAME:
                name = Lower(Value(last.name))
                return rows.filter(Q(folded__gt=name) | Q(folded=name, pk__gt=last.pk))
            case FileOrder.MAX_SIZE:
                return rows.filter(Q(size__lt=last.size) | Q(size=last.size, pk__lt=last.pk))
        return rows.filter(pk__lt=last.pk)


NEWEST_FILES = FileListing()


def list_files(user: User, listing: FileListing = NEWEST_FILES, after: object = None) -> tuple[list[File], UUID | None]:
    """Return a page of the user's own files, and its last id if there are more.

    `after` is the last id of the previous page. If that file was deleted, the list begins anew.
    """
    own = File.objects.owned_by(user)
    rows = listing.select(own)
    last = own.filter(pk=identifier(after, "file")).first() if after else None
    if last is not None:
        rows = listing.below(rows, last)
    page = list(rows[: FILES_PER_PAGE + 1])
    files = add_uses(user, page[:FILES_PER_PAGE])
    return files, files[-1].pk if len(page) > FILES_PER_PAGE else None


def add_uses(user: User, files: list[File]) -> list[File]:
    """Set `uses` of each file with one query. Return the same rows."""
    entries: Any = File._meta.get_field("project_entries").related_model  # a model of an app above this one
    projects: Any = entries._meta.get_field("project").related_model
    visible = Exists(projects.objects.visible_to(user).filter(pk=OuterRef("project")))
    rows = entries.objects.select_related("project").annotate(visible=visible)
    by_file: dict[UUID, list[Any]] = {file.pk: [] for file in files}
    for entry in rows.filter(file__in=files):
        by_file[entry.file_id].append(entry)
    for file in files:
        shown = [entry.project for entry in by_file[file.pk] if entry.visible]
        file.uses = FileUses(shown, len(by_file[file.pk]) - len(shown))
    return files


def repetition_notice(file: File) -> Sentence:
    """Return the sentence for a user who uploads the same content again."""
    return Sentence("You already have this file, as “{name}”. It was not stored again.", name=file.name)


class MarkedText(NamedTuple):
    """A text in five parts: `sentence` is marked strongly, and `lead` and `tail`, the rest of its passage, faintly."""

    before: str
    lead: str
    sentence: str
    tail: str
    after: str


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Characters [start, end) of a page, usually the whole page. `page` is 0 in files without pages."""

    page: int
    start: int
    end: int
    text: str = ""

    @property
    def recognised(self) -> bool:
        """Return whether the text was recognised in a picture (OCR)."""
        return self.text.startswith(RECOGNISED)

    def mark_sentence(self, passage: tuple[int, int], sentence: tuple[int, int]) -> "MarkedText":
        """Return the text in five parts around the sentence. Both ranges are [start, end) in the file's text."""
        start, end = (min(max(place, self.start), self.end) - self.start for place in passage)
        first, last = (min(max(place, self.start), self.end) - self.start for place in sentence)
        return MarkedText(
            self.text[:start], self.text[start:first], self.text[first:last], self.text[last:end], self.text[end:]
        )

    def marked(self, start: int, end: int) -> tuple[str, str, str]:
        """Return the text before, in and after the passage [start, end) of the file."""
        first = min(max(start, self.start), self.end) - self.start
        last = min(max(end, self.start), self.end) - self.start
        return self.text[:first], self.text[first:last], self.text[last:]


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Pieces of a text that are shown together. `previous` and `next`: the starts of the neighbouring windows."""

    pieces: list[TextPiece]
    previous: int | None
    next: int | None


class StoredText:
    """The text of a file. Reads only the parts to show. Raises `no_text` (404) for a file without a text."""

    def __init__(self, file: File) -> None:
        row = FileText.objects.filter(file=file).annotate(length=Length("text")).values("spans", "length").first()
        if row is None:
            raise ProductError("no_text", "This file has no text yet, or none could be read from it.", status=404)
        self.file = file
        self.length: int = row["length"]
        self.spans: list[tuple[int, int]] = [(start, end) for start, end in row["spans"]]

    def page_start(self, page: int) -> int:
        """Return the position of a page's first character. Pages count from 1. Raises `no_such_page` (404)."""
        if not 1 <= page <= len(self.spans):
            raise ProductError(
                "no_such_page", Sentence("The file has {spans} pages.", spans=len(self.spans)), status=404
            )
        return self.spans[page - 1][0]

    def holds(self, start: int, end: int, *, page: int | None = None) -> bool:
        """Return whether the text has the characters [start, end). With `page`, they must begin on that page."""
        if page is not None and bisect_right(self.spans, start, key=lambda span: span[0]) != page:
            return False
        return start < end <= self.length

    def passage_on_page(self, page: int, start: int, end: int) -> tuple[str, str]:
        """Return the part of the passage [start, end) on a page, and the page's text before it.

        Raises `no_such_page` (404).
        """
        piece = TextPiece(page, self.page_start(page), self.spans[page - 1][1])
        before, passage, _ = self._with_text([piece])[0].marked(start, end)
        return passage, before

    def places(self, page: int, before: str, passage: str) -> list[WordPlace]:
        """Return the places of a passage on a recognised page; empty if they are not stored.

        `before` is the text of the page before the passage.
        """
        rows = RecognisedPage.objects.filter(file=self.file, page=page).values_list("places", flat=True)
        packed = rows.first() if passage else None
        return places_of_passage(unpack_places(bytes(packed)), before, passage) if packed else []

    def pages_without_places(self, pieces: Iterable[TextPiece]) -> set[int]:
        """Return the recognised pages without stored places of words. No passage can be marked on them."""
        recognised = {piece.page for piece in pieces if piece.recognised}
        stored = RecognisedPage.objects.filter(file=self.file, page__in=recognised).values_list("page", flat=True)
        return recognised - set(stored) if recognised else set()

    def at(self, position: int) -> TextWindow:
        """Return the window with the character at `position`, or the last window if `position` is beyond the end."""
        windows = self._windows
        number = 0
        while number + 1 < len(windows) and windows[number + 1][0].start <= position:
            number += 1
        pieces = self._with_text(windows[number])
        return TextWindow(
            pieces,
            windows[number - 1][0].start if number else None,
            windows[number + 1][0].start if number + 1 < len(windows) else None,
        )

    @cached_property
    def _windows(self) -> list[list[TextPiece]]:
        windows: list[list[TextPiece]] = [[]]
        for piece in self._pieces():
            window = windows[-1]
            if window and (piece.end - window[0].start > WINDOW_CHARACTERS or len(window) == MAX_PIECES):
                window = []
                windows.append(window)
            window.append(piece)
        return windows

    def _pieces(self) -> Iterator[TextPiece]:
        spans = self.spans or [(0, self.length)]
        for page, (start, end) in enumerate(spans, start=1 if self.spans else 0):
            yield TextPiece(page, start, min(end, start + WINDOW_CHARACTERS))
            for cut in range(start + WINDOW_CHARACTERS, end, WINDOW_CHARACTERS):
                yield TextPiece(page, cut, min(end, cut + WINDOW_CHARACTERS))

    def _with_text(self, pieces: list[TextPiece]) -> list[TextPiece]:
        start = pieces[0].start
        part = Substr("text", start + 1, max(0, pieces[-1].end - start))
        text: str = FileText.objects.filter(file=self.file).values_list(part, flat=True).get()
        return [replace(each, text=text[each.start - start : each.end - start]) for each in pieces]


def download(file: File) -> StreamingHttpResponse:
    """Return the original as a download. The headers keep browsers from guessing its type and from running it.

    The caller must have checked that the user may see the file. Raises `file_lost` (404).
    """
    media_type = file.media_type or UNREAD_TYPE
    return _stream(services.open_blob(file=file), media_type, file.name, file.size)


def download_shown(file: File) -> StreamingHttpResponse:
    """Return a picture in a format that browsers can show, which may be the original. Otherwise like `download`."""
    media_type, content = services.open_shown(file=file)
    content.seek(0, SEEK_END)
    size = content.tell()
    content.seek(0)
    return _stream(content, media_type, file.name, size)


def _stream(content: IO[bytes], media_type: str, name: str, size: int) -> StreamingHttpResponse:
    response = StreamingHttpResponse(_chunks(content))
    response["Content-Type"] = "text/plain; charset=utf-8" if media_type == "text/plain" else media_type
    response["Content-Length"] = str(size)
    response["Content-Disposition"] = content_disposition_header(media_type not in PREVIEW_TYPES, name) or "attachment"
    response["Content-Security-Policy"] = _POLICY.get(media_type, _SANDBOX)
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-store"
    return response


async def _chunks(stream: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(stream.read, CHUNK_BYTES):
            yield chunk
    finally:
        stream.close()
