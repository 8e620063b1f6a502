"""What the answer of a reading cites: where its numbers lead, and whether the passages carry it.

It is held against them as the answer of a turn is. A sentence that its passage does not carry may stand in the one
before or behind it, since passages end where a text has no end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from chat.citations.services import Check, check_against
from chat.models import Reading
from chat.readings import planning
from chat.rendering.references import Source, Sources, cited_numbers


def sources_of(reading: Reading, spans: Sequence[Sequence[int]], texts: Iterable[str]) -> dict[int, Source]:
    """What these texts cite, by number; nothing of a file that is gone. `spans` are those of its pages."""
    numbers = {number for text in texts for number in cited_numbers(text)}
    found = Sources()
    if reading.file_id is not None:
        found.learn(_document(reading, spans, each) for each in sorted(numbers) if 1 <= each <= len(reading.passages))
    # Without pages the text is one, and its window long: the link leads to the mark in it.
    return {
        number: each if "#" in each.href else replace(each, href=f"{each.href}#passage")
        for number, each in found.items()
    }


def place(reading: Reading, spans: Sequence[Sequence[int]], number: int) -> dict[str, Any]:
    """The characters of a passage and the page on which it begins, 0 where there are none."""
    start, end = planning.span_of(reading.passages, number)
    return {"start": start, "end": end, "page": planning.page_at(spans, start)}


def _document(reading: Reading, spans: Sequence[Sequence[int]], number: int) -> dict[str, Any]:
    return {"number": number, "title": reading.file_name, "file": reading.file_id, **place(reading, spans, number)}


def check(reading: Reading, text: str, answer: str) -> list[Check]:
    """Of an answer from this text, as `chat.citations.services.check`."""
    sources = sources_of(reading, [], [answer])
    return check_against(_Passages(text, reading.passages), [{"type": "text", "text": answer}], sources)


def doubts_of(reading: Reading) -> list[dict[str, Any]]:
    """The sentences of its answer that their passages do not carry, in the form of the event `CITATION_CHECK`."""
    return list((reading.citation_check or {}).get("doubts", ()))


class _Passages:
    def __init__(self, text: str, ends: Sequence[int]) -> None:
        self._text, self._ends = text, ends

    def cited(self, numbers: Sequence[int]) -> str:
        there = (number for number in numbers if 1 <= number <= len(self._ends))
        return "\n\n".join(self._text[slice(*planning.span_of(self._ends, number))] for number in there)

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        near = {near for number in numbers for near in (number - 1, number, number + 1)}
        return self.cited(sorted(near))
