"""Compare two similar sentences word by word, and return the reasons why they may say something else.

1. `Alignment` pairs the words that both sentences have in one order.
2. The words between two pairs stand in the same place. There, a word of the sentence needs a reason to replace words of
   the source: another form, another name, a near meaning. Without a reason it says something else.
3. Negations, opposites, and words that have exchanged their places are compared in addition.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import combinations, pairwise

from chat.citations.vocabulary import DENYING, GROUPS, NEGATIONS, ONE_OR_NOT, SCALES, UNITS, word_set
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

LONGEST_CLAIM = 90  # words of the sentence that are compared
LONGEST_SOURCE = 160  # words of the source that are compared
CONTENT_WEIGHT = 3  # a pair of content words counts as so many pairs of function words
LEAST_PAIRED_SHARE = 0.65  # share of the words in pairs, by weight; below it, words are not compared by place
EQUAL_OTHERWISE = 0.8  # share of the words in pairs, by weight, of sentences that are equal but for a few words
SAME_MEANING = 0.6  # cosine of two words that replace one another in sentences that are equal otherwise
NEAR_MEANING = 0.28  # the same in sentences that differ more
LEAST_COMPOUND = 5  # letters of a word that may end a compound
SCOPE = 3  # a negation applies to so many content words after it
WORDS_AROUND_PAIRS = 4  # words of the source around the pairs that may have exchanged places
IN_ORDER = 0.9  # share of the words that must be in order after an exchange
MOST_ONCE = 14  # words that are tried as exchanged
LONGEST_RUN = 4  # words
DERIVING = word_set("un in im ir il non dis mis ver be ent er zer ge sub super over under pre post")
ARTICLES = word_set("a an the der die das den dem des ein eine le la les un une")
AUXILIARIES = word_set("is are was were be been being am get got wird werden wurde wurden est sont été fut")
AGENTS = word_set("by von vom durch par bởi")
CONJUNCTIONS = word_set("and or und oder et ou và hoặc sowie as well nor")
PREPOSITIONS = word_set("nach zu bis gegen vers à contre a đến tới sang")  # between two places or sides
DEFINITE = word_set("the this that these those its their his her der die das dieser diese le la les ce cette")
UNIVERSAL = word_set("all every any no alle jeder jede jedes kein keine")
POSSESSIVES = word_set("its his her their own sein seine seiner ihr ihre ihrer")
PERSONS = word_set("he she they it his her hers their its er sie es il elle ils elles")
CLAUSE_BEGINNINGS = word_set(
    "and but or who which because while whereas so since if when unless und aber oder weil wenn"
)
MARKERS = word_set(
    "from to in at on by for with of during until before after into under over von nach aus bei mit für zu bis vor "
    "từ đến tới ở tại de à en pour"
)
MARKER_DISTANCE = 3  # words from a preposition to its noun
WITHOUT = word_set("without ohne sans sin")  # they deny the noun behind them, not the verb
BOUNDS = word_set("most maximum maximal höchstens đa")
THAN = word_set("than als hơn")
UNTIL = word_set("until till before bis bevor trước")
OF_VERBS = word_set("not cannot never nicht không chưa pas")  # negations of a verb
NEAR = 6  # words around a negation in which another word may deny the same
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


Reason = tuple[DoubtKind, str]  # with the words of the sentence that it concerns


def same_word(one: Word, other: Word) -> bool:
    """Return whether two words are forms of one word, or numbers of the same value."""
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
    """Return whether the words contain a form of the word."""
    return any(same_word(word, each) for each in words)


@dataclass(frozen=True, slots=True)
class WordGap:
    """Words of the sentence and words of the source between the same two pairs.

    They are the words [start, ...) of the sentence and [place, ...) of the source. `before` is the word of the source
    before these.
    """

    claim: Sequence[Word]
    source: Sequence[Word]
    start: int
    place: int
    before: Word | None


class Alignment:
    """The words that a sentence (`claim`) and a source have in one order.

    `claim` and `source` are cut to `LONGEST_CLAIM` and `LONGEST_SOURCE` words.
    """

    def __init__(self, claim: Sequence[Word], source: Sequence[Word]) -> None:
        self.claim = claim[:LONGEST_CLAIM]
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
        """Return the weight of each pair of words, 0 for words that are no pair."""
        columns: dict[str, list[int]] = {}  # by first letter, as words of one root have the same
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
        """The share of the sentence's words in pairs, by weight."""
        paired = {at for at, _ in self.pairs}
        weights = [CONTENT_WEIGHT if word.content else 1 for word in self.claim]
        return sum(weight for at, weight in enumerate(weights) if at in paired) / max(1, sum(weights))

    @cached_property
    def unpaired(self) -> tuple[list[Word], list[Word]]:
        """The words of the sentence and of the source that are in no pair."""
        rows, columns = {row for row, _ in self.pairs}, {column for _, column in self.pairs}
        return (
            [word for at, word in enumerate(self.claim) if at not in rows],
            [word for at, word in enumerate(self.source) if at not in columns],
        )

    @cached_property
    def gaps(self) -> list[WordGap]:
        """The gaps between the pairs in which the sentence has words."""
        ends = [(-1, -1), *self.pairs, (len(self.claim), len(self.source))]
        return [
            WordGap(
                self.claim[row + 1 : next_row],
                _up_to_clause(self.source[column + 1 : next_column], is_last=next_row == len(self.claim)),
                row + 1,
                column + 1,
                self.source[column] if column >= 0 else None,
            )
            for (row, column), (next_row, next_column) in pairwise(ends)
            if next_row - row > 1
        ]


def _up_to_clause(words: Sequence[Word], *, is_last: bool) -> Sequence[Word]:
    """Return the words up to the next clause. Behind the last pair the source may go on with another subject."""
    end = next((at for at, word in enumerate(words) if at and word.lower in CLAUSE_BEGINNINGS), len(words))
    return words[:end] if is_last else words


def _initial(word: Word) -> str:
    return word.stem[0].translate(UMLAUTS)


def _weight(one: Word, other: Word) -> int:
    if not same_word(one, other):
        return 0
    return CONTENT_WEIGHT if one.content and other.content else 1


def _window(claim: Sequence[Word], source: Sequence[Word]) -> Sequence[Word]:
    """Return the `LONGEST_SOURCE` words of the source that have most content words of the claim."""
    if len(source) <= LONGEST_SOURCE:
        return source
    stems = {word.stem for word in claim if word.content}
    hits = [word.stem in stems for word in source]
    start = max(range(0, len(source), LONGEST_SOURCE // 4), key=lambda at: sum(hits[at : at + LONGEST_SOURCE]))
    return source[start : start + LONGEST_SOURCE]


def differences(
    claim: Sequence[Word],
    source: Sequence[Word],
    context: Sequence[Word],
    similarity: Similarity | None,
    *,
    fixed_order: bool,
) -> Iterator[Reason]:
    """Yield the reasons why a sentence may say something else than the source.

    `context` are the words of the passage around the source, and of the title of the document. `fixed_order`: the order
    of the words tells who does what, as in English.
    """
    alignment = Alignment(claim, source)
    yield from _negations(alignment.claim, alignment.source)
    denied = _denied_opposites(alignment.claim, alignment.source) | _denied_opposites(alignment.source, alignment.claim)
    opposites = [reason for reason in _opposites(alignment) if reason[1] not in denied]
    exchanged = list(_exchanged(alignment, fixed_order=fixed_order))
    # “A is higher than B” is “B is lower than A”.
    compares = all(any(word.lower in THAN for word in words) for words in (alignment.claim, alignment.source))
    inverts = compares and any(are_opposites(word, other) for word in alignment.claim for other in alignment.source)
    if not (inverts and exchanged):
        yield from opposites
        yield from exchanged
    if alignment.share >= LEAST_PAIRED_SHARE:
        for gap in alignment.gaps:
            yield from _replaced(gap, alignment, context, similarity)


def _replaced(
    gap: WordGap, alignment: Alignment, context: Sequence[Word], similarity: Similarity | None
) -> Iterator[Reason]:
    """Yield the words of the sentence that replace others in the same place without a reason."""
    groups = {GROUPS[word.lower] for word in gap.source if word.lower in GROUPS}
    negated = any(_is_before_negation(alignment.source, gap.place + at) for at in range(len(gap.source)))
    for at, word in enumerate(gap.claim):
        group = GROUPS.get(word.lower)
        replaced = group is not None and group not in groups and any(kind == group[0] for kind, _ in groups)
        # “must not” is “may not”
        if replaced and not (negated and _is_before_negation(alignment.claim, gap.start + at)):
            yield DoubtKind.WORD, word.text
        if word.lower in UNIVERSAL and any(each.lower in POSSESSIVES for each in gap.source):
            yield DoubtKind.WORD, word.text
    equal = alignment.share >= EQUAL_OTHERWISE
    moved, left = alignment.unpaired
    lost = [word for word in gap.source if word.content and (equal or not word.light) and not among(word, moved)]
    single = equal and sum(each.content for each in gap.claim) == len(lost) == 1
    new = [
        word
        for word in gap.claim
        if word.content and ((single and word.is_light_noun) or not word.light) and not _is_present(word, left)
    ]
    pronoun = any(word.lower in PERSONS for word in left)
    yield from _replaced_names(gap, equal=equal)
    for word in new if lost else ():
        if any(are_synonyms(word, each) for each in left):
            continue
        if not _has_reason(word, lost, gap, context, pronoun=pronoun) and not (
            similarity and _is_near(word, lost, equal, similarity)
        ):
            kind = DoubtKind.NUMBER if word.values else DoubtKind.NAME if word.name else DoubtKind.WORD
            yield kind, word.text


def _replaced_names(gap: WordGap, *, equal: bool) -> Iterator[Reason]:
    """Yield a name of the sentence that stands in the place of another, also where the other stands elsewhere in it."""
    names, others = ([word for word in words if word.content] for words in (gap.claim, gap.source))
    if not (equal and names and others and all(word.name for word in (*names, *others))):
        return
    if not any(among(word, others) or _abbreviates(word, gap.source) for word in names):
        yield DoubtKind.NAME, " ".join(word.text for word in names)


def _is_before_negation(words: Sequence[Word], at: int) -> bool:
    return at + 1 < len(words) and words[at + 1].lower in NEGATIONS


def _is_present(word: Word, source: Sequence[Word]) -> bool:
    """Return whether the source has the word; of a pair of unspaced characters, whether it has both."""
    if is_unspaced(word):
        return set(word.text) <= {sign for each in source if is_unspaced(each) for sign in each.text}
    return among(word, source)


def _has_reason(word: Word, lost: Sequence[Word], gap: WordGap, context: Sequence[Word], *, pronoun: bool) -> bool:
    """Return whether the word may stand for the lost words without a comparison of their meanings.

    `pronoun`: a pronoun of the source may stand for a name that the sentence has instead.
    """
    if word.values:
        return not any(each.values or each.lower in ONE_OR_NOT for each in gap.source)
    if not word.name and all(each.name for each in lost) and len(lost) > 1:
        return True  # a thing takes no names' place
    if any(are_opposites(word, each) for each in lost):
        return False
    if _denies(word) and any(each.lower in OF_VERBS for each in gap.source):
        return True
    if any(_is_compound(word, each) or are_synonyms(word, each) or _abbreviates(each, gap.claim) for each in lost):
        return True
    # “The company” stands for a name that the passage has before, and a name for “it”.
    definite = gap.before is not None and gap.before.lower in DEFINITE
    named = any(each.name for each in lost)
    if any(each.lower in ("one", "ones") for each in gap.source):
        return True
    if among(word, context) and (
        (definite and named and not word.name)
        or (word.name and not named and (pronoun or any(each.lower in DEFINITE for each in gap.source)))
        or any(each.lower in PRONOUNS for each in gap.source)
    ):
        return True
    # One word for a phrase, such as “hurt” for “had a negative influence on”, is no exchange.
    is_phrase = len(lost) > 1 and any(not each.content for each in gap.source)
    return _abbreviates(word, gap.source) or (is_phrase and sum(each.content for each in gap.claim) == 1)


def _is_near(word: Word, lost: Sequence[Word], equal: bool, similarity: Similarity) -> bool:
    """Return whether one of the lost words has a near meaning. Numbers, two units and two names have none."""
    least = SAME_MEANING if equal else NEAR_MEANING
    return not word.values and any(
        similarity(word.lower, each.lower) >= least
        for each in lost
        if not (
            each.values
            or are_opposites(word, each)
            or (word.name and each.name)
            or (word.lower in UNITS and each.lower in UNITS)
        )
    )


def _is_compound(word: Word, other: Word) -> bool:
    """Return whether one word ends with the other, as “Mietvertrag” and “Vertrag”, but not as “known” and “unknown”."""
    short, long = sorted((word.lower, other.lower), key=len)
    return len(short) >= LEAST_COMPOUND and long.endswith(short) and long.removesuffix(short) not in DERIVING


def _abbreviates(word: Word, words: Sequence[Word]) -> bool:
    """Return whether the word has the initials of the words in order."""
    initials = "".join(each.lower[0] for each in words if each.content)
    return len(word.text) > 1 and word.text.isupper() and word.lower in initials


def _opposites(alignment: Alignment) -> Iterator[Reason]:
    """Yield the words of the sentence that stand in the place of their opposite."""
    for row, column in alignment.pairs:
        if are_opposites(alignment.claim[row], alignment.source[column]):
            yield DoubtKind.OPPOSITE, alignment.claim[row].text
    moved, left = alignment.unpaired
    for gap in alignment.gaps:
        for word in gap.claim:
            if any(are_opposites(word, other) for other in gap.source) and not among(word, left):
                yield DoubtKind.OPPOSITE, word.text
    for word in moved if alignment.share >= LEAST_PAIRED_SHARE else ():
        opposites = [other for other in left if are_opposites(word, other)]
        in_source = among(word, alignment.source) or any(are_synonyms(word, other) for other in left)
        if word.content and opposites and not in_source:
            yield DoubtKind.OPPOSITE, word.text


def _negations(claim: Sequence[Word], source: Sequence[Word]) -> Iterator[Reason]:
    """Yield the first negation that only one of the sentences has, of a word that both have."""
    own, others = ([at for at, word in enumerate(words) if _negates(words, at)] for words in (claim, source))
    for is_same in (_negate_the_same, _negate_near):
        for at in [*own]:
            place = next((place for place in others if is_same(_scope(claim, at), _scope(source, place))), None)
            if place is not None:
                own.remove(at)
                others.remove(place)
    for words, places, other, left in ((claim, own, source, others), (source, others, claim, own)):
        for at in places:
            scope = _scope(words, at)
            place = next((place for place, each in enumerate(other) if scope and same_word(each, scope[0])), None)
            if place is None or _is_said_otherwise(words, at, other, place):
                continue
            # A negation may stand behind its verb, as in German.
            near = [each for each in left if place - SCOPE - 2 <= each < place + SCOPE]
            if all(other[each].lower in WITHOUT for each in near):
                yield DoubtKind.NEGATION, f"{words[at].text} {other[place].text}"
                return


def _is_said_otherwise(words: Sequence[Word], at: int, other: Sequence[Word], place: int) -> bool:
    """Return whether the other sentence denies its word at `place` without the negation of `words` at `at`."""
    near = other[max(0, place - NEAR) : place + NEAR]
    own = words[max(0, at - NEAR) : at + NEAR]
    if words[at].lower in OF_VERBS and any(_denies(word) and not among(word, own) for word in near):
        return True
    after = words[at + 1 : at + NEAR]
    if any(are_opposites(word, each) for word in after for each in near if not among(each, words)):
        return True
    if any(word.lower in THAN for word in own) and any(word.lower in BOUNDS for word in near):
        return True
    # “Do not start before testing” is “test before you start”; “until it has started” is “as long as it has not”.
    return any(word.lower in UNTIL for word in other[max(0, place - NEAR) : place])


def _denies(word: Word) -> bool:
    return word.lower in DENYING or word.stem in DENYING


def _denied_opposites(words: Sequence[Word], other: Sequence[Word]) -> set[str]:
    """Return the words of both that are opposites where only `words` have a negation, as “not well” and “poorly”."""
    if any(_negates(other, at) for at in range(len(other))):
        return set()
    return {
        text
        for at in range(len(words))
        if _negates(words, at)
        for word in words[at + 1 : at + NEAR]
        for each in other
        if are_opposites(word, each)
        for text in (word.text, each.text)
    }


def _negates(words: Sequence[Word], at: int) -> bool:
    return words[at].lower in NEGATIONS and not (at + 1 < len(words) and words[at + 1].lower == "only")


def _negate_the_same(scope: Sequence[Word], other: Sequence[Word]) -> bool:
    return bool(scope and other) and same_word(scope[0], other[0])


def _negate_near(scope: Sequence[Word], other: Sequence[Word]) -> bool:
    return not scope or any(among(word, scope) for word in other)


def _scope(words: Sequence[Word], at: int) -> list[Word]:
    """Return the content words that a negation applies to."""
    return [each for each in words[at + 1 :] if each.content][:SCOPE]


def _exchanged(alignment: Alignment, *, fixed_order: bool) -> Iterator[Reason]:
    """Yield the first two runs of words that have exchanged their places.

    Words around an “and” may stand in any order. A change between active and passive is no exchange.
    """
    pair = _exchanged_gaps(alignment, fixed_order) or _exchanged_runs(alignment, fixed_order)
    if pair is None or len({all(word.values for word in words) for words in pair}) > 1:
        return  # a number takes no other word's place
    if not _keep_their_markers(*pair, alignment) and _keep_their_forms(*pair, alignment.source):
        yield DoubtKind.ORDER, ", ".join(" ".join(word.text for word in words) for words in pair)


def _exchanged_gaps(alignment: Alignment, fixed_order: bool) -> tuple[Sequence[Word], Sequence[Word]] | None:
    """Return the words of two gaps, each of which has the source's words of the other."""
    for one, two in combinations([gap for gap in alignment.gaps if gap.source], 2):
        own, others = ([word for word in gap.claim if word.content] for gap in (one, two))
        if own and others and _are_same(own, two.source) and _are_same(others, one.source):
            between = alignment.claim[one.start + len(one.claim) : two.start]
            other = alignment.source[one.place + len(one.source) : two.place]
            same = all(among(word, other) for word in between if word.content)
            stay = all(_follows_its_word(gap, alignment) for gap in (one, two))
            if same and (stay or _stand_alike(between, other, fixed_order)):
                return own, others
    return None


def _keep_their_markers(one: Sequence[Word], two: Sequence[Word], alignment: Alignment) -> bool:
    """Return whether each follows its own preposition, or none, in both sentences, so that they have only moved.

    After an exchange the prepositions stay, and the words have that of the other.
    """
    first, second = (
        {_marker_of(words[0], alignment.claim), _marker_of(words[0], alignment.source)} for words in (one, two)
    )
    return len(first) == len(second) == 1 and first != second


def _keep_their_forms(one: Sequence[Word], two: Sequence[Word], source: Sequence[Word]) -> bool:
    """Return whether the source has the words in the same forms. Other forms tell of another construction."""
    return all(
        word.values or any(_without_plural(word) == _without_plural(each) for each in source) for word in (*one, *two)
    )


def _without_plural(word: Word) -> str:
    return word.lower.rstrip("s'’")


def _marker_of(word: Word, words: Sequence[Word]) -> str | None:
    """Return the preposition shortly before the word."""
    at = next((at for at, each in enumerate(words) if same_word(word, each)), 0)
    before = words[max(0, at - MARKER_DISTANCE) : at]
    return next((each.lower for each in reversed(before) if each.lower in MARKERS), None)


def _follows_its_word(gap: WordGap, alignment: Alignment) -> bool:
    """Return whether the gap has only words of content, and stands behind the same word in both sentences.

    An article or preposition tells who does what where the order does not, as in German. A noun that moves takes it
    along.
    """
    if not gap.start or gap.before is None or not all(word.content for word in (*gap.claim, *gap.source)):
        return False
    return gap.before.lower == alignment.claim[gap.start - 1].lower


def _are_same(words: Sequence[Word], others: Sequence[Word]) -> bool:
    """Return whether both have the same content words in order."""
    content = [word for word in others if word.content]
    return len(words) == len(content) and all(map(same_word, words, content))


@dataclass(frozen=True, slots=True)
class _WordRun:
    """Words [start, end) that stand in one order in both sentences."""

    start: int
    end: int


def _exchanged_runs(alignment: Alignment, fixed_order: bool) -> tuple[Sequence[Word], Sequence[Word]] | None:
    """Return two runs of words that stand in the order of the source after an exchange.

    Only words that both sentences have once are considered.
    """
    if not alignment.pairs:
        return None
    claim = alignment.claim
    source = alignment.source[
        max(0, alignment.pairs[0][1] - WORDS_AROUND_PAIRS) : alignment.pairs[-1][1] + 1 + WORDS_AROUND_PAIRS
    ]
    once = _words_once(claim, source)
    order = [place for _, place in once]
    rise = _longest_rise(order)
    best: float = max(IN_ORDER * len(order), rise + 1)
    pair: tuple[_WordRun, _WordRun] | None = None
    for one, two in combinations(_runs(order), 2):
        if one.end > two.start or order[one.start] < order[two.end - 1]:
            continue
        score = _longest_rise(_exchange(order, one, two))
        between = claim[once[one.end - 1][0] + 1 : once[two.start][0]]
        other = source[once[two.end - 1][1] + 1 : once[one.start][1]]
        if (score > best or (pair is None and score >= best)) and _stand_alike(between, other, fixed_order):
            best, pair = score, (one, two)
    if pair is None:
        return None
    first, second = ([claim[at] for at, _ in once[run.start : run.end]] for run in pair)
    return first, second


def _words_once(claim: Sequence[Word], source: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the places in both sentences of the content words that each has once, at most `MOST_ONCE`."""
    once = []
    for at, word in enumerate(claim):
        alike = sum(same_word(word, other) and bool(word.values) == bool(other.values) for other in claim)
        if word.content and alike == 1:
            places = [place for place, other in enumerate(source) if same_word(word, other)]
            if len(places) == 1:
                once.append((at, places[0]))
    return once[:MOST_ONCE]


def _runs(order: Sequence[int]) -> list[_WordRun]:
    """Return the runs of at most `LONGEST_RUN` words. `order` has the places of the words in the source."""
    if _longest_rise(order) == len(order):
        return []
    return [
        _WordRun(start, end)
        for start in range(len(order))
        for end in range(start + 1, min(len(order), start + LONGEST_RUN) + 1)
        if all(order[at + 1] > order[at] for at in range(start, end - 1))
    ]


def _exchange(order: Sequence[int], one: _WordRun, two: _WordRun) -> list[int]:
    """Return the places with the two runs exchanged."""
    return [
        *order[: one.start],
        *order[two.start : two.end],
        *order[one.end : two.start],
        *order[one.start : one.end],
        *order[two.end :],
    ]


def _stand_alike(between: Sequence[Word], other: Sequence[Word], fixed_order: bool) -> bool:
    """Return whether the words between two runs are the same in both sentences, and more than a conjunction."""
    own, others = ({word.lower for word in words} - ARTICLES for words in (between, other))
    if not own or not others or own <= CONJUNCTIONS or others <= CONJUNCTIONS:
        return False
    if any(bool(kind & own) != bool(kind & others) for kind in (AUXILIARIES, AGENTS)):
        return False
    if own <= AUXILIARIES or others <= AUXILIARIES:
        return False  # what a thing is may stand before it
    if fixed_order:
        return len(own & others) >= max(len(own), len(others)) / 2
    # Other languages put the subject behind the verb as well, so only what stands around a preposition is compared.
    return own == others and own <= PREPOSITIONS


def _longest_rise(places: Sequence[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
