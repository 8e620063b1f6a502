"""Split a sentence into words that can be compared by stem, number, name and negation."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import product

from files.index.language import readable

_TOKEN = re.compile(
    r"\d++(?:[.,’'\u00a0\u202f ]\d{3}(?!\d))++(?:[.,]\d++)?"
    r"|\d+(?:[.,]\d+)?|[^\W\d_]+(?:['’][^\W\d_]+)*"
)
_APPROXIMATE = re.compile(
    r"\b(?:about|around|roughly|approximately|nearly|almost|over|under|some|than|khoảng)\b|~", re.IGNORECASE
)
_SUFFIXES = ("ingly", "edly", "ings", "ing", "ies", "ied", "ed", "es", "ly", "s", "e")
LEAST_STEM = 3


def _values_of(words: str, first: int = 1, step: int = 1) -> dict[str, float]:
    """Return consecutive values for the words: `first`, `first + step`, ..."""
    return {word: float(first + step * index) for index, word in enumerate(words.split())}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FUNCTION_WORDS = _set(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of off on onto "
    "out over per to up upon via with within about above across after against along among around before behind "
    "below beneath beside between beyond during under until is are was were be been being am do does did done "
    "have has had having will would shall should can could may might must i you he she it we they me him her us "
    "them my your his its our their who whom whose which what when where why how there here also however "
    "therefore thus hence moreover furthermore although though while because since according such same other "
    "another any some each every both all more most much many few very just only even still too again now s t re "
    "ve ll d m said says say not no never"
)
_NUMBER_WORDS = {
    **_values_of(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty",
        first=0,
    ),
    **_values_of("thirty forty fifty sixty seventy eighty ninety", first=30, step=10),
    **_values_of("first second third fourth fifth sixth seventh eighth ninth tenth"),
    **_values_of("january february march april may june july august september october november december"),
    "dozen": 12.0,
    "half": 0.5,
}
_OFTEN_NO_NUMBER = frozenset({"one", "first", "second", "may"})
_SCALES = {
    **dict.fromkeys(("hundred",), 1e2),
    **dict.fromkeys(("thousand", "k", "nghìn", "ngàn"), 1e3),
    **dict.fromkeys(("million", "m", "mio", "millionen", "triệu"), 1e6),
    **dict.fromkeys(("billion", "bn", "tỷ"), 1e9),
    "trillion": 1e12,
}
NEGATIONS = _set(
    "not no never none neither nor cannot without nobody nothing nowhere hardly không chưa chẳng nicht kein keine "
    "nie ne pas jamais sin nunca nessun non"
)
_OPPOSITES = (
    "increase decrease, increased decreased, increases decreases, increasing decreasing, rise fall, rose fell, "
    "rises falls, higher lower, high low, more fewer, more less, most least, above below, over under, before after, "
    "earlier later, larger smaller, large small, greater smaller, greater less, longer shorter, faster slower, "
    "fast slow, better worse, best worst, maximum minimum, always never, all none, allowed forbidden, "
    "permitted prohibited, include exclude, includes excludes, included excluded, with without, first last, "
    "possible impossible, legal illegal, positive negative, accept reject, accepted rejected, succeeded failed, "
    "success failure, win lose, won lost, buy sell, bought sold, open closed, true false, strong weak, "
    "stronger weaker, north south, east west, tăng giảm, trước sau, cao thấp"
)
OPPOSITES: dict[str, frozenset[str]] = {}
for _one, _other in (pair.split() for pair in _OPPOSITES.split(", ")):
    OPPOSITES[_one] = OPPOSITES.get(_one, frozenset()) | {_other}
    OPPOSITES[_other] = OPPOSITES.get(_other, frozenset()) | {_one}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a sentence.

    `stem` is the same for all forms of a word. `values` holds the possible values of a number; it is empty for other
    words. `initial`: the word begins a sentence, so a capital letter does not make it a name. `name`: the word has a
    capital letter inside a sentence.
    """

    text: str
    stem: str
    values: frozenset[float] = frozenset()
    name: bool = False
    initial: bool = False

    @property
    def content(self) -> bool:
        """Return whether the word has a meaning of its own."""
        return bool(self.values) or not (self.text.casefold() in FUNCTION_WORDS or len(self.stem) < 2)


def words_of(sentence: str) -> list[Word]:
    """Return the words of a sentence in order."""
    normalized = readable(unicodedata.normalize("NFC", sentence).replace("n't", " not").replace("n’t", " not"))
    matches = list(_TOKEN.finditer(normalized))
    words = []
    for index, match in enumerate(matches):
        text = match[0]
        following = matches[index + 1][0].casefold() if index + 1 < len(matches) else ""
        initial = not index or bool(re.search(r"[.:!?•*\"“(\[]\s*$", normalized[: match.start()][-4:]))
        values = _values(text, following)
        capital = text[:1].isupper() and text.casefold() not in FUNCTION_WORDS and text.casefold() not in _NUMBER_WORDS
        words.append(Word(text, stem(text), values, capital and not initial and len(text) > 1, initial))
    return words


def stem(word: str) -> str:
    """Return the word in lower case without a common English ending."""
    lower = word.casefold().removesuffix("'s").removesuffix("’s")
    for suffix in _SUFFIXES:
        if lower.endswith(suffix) and len(lower) - len(suffix) >= LEAST_STEM:
            bare = lower[: -len(suffix)]
            return bare + "y" if suffix in ("ies", "ied") else _undoubled(bare)
    return lower


def _undoubled(bare: str) -> str:
    doubled = len(bare) > LEAST_STEM and bare[-1] == bare[-2] and bare[-1] not in "aeiouls"
    return bare[:-1] if doubled else bare


def _values(text: str, following: str) -> frozenset[float]:
    """Return the possible values of a word as a number. A `following` word such as million adds multiples."""
    lower = text.casefold()
    if not text[0].isdigit():
        value = _NUMBER_WORDS.get(lower)
        plain = {value} if value is not None and lower not in _OFTEN_NO_NUMBER else set()
    else:
        plain = _parse_number(text)
    scale = _SCALES.get(following)
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
    return any(
        value == source_value
        or (approximately and abs(value - source_value) <= 0.05 * abs(source_value))
        or _is_rounded(value, source_value)
        for value, source_value in product(word.values, source.values)
    )


def _is_rounded(one: float, other: float) -> bool:
    """Return whether `one` is `other` rounded to at least two significant digits."""
    if not one or not other or one == other:
        return False
    digits = len(f"{one:g}".replace(".", "").replace("-", "").split("e")[0].rstrip("0"))
    return digits > 1 and float(f"{other:.{digits}g}") == one
