"""The text of a reading: the texts of its files, one after the other, with their pages."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from chat.readings import planning
from chat.readings.models import Reading, ReadingFile
from chat.readings.planning import Coverage, PartCoverage
from core.sentences import Sentence
from files.models import FileText

Spans = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class FileRead:
    """How much of one file was read. `coverage` counts characters from the beginning of its own text."""

    row: ReadingFile
    coverage: Coverage
    parts: int
    read: int


class TextLayout:
    """The positions of the files in the text. `spans` maps a file's id to its pages; without them no page is known."""

    def __init__(self, rows: Iterable[ReadingFile], spans: Mapping[UUID | None, Spans]) -> None:
        self.rows = list(rows)
        self._starts = [row.start for row in self.rows]
        self._spans = spans

    @property
    def several(self) -> bool:
        return len(self.rows) > 1

    def file_at(self, position: int) -> ReadingFile | None:
        """Return the file that contains a character, or None if the reading has no files."""
        index = bisect_right(self._starts, position)
        return self.rows[index - 1] if index else None

    def page_at(self, position: int) -> int:
        """Return the page of a character in its file, from 1; 0 if the file has no known pages."""
        row = self.file_at(position)
        return planning.page_at(self._spans.get(row.file_id, []), position - row.start) if row is not None else 0

    def within(self, start: int, end: int) -> list[ReadingFile]:
        """Return the files that overlap the characters [start, end)."""
        return [row for row in self.rows if row.start < end and start < row.end]

    def named(self, start: int, end: int) -> str:
        """Return the names of the files that overlap [start, end), or an empty string if there is only one file."""
        return ", ".join(row.name for row in self.within(start, end)) if self.several else ""

    def read(self, parts: Sequence[PartCoverage], code: str, why: Sentence) -> list[FileRead]:
        """Return how much of each file was read, in order. `code` and `why` explain parts that were not begun."""
        files = []
        for row in self.rows:
            file_parts = [
                replace(part, start=part.start - row.start, end=part.end - row.start)
                for part in parts
                if row.start <= part.start < row.end
            ]
            covered = planning.compute_coverage(file_parts, self._spans.get(row.file_id, []), code, why)
            files.append(FileRead(row, covered, len(file_parts), sum(part.read for part in file_parts)))
        return files


def load_layout(reading: Reading, *, pages: bool = True) -> TextLayout:
    """Return the layout of a reading. Without `pages`, and for a deleted file, no page is known."""
    rows = list(reading.files.select_related("file"))
    ids = [row.file_id for row in rows if row.file_id is not None] if pages else []
    return TextLayout(rows, dict(FileText.objects.filter(file__in=ids).values_list("file", "spans")) if ids else {})
