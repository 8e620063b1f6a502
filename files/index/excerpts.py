"""What a page shows of a search: of each passage that was found, the part where most of the words stand."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from files.index.search import Hit, search
from files.models import File, FileText

NEAR = 160  # characters within which words stand together
BEFORE, EXCERPT = 80, 320  # characters of a result shown before such a place, and in all


@dataclass(frozen=True, slots=True)
class Result:
    """The part of a found passage where most of the words asked for are; `parts` are its pieces, each with whether it
    matched. `page` is that of the match, 0 where there are none."""

    file: UUID
    name: str
    page: int
    start: int
    end: int
    parts: list[tuple[str, bool]]


def passages(files: QuerySet[File], query: str, *, limit: int) -> list[Result]:
    """The best places of `files`, best first."""
    hits = search(query=query, files=files, limit=limit)
    rows = FileText.objects.filter(file__in=[hit.file for hit in hits]).values_list("file", "spans")
    spans = dict(rows)
    return [_result(hit, spans.get(hit.file, [])) for hit in hits]


def _result(hit: Hit, spans: Sequence[Sequence[int]]) -> Result:
    best = _best(hit)
    start, end = _excerpt(hit.text, best)
    inside = [mark for mark in hit.highlights if start <= mark[0] and mark[1] <= end]
    return Result(
        file=hit.file,
        name=hit.name,
        page=bisect_right(spans, hit.start + best, key=lambda span: span[0]),
        start=hit.start + start,
        end=hit.start + end,
        parts=list(_parts(hit, start, end, inside)),
    )


def _best(hit: Hit) -> int:
    """Where in the hit's text the most different words that matched stand closest together; 0 if none matched."""

    def together(at: int) -> tuple[int, int]:
        near = [mark for mark in hit.highlights if at <= mark[0] and mark[1] <= at + NEAR] or [(at, at)]
        return len({hit.text[left:right].casefold() for left, right in near}), at - near[-1][1]

    return max((left for left, _ in hit.highlights), key=together, default=0)


def _excerpt(text: str, best: int) -> tuple[int, int]:
    """[start, end) of what is shown around `best`, cut between words."""
    start = max(0, best - BEFORE)
    if start:
        start = min(best, start + len(text[start:best].partition(" ")[0]) + 1)
    end = start + EXCERPT
    if end < len(text):
        end = max(text.rfind(" ", start, end), best + BEFORE)
    return start, min(end, len(text))


def _parts(hit: Hit, start: int, end: int, inside: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    yield ("… " if start else ""), False
    at = start
    for left, right in inside:
        yield hit.text[at:left], False
        yield hit.text[left:right], True
        at = right
    yield hit.text[at:end] + (" …" if end < len(hit.text) else ""), False
