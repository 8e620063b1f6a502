"""Words that a line's end has divided, put together again."""

import re
from collections.abc import Sequence
from itertools import pairwise

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


def joined(pages: Sequence[str]) -> list[str]:
    """The pages of a document with their divided words joined; `open-source` keeps the hyphen that it has anyhow.

    The document itself tells which is which: a word is joined unless it stands elsewhere only with its hyphen, or both
    of its parts stand elsewhere as words.
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
    compound = goes_on or last in _FIRST_PARTS or first in _SECOND_PARTS or len(before) == 1
    return not both_words and not compound and f"{last}-{first}" not in hyphened
