"""Decide whether a passage supports a sentence that cites it. Pure functions over texts.

The sentence is compared with the sentences of the passage on the same subject. Reasons for a doubt are: a number or
a name that the passage lacks, a passage about something else, and what `chat.citations.differences` finds between the
sentence and the most similar one of the passage. A sentence in other words counts as supported without such a reason.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from chat.citations.differences import Alignment, DoubtKind, Reason, Similarity, differences
from chat.citations.vocabulary import (
    AMBIGUOUS_NUMBERS,
    FUNCTION_WORDS,
    FUNCTION_WORDS_BY_LANGUAGE,
    NUMBER_WORDS,
    ONE,
    UNITS,
)
from chat.citations.words import (
    LEAST_SHARED,
    Amount,
    Word,
    approximate,
    language_of,
    same_number,
    same_origin,
    synonym_lines,
    words_of,
)

BETWEEN_CELLS = " | "
LEAST_WORDS = 2  # content words; a shorter sentence is not compared
LEAST_OF_SUBJECT = 3  # content words; a shorter sentence is not judged by its subject
RELEVANT_PART = 0.5  # fraction of the best share; sentences of the passage above it are compared
# A passage below both limits (share of the words, cosine) is about something else.
COVERED = 0.4
SIMILAR = 0.5
COVERED_IN_OTHER_WORDS = 0.5
ALMOST_THE_SAME = 0.8  # sentences with this share of words in common have the same numbers
LEAST_COMMON_SHARE = 0.5  # sentences with this share of words in common are compared word by word
CANDIDATES = 4  # sentences of the passage that are compared word by word
UNDECIDED = 0.15  # difference of the shares of two sentences that are compared word by word
MAX_CLAUSES = 6  # of a sentence, that are compared one by one
LEAST_OF_CLAUSE = 0.6  # share of the words of a clause that its sentence has
FIXED_ORDER = 0.12  # share of English or Vietnamese function words in a text of the language
SAMPLE = 50  # sentences that tell the language
MAX_ABBREVIATION_LENGTH = 8  # characters
MAX_ROW_LENGTH = 2_000  # characters of a row of a table with commas

_SENTENCE_ENDS = re.compile(
    r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[^\sa-z])|(?<=[。！？])|\n\s*\n|(?<=\|)\n"
    r"|\n(?=\s*(?:[|#>*•-]|\d+[.)]\s))|(?P<line>\n)"
)
_CLAUSE_ENDS = re.compile(r"[,;] (?:(?:and|but|while|whereas|und|aber|während|còn|và) )?")
_SEPARATOR = re.compile(r"\t|(?<=\S)[;,](?=\S)")
_ROW = re.compile(r"^\||(?<=\S)[;,\t](?=[^\W\d])|(?<=[^\W\d])[;,\t](?=\S)")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|al|Dr|Mr|Mrs|Ms|Prof|St|No|Fig|Eq|Inc|Ltd|Co|approx)|\b[A-Z])\.$"
)
_PRONOUN = re.compile(
    r"\b(?:he|she|it|they|his|her|its|their|this|these|those|such|the (?:company|author|study))\b", re.IGNORECASE
)


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
    for match in _SENTENCE_ENDS.finditer(text):
        before = text[max(start, match.start() - MAX_ABBREVIATION_LENGTH) : match.start()]
        if match["line"]:
            ends = _are_rows(text, start, match.start())
        else:
            ends = "\n" in match[0] or not _ABBREVIATION.search(before)
        if ends:
            yield start, match.end()
            start = match.end()
    yield start, len(text)


def _are_rows(text: str, start: int, end: int) -> bool:
    """Return whether the line that ends at `end`, and the next one, are rows of a table with commas, such as CSV."""
    line = text[max(start, end - MAX_ROW_LENGTH, text.rfind("\n", start, end) + 1) : end]
    following = text.find("\n", end + 1)
    next_line = text[end + 1 : min(following if following >= 0 else len(text), end + MAX_ROW_LENGTH)]
    one, other = (_SEPARATOR.findall(each) for each in (line, next_line))
    return bool(one) and len(one) == len(other) and one[0] == other[0]


def sentences(text: str) -> list[str]:
    """Return the sentences in order, each in one line, without blank ones."""
    lines = (" ".join(text[start:end].split()) for start, end in spans(text))
    return [line for line in lines if line]


@dataclass(frozen=True, slots=True)
class PassageSentence:
    """A sentence of a passage: characters [start, end), its text in one line, and its words."""

    start: int
    end: int
    text: str
    words: list[Word]


class IndexedPassage:
    """The sentences of a passage, without blank ones, where each word stands, and the language of the words."""

    def __init__(self, text: str) -> None:
        self.sentences: list[PassageSentence] = []
        self._stems: dict[str, list[int]] = {}
        self._numbers: dict[tuple[str, frozenset[float], frozenset[Amount]], tuple[Word, set[int]]] = {}
        self.language = language_of(text)
        for start, end in spans(text):
            if line := " ".join(text[start:end].split()):
                self._add(PassageSentence(start, end, line, words_of(line, self.language)))

    def _add(self, sentence: PassageSentence) -> None:
        at = len(self.sentences)
        self.sentences.append(sentence)
        for stem in {word.stem for word in sentence.words}:
            self._stems.setdefault(stem, []).append(at)
        for word in sentence.words:
            if word.values or word.amounts:
                self._numbers.setdefault((word.lower, word.values, word.amounts), (word, set()))[1].add(at)

    @cached_property
    def has_fixed_order(self) -> bool:
        """Whether the text has the function words of a language in which the order of words tells who does what."""
        words = [word.lower for each in self.sentences[:SAMPLE] for word in each.words]
        return any(
            sum(word in function_words for word in words) >= FIXED_ORDER * len(words)
            for function_words in (FUNCTION_WORDS, FUNCTION_WORDS_BY_LANGUAGE["vi"])
        )

    @property
    def words(self) -> list[Word]:
        """Return all words in order."""
        return [word for each in self.sentences for word in each.words]

    def places_of(self, word: Word) -> set[int]:
        """Return the indexes of the sentences that contain the word."""
        if word.values:
            return {
                at
                for number, places in self._numbers.values()
                if same_number(word, number, approximately=False)
                for at in places
            }
        return set(self._stems.get(word.stem, ()))

    def shares(self, content: Sequence[Word]) -> list[float]:
        """Return, for each sentence, the share of the content words that it contains."""
        counts = Counter(at for word in content for at in self.places_of(word))
        return [counts[at] / max(1, len(content)) for at in range(len(self.sentences))]


@lru_cache(maxsize=32)
def passage_of(text: str) -> IndexedPassage:
    """Return the sentences of a passage. All claims of an answer are compared with few passages."""
    return IndexedPassage(text)


def compare(
    sentence: str, passage: str, *, title: str = "", similarity: Similarity | None = None
) -> CitationVerdict | None:
    """Compare a sentence with a passage. Return None for a sentence with too few words.

    `title` is the title of the passage's document. Its words count as words of the passage.
    """
    indexed = passage_of(passage)
    words = words_of(sentence, indexed.language)
    content = [word for word in words if word.content]
    if len(content) < LEAST_WORDS:
        return None
    all_sentences = indexed.sentences
    shares = indexed.shares(content)
    best = max(shares, default=0.0)
    relevant = [at for at, share in enumerate(shares) if share and share >= RELEVANT_PART * best]
    relevant = sorted(set(_with_antecedents(relevant, all_sentences)))
    evidence = " ".join(all_sentences[at].text for at in relevant)
    title_words = words_of(title)
    passage_words = [word for at in relevant for word in all_sentences[at].words] + title_words
    covered = len(content) < LEAST_OF_SUBJECT or _share(content, passage_words) >= COVERED
    covered = covered or _share_in_other_words(content, passage_words) >= COVERED_IN_OTHER_WORDS
    if not covered and (similarity is None or similarity(sentence, evidence or passage) < SIMILAR):
        return CitationVerdict(((DoubtKind.ABSENT, ""),), evidence or " ".join(passage.split())[:400])
    # A row of a table has its parts from several sentences.
    in_reach = indexed.words if BETWEEN_CELLS in sentence else passage_words
    reasons = [*_missing_numbers(sentence, content, in_reach), *_missing_names(words, passage_words),
               *_wrong_units(words, passage_words)]  # fmt: skip
    if best >= LEAST_COMMON_SHARE:
        nearest = _nearest(words, all_sentences, shares)
        reasons += _replaced_numbers(content, nearest)
        reasons += differences(words, nearest.words, passage_words, similarity, fixed_order=indexed.has_fixed_order)
        for part, its_nearest in _parts_from_elsewhere(sentence, indexed, nearest):
            reasons += differences(
                part, its_nearest.words, passage_words, similarity, fixed_order=indexed.has_fixed_order
            )
    return CitationVerdict(tuple(_each_word_once(reasons)), evidence)


def _nearest(words: Sequence[Word], passage: Sequence[PassageSentence], shares: Sequence[float]) -> PassageSentence:
    """Return the sentence that has most of the words in one order, among those that have most of them."""
    best = max(shares)
    near = sorted((at for at, share in enumerate(shares) if share >= best - UNDECIDED), key=lambda at: -shares[at])
    if len(near) == 1:
        return passage[near[0]]
    at = max(near[:CANDIDATES], key=lambda at: shares[at] + Alignment(words, passage[at].words).share)
    return passage[at]


def _parts_from_elsewhere(
    sentence: str, passage: IndexedPassage, nearest: PassageSentence
) -> Iterator[tuple[list[Word], PassageSentence]]:
    """Yield the clauses of a sentence that joins two of the passage, with the sentence that each comes from."""
    clauses = _CLAUSE_ENDS.split(sentence)
    for clause in clauses[:MAX_CLAUSES] if len(clauses) > 1 else ():
        words = words_of(clause, passage.language)
        content = [word for word in words if word.content]
        shares = passage.shares(content)
        best = max(shares, default=0.0)
        place = passage.sentences[shares.index(best)] if shares else nearest
        if len(content) >= LEAST_OF_SUBJECT and best >= LEAST_OF_CLAUSE and best > _share(content, nearest.words):
            yield words, place


def _each_word_once(reasons: Sequence[Reason]) -> Iterator[Reason]:
    """Yield the reasons, without those that name words of an earlier reason again."""
    named: set[str] = set()
    for kind, words in reasons:
        if not words or not named.issuperset(words.split()):
            yield kind, words
        named.update(words.split())


def _share(content: Sequence[Word], other: Sequence[Word]) -> float:
    """Return the share of the content words that the other words contain."""
    stems = {word.stem for word in other}
    numbers = [word for word in other if word.values or word.amounts]
    contained = sum(
        any(same_number(word, each, approximately=False) for each in numbers) if word.values else word.stem in stems
        for word in content
    )
    return contained / len(content)


def _share_in_other_words(content: Sequence[Word], other: Sequence[Word]) -> float:
    """Return the share of the content words that the other words contain, also as a synonym."""
    stems = {word.stem for word in other}
    meanings = {meaning for word in other for meaning in synonym_lines(word)}
    return sum(word.stem in stems or not meanings.isdisjoint(synonym_lines(word)) for word in content) / len(content)


def _with_antecedents(relevant: Sequence[int], passage: Sequence[PassageSentence]) -> Iterator[int]:
    """Yield the sentences, and before each with a pronoun the two sentences that the pronoun may refer to."""
    for at in relevant:
        yield at
        if _PRONOUN.search(passage[at].text):
            yield from range(max(0, at - 2), at)


def _missing_numbers(
    sentence: str, content: Sequence[Word], passage: Sequence[Word]
) -> Iterator[tuple[DoubtKind, str]]:
    """Yield the numbers of the sentence that the passage lacks."""
    numbers = [word for word in passage if word.values or word.amounts]
    stems = {word.stem for word in passage}
    # “A” may stand for the number 1, and “năm” is five or a year.
    possible = {1.0} if any(word.lower in ONE for word in passage) else set()
    possible |= {NUMBER_WORDS[word.lower] for word in passage if word.lower in AMBIGUOUS_NUMBERS}
    approximately = approximate(sentence)
    for word in content:
        # A number word such as “one” may be no number. It is compared only if the passage has numbers.
        compared = word.values and (word.text[0].isdigit() or (numbers and word.stem not in stems))
        if not word.values.isdisjoint(possible):
            continue
        if compared and not any(same_number(word, each, approximately=approximately) for each in numbers):
            yield DoubtKind.NUMBER, word.text


def _replaced_numbers(content: Sequence[Word], nearest: PassageSentence) -> Iterator[Reason]:
    """Yield the numbers of the sentence that its nearest sentence of the passage, or its row of a table, lacks."""
    others = [word for word in content if not word.values]
    least = LEAST_COMMON_SHARE if _ROW.search(nearest.text) else ALMOST_THE_SAME
    numbers = [word for word in nearest.words if word.values or word.amounts]
    if not numbers or not others or _share(others, nearest.words) < least:
        return
    if all(any(same_number(word, each, approximately=True) for each in content) for word in numbers):
        return  # the sentence has all of them, and more from elsewhere
    for word in content:
        if word.values and not any(same_number(word, each, approximately=True) for each in numbers):
            yield DoubtKind.NUMBER, word.text


def _missing_names(words: Sequence[Word], passage: Sequence[Word]) -> Iterator[Reason]:
    """Yield the names of the sentence that the passage lacks, also as initials."""
    stems = {word.stem for word in passage}
    capitals: dict[str, dict[str, Word]] = {}  # by their first letters, which a place and its people share
    for word in passage:
        if word.text[0].isupper():
            capitals.setdefault(word.lower[:LEAST_SHARED], {})[word.lower] = word
    meanings = {meaning for word in passage for meaning in synonym_lines(word)}
    letters = "".join(word.lower[0] for word in passage if word.content)
    for word in words:
        abbreviates = word.text.isupper() and word.lower in letters
        if not word.name or not word.content or word.values or word.stem in stems or abbreviates:
            continue
        near = capitals.get(word.lower[:LEAST_SHARED], {}).values()
        if meanings.isdisjoint(synonym_lines(word)) and not any(same_origin(word, each) for each in near):
            yield DoubtKind.NAME, word.text


def _wrong_units(words: Sequence[Word], passage: Sequence[Word]) -> Iterator[Reason]:
    """Yield the numbers of the sentence that the passage has with another unit of the same measure."""
    numbers = [(word, _unit_after(passage, at)) for at, word in enumerate(passage) if word.values]
    for at, word in enumerate(words):
        unit = _unit_after(words, at) if word.values else None
        if unit is None:
            continue
        others = [other for number, other in numbers if same_number(word, number, approximately=False)]
        if any(other is not None and not unit.amounts.isdisjoint(other.amounts) for other in others):
            continue
        measure = UNITS[unit.lower][0]
        stems = {other.stem for other in others if other is not None and UNITS[other.lower][0] == measure}
        if stems and unit.stem not in stems:
            yield DoubtKind.NUMBER, f"{word.text} {unit.text}"


def _unit_after(words: Sequence[Word], at: int) -> Word | None:
    """Return the unit after a number, or before it as in “€ 5”; None without one."""
    near = [*words[at + 1 : at + 3], *words[max(0, at - 1) : at]]
    return next((word for word in near if word.lower in UNITS), None)
