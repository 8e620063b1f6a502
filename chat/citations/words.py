"""Split a sentence into words that can be compared by stem, number, unit, name and negation."""

import re
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from chat.citations.vocabulary import (
    AMBIGUOUS_MONTHS,
    AMBIGUOUS_NUMBERS,
    BASE_FORMS,
    FUNCTION_WORDS,
    FUNCTION_WORDS_BY_LANGUAGE,
    LEAST_FUNCTION_WORDS,
    LIGHT_NOUNS,
    LIGHT_WORDS,
    MONTHS,
    NUMBER_WORDS,
    ONE,
    OPPOSITES,
    PARTS,
    PHRASE_SYNONYMS,
    SCALES,
    SYNONYMS,
    UNIT_SIZES,
    UNITS,
    word_set,
)
from files.index.language import UNSPACED_RUN, prepare_text

_TOKEN = re.compile(
    r"\d++(?:[.,’'\u00a0\u202f ]\d{3}(?!\d))++(?:[.,]\d++)?"
    r"|\d+(?:[.,]\d+)?|(?:km|m)2\b|[^\W\d_]+(?:['’][^\W\d_]+)*|[%€$£¥]"
)
_APPROXIMATE = re.compile(
    r"\b(?:about|around|roughly|approximately|nearly|almost|over|under|some|than|khoảng|etwa|rund|environ)\b|~",
    re.IGNORECASE,
)
_ELISION = re.compile(r"\b((?:jus|lors|puis)?qu|[ldsncjmt])['’](?=[^\W\d_]{2})", re.IGNORECASE)  # French
_COMMA = re.compile(r"[,;，；、]")
_NUMERALS = "一二三四五六七八九"
_NUMERAL = re.compile(
    f"[{_NUMERALS}两]?[十百千][{_NUMERALS}十百零]*|[{_NUMERALS}两](?=[年月日天周次个名人岁小分秒元条章节页倍])"
)
_NUMERAL_PLACES = {"十": 10, "百": 100, "千": 1000}
_DENYING_PREFIXES = word_set("un in im ir il dis non non-")
LEAST_NEGATED = 5  # letters of a word that a prefix denies
_SUFFIXES = ("ingly", "edly", "ings", "ing", "ies", "ied", "ed", "es", "ly", "s", "e")
_A_DAY = "\0"  # follows a month that stands beside a number
MAX_BY_ROUNDING = 0.05  # of a number that is rounded to two digits
LEAST_STEM = 3
LEAST_CONTENT = 2  # letters of a word with a meaning of its own
LEAST_SHARED = 4  # letters that two words of one root share at least
# What follows the shared letters of two words of one root, such as configur-es and configur-ation.
_ENDINGS = word_set(
    "e es ed s d ing ings er ers or ors ion ions tion tions sion sions ation ations ition ification ment ments al "
    "ally ical ic ics ly ily y ies ied ier iers ive ively able ible ability ibility ity ty ness iness ance ence ances "
    "ences ancy ency ant ent ants ents ism ist ists ous ure ures age ages ise ize ised ized ising izing isation "
    "ization ship ication ications cation en em n t te ten et st ung ungen lich liche lichen isch ische ischen keit "
    "heit ig ige igen ieren iert ierung a as o os ée és ées ez ait aient era ront eur eurs elle elles"
) | {""}
# What follows the shared letters of a place and of its people or things.
_OF_PLACES = word_set("a e o y n an ean ian nian ese nese ish ic i er isch ische ischen ischer isches") | {""}
_AGENT = re.compile(r"(?:er|or)s?$")
_PATIENT = re.compile(r"ees?$")
UMLAUTS = str.maketrans("äöü", "aou")
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# Numbers in words that a bound such as “up to” may stand before.
_COUNTS = [
    *("half", *_TENS, "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
]
_DIGITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_FRACTIONS = {"½": 0.5, "¼": 0.25, "¾": 0.75, "⅓": 1 / 3, "⅔": 2 / 3}
# Spellings of one thing in several words or signs. Each becomes the spelling that the lists have.
_SPELLINGS = re.compile(
    r"(?P<percent>\bper cent\b|\bpour cent\b)"
    r"|(?P<area>\bsquare (?:kilomet(?:er|re)s?|km)\b|\bsq km\b|\bkm²)"
    r"|\b(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))? ?(?P<half>[ap])\.?m\b\.?"
    r"|\b(?P<full_hour>\d{1,2}):00\b"
    r"|(?P<ordinal>\d)(?:st|nd|rd|th)\b"
    r"|(?:(?P<whole>\b\d{1,3}) ?)?(?P<fraction>[½¼¾⅓⅔])"
    r"|(?<![\d/.,])(?:(?P<units>\d{1,3}) )?(?P<numerator>[1-9])/(?P<denominator>[2-9])(?![\d/])"
    rf"|\b(?P<ten>{'|'.join(_TENS)})[- ](?P<digit>{'|'.join(_DIGITS)})\b"
    r"|(?P<most>\b(?:no|not) (?:more|longer|higher|larger|later|greater|bigger|older) than\b"
    r"|\b(?:not|never) (?:to )?exceed(?:s|ing)?\b)"
    r"|\b(?P<verb>must|may|shall|should|can|could|do|does|did|is|are|was|were|be) ?not (?P<between>(?:[a-z]++ ){0,3})"
    r"(?P<more>more|longer|higher|larger|later|greater|older) than\b"
    rf"|(?P<up_to>\b(?P<language>up to|bis zu) (?=[\d$€£¥]|(?:{'|'.join(_COUNTS)})\b))"
    r"|(?P<no_longer>\bno longer\b)"
    r"|(?P<degrees>° ?[cf]\b)"
    r"|(?P<least>\b(?:no|not) (?:less|fewer|shorter|lower|smaller|earlier|sooner|younger) than\b)",
    re.IGNORECASE,
)


class Amount(NamedTuple):
    """A number of units, in the smallest unit of the measure. `measure` is the number of the measure in `UNITS`."""

    measure: int
    size: float


_PHRASE = re.compile(rf"\b(?:{'|'.join(sorted(PHRASE_SYNONYMS, key=len, reverse=True))})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a sentence.

    `lower` is the text in lower case. `stem` is the same for all forms of a word. `values` holds the possible values of
    a number; it is empty for other words. `name`: the word has a capital letter inside a sentence. `content`: the word
    has a meaning of its own. `amounts` holds what a number and its unit measure together; both words have it.
    `after_comma`: a comma or a semicolon stands before the word.
    """

    text: str
    lower: str
    stem: str
    values: frozenset[float] = frozenset()
    name: bool = False
    content: bool = True
    amounts: frozenset["Amount"] = frozenset()
    after_comma: bool = False

    @property
    def light(self) -> bool:
        """Return whether a sentence may add the word without saying anything else."""
        return not self.values and (self.is_light_noun or self.lower in LIGHT_WORDS or self.stem in _LIGHT_STEMS)

    @property
    def is_light_noun(self) -> bool:
        """Return whether the word is a noun that a sentence may add, but that replaces no other noun."""
        return self.lower in LIGHT_NOUNS or self.stem in _LIGHT_NOUN_STEMS


def words_of(sentence: str, likely_language: str = "") -> list[Word]:
    """Return the words of a sentence in order.

    `likely_language`: the language of the sentence if its words do not tell another one, from `language_of`.
    """
    text = unicodedata.normalize("NFC", sentence).replace("n't", " not").replace("n’t", " not")
    text = _ELISION.sub(lambda match: "ne " if match[1] in "nN" else f"{match[1]} ", text)
    text = _PHRASE.sub(lambda match: PHRASE_SYNONYMS[match[0].casefold()], text)
    text = prepare_text(_SPELLINGS.sub(_one_spelling, _NUMERAL.sub(_in_digits, text)))
    matches = list(_TOKEN.finditer(text))
    words = []
    lower = {match[0].casefold() for match in matches}
    language = _language_of(lower, likely_language)
    for index, match in enumerate(matches):
        following = matches[index + 1][0].casefold() if index + 1 < len(matches) else ""
        if match[0].istitle() and match[0].casefold() in AMBIGUOUS_MONTHS:
            dated = following[:1].isdigit() or (index > 0 and matches[index - 1][0][0].isdigit())
            following = _A_DAY if dated else following
        initial = not index or bool(re.search(r"[.:!?•*\"“|(\[]\s*$", text[max(0, match.start() - 4) : match.start()]))
        word = _word(match[0], following, initial=initial, language=language)
        words.append(
            replace(word, after_comma=True)
            if index and _COMMA.search(text, matches[index - 1].end(), match.start())
            else word
        )
    return _with_amounts(words)


def language_of(text: str) -> str:
    """Return the language of function words that the text has; empty for English and all others."""
    return _language_of({match[0].casefold() for match in _TOKEN.finditer(text)}, "")


def _language_of(lower: Set[str], likely: str) -> str:
    """Return the language of function words that the words in lower case have; `likely` if they do not tell it."""
    counts = {language: len(lower & words) for language, words in FUNCTION_WORDS_BY_LANGUAGE.items()}
    english = len(lower & FUNCTION_WORDS)
    best = max(counts, key=lambda language: counts[language])
    if counts[best] >= max(LEAST_FUNCTION_WORDS, english + 1):
        return best
    return likely if likely and counts[likely] >= english else ""


def _with_amounts(words: Sequence[Word]) -> list[Word]:
    """Return the words, with the amounts of the numbers and units that stand together."""
    measured = list(words)
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else None
        if word.lower == "half" and (following is None or following.lower not in UNITS):
            measured[at] = replace(word, amounts=frozenset({Amount(UNITS["%"][0], 50.0)}))
        if following is not None and following.lower in PARTS and (word.values or word.lower in ONE):
            share = next(iter(word.values), 1.0) * PARTS[following.lower]
            measured[at + 1] = replace(following, amounts=frozenset({Amount(UNITS["%"][0], round(share))}))
        if following is None or UNITS.get(following.lower, ("", ""))[1] not in UNIT_SIZES:
            continue
        measure, unit = UNITS[following.lower]
        values = word.values or ({1.0} if word.lower in ONE else set())
        if at and word.lower in ONE and words[at - 1].lower == "half":
            values = {0.5}
            half = replace(words[at - 1], amounts=frozenset({Amount(measure, 0.5 * UNIT_SIZES[unit])}))
            measured[at - 1] = half
        if amounts := frozenset(Amount(measure, round(value * UNIT_SIZES[unit], 6)) for value in values):
            measured[at] = replace(word, amounts=amounts) if word.values else word
            measured[at + 1] = replace(following, amounts=amounts)
    return measured


@lru_cache(maxsize=65_536)
def _word(text: str, following: str, *, initial: bool, language: str) -> Word:
    lower = text.casefold()
    values = _values(text, following)
    function_words = FUNCTION_WORDS_BY_LANGUAGE.get(language, FUNCTION_WORDS)
    capital = text[:1].isupper() and lower not in function_words and lower not in NUMBER_WORDS
    base = stem(text)
    # A single capital letter is a name, as in “building C”.
    lettered = len(base) < LEAST_CONTENT and text[0].isupper() and not initial and lower not in ("a", "i")
    short = len(base) < LEAST_CONTENT and lower not in UNITS and not lettered
    content = bool(values) or lettered or not (lower in function_words or short)
    name = lettered or (capital and not initial and language != "de" and len(base) >= LEAST_CONTENT)
    return Word(text, lower, base, values, name, content)


_FIXED_SPELLINGS = {
    "percent": "percent",
    "area": "km2",
    "most": "at most",
    "least": "at least",
    "no_longer": "not",
}


def _one_spelling(match: re.Match[str]) -> str:
    """Return the spelling of the lists for a spelling of `_SPELLINGS`."""
    group = match.lastgroup or ""
    if group in _FIXED_SPELLINGS:
        return _FIXED_SPELLINGS[group]
    match group:
        case "up_to":
            return "höchstens " if match["language"].casefold() == "bis zu" else "at most "
        case "half":
            hour = int(match["hour"]) % 12 + (12 if match["half"] in "pP" else 0)
            minute = match["minute"] or ""
            return f"{hour}:{minute}" if minute.strip("0") else str(hour)
        case "fraction":
            return f"{int(match['whole'] or 0) + _FRACTIONS[match['fraction']]:g}"
        case "denominator":
            return f"{int(match['units'] or 0) + int(match['numerator']) / int(match['denominator']):g}"
        case "digit":
            value = NUMBER_WORDS[match["ten"].casefold()] + _DIGITS.index(match["digit"].casefold()) + 1
            return f"{value:g}"
        case "more":
            verb = match["verb"].casefold()
            return f"{'may' if verb in ('must', 'shall', 'should') else verb} {match['between']}at most"
        case "degrees":
            return " celsius" if match[0][-1] in "cC" else " fahrenheit"
        case _:
            return match["full_hour"] or match["ordinal"]


def _in_digits(match: re.Match[str]) -> str:
    """Return a Chinese numeral below ten thousand in digits, between blanks."""
    value = digit = 0
    for sign in match[0]:
        if sign in _NUMERAL_PLACES:
            value += (digit or 1) * _NUMERAL_PLACES[sign]
            digit = 0
        else:
            digit = 2 if sign == "两" else _NUMERALS.find(sign) + 1
    return f" {value + digit} "


def stem(word: str) -> str:
    """Return the base form of a word: in lower case, without a common English ending, or the name of its unit."""
    lower = word.casefold().removesuffix("'s").removesuffix("’s")
    if lower in UNITS:
        return UNITS[lower][1]
    lower = BASE_FORMS.get(lower, lower)
    for suffix in _SUFFIXES:
        if lower.endswith(suffix) and len(lower) - len(suffix) >= LEAST_STEM:
            bare = lower[: -len(suffix)]
            return bare + "y" if suffix in ("ies", "ied") else _undoubled(bare)
    return lower


def _undoubled(bare: str) -> str:
    doubled = len(bare) > LEAST_STEM and bare[-1] == bare[-2] and bare[-1] not in "aeiouls"
    return bare[:-1] if doubled else bare


def is_unspaced(word: Word) -> bool:
    """Return whether the word is a pair of characters of a script without spaces."""
    return UNSPACED_RUN.match(word.text) is not None


@lru_cache(maxsize=65_536)
def same_root(one: str, other: str) -> bool:
    """Return whether two words in lower case are forms of one root, such as “configures” and “configuration”."""
    if one[0].translate(UMLAUTS) != other[0].translate(UMLAUTS) and "ge" not in (one[:2], other[:2]):
        return False
    one, other = one.translate(UMLAUTS), other.translate(UMLAUTS)
    if one == other:
        return True
    shared = _shared_letters(one, other)
    if shared >= LEAST_SHARED and one[shared:] in _ENDINGS and other[shared:] in _ENDINGS:
        return not ((_AGENT.search(one) and _PATIENT.search(other)) or (_PATIENT.search(one) and _AGENT.search(other)))
    # A German participle (ausleihen, ausgeliehen), or a verb whose vowel changes.
    return "ge" in one + other and _consonants(one) == _consonants(other) != ""


def _shared_letters(one: str, other: str) -> int:
    """Return the number of letters with which both words begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _consonants(word: str) -> str:
    """Return the consonants of a German word without “ge” and its ending; empty for a word with fewer than three."""
    bare = re.sub(r"(?:e?n|e?t)$", "", re.sub(r"^(an|aus|auf|ab|bei|ein|mit|nach|vor|zu|um)?ge(?=..)", r"\1", word))
    consonants = re.sub(r"[aeiouy]", "", bare)
    return consonants if len(consonants) >= LEAST_STEM else ""


def _values(text: str, following: str) -> frozenset[float]:
    """Return the possible values of a word as a number. A `following` word such as million adds multiples."""
    lower = text.casefold()
    if not text[0].isdigit():
        value = NUMBER_WORDS.get(lower)
        plain = {value} if value is not None and (lower not in AMBIGUOUS_NUMBERS or following == _A_DAY) else set()
    else:
        plain = _parse_number(text)
    scale = SCALES.get(following)
    return frozenset(plain | {value * scale for value in plain} if scale else plain)


def _parse_number(text: str) -> set[float]:
    """Return the possible values of a number. Either a comma or a point may separate thousands or decimals."""
    bare = re.sub(r"[’'\s]", "", text)
    readings = set()
    for thousands, point in ((",", "."), (".", ",")):
        grouped = re.escape(thousands)
        if re.fullmatch(
            rf"\d+(?:{re.escape(point)}\d+)?|\d{{1,3}}(?:{grouped}\d{{3}})+(?:{re.escape(point)}\d+)?", bare
        ):
            readings.add(float(bare.replace(thousands, "").replace(point, ".")))
    return readings


def approximate(sentence: str) -> bool:
    """Return whether the sentence marks its numbers as approximate."""
    return _APPROXIMATE.search(sentence) is not None


def same_number(word: Word, source: Word, *, approximately: bool) -> bool:
    """Return whether two numbers may have the same value, or `word` may be `source` rounded.

    With `approximately`, numbers that differ by at most 5 % are the same.
    """
    if not word.amounts.isdisjoint(source.amounts):
        return True
    if word.text.isalpha() and source.text.isalpha() and (word.lower in MONTHS) != (source.lower in MONTHS):
        return False
    if not word.values.isdisjoint(source.values):
        return True
    return any(
        (approximately and abs(value - source_value) <= 0.05 * abs(source_value)) or _is_rounded(value, source_value)
        for value, source_value in product(word.values, source.values)
    )


def _is_rounded(one: float, other: float) -> bool:
    """Return whether `one` is `other` rounded to at least two significant digits."""
    if not one or not other or one == other or abs(one - other) > MAX_BY_ROUNDING * abs(other):
        return False
    digits = len(f"{one:g}".replace(".", "").replace("-", "").split("e")[0].rstrip("0"))
    return digits > 1 and float(f"{other:.{digits}g}") == one


def same_origin(one: Word, other: Word) -> bool:
    """Return whether two words with capital letters are a place and what comes from it, as “Asia” and “Asian”."""
    if not (one.text[0].isupper() and other.text[0].isupper()):
        return False
    shared = _shared_letters(one.lower, other.lower)
    return (
        shared >= LEAST_SHARED and one.lower[shared:] in _OF_PLACES and other.lower[shared:] in _OF_PLACES
    ) or are_synonyms(one, other)


def are_opposites(one: Word, other: Word) -> bool:
    """Return whether one word means the opposite of the other."""
    if one.stem == other.stem:
        return (one.lower, other.lower) in _OPPOSITES
    short, long = sorted((one.lower, other.lower), key=len)
    if len(short) >= LEAST_NEGATED and long.endswith(short) and long.removesuffix(short) in _DENYING_PREFIXES:
        return True
    return (one.lower, other.lower) in _OPPOSITES or (one.stem, other.stem) in _OPPOSITES


def are_synonyms(one: Word, other: Word) -> bool:
    """Return whether the lists have the words as names of one thing."""
    return not synonym_lines(one).isdisjoint(synonym_lines(other))


def synonym_lines(word: Word) -> frozenset[int]:
    """Return the lines of `SYNONYMS` that have a form of the word."""
    return _SYNONYMS.get(word.stem, _NO_LINES)


_LIGHT_NOUN_STEMS = frozenset(stem(word) for word in LIGHT_NOUNS)
_LIGHT_STEMS = frozenset(stem(word) for word in LIGHT_WORDS)
_OPPOSITES = {
    each
    for one, other in OPPOSITES
    for each in ((one, other), (other, one), (stem(one), stem(other)), (stem(other), stem(one)))
    if each[0] != each[1]
}
_NO_LINES: frozenset[int] = frozenset()
_SYNONYMS: dict[str, frozenset[int]] = {}
for _line, _names in enumerate(SYNONYMS):
    for _stem in {stem(name) for name in _names}:
        _SYNONYMS[_stem] = _SYNONYMS.get(_stem, frozenset()) | {_line}
