"""Join words that are divided at the end of a line, and keep the hyphens of compounds.

The document decides first: a word that occurs elsewhere without a hyphen is joined, and a word that occurs with a
hyphen keeps it. For other words the language and lists of everyday words decide (`_DocumentWords.is_one`).
"""

import base64
import gzip
import importlib.util
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from pathlib import Path

from readers.text.encodings import detect_language

DIVIDED = "\ufffe"  # PDFium's character for a hyphen at the end of a line; the rest of the word follows
_LETTERS = r"[^\W\d_]++(?:-[^\W\d_]++)*+"
_WORD = re.compile(_LETTERS)
_DIVIDED_WORD = re.compile(rf"(?<![^\W\d_])(?<![^\W\d_]-){_LETTERS}(?:{DIVIDED}\s*+{_LETTERS})++")
_DIVISION = re.compile(rf"{DIVIDED}\s*")
_SHORT_PART = 3  # letters; shorter parts are rarely words
_RARE = 3  # occurrences without a hyphen; a word with more of them is written without a hyphen
# Ranks of the tokenizer's tokens.
_VERY_FREQUENT = 3_000  # words of everyday use
_FREQUENT = 80_000  # few of the rarer tokens are known words
_LESS_FREQUENT = 30_000  # a rarer word with a beginning such as “re” may be a new compound: “re-create”
# Languages with few hyphens before lower-case letters. `_WITH_FOLLOWERS`: languages that put a hyphen between a verb or
# name and the words in `_FOLLOWERS`.
_SELDOM_HYPHENED = frozenset(
    (
        *("cs", "da", "de", "es", "et", "fi", "hr", "hu", "is", "it", "lt", "lv", "nl", "no", "pl", "sk", "sl", "sq"),
        *("sv", "tr"),
    )
)
_WITH_FOLLOWERS = frozenset(("ca", "fr", "pt", "ro"))
_FOLLOWERS = frozenset(
    (
        *("ce", "ci", "elle", "elles", "il", "ils", "je", "là", "leur", "lui", "même", "mêmes", "moi", "nous", "on"),
        *("t", "toi", "tu", "vous"),
        *("a", "as", "feira", "feiras", "la", "las", "lhe", "lhes", "lo", "los", "me", "nos", "o", "os", "se", "te"),
    )
)
# Conjunctions after a word whose second part follows only later: "short- and long-term".
_CONJUNCTIONS = frozenset(("and", "bzw", "eller", "och", "oder", "og", "or", "sowie", "und"))
# First and second parts that usually keep their hyphen, in languages that write compounds with hyphens.
_FIRST_PARTS = frozenset(
    (
        *("all", "cross", "half", "high", "long", "low", "mixed", "multi", "non", "open", "pre", "quasi", "real"),
        *("self", "semi", "short", "single", "stand", "state", "two"),
        *("anti", "après", "arrière", "avant", "contre", "demi", "mi", "nord", "outre", "sous", "sud", "vice"),
    )
)
_PREFIXES = frozenset(("anti", "non", "self", "semi"))
_SECOND_PARTS = frozenset(
    (
        *("aware", "based", "bound", "centric", "controlled", "defined", "dependent", "driven", "effective"),
        *("efficient", "focused", "free", "friendly", "function", "generated", "independent", "intensive", "known"),
        *("level", "like", "made", "mode", "only", "optimized", "oriented", "ready", "related", "rich", "scale"),
        *("sensitive", "shaped", "sized", "specific", "story", "style", "term", "the", "time", "to", "turn", "type"),
        *("user", "wide", "world"),
    )
)
_PARTICLES = frozenset(("by", "in", "off", "on", "out", "over", "up"))
_SHORT_WORDS = _PARTICLES | {"go", "no", "to"}
# Beginnings and ends that suggest one divided word, not two words. `_NEVER_WORDS`: beginnings that are never words.
_BEGINNINGS = frozenset(
    (
        *("any", "be", "con", "de", "dis", "en", "every", "ex", "im", "in", "mis", "pro", "re", "some", "un", "under"),
        *("what", "where", "with"),
    )
)
_NEVER_WORDS = frozenset(("com", "con", "dis", "im", "mis", "un"))
_ENDS = frozenset(
    (
        *("able", "ance", "ant", "ate", "ated", "ates", "ence", "ent", "est", "ible", "ing", "ings", "ion", "ions"),
        *("ism", "ist", "ists", "ity", "ive", "ment", "ments", "ness", "ous", "sion", "tion", "tions"),
    )
)


def join_divided_words(pages: Sequence[str]) -> list[str]:
    """Return the pages of a document with their divided words joined. Compounds such as `open-source` keep the hyphen.

    If in doubt, the hyphen stays.
    """
    if not any(DIVIDED in page for page in pages):
        return list(pages)
    words = _DocumentWords.from_pages(pages)

    return [_DIVIDED_WORD.sub(words.join, page).replace(DIVIDED, "-") for page in pages]


@dataclass(frozen=True, slots=True)
class _DocumentWords:
    """Words of a document.

    * `counts`: how often each undivided word occurs.
    * `hyphened`: pairs of parts with a hyphen between them.
    * `everyday`: ranks of those divided words, and of those parts of them, that are everyday words.
    * `before`, `behind`: parts that occur before and after a hyphen.
    """

    counts: Counter[str]
    hyphened: frozenset[str]
    language: str
    everyday: dict[str, int]
    before: frozenset[str]
    behind: frozenset[str]

    @classmethod
    def from_pages(cls, pages: Sequence[str]) -> "_DocumentWords":
        lower_pages = [page.lower() for page in pages]
        counts = Counter(word for page in lower_pages for word in _WORD.findall(_DIVIDED_WORD.sub(" ", page)))
        pairs = {pair for word in counts if "-" in word for pair in pairwise(word.split("-"))}
        candidates: set[str] = set()
        for divided in {word for page in lower_pages for word in _DIVIDED_WORD.findall(page)}:
            parts = _DIVISION.split(divided)
            if len(parts) > 2:
                candidates.add("".join(parts))
            for before, after in pairwise(parts):
                last, first = _parts_at_hyphen(before, after)
                if counts[last + first] <= _RARE:
                    candidates.update((last, first, last + first))
        before, behind = (frozenset(pair[side] for pair in pairs if len(pair[side]) >= _SHORT_PART) for side in (0, 1))
        return cls(
            counts,
            frozenset(map("-".join, pairs)),
            detect_language(counts),
            _everyday_ranks(candidates),
            before,
            behind,
        )

    def join(self, match: re.Match[str]) -> str:
        """Return a divided word on one line, with a hyphen only where it belongs to the word."""
        before, *others = _DIVISION.split(match[0])
        joined_word = before + "".join(others)
        if len(others) > 1 and (self.counts[joined_word.lower()] or joined_word.lower() in self.everyday):
            return joined_word
        for after in others:
            if self.is_one(before, after):
                before += after
            else:
                before += f"{'- ' if after in _CONJUNCTIONS else '-'}{after}"
        return before

    def is_one(self, before: str, after: str) -> bool:
        """Return whether the two parts are one word without a hyphen."""
        last, first = _parts_at_hyphen(before, after)
        # A word of several parts may occur elsewhere as a whole.
        count = max(self.counts[last + first], self.counts[(before + after).lower()])
        if not after[0].islower():
            capitals = before.isupper() and after.isupper() and len(before) > 1
            return capitals and (count > 0 or last + first in self.everyday)
        if f"{last}-{first}" in self.hyphened:
            return False
        if count:
            return self.language in _SELDOM_HYPHENED or not self._may_be_two_words(last, first, count)
        if self._has_more_hyphens(before, after) or len(before) == 1:
            return False
        return self._is_new(before, last, first)

    def _may_be_two_words(self, last: str, first: str, count: int) -> bool:
        """Return whether the two parts may be two words, although they occur `count` times as one word."""
        if last in _PREFIXES and len(first) > _SHORT_PART and first in self.counts:
            return True
        if count > _RARE or not self._are_words(last, first):
            return False
        separate = (last in self.counts and first in self.counts) or self._rarer(last, first) < _VERY_FREQUENT
        return (separate and last not in _BEGINNINGS) or last + first not in self.everyday

    def _has_more_hyphens(self, before: str, after: str) -> bool:
        """Return whether the word has another hyphen, before or after this one, between two words."""
        ahead, last = before.lower().rpartition("-")[::2]
        first, behind = after.lower().partition("-")[::2]
        if ahead and (last in self.counts or (self.language in _WITH_FOLLOWERS and first in _FOLLOWERS)):
            return True
        return bool(behind) and first in self.counts

    def _is_new(self, before: str, last: str, first: str) -> bool:
        """Return whether two parts that occur together nowhere else in the document are one word."""
        everyday = last + first in self.everyday
        if first in _CONJUNCTIONS:
            return everyday
        if not everyday and self._usually_hyphened(last, first):
            return False
        if self.language in _SELDOM_HYPHENED:
            return everyday or not before.isupper() or len(before) == 1
        if last in _FIRST_PARTS or (first in _SECOND_PARTS and last != "un"):
            return False
        with_followers = self.language in _WITH_FOLLOWERS
        if with_followers and first in _FOLLOWERS and not (everyday and len(first) < _SHORT_PART):
            return False
        if last in _NEVER_WORDS:
            return True
        if first in _ENDS:
            return everyday or with_followers or len(last) <= _SHORT_PART or not self._is_word(last)
        words = self._are_words(last, first)
        if everyday:
            if last in _BEGINNINGS:
                new_compound = (
                    self.counts[first] and len(first) > _SHORT_PART and self.everyday[last + first] > _LESS_FREQUENT
                )
                return with_followers or not new_compound
            return with_followers or not (words and self._rarer(last, first) < _FREQUENT)
        # In English nearly all words are in the list of everyday words or occur twice in a document.
        strict = self.language == "en" or not (self.language or not (last + first).isascii())
        return not (strict or words)

    def _usually_hyphened(self, last: str, first: str) -> bool:
        """Return whether other words of the document have the first part before a hyphen, or the second after one."""
        if min(len(last), len(first)) < _SHORT_PART - 1 or first in _ENDS or last in _BEGINNINGS | _NEVER_WORDS:
            return False
        return last in self.before or first in self.behind

    def _is_word(self, part: str) -> bool:
        return self.counts[part] > 0 or part in self.everyday

    def _rarer(self, last: str, first: str) -> int:
        return max(self.everyday.get(part, _FREQUENT) for part in (last, first))

    def _are_words(self, last: str, first: str) -> bool:
        long_enough = (len(last) >= _SHORT_PART or last in _SHORT_WORDS) and (
            len(first) >= _SHORT_PART or first in _PARTICLES
        )
        return long_enough and first not in _ENDS and self._is_word(last) and self._is_word(first)


def _parts_at_hyphen(before: str, after: str) -> tuple[str, str]:
    """Return the parts right before and right after the hyphen, in lower case."""
    return before.lower().rpartition("-")[2], after.lower().partition("-")[0]


def _everyday_ranks(words: Collection[str]) -> dict[str, int]:
    """Return the ranks of everyday words: the words that a tokenizer of the product counts as one token.

    There are some 50,000 such words in many languages, most of them English. The data file of the tokenizer's package
    is read directly, since importing the package takes 100 MB of memory.
    """
    package = importlib.util.find_spec("bpe_openai") if words else None
    if not (package and package.submodule_search_locations):
        return {}
    tokens = {base64.b64encode(f" {form}".encode()): word for word in words for form in (word.capitalize(), word)}
    (folder,) = package.submodule_search_locations
    ranked_tokens = gzip.decompress((Path(folder) / "data/cl100k_base.tiktoken.gz").read_bytes()).split()[::2]
    ranks = [
        (tokens[token], rank)
        for rank, token in compress(enumerate(ranked_tokens), map(tokens.__contains__, ranked_tokens))
    ]
    return dict(reversed(ranks))  # so that the more frequent form counts
