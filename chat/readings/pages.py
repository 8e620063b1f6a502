"""What is shown of a reading: its answer with sources, what was found where, and how much was read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from chat.models import ModelCall, Reading, ReadingPart
from chat.readings import planning
from chat.readings.planning import Coverage
from chat.readings.services import coverage, spans_of
from chat.rendering.markdown import render
from chat.rendering.references import Source, Sources, cited_numbers
from chat.usage.services import spent, totals

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
        return spent(ModelCall.objects.filter(reading=self.row.pk))

    @property
    def answer(self) -> list[str]:
        """Safe HTML, block by block."""
        return render(self.row.answer, self.sources([self.row.answer]))

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
        numbers = {number for text in texts for number in cited_numbers(text)}
        found = Sources()
        if self.row.file_id is not None:
            found.learn(self._document(number) for number in sorted(numbers) if 1 <= number <= len(self.row.passages))
        # Without pages the text is one, and its window long: the link leads to the mark in it.
        return {
            number: each if "#" in each.href else replace(each, href=f"{each.href}#passage")
            for number, each in found.items()
        }

    def place(self, number: int) -> dict[str, Any]:
        """The characters of a passage and the page on which it begins, 0 where there are none."""
        start, end = planning.span_of(self.row.passages, number)
        return {"start": start, "end": end, "page": planning.page_at(self.spans, start)}

    def _document(self, number: int) -> dict[str, Any]:
        return {"number": number, "title": self.row.file_name, "file": self.row.file_id, **self.place(number)}

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
