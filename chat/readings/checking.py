"""Find the sources that a reading's answer cites, and check that their passages support its sentences.

The check is the same as for the answer of a turn. It also looks for support in the passages before and after the cited
one, since a passage may end anywhere in the text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypedDict
from uuid import UUID

from chat.citations.places import place_in
from chat.citations.services import FoundPlace, PartCheck, check_against
from chat.models.parts import CitationDoubt, CitationPlace
from chat.readings import planning
from chat.readings.layout import TextLayout
from chat.readings.models import Reading
from chat.rendering.references import PlaceLink, Source, Sources, cited_numbers, place_href


class PassagePlace(TypedDict):
    """The position of a cited passage: characters [start, end) of its file, and the page where it begins.

    `page` is 0 in a text without pages. `file` is None if the file was deleted.
    """

    number: int
    title: str
    file: UUID | None
    start: int
    end: int
    page: int


def find_sources(reading: Reading, layout: TextLayout, texts: Iterable[str]) -> dict[int, Source]:
    """Return the sources that these texts cite, by number. Sources in deleted files are left out."""
    numbers = {number for text in texts for number in cited_numbers(text)}
    valid = (number for number in sorted(numbers) if 1 <= number <= len(reading.passages))
    sources = Sources()
    sources.add_documents(
        each for number in valid if (each := locate_passage(reading, layout, number))["file"] is not None
    )
    # A text without pages is shown as one long page, so its link leads to the highlighted passage.
    return {
        number: each if "#" in each.href else replace(each, href=f"{each.href}#passage")
        for number, each in sources.items()
    }


def locate_passage(reading: Reading, layout: TextLayout, number: int) -> PassagePlace:
    """Return the position of a passage in its file."""
    start, end = planning.passage_span(reading.passages, number)
    row = layout.file_at(start)
    file_start = row.start if row is not None else 0
    return {
        "number": number,
        "title": row.name if row is not None else reading.file_name,
        "file": row.file_id if row is not None else None,
        "start": start - file_start,
        "end": end - file_start,
        "page": layout.page_at(start),
    }


def check_answer(reading: Reading, layout: TextLayout, text: str, answer: str) -> list[PartCheck]:
    """Return the checks of an answer from this text, as `chat.citations.services.check` does for a turn."""
    sources = find_sources(reading, layout, [answer])
    passages = _Passages(text, reading.passages, layout)
    return check_against(passages, [{"type": "text", "text": answer}], sources)


def get_doubts(reading: Reading) -> list[CitationDoubt]:
    """Return the sentences of the answer that their passages do not support, as in the event `CITATION_CHECK`."""
    return list((reading.citation_check or {}).get("doubts", ()))


def link_places(reading: Reading) -> dict[tuple[int, int], PlaceLink]:
    """Return the links to the sentences that the citations of the answer lead to."""
    places: Iterable[CitationPlace] = (reading.citation_check or {}).get("places", ())
    return {
        (place["citation"], place["number"]): PlaceLink(place_href(place), f"0.{place['citation']}") for place in places
    }


class _Passages:
    def __init__(self, text: str, ends: Sequence[int], layout: TextLayout) -> None:
        self._text = text
        self._ends = ends
        self._layout = layout

    def cited(self, numbers: Sequence[int]) -> str:
        return "\n\n".join(
            self._text[slice(*planning.passage_span(self._ends, number))]
            for number in numbers
            if self._is_valid(number)
        )

    def around(self, numbers: Sequence[int], sentence: str) -> str:
        near = {
            near for number in numbers for near in (number - 1, number, number + 1) if self._in_same_file(number, near)
        }
        return self.cited(sorted(near))

    def place(self, number: int, sentence: str) -> FoundPlace | None:
        row = self._layout.file_at(planning.passage_span(self._ends, number)[0]) if self._is_valid(number) else None
        if row is None or row.file_id is None:
            return None
        start, end = planning.passage_span(self._ends, number)
        place = place_in(sentence, self._text[start:end])
        if place is None:
            return None
        return {
            "file": str(row.file_id),
            "page": self._layout.page_at(start + place.start),
            "start": start - row.start,
            "end": end - row.start,
            "sentence_start": start + place.start - row.start,
            "sentence_end": start + place.end - row.start,
        }

    def _is_valid(self, number: int) -> bool:
        return 1 <= number <= len(self._ends)

    def _in_same_file(self, one: int, other: int) -> bool:
        """Return whether both are passages of one file."""
        if not (self._is_valid(one) and self._is_valid(other)):
            return False
        first, second = (self._layout.file_at(planning.passage_span(self._ends, each)[0]) for each in (one, other))
        return first == second
