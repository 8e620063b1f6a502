"""What is shown of a reading: its answer with sources, what was found where, and how much was read."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from chat.ledger.models import ModelCall
from chat.ledger.services import UsageFigures, money_in_words, tokens_in_words, totals
from chat.readings import checking, planning
from chat.readings.layout import FileRead, layout_of
from chat.readings.models import Reading, ReadingPart
from chat.readings.services import coverage, percent_of
from chat.rendering.markdown import RenderAllowance, render
from chat.rendering.references import Source

SHOWN = 50  # parts on one page


@dataclass(frozen=True, slots=True)
class PartView:
    """A part that was asked about, or what several were folded into. `file_names` are those of its files where a
    reading has several; characters and pages count from the beginning of its file, and are 0 where it is of
    more than one. `blocks` are safe HTML; `left_out` are sources that its notes came from and it does not name."""

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
    """A reading with everything that is derived of its rows."""

    def __init__(self, reading: Reading) -> None:
        self.row = reading
        self.layout = layout_of(reading)
        rows = list(reading.parts.all())
        self.parts = [row for row in rows if row.level == 0]
        self.folds = [row for row in rows if row.level]

    @cached_property
    def files(self) -> list[FileRead]:
        """How much of each was read."""
        return coverage(self.row, self.parts, self.layout)

    @cached_property
    def percent(self) -> int:
        """How much of all of the text was read."""
        return percent_of(self.parts)

    @cached_property
    def read(self) -> int:
        """Parts that were read."""
        return sum(row.state == ReadingPart.State.DONE for row in self.parts)

    @cached_property
    def found(self) -> int:
        """Parts in which something was found."""
        return sum(bool(row.findings) for row in self.parts)

    @property
    def missing(self) -> list[dict[str, Any]]:
        """What was not read, as `planning.Missing`, each with its file."""
        return [{"file": each.row.file_id, **asdict(part)} for each in self.files for part in each.coverage.missing]

    @cached_property
    def calls(self) -> UsageFigures:
        """What its calls took so far."""
        return totals(ModelCall.objects.filter(reading=self.row.pk))

    @property
    def spent(self) -> str:
        """In tokens."""
        return tokens_in_words(self.calls) if self.calls.calls else ""

    @property
    def money(self) -> str:
        return money_in_words(self.calls)

    @property
    def answer(self) -> list[str]:
        """Safe HTML, block by block."""
        numbers = [each["citation"] for each in checking.doubts_of(self.row)]
        signs = {each: reverse("chat:reading_doubt", args=[self.row.pk, each]) for each in numbers}
        return render(self.row.answer, self.sources([self.row.answer]), signs)

    @property
    def doubts(self) -> int:
        """How many sentences of the answer their passages do not carry."""
        return len(checking.doubts_of(self.row))

    @property
    def cited(self) -> list[Source]:
        """What the answer cites, by number."""
        return list(self.sources([self.row.answer]).values())

    @property
    def left_out(self) -> list[Source]:
        """What was found and is not in the answer."""
        if not self.row.answer:
            return []
        return self._left_out([row.findings for row in self.parts], self.row.answer)

    @property
    def with_it(self) -> str:
        """The query that names its other files."""
        ids = [row.file_id for row in self.layout.rows if row.file_id not in (None, self.row.file_id)]
        return urlencode({"with": ids}, doseq=True)

    @property
    def goes_on(self) -> bool:
        """Whether there is something left to ask."""
        return not self.row.live and (self.row.status != Reading.Status.DONE or self.percent < 100)

    def sources(self, texts: Iterable[str]) -> dict[int, Source]:
        """What these texts cite, by number; nothing of a file that is gone."""
        return checking.sources_of(self.row, self.layout, texts)

    def place(self, number: int) -> dict[str, Any]:
        return checking.place(self.row, self.layout, number)

    def _left_out(self, given: Sequence[str], said: str) -> list[Source]:
        numbers = planning.left_out(given, said, len(self.row.passages))
        known = self.sources(given)
        return [known.get(number) or Source(number, self.row.file_name, "") for number in numbers]

    def shown(self, first: int) -> list[PartView]:
        """The parts from the `first` one on, counted from 0."""
        allowance = RenderAllowance()
        return [self._part(row, allowance) for row in self.parts[first : first + SHOWN]]

    @property
    def folded(self) -> list[PartView]:
        """What the notes were put together into."""
        allowance = RenderAllowance()
        return [self._part(row, allowance) for row in self.folds]

    def _part(self, row: ReadingPart, allowance: RenderAllowance) -> PartView:
        """`allowance`: of all that stand on a page together."""
        files = self.layout.within(row.start, row.end)
        apart = len(files) == 1
        begin = row.start - files[0].start if apart else 0
        first, last = (self.layout.page_at(row.start), self.layout.page_at(row.end - 1)) if apart else (0, 0)
        within = [each.findings for each in self.parts if row.start <= each.start < row.end] if row.level else []
        number = planning.numbers_in(self.row.passages, row.start, row.end)[0]
        opened = self.sources([f"[{number}]"]).get(number)
        return PartView(
            row=row,
            file_names=self.layout.named(row.start, row.end),
            start=begin,
            end=begin + row.end - row.start if apart else 0,
            first_page=first,
            last_page=last,
            href=opened.href if opened else "",
            blocks=render(row.findings, self.sources([row.findings]), allowance=allowance),
            left_out=self._left_out(within, row.findings),
        )
