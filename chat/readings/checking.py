"""What the answer of a reading cites: where its numbers lead, and whether the passages carry it.

It is held against them as the answer of a turn is. A sentence that its passage does not carry may stand in the one
before or behind it, since passages end where a text has no end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from chat.citations.services import PartCheck, check_against
from chat.readings import planning
from chat.readings.layout import Layout
from chat.readings.models import Reading
from chat.rendering.references import Source, Sources, cited_numbers


def sources_of(reading: Reading, layout: Layout, texts: Iterable[str]) -> dict[int, Source]:
    """What these texts cite, by number; nothing of a file that is gone."""
    numbers = {number for text in texts for number in cited_numbers(text)}
    there = (number for number in sorted(numbers) if 1 <= number <= len(reading.passages))
    found = Sources()
    found.learn(each for number in there if (each := place(reading, layout, number))["file"] is not None)
    # Without pages the text is one, and its window long: the link leads to the mark in it.
    return {
        number: each if "#" in each.href else replace(each, href=f"{each.href}#passage")
        for number, each in found.items()
    }


def place(reading: Reading, layout: Layout, number: int) -> dict[str, Any]:
    """A passage as a document that is cited: its file, the characters in that, and the page on which it begins, 0 where
    there are none."""
    start, end = planning.span_of(reading.passages, number)
    row, page = layout.file_at(start), layout.page_at(start)
    before = row.start if row is not None else 0
    named = {"title": row.name if row is not None else reading.file_name, "file": row and row.file_id}
    return {"number": number, **named, "start": start - before, "end": end - before, "page": page}


def check(reading: Reading, layout: Layout, text: str, answer: str) -> list[PartCheck]:
    """Of an answer from this text, as `chat.citations.services.check`."""
    sources = sources_of(reading, layout, [answer])
    passages = _Passages(text, reading.passages, layout)
    return check_against(passages, [{"type": "text", "text": answer}], sources)


def doubts_of(reading: Reading) -> list[dict[str, Any]]:
    """The sentences of its answer that their passages do not carry, in the form of the event `CITATION_CHECK`."""
    return list((reading.citation_check or {}).get("doubts", ()))


class _Passages:
    def __init__(self, text: str, ends: Sequence[int], layout: Layout) -> None:
        self._text, self._ends, self._layout = text, ends, layout

    def cited(self, numbers: Sequence[int]) -> str:
        return "\n\n".join(
            self._text[slice(*planning.span_of(self._ends, number))] for number in numbers if self._has(number)
        )

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        near = {near for number in numbers for near in (number - 1, number, number + 1) if self._same(number, near)}
        return self.cited(sorted(near))

    def _has(self, number: int) -> bool:
        return 1 <= number <= len(self._ends)

    def _same(self, one: int, other: int) -> bool:
        """Whether both are passages of one file."""
        if not (self._has(one) and self._has(other)):
            return False
        first, second = (self._layout.file_at(planning.span_of(self._ends, each)[0]) for each in (one, other))
        return first == second
