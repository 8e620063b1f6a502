"""Compare a sentence with a similar source word by word, and return the reasons to doubt that both say the same.

1. `Alignment` pairs equal words of both, in the order of both.
2. The words of both between the same two pairs are a gap. In a gap, a word of the sentence may replace words of the
   source if it is another form, another name, or close in meaning. Any other word is a reason to doubt.
3. Negations, opposites, and exchanged words are compared separately.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise

from chat.citations.vocabulary import (
    GROUPS,
    IMPLICIT_NEGATIONS,
    MONTHS,
    NEGATIONS,
    NUMBER_WORDS,
    ONE,
    POSSIBLE_NUMBERS,
    SCALES,
    UNITS,
    word_set,
)
from chat.citations.words import (
    UMLAUTS,
    Word,
    are_opposites,
    are_synonyms,
    is_unspaced,
    same_number,
    same_origin,
    same_root,
)

Similarity = Callable[[str, str], float]  # the cosine of two texts

MAX_CLAIM_LENGTH = 90  # words of the sentence that are compared
MAX_SOURCE_LENGTH = 160  # words of the source that are compared
CONTENT_WEIGHT = 3  # a pair of content words counts as this many pairs of function words
LEAST_PAIRED_SHARE = 0.72  # share of the words in pairs, by weight; below it, gaps are not compared
EQUAL_OTHERWISE = 0.8  # share of the words in pairs, by weight; from it on, sentences differ in a few words only
LEAST_AROUND = 2  # content words in pairs around a word that replaces another one
LEAST_AROUND_PHRASE = 0.5  # share of the words in pairs, by weight, around a phrase that replaces another one
MAX_PHRASE = 3  # words of it
SAME_MEANING = 0.6  # least cosine of a word and the word that it replaces, if the sentences are equal otherwise
NEAR_MEANING = 0.28  # the same for sentences that differ more
LEAST_COMPOUND = 5  # letters of a word that can be the end of a compound
NEGATION_SCOPE = 3  # content words after a negation that it applies to
WORDS_AROUND_PAIRS = 4  # words of the source before the first pair and after the last that may be exchanged
LEAST_IN_ORDER = 0.9  # share of the words that must be in order once an exchange is undone
MAX_EXCHANGED = 18  # words that are tested for an exchange
MAX_RUN = 6  # words that are exchanged together
DERIVING = word_set("un in im ir il non dis mis ver be ent er zer ge sub super over under pre post")
ARTICLES = word_set("a an the der die das den dem des ein eine le la les un une")
AUXILIARIES = word_set("is are was were be been being am get got wird werden wurde wurden est sont été fut")
AGENTS = word_set("by von vom durch par bởi")
CONJUNCTIONS = word_set("and or und oder et ou và hoặc sowie as well nor")
PREPOSITIONS = word_set("nach zu bis gegen vers à contre a đến tới sang")  # between two places or sides
DEFINITE = word_set("the this that these those its their his her der die das dieser diese le la les ce cette")
BEFORE_NOUNS = (
    ARTICLES | DEFINITE | word_set("all every each any no my your our alle jede jeder jedes kein keine chaque")
)
DEMONSTRATIVES = word_set("this that these those such dies diese dieser dieses ce cet cette ces này đó")
UNIVERSAL = word_set("all every any no alle jeder jede jedes kein keine")
POSSESSIVES = word_set("its his her their own sein seine seiner ihr ihre ihrer")
PERSONS = word_set("he she they it his her hers their its er sie es il elle ils elles")
CLAUSE_BEGINNINGS = word_set(
    "and but or who which because while whereas so since if when unless und aber oder weil wenn"
)
PREPOSITIONS_BEFORE_NOUNS = word_set(
    "from to in at on by for with of during until before after into under over von nach aus bei mit für zu bis vor "
    "từ đến tới ở tại de à en pour"
)
# Prepositions whose objects have a part that no other noun of the sentence has. “By” belongs to the passive, and both
# sides of “with” may come in any order.
PREPOSITIONS_OF_PARTS = word_set(
    "from to in at on for of into under over von nach aus zu in für de à en pour từ đến tới"
)
PREPOSITION_DISTANCE = 3  # most words between a preposition and its noun, counting the noun
EXCEPTIONS = word_set(  # after a negation they mean “only”
    "except unless but other than without until before außer ohne bis bevor sauf sans que ngoại trừ"
)
ONLY = word_set(
    "only solely exclusively alone require requires required need needs must nur ausschließlich erst erfordert muss "
    "müssen seul seule seulement uniquement chỉ"
)
OTHERWISE = word_set("otherwise else sonst andernfalls sinon autrement")  # “if not”
NOUN_NEGATIONS = word_set("without ohne sans sin")  # negations of the noun after them
BOUNDS = word_set("most maximum maximal höchstens đa")
THAN = word_set("than als hơn")
TIMES = word_set("before after without vor nach ohne avant après sans trước sau")
AT_THE_TIME = word_set("on at during with am bei während mit pendant avec vào với")
UNTIL = word_set("until till before bis bevor trước")
VERB_NEGATIONS = word_set("not cannot never nicht không chưa pas")  # negations of a verb
NEGATION_DISTANCE = 6  # words around a negation in which another word can express it
PERSONS_SPOKEN_TO = word_set("i me you we us")
PRONOUNS = word_set("it they he she we this these one ones")


class DoubtKind(StrEnum):
    """A reason to doubt that a passage supports a sentence."""

    NUMBER = "number"
    NAME = "name"
    WORD = "word"
    NEGATION = "negation"
    OPPOSITE = "opposite"
    ORDER = "order"
    ABSENT = "absent"
    MODEL = "model"  # from `chat.citations.judging`


Reason = tuple[DoubtKind, str]  # the kind, and the words of the sentence that it concerns


def same_word(one: Word, other: Word) -> bool:
    """Return whether two words are forms of the same word, or numbers of the same value."""
    if not one.amounts.isdisjoint(other.amounts):
        return True
    if one.values or other.values:
        return bool(one.values and other.values) and same_number(one, other, approximately=False)
    if one.stem == other.stem:
        return True
    if one.lower in SCALES and SCALES[one.lower] == SCALES.get(other.lower):
        return True
    if one.lower in GROUPS and GROUPS[one.lower] == GROUPS.get(other.lower):
        return True
    return one.content and other.content and (same_root(one.lower, other.lower) or same_origin(one, other))


def among(word: Word, words: Sequence[Word]) -> bool:
    """Return whether one of the words is a form of the word."""
    return any(same_word(word, each) for each in words)


@dataclass(frozen=True, slots=True)
class WordGap:
    """The words of the sentence (`claim`) and of the source between the same two pairs.

    `start` and `place` are the positions of their first words in the sentence and in the source. `before` is the word
    before the gap in the source, `before_claim` the one in the sentence.
    """

    claim: Sequence[Word]
    source: Sequence[Word]
    start: int
    place: int
    before: Word | None
    before_claim: Word | None

    @property
    def is_tight(self) -> bool:
        """Whether as many words replace each other, but for an article."""
        return bool(self.source) and abs(len(self.claim) - len(self.source)) <= 1


class Alignment:
    """The words that a sentence (`claim`) and a source have in common, in the same order.

    `claim` and `source` are cut to `MAX_CLAIM_LENGTH` and `MAX_SOURCE_LENGTH` words.
    """

    def __init__(self, claim: Sequence[Word], source: Sequence[Word]) -> None:
        self.claim = claim[:MAX_CLAIM_LENGTH]
        self.source = _window(self.claim, source)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The positions of the paired words, in order."""
        rows, columns = len(self.claim), len(self.source)
        weights = self._weights()
        best = [[0] * (columns + 1) for _ in range(rows + 1)]
        for row in range(rows - 1, -1, -1):
            current, below, of_row = best[row], best[row + 1], weights[row]
            right = 0
            for column in range(columns - 1, -1, -1):
                right = max(right, below[column])
                if (weight := of_row[column]) and below[column + 1] + weight > right:
                    right = below[column + 1] + weight
                current[column] = right
        pairs = []
        row = column = 0
        while row < rows and column < columns:
            weight = weights[row][column]
            if weight and best[row][column] == best[row + 1][column + 1] + weight:
                pairs.append((row, column))
                row, column = row + 1, column + 1
            elif best[row][column] == best[row + 1][column]:
                row += 1
            else:
                column += 1
        return pairs

    def _weights(self) -> list[list[int]]:
        """Return the weight of each pair of words; 0 for words that are not the same."""
        columns: dict[str, list[int]] = {}  # by first letter: words of the same root have the same
        for column, word in enumerate(self.source):
            columns.setdefault(_initial(word), []).append(column)
        others = [
            column
            for column, word in enumerate(self.source)
            if word.values or word.amounts or word.lower in GROUPS or word.lower in SCALES
        ]
        weights = []
        for word in self.claim:
            row = [0] * len(self.source)
            near = [*columns.get(_initial(word), ()), *(columns.get("g", ()) if _initial(word) != "g" else ())]
            if _initial(word) == "g":  # a German participle may begin with “ge”
                near = list(range(len(self.source)))
            special = word.values or word.amounts or word.lower in GROUPS or word.lower in SCALES
            for column in [*near, *(others if special else ())]:
                row[column] = _weight(word, self.source[column])
            weights.append(row)
        return weights

    @cached_property
    def share(self) -> float:
        """The share of the sentence's words that are in pairs, by weight."""
        paired = {at for at, _ in self.pairs}
        weights = [CONTENT_WEIGHT if word.content else 1 for word in self.claim]
        return sum(weight for at, weight in enumerate(weights) if at in paired) / max(1, sum(weights))

    @cached_property
    def differs_in_one_place(self) -> bool:
        """Whether one word or name replaces another one, and the sentence has no other words of its own."""
        gaps = [gap for gap in self.gaps if any(word.content for word in gap.claim)]
        if len(gaps) != 1 or sum(self.claim[at].content for at, _ in self.pairs) < LEAST_AROUND:
            return False
        own, others = ([word for word in words if word.content] for words in (gaps[0].claim, gaps[0].source))
        if own and others and all(word.name for word in (*own, *others)):
            return True
        return len(own) == len(others) == 1 and abs(len(gaps[0].claim) - len(gaps[0].source)) <= 1

    @cached_property
    def differs_in_one_phrase(self) -> bool:
        """Whether a phrase without function words replaces another one, and the sentence has no other words."""
        gaps = [gap for gap in self.gaps if any(word.content for word in gap.claim)]
        if len(gaps) != 1 or self.share < LEAST_AROUND_PHRASE:
            return False
        own, others = gaps[0].claim, gaps[0].source
        lengths = all(1 < len(words) <= MAX_PHRASE for words in (own, others))
        return lengths and all(word.content and not word.light for word in (*own, *others))

    @property
    def equal_otherwise(self) -> bool:
        """Whether the sentences differ in a few words only."""
        return self.share >= EQUAL_OTHERWISE or self.differs_in_one_place

    @cached_property
    def unpaired(self) -> tuple[list[Word], list[Word]]:
        """The words of the sentence, and those of the source, that are in no pair."""
        rows, columns = {row for row, _ in self.pairs}, {column for _, column in self.pairs}
        return (
            [word for at, word in enumerate(self.claim) if at not in rows],
            [word for at, word in enumerate(self.source) if at not in columns],
        )

    @cached_property
    def gaps(self) -> list[WordGap]:
        """The gaps in which the sentence has words."""
        ends = [(-1, -1), *self.pairs, (len(self.claim), len(self.source))]
        return [
            WordGap(
                self.claim[row + 1 : next_row],
                _up_to_clause(self.source[column + 1 : next_column], is_last=next_row == len(self.claim)),
                row + 1,
                column + 1,
                self.source[column] if column >= 0 else None,
                self.claim[row] if row >= 0 else None,
            )
            for (row, column), (next_row, next_column) in pairwise(ends)
            if next_row - row > 1
        ]


def _up_to_clause(words: Sequence[Word], *, is_last: bool) -> Sequence[Word]:
    """Return the words up to the next clause if they are the last gap. After it, the source may change its subject."""
    end = next((at for at, word in enumerate(words) if at and word.lower in CLAUSE_BEGINNINGS), len(words))
    return words[:end] if is_last else words


def _initial(word: Word) -> str:
    return word.stem[0].translate(UMLAUTS)


def _weight(one: Word, other: Word) -> int:
    if not same_word(one, other):
        return 0
    return CONTENT_WEIGHT if one.content and other.content else 1


def _window(claim: Sequence[Word], source: Sequence[Word]) -> Sequence[Word]:
    """Return the `MAX_SOURCE_LENGTH` words of the source with the most content words of the claim."""
    if len(source) <= MAX_SOURCE_LENGTH:
        return source
    stems = {word.stem for word in claim if word.content}
    hits = [word.stem in stems for word in source]
    start = max(range(0, len(source), MAX_SOURCE_LENGTH // 4), key=lambda at: sum(hits[at : at + MAX_SOURCE_LENGTH]))
    return source[start : start + MAX_SOURCE_LENGTH]


def differences(
    claim: Sequence[Word],
    source: Sequence[Word],
    context: Sequence[Word],
    similarity: Similarity | None,
    *,
    fixed_order: bool,
) -> Iterator[Reason]:
    """Yield the reasons to doubt that a sentence says the same as the source.

    `context`: the words of the passage around the source and of the document's title. `fixed_order`: the word order
    distinguishes subject and object, as in English.
    """
    alignment = Alignment(claim, source)
    yield from _negations(alignment.claim, alignment.source)
    denied = _denied_opposites(alignment.claim, alignment.source) | _denied_opposites(alignment.source, alignment.claim)
    opposites = [reason for reason in _opposites(alignment) if reason[1] not in denied]
    exchanged = list(_exchanged(alignment, fixed_order=fixed_order)) or list(_moved_prepositions(alignment))
    yield from _mixed_clauses(alignment)
    # “A is higher than B” means “B is lower than A”.
    compares = all(any(word.lower in THAN for word in words) for words in (alignment.claim, alignment.source))
    inverts = compares and any(are_opposites(word, other) for word in alignment.claim for other in alignment.source)
    if not (inverts and exchanged):
        yield from opposites
        yield from exchanged
    if alignment.share >= LEAST_PAIRED_SHARE or alignment.differs_in_one_place or alignment.differs_in_one_phrase:
        for gap in alignment.gaps:
            yield from _replacements(gap, alignment, context, similarity)


def _replacements(
    gap: WordGap, alignment: Alignment, context: Sequence[Word], similarity: Similarity | None
) -> Iterator[Reason]:
    """Yield the words of the sentence that replace words of the source in a gap, and may not."""
    groups = {GROUPS[word.lower] for word in gap.source if word.lower in GROUPS}
    negated = any(_is_before_negation(alignment.source, gap.place + at) for at in range(len(gap.source)))
    for at, word in enumerate(gap.claim):
        group = GROUPS.get(word.lower)
        replaced = group is not None and group not in groups and any(kind == group[0] for kind, _ in groups)
        # “must not” means “may not”
        if replaced and not (negated and _is_before_negation(alignment.claim, gap.start + at)):
            yield DoubtKind.WORD, word.text
        if word.lower in UNIVERSAL and any(each.lower in POSSESSIVES for each in gap.source):
            yield DoubtKind.WORD, word.text
    equal = alignment.equal_otherwise
    unpaired, unpaired_source = alignment.unpaired
    missing = [word for word in gap.source if word.content and (equal or not word.light) and not among(word, unpaired)]
    contents = [[word for word in words if word.content] for words in (gap.claim, gap.source)]
    if equal and not missing and gap.is_tight and [len(each) for each in contents] == [1, 1]:
        # The sentence has the word of the source elsewhere, and another word in its place.
        missing = contents[1] if not among(contents[0][0], alignment.source) else []
    single = equal and sum(each.content for each in gap.claim) == len(missing) == 1
    # The source may have the word elsewhere, but not if the word has taken the place of exactly one other.
    other_words = gap.source if single and len(gap.claim) == len(gap.source) else unpaired_source
    added = [
        word
        for at, word in enumerate(gap.claim)
        if word.content
        and (not word.light or (single and (word.is_light_noun or _is_head(alignment.claim, gap.start + at))))
        and not _occurs(word, other_words)
    ]
    pronoun = any(word.lower in PERSONS for word in unpaired_source)
    yield from _replaced_names(gap, equal=equal)
    yield from _replaced_amounts(gap, equal=equal)
    yield from _replaced_times(gap, equal=equal)
    for word in added if missing else ():
        if any(are_synonyms(word, each) for each in other_words):
            continue
        if not _may_replace(word, missing, gap, context, pronoun=pronoun) and not (
            similarity and _has_near_meaning(word, missing, equal, similarity)
        ):
            kind = DoubtKind.NUMBER if word.values else DoubtKind.NAME if word.name else DoubtKind.WORD
            yield kind, word.text


def _is_head(words: Sequence[Word], at: int) -> bool:
    """Return whether an article or the like stands before the word."""
    return at > 0 and words[at - 1].lower in BEFORE_NOUNS


def _replaced_names(gap: WordGap, *, equal: bool) -> Iterator[Reason]:
    """Yield the name in a gap that replaces another name, even if the sentence has the other name elsewhere."""
    names = [word for word in gap.claim if word.content]
    others = [word for word in gap.source if word.content]
    if not (equal and names and others and all(word.name for word in (*names, *others))):
        return
    if not any(among(word, others) or _abbreviates(word, gap.source) for word in names):
        yield DoubtKind.NAME, " ".join(word.text for word in names)


def _replaced_amounts(gap: WordGap, *, equal: bool) -> Iterator[Reason]:
    """Yield the number in a gap that replaces “a”, or another number even if each may be another word."""
    numbers = {NUMBER_WORDS[each.lower] for each in gap.source if each.lower in NUMBER_WORDS}
    for word in gap.claim if equal else ():
        value = NUMBER_WORDS.get(word.lower)
        if value is None or value in numbers or word.lower in MONTHS:
            continue
        if len(gap.source) == len(gap.claim) and (numbers or (value > 1 and gap.source[0].lower in ONE)):
            yield DoubtKind.NUMBER, word.text


def _replaced_times(gap: WordGap, *, equal: bool) -> Iterator[Reason]:
    """Yield “before” or “after” in place of a preposition such as “on”, or the other way round."""
    if equal and len(gap.claim) == len(gap.source) == 1:
        word, other = gap.claim[0].lower, gap.source[0].lower
        if (word in TIMES and other in AT_THE_TIME) or (word in AT_THE_TIME and other in TIMES):
            yield DoubtKind.WORD, gap.claim[0].text


def _is_before_negation(words: Sequence[Word], at: int) -> bool:
    return at + 1 < len(words) and words[at + 1].lower in NEGATIONS


def _occurs(word: Word, source: Sequence[Word]) -> bool:
    """Return whether the source has the word, or all characters of a word in a script without spaces."""
    if is_unspaced(word):
        return set(word.text) <= {sign for each in source if is_unspaced(each) for sign in each.text}
    return among(word, source)


def _may_replace(word: Word, missing: Sequence[Word], gap: WordGap, context: Sequence[Word], *, pronoun: bool) -> bool:
    """Return whether a word may replace the missing words of the source, whatever their meanings.

    `pronoun`: the source has a pronoun that the sentence may have replaced by a name.
    """
    if word.values:
        return not any(each.values or each.lower in POSSIBLE_NUMBERS for each in gap.source)
    definite_noun = {each.lower for each in gap.claim} | {gap.before_claim.lower if gap.before_claim else ""}
    if (
        not word.name
        and all(each.name for each in missing)
        and len(missing) > 1
        and not definite_noun.isdisjoint(ARTICLES | DEFINITE)
    ):
        return True  # “the company” replaces several names
    if any(are_opposites(word, each) for each in missing):
        return False
    if _denies(word) and any(each.lower in VERB_NEGATIONS for each in gap.source):
        return True
    if any(_is_compound(word, each) or are_synonyms(word, each) or _abbreviates(each, gap.claim) for each in missing):
        return True
    # “The company” may replace a name from the context, and a name may replace “it”.
    definite = gap.before is not None and gap.before.lower in DEFINITE
    named = any(each.name for each in missing)
    if any(each.lower in ("one", "ones") for each in gap.source):
        return True
    anaphora = any(each.lower in DEMONSTRATIVES for each in (*gap.source, *([gap.before] if gap.before else [])))
    if among(word, context) and (
        (anaphora and all(each.is_light_noun or each.light for each in missing))
        or (definite and named and not word.name)
        or (word.name and not named and (pronoun or any(each.lower in DEFINITE for each in gap.source)))
        or any(each.lower in PRONOUNS for each in gap.source)
    ):
        return True
    # One word may replace a phrase, as “hurt” for “had a negative influence on”.
    comma = next((at for at, each in enumerate(gap.source) if at and each.after_comma), len(gap.source))
    phrase = gap.source[:comma] if gap.before is not None and gap.before.content else gap.source
    is_phrase = sum(each in missing for each in phrase) > 1 and any(
        not each.content and each.lower not in CONJUNCTIONS | ARTICLES for each in phrase
    )
    return _abbreviates(word, gap.source) or (is_phrase and sum(each.content for each in gap.claim) == 1)


def _has_near_meaning(word: Word, missing: Sequence[Word], equal: bool, similarity: Similarity) -> bool:
    """Return whether one of the missing words is close in meaning. Numbers, two units and two names never are."""
    least = SAME_MEANING if equal else NEAR_MEANING
    return not word.values and any(
        similarity(word.lower, each.lower) >= least
        for each in missing
        if not (
            each.values
            or are_opposites(word, each)
            or (word.name and each.name)
            or (word.lower in UNITS and each.lower in UNITS)
        )
    )


def _is_compound(word: Word, other: Word) -> bool:
    """Return whether one word is a compound with the other, as “Mietvertrag” with “Vertrag”; “unknown” is none."""
    short, long = sorted((word.lower, other.lower), key=len)
    return len(short) >= LEAST_COMPOUND and long.endswith(short) and long.removesuffix(short) not in DERIVING


def _abbreviates(word: Word, words: Sequence[Word]) -> bool:
    """Return whether the word consists of initials of consecutive content words."""
    initials = "".join(each.lower[0] for each in words if each.content)
    return len(word.text) > 1 and word.text.isupper() and word.lower in initials


def _opposites(alignment: Alignment) -> Iterator[Reason]:
    """Yield the words of the sentence that replace their opposite."""
    for row, column in alignment.pairs:
        if are_opposites(alignment.claim[row], alignment.source[column]):
            yield DoubtKind.OPPOSITE, alignment.claim[row].text
    unpaired, unpaired_source = alignment.unpaired
    for gap in alignment.gaps:
        for word in gap.claim:
            tight = len(gap.claim) == len(gap.source) == 1 and not among(gap.source[0], unpaired)
            if any(are_opposites(word, other) for other in gap.source) and (tight or not among(word, unpaired_source)):
                yield DoubtKind.OPPOSITE, word.text
    for word in unpaired if alignment.share >= LEAST_PAIRED_SHARE else ():
        opposites = [other for other in unpaired_source if are_opposites(word, other)]
        in_source = among(word, alignment.source) or any(are_synonyms(word, other) for other in unpaired_source)
        if word.content and opposites and not in_source:
            yield DoubtKind.OPPOSITE, word.text


def _negations(claim: Sequence[Word], source: Sequence[Word]) -> Iterator[Reason]:
    """Yield the first negation that only one of the sentences has, and that applies to a word of both."""
    own = [at for at in range(len(claim)) if _negates(claim, at)]
    others = [at for at in range(len(source)) if _negates(source, at)]
    for is_same in (_negate_same_word, _negate_near):
        for at in [*own]:
            place = next((place for place in others if is_same(_scope(claim, at), _scope(source, place))), None)
            if place is not None:
                own.remove(at)
                others.remove(place)
    for words, negations, other, other_negations in ((claim, own, source, others), (source, others, claim, own)):
        for at in negations:
            scope = _scope(words, at)
            place = next((place for place, each in enumerate(other) if scope and same_word(each, scope[0])), None)
            if place is None or _denies_otherwise(words, at, other, place):
                continue
            # A negation may follow its verb, as in German.
            near = [each for each in other_negations if place - NEGATION_SCOPE - 2 <= each < place + NEGATION_SCOPE]
            if all(other[each].lower in NOUN_NEGATIONS for each in near):
                yield DoubtKind.NEGATION, f"{words[at].text} {other[place].text}"
                return


def _denies_otherwise(words: Sequence[Word], at: int, other: Sequence[Word], place: int) -> bool:
    """Return whether the other sentence expresses the negation of `words` at `at` by other means, near `place`."""
    near = other[max(0, place - NEGATION_DISTANCE) : place + NEGATION_DISTANCE]
    own = words[max(0, at - NEGATION_DISTANCE) : at + NEGATION_DISTANCE]
    if words[at].lower in VERB_NEGATIONS and any(_denies(word) and not among(word, own) for word in near):
        return True
    excepting = words[at].lower not in NOUN_NEGATIONS and any(
        word.lower in EXCEPTIONS for word in words[at + 1 : at + 2 * NEGATION_DISTANCE]
    )
    if (excepting and any(word.lower in ONLY for word in near)) or any(word.lower in OTHERWISE for word in other):
        return True
    after = words[at + 1 : at + NEGATION_DISTANCE]
    if any(are_opposites(word, each) for word in after for each in near if not among(each, words)):
        return True
    if any(word.lower in THAN for word in own) and any(word.lower in BOUNDS for word in near):
        return True
    # “Do not start before testing” means “test before you start”, and “until it starts” “while it has not started”.
    return any(word.lower in UNTIL for word in other[max(0, place - NEGATION_DISTANCE) : place])


def _denies(word: Word) -> bool:
    return word.lower in IMPLICIT_NEGATIONS or word.stem in IMPLICIT_NEGATIONS


def _denied_opposites(words: Sequence[Word], other: Sequence[Word]) -> set[str]:
    """Return the texts of opposites that a negation in `words` makes equal, as in “not well” and “poorly”.

    There are none if the other sentence has a negation, too.
    """
    if any(_negates(other, at) for at in range(len(other))):
        return set()
    return {
        text
        for at in range(len(words))
        if _negates(words, at)
        for word in words[at + 1 : at + NEGATION_DISTANCE]
        for each in other
        if are_opposites(word, each)
        for text in (word.text, each.text)
    }


def _negates(words: Sequence[Word], at: int) -> bool:
    """Return whether the word is a negation, and no part of an earlier or a later one."""
    lower = words[at].lower
    if lower not in NEGATIONS:
        return False
    following = [word.lower for word in words[at + 1 : at + 1 + NEGATION_DISTANCE]]
    if lower == "ne":  # “ne ... que” is “only”, and “pas” counts itself
        return NEGATIONS.isdisjoint(following) and "que" not in following and "qu" not in following
    if lower == "nor":
        return all(word.lower != "neither" for word in words[:at])
    return following[:1] != ["only"]


def _negate_same_word(scope: Sequence[Word], other: Sequence[Word]) -> bool:
    return bool(scope and other) and same_word(scope[0], other[0])


def _negate_near(scope: Sequence[Word], other: Sequence[Word]) -> bool:
    return not scope or any(among(word, scope) for word in other)


def _scope(words: Sequence[Word], at: int) -> list[Word]:
    """Return the content words that a negation applies to."""
    return [each for each in words[at + 1 :] if each.content][:NEGATION_SCOPE]


def _exchanged(alignment: Alignment, *, fixed_order: bool) -> Iterator[Reason]:
    """Yield two runs of words that the sentence has exchanged, if it has.

    The words around an “and” may come in any order. A change between active and passive is no exchange.
    """
    pair = _exchanged_gaps(alignment, fixed_order) or _exchanged_runs(alignment, fixed_order)
    if pair is None or len({all(word.values for word in words) for words in pair}) > 1:
        return  # a number is not exchanged with another word
    if not _keep_prepositions(*pair, alignment) and _keep_forms(*pair, alignment.source):
        yield DoubtKind.ORDER, ", ".join(" ".join(word.text for word in words) for words in pair)


def _exchanged_gaps(alignment: Alignment, fixed_order: bool) -> tuple[Sequence[Word], Sequence[Word]] | None:
    """Return the words of the first two gaps of which each has the words that the source has in the other."""
    for one, two in combinations([gap for gap in alignment.gaps if gap.source], 2):
        first = [word for word in one.claim if word.content]
        second = [word for word in two.claim if word.content]
        if first and second and _same_content(first, two.source) and _same_content(second, one.source):
            between = alignment.claim[one.start + len(one.claim) : two.start]
            between_source = alignment.source[one.place + len(one.source) : two.place]
            same = all(among(word, between_source) for word in between if word.content)
            stay = all(_follows_same_word(gap, alignment) for gap in (one, two))
            if (
                same
                and not _changes_voice(between, between_source)
                and (stay or _same_between(between, between_source, fixed_order))
            ):
                return first, second
    return None


def _keep_prepositions(one: Sequence[Word], two: Sequence[Word], alignment: Alignment) -> bool:
    """Return whether both have moved with their prepositions. In an exchange, the prepositions stay in their places."""
    first = {_preposition_of(one[0], alignment.claim), _preposition_of(one[0], alignment.source)}
    second = {_preposition_of(two[0], alignment.claim), _preposition_of(two[0], alignment.source)}
    return len(first) == len(second) == 1 and first != second


def _keep_forms(one: Sequence[Word], two: Sequence[Word], source: Sequence[Word]) -> bool:
    """Return whether the source has the words in the same forms. Other forms belong to another construction."""
    return all(
        word.values or any(_without_plural(word) == _without_plural(each) for each in source) for word in (*one, *two)
    )


def _without_plural(word: Word) -> str:
    return word.lower.rstrip("s'’")


def _preposition_of(word: Word, words: Sequence[Word]) -> str | None:
    """Return the nearest preposition before the word, within `PREPOSITION_DISTANCE`."""
    at = next((at for at, each in enumerate(words) if same_word(word, each)), 0)
    before = words[max(0, at - PREPOSITION_DISTANCE) : at]
    return next((each.lower for each in reversed(before) if each.lower in PREPOSITIONS_BEFORE_NOUNS), None)


def _mixed_clauses(alignment: Alignment) -> Iterator[Reason]:
    """Yield the first word that the source has in another clause with the same words before it.

    “Members see all files, and guests see public files” does not say that members see public files.
    """
    claim, source = alignment.claim, alignment.source
    rows = {row for row, _ in alignment.pairs}
    for (row, column), (next_row, next_column) in pairwise(alignment.pairs):
        if next_row != row + 1 or next_column <= column + 2 or not claim[next_row].content:
            continue
        repeated = 0
        while (
            repeated <= row
            and next_column - 1 - repeated > column
            and same_word(claim[row - repeated], source[next_column - 1 - repeated])
        ):
            repeated += 1
        between = source[column + 1 : next_column - repeated]
        verbs = [word for word in claim[row + 1 - repeated : row + 1] if word.content]
        subject = any(word.content for word in claim[: row + 1 - repeated])
        other_subject = [word for word in between if word.content and not among(word, claim)]
        own = [word for at, word in enumerate(claim) if word.content and at not in rows]
        if any(among(word, source[column:]) for word in own):
            continue
        if (
            verbs
            and subject
            and other_subject
            and any(word.lower in CLAUSE_BEGINNINGS | CONJUNCTIONS for word in between)
        ):
            yield DoubtKind.ORDER, claim[next_row].text
            return


def _moved_prepositions(alignment: Alignment) -> Iterator[Reason]:
    """Yield two words of which one has lost the preposition that the other has gained, as in “B sends A to C”.

    They are also exchanged if each has the preposition of the other. Numbers move with their units.
    """
    if alignment.share < LEAST_PAIRED_SHARE:
        return
    own, others = _objects(alignment.claim), _objects(alignment.source)
    moved = [
        (word, others.get(word.stem), own.get(word.stem))
        for word in alignment.claim
        if own.get(word.stem) != others.get(word.stem)
        and not word.values
        and (word.content or word.lower in PERSONS_SPOKEN_TO)
        and all(sum(each.stem == word.stem for each in words) == 1 for words in (alignment.claim, alignment.source))
    ]
    for (word, before, now), (other, other_before, other_now) in combinations(moved, 2):
        if before == other_now and now == other_before:
            yield DoubtKind.ORDER, f"{word.text}, {other.text}"
            return


def _objects(words: Sequence[Word]) -> dict[str, str]:
    """Return the preposition of each word that follows one directly or after function words, by the word's stem."""
    objects: dict[str, str] = {}
    preposition = ""
    distance = 0
    for word in words:
        distance += 1
        if word.lower in PREPOSITIONS_OF_PARTS:
            preposition, distance = word.lower, 0
        elif word.content or word.lower in PERSONS_SPOKEN_TO:
            if preposition and distance <= PREPOSITION_DISTANCE:
                objects[word.stem] = preposition
            preposition = ""
    return objects


def _follows_same_word(gap: WordGap, alignment: Alignment) -> bool:
    """Return whether the gap has only content words and follows the same word in both sentences.

    In languages such as German, articles and prepositions distinguish subject and object, and move with their nouns.
    """
    if not gap.start or gap.before is None or not all(word.content for word in (*gap.claim, *gap.source)):
        return False
    return gap.before.lower == alignment.claim[gap.start - 1].lower


def _same_content(words: Sequence[Word], others: Sequence[Word]) -> bool:
    """Return whether `words` are the content words of `others`, in order."""
    content = [word for word in others if word.content]
    return len(words) == len(content) and all(map(same_word, words, content))


@dataclass(frozen=True, slots=True)
class _WordRun:
    """The words [start, end), which have the same order in both sentences."""

    start: int
    end: int


def _exchanged_runs(alignment: Alignment, fixed_order: bool) -> tuple[Sequence[Word], Sequence[Word]] | None:
    """Return the two runs of words whose exchange best restores the order of the source.

    Only words that occur once in both sentences are compared.
    """
    if not alignment.pairs:
        return None
    claim = alignment.claim
    source = alignment.source[
        max(0, alignment.pairs[0][1] - WORDS_AROUND_PAIRS) : alignment.pairs[-1][1] + 1 + WORDS_AROUND_PAIRS
    ]
    once = _unique_words(claim, source)
    order = [place for _, place in once]
    rise = _longest_increase(order)
    best: float = max(LEAST_IN_ORDER * len(order), rise + 1)
    pair: tuple[_WordRun, _WordRun] | None = None
    for one, two in combinations(_runs(order), 2):
        if one.end > two.start or order[one.start] < order[two.end - 1]:
            continue
        score = _longest_increase(_swap(order, one, two))
        between = claim[once[one.end - 1][0] + 1 : once[two.start][0]]
        between_source = source[once[two.end - 1][1] + 1 : once[one.start][1]]
        if (score > best or (pair is None and score >= best)) and _same_between(between, between_source, fixed_order):
            best, pair = score, (one, two)
    if pair is None:
        return None
    first, second = ([claim[at] for at, _ in once[run.start : run.end]] for run in pair)
    return first, second


def _unique_words(claim: Sequence[Word], source: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the positions in both sentences of the content words that occur once in each, at most `MAX_EXCHANGED`."""
    once = []
    for at, word in enumerate(claim):
        alike = sum(same_word(word, other) and bool(word.values) == bool(other.values) for other in claim)
        if (word.content or word.lower in PERSONS_SPOKEN_TO) and alike == 1:
            places = [place for place, other in enumerate(source) if same_word(word, other)]
            if len(places) == 1:
                once.append((at, places[0]))
    return once[:MAX_EXCHANGED]


def _runs(order: Sequence[int]) -> list[_WordRun]:
    """Return the runs of at most `MAX_RUN` words. `order`: the positions of the words in the source."""
    if _longest_increase(order) == len(order):
        return []
    return [
        _WordRun(start, end)
        for start in range(len(order))
        for end in range(start + 1, min(len(order), start + MAX_RUN) + 1)
        if all(order[at + 1] > order[at] for at in range(start, end - 1))
    ]


def _swap(order: Sequence[int], one: _WordRun, two: _WordRun) -> list[int]:
    """Return the positions with the two runs exchanged."""
    return [
        *order[: one.start],
        *order[two.start : two.end],
        *order[one.end : two.start],
        *order[one.start : one.end],
        *order[two.end :],
    ]


def _same_between(between: Sequence[Word], between_source: Sequence[Word], fixed_order: bool) -> bool:
    """Return whether the words between two runs are the same in both sentences, and more than a conjunction."""
    own = {word.lower for word in between} - ARTICLES
    others = {word.lower for word in between_source} - ARTICLES
    if not own or not others or own <= CONJUNCTIONS or others <= CONJUNCTIONS:
        return False
    if _changes_voice(between, between_source):
        return False
    if own <= AUXILIARIES or others <= AUXILIARIES:
        return False  # “A is B” may also be written as “B is A”
    content = {word.stem for word in between if word.content}
    if own & AGENTS and content and content <= {word.stem for word in between_source}:
        return True
    if fixed_order:
        return len(own & others) >= max(len(own), len(others)) / 2
    # In other languages the subject may follow the verb, so only words around a preposition are compared.
    return own == others and own <= PREPOSITIONS


def _changes_voice(between: Sequence[Word], between_source: Sequence[Word]) -> bool:
    """Return whether one of the sentences is active and the other one passive, by the words between two nouns."""
    own, others = ({word.lower for word in words} for words in (between, between_source))
    return any(own.isdisjoint(kind) != others.isdisjoint(kind) for kind in (AUXILIARIES, AGENTS))


def _longest_increase(places: Sequence[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
