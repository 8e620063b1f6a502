"""Prepare a reading for its page: the answer with sources, the notes on each part, and how much was read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

from chat.ledger.models import ModelCall
from chat.ledger.services import UsageFigures, describe_cost, describe_tokens, sum_usage
from chat.readings import checking, planning
from chat.readings.layout import FileRead, load_layout
from chat.readings.models import Reading, ReadingPart
from chat.readings.services import coverage, percent_read
from chat.rendering.markdown import RenderAllowance, render
from chat.rendering.references import Source
from core.sentences import Sentence

PARTS_PER_PAGE = 50  # parts on one page


class FileGap(TypedDict):
    """A `planning.Gap` with its file, which is None if it was deleted."""

    file: UUID | None
    start: int
    end: int
    first_page: int
    last_page: int
    code: str
    why: Sentence


@dataclass(frozen=True, slots=True)
class PartView:
    """A part with its notes, or a fold of several parts.

    `file_names` names its files; it is empty if the reading has only one. Characters and pages are counted from the
    beginning of the file, and are 0 for a fold of several files. `blocks` are safe HTML. `left_out` are sources that
    the folded notes cite and the fold does not.
    """

    row: ReadingPart
    file_names: str
    start: int
    end: int
    first_page: int
    last_page: int
    href: str
    blocks: list[str]
    left_out: list[Source]


class ReadingView:
    """A reading with the values that its page shows."""

    def __init__(self, reading: Reading) -> None:
        self.row = reading
        self.layout = load_layout(reading)
        rows = list(reading.parts.all())
        self.parts = [row for row in rows if row.level == 0]
        self.folds = [row for row in rows if row.level]

    @cached_property
    def files(self) -> list[FileRead]:
        """Return how much of each file was read."""
        return coverage(self.row, self.parts, self.layout)

    @cached_property
    def percent(self) -> int:
        """Return the percentage of the whole text that was read."""
        return percent_read(self.parts)

    @cached_property
    def read(self) -> int:
        """Return the number of parts that were read."""
        return sum(row.state == ReadingPart.State.DONE for row in self.parts)

    @cached_property
    def found(self) -> int:
        """Return the number of parts with notes."""
        return sum(bool(row.findings) for row in self.parts)

    @property
    def missing(self) -> list[FileGap]:
        """Return the gaps of all files."""
        return [
            {
                "file": file_read.row.file_id,
                "start": gap.start,
                "end": gap.end,
                "first_page": gap.first_page,
                "last_page": gap.last_page,
                "code": gap.code,
                "why": gap.why,
            }
            for file_read in self.files
            for gap in file_read.coverage.missing
        ]

    @cached_property
    def calls(self) -> UsageFigures:
        """Return the tokens and costs of its model calls so far."""
        return sum_usage(ModelCall.objects.filter(reading=self.row.pk))

    @property
    def spent(self) -> str:
        """Return the tokens of its calls in words; empty before the first call."""
        return describe_tokens(self.calls) if self.calls.calls else ""

    @property
    def money(self) -> str:
        return describe_cost(self.calls)

    @property
    def answer(self) -> list[str]:
        """Return the answer as safe HTML, block by block."""
        numbers = [citation["citation"] for citation in checking.get_doubts(self.row)]
        doubt_links = {citation: reverse("chat:reading_doubt", args=[self.row.pk, citation]) for citation in numbers}
        return render(
            self.row.answer,
            self.sources([self.row.answer]),
            doubt_links,
            places=checking.link_places(self.row),
        )

    @property
    def doubts(self) -> int:
        """Return the number of sentences of the answer that their passages do not support."""
        return len(checking.get_doubts(self.row))

    @property
    def cited(self) -> list[Source]:
        """Return the sources that the answer cites, by number."""
        return list(self.sources([self.row.answer]).values())

    @property
    def left_out(self) -> list[Source]:
        """Return the sources that the notes cite and the answer does not."""
        if not self.row.answer:
            return []
        return self._left_out([row.findings for row in self.parts], self.row.answer)

    @property
    def other_files_query(self) -> str:
        """Return the query of a URL that names the other files of the reading."""
        ids = [row.file_id for row in self.layout.rows if row.file_id not in (None, self.row.file_id)]
        return urlencode({"with": ids}, doseq=True)

    @property
    def can_continue(self) -> bool:
        """Return whether the reading can be continued, since parts or the answer are missing."""
        return not self.row.live and (self.row.status != Reading.Status.DONE or self.percent < 100)

    def sources(self, texts: Iterable[str]) -> dict[int, Source]:
        """Return the sources that these texts cite, by number. Sources in deleted files are left out."""
        return checking.find_sources(self.row, self.layout, texts)

    def place(self, number: int) -> checking.PassagePlace:
        """Return the position of a passage in its file."""
        return checking.locate_passage(self.row, self.layout, number)

    def _left_out(self, notes: Sequence[str], text: str) -> list[Source]:
        numbers = planning.uncited_numbers(notes, text, len(self.row.passages))
        sources = self.sources(notes)
        return [sources.get(number) or Source(number, self.row.file_name, "") for number in numbers]

    def shown(self, first: int) -> list[PartView]:
        """Return one page of parts, from the part `first` on (counted from 0)."""
        allowance = RenderAllowance()
        return [self._part(row, allowance) for row in self.parts[first : first + PARTS_PER_PAGE]]

    @property
    def folded(self) -> list[PartView]:
        """Return the folds."""
        allowance = RenderAllowance()
        return [self._part(row, allowance) for row in self.folds]

    def _part(self, row: ReadingPart, allowance: RenderAllowance) -> PartView:
        """Return a part for the page. `allowance` is shared by all parts on the page."""
        files = self.layout.within(row.start, row.end)
        single_file = len(files) == 1
        start = row.start - files[0].start if single_file else 0
        first, last = (self.layout.page_at(row.start), self.layout.page_at(row.end - 1)) if single_file else (0, 0)
        folded_notes = [each.findings for each in self.parts if row.start <= each.start < row.end] if row.level else []
        number = planning.passage_numbers(self.row.passages, row.start, row.end)[0]
        source = self.sources([f"[{number}]"]).get(number)
        return PartView(
            row=row,
            file_names=self.layout.named(row.start, row.end),
            start=start,
            end=start + row.end - row.start if single_file else 0,
            first_page=first,
            last_page=last,
            href=source.href if source else "",
            blocks=render(row.findings, self.sources([row.findings]), allowance=allowance),
            left_out=self._left_out(folded_notes, row.findings),
        )
