"""What is shown of a reading: its answer with sources, what was found where, and how much was read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse

from chat.models import ModelCall, Reading, ReadingPart
from chat.readings import checking, planning
from chat.readings.planning import Coverage
from chat.readings.services import coverage, spans_of
from chat.rendering.markdown import render
from chat.rendering.references import Source
from chat.usage.services import money_in_words, tokens_in_words, totals

SHOWN = 50  # parts on one page


@dataclass(frozen=True, slots=True)
class PartView:
    """A part that was asked about, or what several were folded into. `blocks` are safe HTML; `left_out` are sources
    that its notes came from and it does not name."""

    row: ReadingPart
    first_page: int
    last_page: int
    href: str
    blocks: list[str]
    left_out: list[Source]


class ReadingView:
    """A reading with everything that is derived of its rows."""

    def __init__(self, reading: Reading) -> None:
        self.row = reading
        self.spans = spans_of(reading)
        rows = list(reading.parts.all())
        self.parts = [row for row in rows if row.level == 0]
        self.folds = [row for row in rows if row.level]

    @cached_property
    def coverage(self) -> Coverage:
        return coverage(self.row, self.parts, self.spans)

    @cached_property
    def read(self) -> int:
        """Parts that were read."""
        return sum(row.state == ReadingPart.State.DONE for row in self.parts)

    @cached_property
    def found(self) -> int:
        """Parts in which something was found."""
        return sum(bool(row.findings) for row in self.parts)

    @cached_property
    def calls(self) -> Any:
        """What its calls took so far, as `chat.usage.services.SUMS`."""
        return totals(ModelCall.objects.filter(reading=self.row.pk))

    @property
    def spent(self) -> str:
        """In tokens."""
        return tokens_in_words(self.calls) if self.calls["calls"] else ""

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
    def goes_on(self) -> bool:
        """Whether there is something left to ask."""
        return not self.row.live and (self.row.status != Reading.Status.DONE or self.coverage.percent < 100)

    def sources(self, texts: Iterable[str]) -> dict[int, Source]:
        """What these texts cite, by number; nothing of a file that is gone."""
        return checking.sources_of(self.row, self.spans, texts)

    def place(self, number: int) -> dict[str, Any]:
        """The characters of a passage and the page on which it begins, 0 where there are none."""
        return checking.place(self.row, self.spans, number)

    def _left_out(self, given: Sequence[str], said: str) -> list[Source]:
        numbers = planning.left_out(given, said, len(self.row.passages))
        known = self.sources(given)
        return [known.get(number) or Source(number, self.row.file_name, "") for number in numbers]

    def shown(self, first: int) -> list[PartView]:
        """The parts from the `first` one on, counted from 0."""
        return [self._part(row) for row in self.parts[first : first + SHOWN]]

    @property
    def folded(self) -> list[PartView]:
        """What the notes were put together into."""
        return [self._part(row) for row in self.folds]

    def _part(self, row: ReadingPart) -> PartView:
        first, last = planning.page_at(self.spans, row.start), planning.page_at(self.spans, row.end - 1)
        within = [each.findings for each in self.parts if row.start <= each.start < row.end] if row.level else []
        number = planning.numbers_in(self.row.passages, row.start, row.end)[0]
        opened = self.sources([f"[{number}]"]).get(number)
        return PartView(
            row=row,
            first_page=first,
            last_page=last,
            href=opened.href if opened else "",
            blocks=render(row.findings, self.sources([row.findings])),
            left_out=self._left_out(within, row.findings),
        )
