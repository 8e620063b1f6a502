"""Split texts into words for the index, so that identifiers, numbers and names are found however they are written.

PostgreSQL's parser reads `ISO-9001` as “iso” and “-9001”, and `jane.doe@example.org`, `inv/2024/0017` and `500mg` as
one word each. So its parser gets words alone, and other writings of a word are indexed beside it:

* of a compound (`ISO-9001`): its parts are the words, the whole without signs (`iso9001`) is a variant;
* of letters and digits, or of small letters and capitals (`500mg`, `AmericanExpress`): the whole is the word, its
  parts are variants;
* of a number (`1,234.56`): its digits (`123456`) are the word, so that separators do not matter, its groups variants;
* of a word with marks on its letters (`Łódź`): the same letters without marks;
* of a run of Thai and its like, whose words are triples of characters: pairs, for questions of two characters.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from files.index.language import TRIPLED_RUN, UNSPACED_RUN, normalize, prepare_text, split_run

MAX_PARTS = 4  # parts of a compound with a variant; longer ones are paths and addresses of pages
MAX_WHOLE_LENGTH = 40  # characters of a compound without its signs
JOINED_WORDS = 3  # neighbouring words of a query that a text may write as one

_LETTERS = "A-Za-zÀ-ÖØ-öø-\u024f\u0370-\u03ff\u0400-\u0481\u048a-\u052f\u1e00-\u1fff"
_SIGNS = r"\-\u2010-\u2013\u2212_/\\.:@&+#"
_TOKEN = re.compile(
    rf"(?P<number>(?<![{_LETTERS}0-9.,])[0-9]+(?:[.,'’][0-9]+)+)"
    rf"|[{_LETTERS}0-9]+(?:[{_SIGNS}]{{1,3}}[{_LETTERS}0-9]+)*"
)
_PART = re.compile(rf"[{_LETTERS}0-9]+")
_DIGITS = re.compile(r"[0-9]+")
# Groups of three digits with one separator, and a decimal part; or a decimal part alone.
_ONE_NUMBER = re.compile(r"[0-9]{1,3}(?:([.,'’])[0-9]{3})(?:\1[0-9]{3})*(?:[.,][0-9]+)?|[0-9]+[.,][0-9]+")
_LETTERS_OR_DIGITS = re.compile(rf"[{_LETTERS}]+|[0-9]+")
_CAPITAL_WITHIN = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Letters without a decomposition in Unicode. й is a letter of its own, ё is often written as е.
_UNMARKED = {"đ": "d", "ł": "l", "ø": "o", "ß": "ss", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d", "ё": "е"}


def _unmarked_letters() -> dict[int, str]:
    table = {ord(letter): plain for letter, plain in _UNMARKED.items()}
    capitals = {letter.upper(): plain for letter, plain in _UNMARKED.items()}
    table |= {ord(letter): plain for letter, plain in capitals.items() if len(letter) == 1 and not letter.isascii()}
    for first, last in ((0xC0, 0x24F), (0x370, 0x3FF), (0x1E00, 0x1FFF)):
        for code in range(first, last + 1):
            base = unicodedata.normalize("NFD", chr(code))[0]
            if base != chr(code):
                table.setdefault(code, base)
    return table


@dataclass(frozen=True, slots=True)
class IndexedText:
    """Text for PostgreSQL's parser. Only `words` count for the length of a text.

    `variants`: other writings of compounds, numbers and words with digits. `unmarked`: words without marks on letters.
    """

    words: str
    variants: str
    unmarked: str


def indexed_text(text: str) -> IndexedText:
    """Return the words of a text and their other writings. Takes linear time."""
    variants: list[str] = []
    unmarked: list[str] = []

    def words(token: re.Match[str]) -> str:
        split = _compound_words if token["number"] is None else _number_words
        parts = split(token[0], variants)
        unmarked.extend(plain for part in parts if (plain := strip_marks(part)) is not None)
        # Spaces keep the parser from reading a sign as part of a word, as in “-9001”, or `<b` as a tag.
        return f" {' '.join(parts)} "

    normal = normalize(text)
    for run in TRIPLED_RUN.findall(normal):
        variants.extend(split_run(run, 2))
    main = _TOKEN.sub(words, prepare_text(normal))
    return IndexedText(main, " ".join(variants), " ".join(unmarked))


def strip_marks(word: str) -> str | None:
    """Return the word without marks on its letters, in small letters. None for a word without such marks."""
    if word.isascii():
        return None
    plain = word.translate(_UNMARKED_TABLE).lower()
    return None if plain == word.lower() else plain


def has_marked_letters(word: str) -> bool:
    """Return whether the word is written in letters that may have marks: Latin, Greek or Cyrillic ones."""
    return word.isalpha() and _PART.fullmatch(word) is not None


def join_neighbours(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return neighbouring words written as one, with the positions of their parts. A text may have written them so."""
    joined: dict[str, tuple[int, ...]] = {}
    for size in range(2, JOINED_WORDS + 1):
        for first in range(len(words) - size + 1):
            parts = words[first : first + size]
            whole = "".join(parts)
            if len(whole) <= MAX_WHOLE_LENGTH and all(map(_PART.fullmatch, parts)) and not UNSPACED_RUN.search(whole):
                joined.setdefault(whole, tuple(range(first, first + size)))
    return joined


def _number_words(token: str, variants: list[str]) -> list[str]:
    groups = _DIGITS.findall(token)
    whole = "".join(groups)
    if _ONE_NUMBER.fullmatch(token):
        variants.extend(groups)
        return [whole]
    if len(groups) <= MAX_PARTS:
        variants.append(whole)
    return groups


def _compound_words(token: str, variants: list[str]) -> list[str]:
    parts = _PART.findall(token)
    if 1 < len(parts) <= MAX_PARTS and len(token) <= MAX_WHOLE_LENGTH:
        variants.append("".join(parts))
    for part in parts:
        pieces = [piece for run in _LETTERS_OR_DIGITS.findall(part) for piece in _CAPITAL_WITHIN.split(run)]
        if 1 < len(pieces) <= MAX_PARTS:
            variants.extend(piece for piece in pieces if len(piece) > 1 or piece.isdigit())
    return parts


_UNMARKED_TABLE = _unmarked_letters()
