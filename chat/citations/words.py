"""What a sentence is made of, for the comparison of one with another: words, numbers, names, negations."""

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


def _counted(words: str, first: int = 1, step: int = 1) -> dict[str, float]:
    return {word: float(first + step * at) for at, word in enumerate(words.split())}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FUNCTION = _set(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of off on onto "
    "out over per to up upon via with within about above across after against along among around before behind "
    "below beneath beside between beyond during under until is are was were be been being am do does did done "
    "have has had having will would shall should can could may might must i you he she it we they me him her us "
    "them my your his its our their who whom whose which what when where why how there here also however "
    "therefore thus hence moreover furthermore although though while because since according such same other "
    "another any some each every both all more most much many few very just only even still too again now s t re "
    "ve ll d m said says say not no never"
)
_SPOKEN = {
    **_counted(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty",
        first=0,
    ),
    **_counted("thirty forty fifty sixty seventy eighty ninety", first=30, step=10),
    **_counted("first second third fourth fifth sixth seventh eighth ninth tenth"),
    **_counted("january february march april may june july august september october november december"),
    "dozen": 12.0,
    "half": 0.5,
}
_SAID_WITHOUT_COUNTING = frozenset({"one", "first", "second", "may"})
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
    """`stem` compares forms of one word; `values` are what a number may mean, empty of other words."""

    text: str
    stem: str
    values: frozenset[float] = frozenset()
    name: bool = False
    initial: bool = False

    @property
    def content(self) -> bool:
        return bool(self.values) or not (self.text.casefold() in FUNCTION or len(self.stem) < 2)


def words_of(sentence: str) -> list[Word]:
    """In order. `initial`: it is the first, where a capital says nothing; `name`: it is written as one elsewhere."""
    normal = readable(unicodedata.normalize("NFC", sentence).replace("n't", " not").replace("n’t", " not"))
    found = list(_TOKEN.finditer(normal))
    words = []
    for at, match in enumerate(found):
        text = match[0]
        following = found[at + 1][0].casefold() if at + 1 < len(found) else ""
        initial = not at or bool(re.search(r"[.:!?•*\"“(\[]\s*$", normal[: match.start()][-4:]))
        values = _values(text, following)
        capital = text[:1].isupper() and text.casefold() not in FUNCTION and text.casefold() not in _SPOKEN
        words.append(Word(text, stem(text), values, capital and not initial and len(text) > 1, initial))
    return words


def stem(word: str) -> str:
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
    lower = text.casefold()
    if not text[0].isdigit():
        known = _SPOKEN.get(lower)
        plain = {known} if known is not None and lower not in _SAID_WITHOUT_COUNTING else set()
    else:
        plain = _read(text)
    scale = _SCALES.get(following)
    return frozenset(plain | {value * scale for value in plain} if scale else plain)


def _read(text: str) -> set[float]:
    """A number as readers of several countries would read it."""
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
    return _APPROXIMATE.search(sentence) is not None


def same_number(said: Word, given: Word, *, about: bool) -> bool:
    """Whether they may mean the same; a rounded number is what it was rounded from."""
    return any(
        one == other or (about and abs(one - other) <= 0.05 * abs(other)) or _rounded(one, other)
        for one, other in product(said.values, given.values)
    )


def _rounded(one: float, other: float) -> bool:
    if not one or not other or one == other:
        return False
    digits = len(f"{one:g}".replace(".", "").replace("-", "").split("e")[0].rstrip("0"))
    return digits > 1 and float(f"{other:.{digits}g}") == one
