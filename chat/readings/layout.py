"""Where the files of a reading stand in what is read: their texts, one behind the other."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from chat.readings import planning
from chat.readings.models import Reading, ReadingFile
from chat.readings.planning import Coverage, Part
from core.sentences import Sentence
from files.models import FileText

Spans = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class FileRead:
    """How much of one of the files was read; `coverage` counts characters from the beginning of its own text."""

    row: ReadingFile
    coverage: Coverage
    parts: int
    read: int


class Layout:
    """`spans` are those of the pages of each file, by its id; without them nothing knows of pages."""

    def __init__(self, rows: Iterable[ReadingFile], spans: Mapping[UUID | None, Spans]) -> None:
        self.rows = list(rows)
        self._starts = [row.start for row in self.rows]
        self._spans = spans

    @property
    def several(self) -> bool:
        return len(self.rows) > 1

    def file_at(self, position: int) -> ReadingFile | None:
        """None only where a reading has no files."""
        place = bisect_right(self._starts, position)
        return self.rows[place - 1] if place else None

    def page_at(self, position: int) -> int:
        """The page of its file that a character is on, from 1; 0 where there are no pages."""
        row = self.file_at(position)
        return planning.page_at(self._spans.get(row.file_id, []), position - row.start) if row is not None else 0

    def within(self, start: int, end: int) -> list[ReadingFile]:
        return [row for row in self.rows if row.start < end and start < row.end]

    def named(self, start: int, end: int) -> str:
        """The names of the files that [start, end) is of; empty where there is one file only, which needs no name."""
        return ", ".join(row.name for row in self.within(start, end)) if self.several else ""

    def read(self, parts: Sequence[Part], code: str, why: Sentence) -> list[FileRead]:
        """Of each file, in their order. `code` and `why` hold for parts that nobody came to."""
        found = []
        for row in self.rows:
            own = [
                replace(part, start=part.start - row.start, end=part.end - row.start)
                for part in parts
                if row.start <= part.start < row.end
            ]
            covered = planning.coverage_of(own, self._spans.get(row.file_id, []), code, why)
            found.append(FileRead(row, covered, len(own), sum(part.read for part in own)))
        return found


def layout_of(reading: Reading, *, pages: bool = True) -> Layout:
    """Files that are gone, or were read anew meanwhile, have no pages."""
    rows = list(reading.files.select_related("file"))
    ids = [row.file_id for row in rows if row.file_id is not None] if pages else []
    return Layout(rows, dict(FileText.objects.filter(file__in=ids).values_list("file", "spans")) if ids else {})
