"""Whether a passage carries a sentence that cites it: pure functions over texts.

The sentence is held against the part of the passage that speaks of the same. What speaks against it are numbers and
names that are not there, a negation or an opposite on one side alone, the same names the other way round, and a passage
that speaks of something else. A sentence in other words is carried as long as none of that is found.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from chat.citations.words import NEGATIONS, OPPOSITES, Word, approximate, same_number, words_of

LEAST_WORDS = 3  # of content; a shorter sentence says nothing that could be compared
PART_OF_BEST = 0.5  # of the best sentence's share: so much has another that speaks of the same
COVERED, NEAR = 0.4, 0.5  # share of the words, and cosine, below which a passage speaks of something else
ALIKE = 0.6  # share of the words above which two sentences are compared word by word
ALMOST_THE_SAME = 0.8
LONGEST_ABBREVIATION = 8  # characters
IN_ORDER, MOST_MARKED = 0.9, 12  # share of the words that must stand in order; names and numbers tried in pairs
SCOPE = 3  # words behind a negation that it is about

Near = Callable[[str, str], float]  # the cosine of two texts

_ENDS = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[^\sa-z])|(?<=[。！？])|\n\s*\n|(?<=\|)\n|\n(?=\s*(?:[|#>*•-]|\d+[.)]\s))"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Inc|Ltd|Co|approx)|\b[A-Z])\.$"
)
_PRONOUN = re.compile(
    r"\b(?:he|she|it|they|his|her|its|their|this|these|those|such|the (?:company|author|study))\b", re.IGNORECASE
)


class Reason(StrEnum):
    """What speaks against a sentence."""

    NUMBER = "number"
    NAME = "name"
    NEGATION = "negation"
    OPPOSITE = "opposite"
    ORDER = "order"
    ABSENT = "absent"
    MODEL = "model"  # of `chat.citations.judging`


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons` with the words of the sentence that they are about, none for a sentence that is carried; `evidence` is
    the part of the passage that it was held against."""

    reasons: tuple[tuple[Reason, str], ...]
    evidence: str

    @property
    def carried(self) -> bool:
        return not self.reasons


def spans(text: str) -> Iterator[tuple[int, int]]:
    """[start, end) of each sentence, the blanks behind it included; rows of a table and items of a list are some."""
    start = 0
    for match in _ENDS.finditer(text):
        before = text[max(start, match.start() - LONGEST_ABBREVIATION) : match.start()]
        if "\n" in match[0] or not _ABBREVIATION.search(before):
            yield start, match.end()
            start = match.end()
    yield start, len(text)


def sentences(text: str) -> list[str]:
    """In order, without blank ones, each in one line."""
    found = (" ".join(text[start:end].split()) for start, end in spans(text))
    return [each for each in found if each]


def compare(sentence: str, passage: str, *, title: str = "", near: Near | None = None) -> Verdict | None:
    """None for a sentence that says too little to be compared. `title`: what the passage is of, known to its reader."""
    said = words_of(sentence)
    content = [word for word in said if word.content]
    if len(content) < LEAST_WORDS:
        return None
    given = [(each, words_of(each)) for each in sentences(passage)]
    shares = [_share(content, words) for _, words in given]
    best = max(shares, default=0.0)
    about = [at for at, share in enumerate(shares) if share and share >= PART_OF_BEST * best]
    about = sorted(set(_with_what_pronouns_mean(about, given)))
    evidence = " ".join(given[at][0] for at in about)
    known = [word for at in about for word in given[at][1]] + words_of(title)
    covered = _share(content, known)
    if covered < COVERED and (near is None or near(sentence, evidence or passage) < NEAR):
        return Verdict(((Reason.ABSENT, ""),), evidence or " ".join(passage.split())[:400])
    reasons = [*_numbers(sentence, content, known), *_names(said, known)]
    if best >= ALIKE:
        reasons += _word_by_word(said, given[shares.index(best)][1])
    return Verdict(tuple(dict.fromkeys(reasons)), evidence)


def _share(content: Sequence[Word], given: Sequence[Word]) -> float:
    stems = {word.stem for word in given}
    numbers = [word for word in given if word.values]
    there = sum(
        any(same_number(word, each, about=False) for each in numbers) if word.values else word.stem in stems
        for word in content
    )
    return there / len(content)


def _with_what_pronouns_mean(about: Sequence[int], given: Sequence[tuple[str, list[Word]]]) -> Iterator[int]:
    for at in about:
        yield at
        if _PRONOUN.search(given[at][0]):
            yield from range(max(0, at - 2), at)


def _numbers(sentence: str, content: Sequence[Word], known: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    given, stems = [word for word in known if word.values], {word.stem for word in known}
    about = approximate(sentence)
    for word in content:
        # A number in words may be no count at all where the passage has none.
        compared = word.values and (word.text[0].isdigit() or (given and word.stem not in stems))
        if compared and not any(same_number(word, each, about=about) for each in given):
            yield Reason.NUMBER, word.text


def _names(said: Sequence[Word], known: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    stems = {word.stem for word in known}
    initials = {"".join(word.text[0] for word in known[at : at + size] if word.text[0].isupper()).casefold()
                for size in (2, 3, 4, 5) for at in range(len(known))}  # fmt: skip
    mine = {word.stem for word in said}
    others = any((word.name or word.initial) and word.text[:1].isupper() and word.stem not in mine for word in known)
    for word in said:
        if word.values or word.stem in stems or word.text.casefold() in initials or not word.content:
            continue
        # A capital at the beginning says something only where the passage has another name in its place.
        if word.name or (word.initial and word.text[:1].isupper() and others):
            yield Reason.NAME, word.text


def _word_by_word(said: Sequence[Word], given: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    yield from _negations(said, given)
    yield from _negations(given, said)
    mine, theirs = {word.text.casefold() for word in said}, {word.text.casefold() for word in given}
    for word in said:
        lower = word.text.casefold()
        if lower not in theirs and OPPOSITES.get(lower, frozenset()) & (theirs - mine):
            yield Reason.OPPOSITE, word.text
    yield from _order(said, given)
    yield from _in_the_place_of_another(said, given)


def _in_the_place_of_another(said: Sequence[Word], given: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    """A name or number where the other sentence, which is the same otherwise, has another one."""
    if _share([word for word in said if word.content], given) < ALMOST_THE_SAME:
        return
    for kind, reason in ((_is_number, Reason.NUMBER), (_is_name, Reason.NAME)):
        if any(kind(word) and not _among(word, said) for word in given):
            yield from ((reason, word.text) for word in said if kind(word) and word.content and not _among(word, given))


def _among(word: Word, words: Sequence[Word]) -> bool:
    return any(word.stem == each.stem or (word.values and same_number(word, each, about=False)) for each in words)


def _is_number(word: Word) -> bool:
    return bool(word.values) and word.text[0].isdigit()


def _is_name(word: Word) -> bool:
    return word.name


def _negations(one: Sequence[Word], other: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    """Negations in `one` of words that stand in `other` without one."""
    for at, word in enumerate(one):
        if word.text.casefold() not in NEGATIONS or (at + 1 < len(one) and one[at + 1].text.casefold() == "only"):
            continue
        scope = [each for each in one[at + 1 :] if each.content][:SCOPE]
        for place, each in enumerate(other):
            if scope and each.stem == scope[0].stem:
                around = other[max(0, place - SCOPE - 1) : place + SCOPE]
                if NEGATIONS.isdisjoint(near.text.casefold() for near in around):
                    yield Reason.NEGATION, f"{word.text} {each.text}"
                    return
                break


def _order(said: Sequence[Word], given: Sequence[Word]) -> Iterator[tuple[Reason, str]]:
    """Two names or numbers that have changed places: put back, all words stand as they do in the other sentence."""
    places: dict[str, list[int]] = {}
    for at, word in enumerate(given):
        places.setdefault(_key(word), []).append(at)
    once = [(word, places[_key(word)][0]) for word in said if len(places.get(_key(word), ())) == 1]
    order = [at for _, at in once]
    marked = [n for n, (word, at) in enumerate(once) if word.values or word.name or given[at].name]
    passive = [sum(word.text.casefold() == "by" for word in each) for each in (said, given)]
    if passive[0] != passive[1] or _longest_rise(order) == len(order):
        return
    for one, other in combinations(marked[:MOST_MARKED], 2):
        back = list(order)
        back[one], back[other] = order[other], order[one]
        alike = bool(once[one][0].values) == bool(once[other][0].values)
        if (
            alike
            and order[one] > order[other]
            and _longest_rise(back) >= max(IN_ORDER * len(back), _longest_rise(order) + 1)
        ):
            yield Reason.ORDER, f"{once[one][0].text}, {once[other][0].text}"
            return


def _key(word: Word) -> str:
    return f"{min(word.values)}" if word.values else word.stem


def _longest_rise(places: Sequence[int]) -> int:
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
