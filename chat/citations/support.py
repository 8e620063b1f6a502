"""Decide whether a passage supports a sentence that cites it. Pure functions over texts.

The sentence is compared with the sentences of the passage on the same subject. Reasons for a doubt are: a number or
a name that the passage lacks, a negation or an opposite on one side only, the same names in swapped places, and a
passage about something else. A sentence in other words counts as supported without such a reason.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from chat.citations.words import NEGATIONS, OPPOSITES, Word, approximate, same_number, words_of

LEAST_WORDS = 3  # content words; a shorter sentence is not compared
RELEVANT_PART = 0.5  # fraction of the best share; sentences of the passage above it are compared
# A passage below both limits (share of the words, cosine) is about something else.
COVERED = 0.4
SIMILAR = 0.5
ALIKE = 0.6  # sentences with this share of words in common are compared word by word
ALMOST_THE_SAME = 0.8  # a replaced name or number counts in sentences with this share of words in common
LONGEST_ABBREVIATION = 8  # characters
IN_ORDER = 0.9  # share of the words that must be in order after a swap
MOST_SWAPPED = 12  # names and numbers that are tried in pairs
SCOPE = 3  # a negation applies to so many content words after it

Similarity = Callable[[str, str], float]  # the cosine of two texts

_ENDS = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[^\sa-z])|(?<=[。！？])|\n\s*\n|(?<=\|)\n|\n(?=\s*(?:[|#>*•-]|\d+[.)]\s))"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Inc|Ltd|Co|approx)|\b[A-Z])\.$"
)
_PRONOUN = re.compile(
    r"\b(?:he|she|it|they|his|her|its|their|this|these|those|such|the (?:company|author|study))\b", re.IGNORECASE
)


class DoubtKind(StrEnum):
    """A reason to doubt that a passage supports a sentence."""

    NUMBER = "number"
    NAME = "name"
    NEGATION = "negation"
    OPPOSITE = "opposite"
    ORDER = "order"
    ABSENT = "absent"
    MODEL = "model"  # from `chat.citations.judging`


@dataclass(frozen=True, slots=True)
class CitationVerdict:
    """The result of a comparison.

    `reasons` are the reasons for doubt, each with the words of the sentence that caused it. A supported sentence has
    none. `evidence` is the part of the passage that was compared.
    """

    reasons: tuple[tuple[DoubtKind, str], ...]
    evidence: str

    @property
    def supported(self) -> bool:
        """Return whether the passage supports the sentence."""
        return not self.reasons


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each sentence with the blanks after it. Table rows and list items are sentences too."""
    start = 0
    for match in _ENDS.finditer(text):
        before = text[max(start, match.start() - LONGEST_ABBREVIATION) : match.start()]
        if "\n" in match[0] or not _ABBREVIATION.search(before):
            yield start, match.end()
            start = match.end()
    yield start, len(text)


def sentences(text: str) -> list[str]:
    """Return the sentences in order, each in one line, without blank ones."""
    lines = (" ".join(text[start:end].split()) for start, end in spans(text))
    return [line for line in lines if line]


def compare(
    sentence: str, passage: str, *, title: str = "", similarity: Similarity | None = None
) -> CitationVerdict | None:
    """Compare a sentence with a passage. Return None for a sentence with too few words.

    `title` is the title of the passage's document. Its words count as words of the passage.
    """
    words = words_of(sentence)
    content = [word for word in words if word.content]
    if len(content) < LEAST_WORDS:
        return None
    passage_sentences = [(each, words_of(each)) for each in sentences(passage)]
    shares = [_share(content, each) for _, each in passage_sentences]
    best = max(shares, default=0.0)
    relevant = [at for at, share in enumerate(shares) if share and share >= RELEVANT_PART * best]
    relevant = sorted(set(_with_antecedents(relevant, passage_sentences)))
    evidence = " ".join(passage_sentences[at][0] for at in relevant)
    passage_words = [word for at in relevant for word in passage_sentences[at][1]] + words_of(title)
    covered = _share(content, passage_words)
    if covered < COVERED and (similarity is None or similarity(sentence, evidence or passage) < SIMILAR):
        return CitationVerdict(((DoubtKind.ABSENT, ""),), evidence or " ".join(passage.split())[:400])
    reasons = [*_missing_numbers(sentence, content, passage_words), *_missing_names(words, passage_words)]
    if best >= ALIKE:
        reasons += _word_by_word(words, passage_sentences[shares.index(best)][1])
    return CitationVerdict(tuple(dict.fromkeys(reasons)), evidence)


def _share(content: Sequence[Word], other: Sequence[Word]) -> float:
    """Return the share of the content words that the other words contain."""
    stems = {word.stem for word in other}
    numbers = [word for word in other if word.values]
    contained = sum(
        any(same_number(word, each, approximately=False) for each in numbers) if word.values else word.stem in stems
        for word in content
    )
    return contained / len(content)


def _with_antecedents(relevant: Sequence[int], passage: Sequence[tuple[str, list[Word]]]) -> Iterator[int]:
    """Yield the sentences, and before each with a pronoun the two sentences that the pronoun may refer to."""
    for at in relevant:
        yield at
        if _PRONOUN.search(passage[at][0]):
            yield from range(max(0, at - 2), at)


def _missing_numbers(
    sentence: str, content: Sequence[Word], passage: Sequence[Word]
) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the numbers of the sentence that the passage lacks."""
    numbers = [word for word in passage if word.values]
    stems = {word.stem for word in passage}
    approximately = approximate(sentence)
    for word in content:
        # A number word such as “one” may be no number. It is compared only if the passage has numbers.
        compared = word.values and (word.text[0].isdigit() or (numbers and word.stem not in stems))
        if compared and not any(same_number(word, each, approximately=approximately) for each in numbers):
            yield DoubtKind.NUMBER, word.text


def _missing_names(words: Sequence[Word], passage: Sequence[Word]) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the names of the sentence that the passage lacks, also as initials."""
    stems = {word.stem for word in passage}
    initials = {"".join(word.text[0] for word in passage[at : at + size] if word.text[0].isupper()).casefold()
                for size in (2, 3, 4, 5) for at in range(len(passage))}  # fmt: skip
    own = {word.stem for word in words}
    others = any((word.name or word.initial) and word.text[:1].isupper() and word.stem not in own for word in passage)
    for word in words:
        if word.values or word.stem in stems or word.text.casefold() in initials or not word.content:
            continue
        # A capital at the beginning of a sentence counts as a name only if the passage has another name instead.
        if word.name or (word.initial and word.text[:1].isupper() and others):
            yield DoubtKind.NAME, word.text


def _word_by_word(words: Sequence[Word], other: Sequence[Word]) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the reasons that only two similar sentences can give: negations, opposites, swaps and replacements."""
    yield from _negations(words, other)
    yield from _negations(other, words)
    own = {word.text.casefold() for word in words}
    others = {word.text.casefold() for word in other}
    for word in words:
        lower = word.text.casefold()
        if lower not in others and OPPOSITES.get(lower, frozenset()) & (others - own):
            yield DoubtKind.OPPOSITE, word.text
    yield from _swapped(words, other)
    yield from _replaced(words, other)


def _replaced(words: Sequence[Word], other: Sequence[Word]) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the names and numbers that an otherwise similar sentence replaces by others."""
    if _share([word for word in words if word.content], other) < ALMOST_THE_SAME:
        return
    for kind, reason in ((_is_number, DoubtKind.NUMBER), (_is_name, DoubtKind.NAME)):
        if any(kind(word) and not _among(word, words) for word in other):
            yield from (
                (reason, word.text) for word in words if kind(word) and word.content and not _among(word, other)
            )


def _among(word: Word, words: Sequence[Word]) -> bool:
    """Return whether the words contain the word, or a number of the same value."""
    return any(
        word.stem == each.stem or (word.values and same_number(word, each, approximately=False)) for each in words
    )


def _is_number(word: Word) -> bool:
    return bool(word.values) and word.text[0].isdigit()


def _is_name(word: Word) -> bool:
    return word.name


def _negations(one: Sequence[Word], other: Sequence[Word]) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the first negation in `one` of a word that `other` has without a negation."""
    for at, word in enumerate(one):
        if word.text.casefold() not in NEGATIONS or (at + 1 < len(one) and one[at + 1].text.casefold() == "only"):
            continue
        scope = [each for each in one[at + 1 :] if each.content][:SCOPE]
        for place, each in enumerate(other):
            if scope and each.stem == scope[0].stem:
                around = other[max(0, place - SCOPE - 1) : place + SCOPE]
                if NEGATIONS.isdisjoint(near.text.casefold() for near in around):
                    yield DoubtKind.NEGATION, f"{word.text} {each.text}"
                    return
                break


def _swapped(words: Sequence[Word], other: Sequence[Word]) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the first two swapped names or numbers: exchanging them gives the order of the other sentence.

    Only words that the other sentence has once are considered. A change between active and passive is no swap.
    """
    places: dict[str, list[int]] = {}
    for at, word in enumerate(other):
        places.setdefault(_key(word), []).append(at)
    once = [(word, places[_key(word)][0]) for word in words if len(places.get(_key(word), ())) == 1]
    order = [at for _, at in once]
    candidates = [n for n, (word, at) in enumerate(once) if word.values or word.name or other[at].name]
    passive = [sum(word.text.casefold() == "by" for word in each) for each in (words, other)]
    if passive[0] != passive[1] or _longest_rise(order) == len(order):
        return
    for first, second in combinations(candidates[:MOST_SWAPPED], 2):
        exchanged = list(order)
        exchanged[first], exchanged[second] = order[second], order[first]
        same_kind = bool(once[first][0].values) == bool(once[second][0].values)
        if (
            same_kind
            and order[first] > order[second]
            and _longest_rise(exchanged) >= max(IN_ORDER * len(exchanged), _longest_rise(order) + 1)
        ):
            yield DoubtKind.ORDER, f"{once[first][0].text}, {once[second][0].text}"
            return


def _key(word: Word) -> str:
    """Return the text that identifies a word: the value of a number, else the stem."""
    return f"{min(word.values)}" if word.values else word.stem


def _longest_rise(places: Sequence[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
