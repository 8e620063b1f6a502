"""Find the sentence of a text that carries a sentence of an answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chat.citations.differences import Alignment
from chat.citations.support import CANDIDATES, LEAST_WORDS, UNDECIDED, passage_of
from chat.citations.words import Word, words_of

LEAST_SHARE = 0.3  # share of the content words that the sentence of the text must have
ADDED = 0.25  # share of the content words that a neighbour must add to belong to the place


@dataclass(frozen=True, slots=True)
class SentencePlace:
    """Characters [start, end) of a text. `share`: the share of the sentence's content words that they have."""

    start: int
    end: int
    share: float


@dataclass(frozen=True, slots=True)
class TextPassage:
    """A passage of a text: its position in the text, and the path of headings above it."""

    start: int
    text: str
    heading: str = ""


def best_place(sentence: str, passages: Iterable[TextPassage]) -> tuple[TextPassage, SentencePlace] | None:
    """Return the passage that carries the sentence best, and the place in the whole text; None without one."""
    content = _content(sentence)
    places_by_passage = [
        (passage, place) for passage in passages if (place := _place(sentence, content, passage.text)) is not None
    ]
    if not places_by_passage:
        return None
    passage, place = max(places_by_passage, key=lambda each: each[1].share)
    return passage, SentencePlace(passage.start + place.start, passage.start + place.end, place.share)


def place_in(sentence: str, text: str) -> SentencePlace | None:
    """Return the place of the sentence in the text; None if no sentence of the text carries it."""
    return _place(sentence, _content(sentence), text)


def _content(sentence: str) -> list[Word]:
    return [word for word in words_of(sentence) if word.content]


def _place(sentence: str, content: Sequence[Word], text: str) -> SentencePlace | None:
    if len(content) < LEAST_WORDS:
        return None
    verbatim = text.find(sentence)
    if verbatim >= 0:
        return SentencePlace(verbatim, verbatim + len(sentence), 1.0)
    passage = passage_of(text)
    shares = passage.shares(content)
    ranked = sorted(range(len(shares)), key=lambda at: -shares[at])[:CANDIDATES]
    if not ranked or shares[ranked[0]] < LEAST_SHARE:
        return None
    near = [at for at in ranked if shares[at] >= shares[ranked[0]] - UNDECIDED]
    claim = words_of(sentence) if len(near) > 1 else []
    best = max(near, key=lambda at: shares[at] + (Alignment(claim, passage.sentences[at].words).share if claim else 0))
    contained = [passage.places_of(word) for word in content]
    first, last = best, best
    covered = {at for at, places in enumerate(contained) if best in places}
    # A sentence may go on behind a page break, and an answer may join two sentences.
    for neighbour in (best - 1, best + 1):
        added = {at for at, places in enumerate(contained) if neighbour in places} - covered
        if len(added) >= ADDED * len(content):
            covered |= added
            first, last = min(first, neighbour), max(last, neighbour)
    start, end = passage.sentences[first].start, passage.sentences[last].end
    blank = len(text[start:end]) - len(text[start:end].lstrip())
    return SentencePlace(start + blank, start + len(text[start:end].rstrip()), len(covered) / len(content))
