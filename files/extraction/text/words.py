"""Words that a line's end has divided, put together again."""

import base64
import gzip
import importlib.util
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

DIVIDED = "\ufffe"  # what PDFium puts for a hyphen at the end of a line; the rest of the word follows it
_LETTERS = r"[^\W\d_]+(?:-[^\W\d_]+)*"
_WORD = re.compile(_LETTERS)
_DIVIDED_WORD = re.compile(rf"({_LETTERS}){DIVIDED}\s*({_LETTERS})")
_SHORT = 3  # letters; shorter parts are seldom words
# Parts that are seldom written together with what is before or behind them, in a language that divides by hyphens.
_FIRST_PARTS = frozenset(
    (
        *("all", "cross", "half", "high", "long", "low", "mixed", "multi", "non", "open", "pre", "quasi", "real"),
        *("self", "semi", "short", "single", "stand", "state", "two"),
    )
)
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
# Beginnings and ends that are no words by themselves where a line's end divides one.
_BEGINNINGS = frozenset(("con", "de", "dis", "en", "ex", "im", "in", "mis", "pro", "re", "sub", "un"))
_ENDS = frozenset(
    (
        *("able", "ance", "ant", "ate", "ated", "ates", "ence", "ent", "est", "ible", "ing", "ings", "ion", "ions"),
        *("ism", "ist", "ists", "ity", "ive", "ment", "ments", "ness", "ous", "sion", "tion", "tions"),
    )
)


def joined(pages: Sequence[str]) -> list[str]:
    """The pages of a document with their divided words joined; `open-source` keeps the hyphen that it has anyhow.

    The document itself tells which is which: a word is joined unless it stands elsewhere only with its hyphen, or both
    of its parts stand elsewhere as words. Where it does not, everyday words tell: two of them that make none together
    keep their hyphen.
    """
    if not any(DIVIDED in page for page in pages):
        return list(pages)
    known = {word for page in pages for word in _WORD.findall(_DIVIDED_WORD.sub(" ", page).lower())}
    hyphened = {"-".join(pair) for word in known if "-" in word for pair in pairwise(word.split("-"))}

    def whole(found: re.Match[str]) -> str:
        return found[1] + ("" if _is_one(found[1], found[2], known, hyphened) else "-") + found[2]

    # Twice, as the end of one divided word may be the beginning of another.
    return [_DIVIDED_WORD.sub(whole, _DIVIDED_WORD.sub(whole, page)).replace(DIVIDED, "-") for page in pages]


def _is_one(before: str, after: str, known: set[str], hyphened: set[str]) -> bool:
    if not after[0].islower():
        return before.isupper() and after.isupper() and len(before) > 1
    last, first = before.lower().rpartition("-")[2], after.lower().partition("-")[0]
    if (before + after).lower() in known or last + first in known:
        return True
    both_words = last in known and first in known and min(len(last), len(first)) >= _SHORT
    goes_on = ("-" in before and last in known) or ("-" in after and first in known)
    compound = goes_on or last in _FIRST_PARTS or len(before) == 1 or (first in _SECOND_PARTS and last != "un")
    if both_words or compound or f"{last}-{first}" in hyphened:
        return False
    return _is_everyday(last + first) or not _are_everyday(last, first)


def _are_everyday(last: str, first: str) -> bool:
    short = len(first) < _SHORT and first not in _PARTICLES
    return not (short or last in _BEGINNINGS or first in _ENDS) and _is_everyday(last) and _is_everyday(first)


def _is_everyday(word: str) -> bool:
    """Whether it is among some 80,000 words of many languages: those that the product's tokenizer counts as one."""
    return any(base64.b64encode(f" {form}".encode()) in _tokens() for form in (word, word.capitalize()))


@cache
def _tokens() -> frozenset[bytes]:
    """In base64, as the file has them. Its package is not imported, which takes 100 MB."""
    package = importlib.util.find_spec("bpe_openai")
    (folder,) = package.submodule_search_locations if package and package.submodule_search_locations else [""]
    return frozenset(gzip.decompress((Path(folder) / "data/o200k_base.tiktoken.gz").read_bytes()).split()[::2])
