"""Words of facts: the keys of their search, and comparisons of two texts.

Words are those of `chat.citations.words`: function words are left out, and forms of one word have one stem. The search
keys are digests of the owner and the stem, so that one index serves all people and contains no text.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from uuid import UUID

from chat.citations.differences import DoubtKind
from chat.citations.support import compare
from chat.citations.vocabulary import NEGATIONS
from chat.citations.words import Word, same_root, stem, words_of

MAX_WORDS = 64  # stems of a text that are compared
MAX_READ_CHARACTERS = 2_000  # characters of a text that are read
# Words for the person, which a fact may add to the person's words.
_PERSON_WORDS = frozenset({"person", "user", "they", "people", "name", "someone"})
# The subject of a fact. The person's own words have “I” instead.
_SUBJECT = re.compile(
    r"^(?:(?:the |this )?(?:user|person)(?:['’]s)?|(?:der |die )?(?:nutzer|benutzer)(?:in)?|người dùng|用户)\s*",
    re.IGNORECASE,
)
# Verbs by which a fact may express a request: “prefers short answers” for “keep answers short”.
_WISH_VERBS = frozenset(map(stem, ["prefer", "prefers", "want", "wants", "like", "likes", "wish", "wishes", "expects"]))
# Verbs that may have several objects at once: “likes Bach” does not contradict “likes Mozart”.
_COMPATIBLE_VERBS = frozenset(
    map(
        stem,
        ["like", "likes", "love", "enjoy", "know", "speak", "visit", "read", "play", "own", "use", "hate", "prefer"],
    )
)
_CONTRADICTING = (DoubtKind.NUMBER, DoubtKind.NAME, DoubtKind.NEGATION, DoubtKind.OPPOSITE)
MIN_SHARED_STEMS = 2  # shared stems for a contradiction by another word in the same place


def stems(text: str) -> list[str]:
    """Return the stems of the text's content words, each once, at most `MAX_WORDS`."""
    unique = dict.fromkeys(_stem(word) for word in words_of(text[:MAX_READ_CHARACTERS]) if word.content)
    return list(unique)[:MAX_WORDS]


def _stem(word: Word) -> str:
    """Return the stem. “lives” is a form of “live”, too, whose stem as a noun would be “life”."""
    return stem(word.lower.removesuffix("s")) if word.lower.endswith("ves") else word.stem


def search_keys(owner: UUID, words: Iterable[str]) -> list[int]:
    """Return the search keys of stems, ascending."""
    keys = (blake2b(owner.bytes + word.encode(), digest_size=8).digest() for word in words)
    return sorted({int.from_bytes(key, signed=True) for key in keys})


def is_supported_by(text: str, quote: str) -> bool:
    """Return whether the quoted words support everything that the fact says.

    More than half of its content words must be in the quote, and the comparison of citations must find no other number,
    name, negation or subject.
    """
    quoted = words_of(quote[:MAX_READ_CHARACTERS])
    quoted_stems = {_stem(word) for word in quoted}
    text = _SUBJECT.sub("", text[:MAX_READ_CHARACTERS], count=1)
    words = words_of(text)
    content = [word for word in words if word.content and word.stem not in _PERSON_WORDS]
    shared = sum(_stem(word) in quoted_stems or any(_same_root(word, other) for other in quoted) for word in content)
    if not content or shared * 2 <= len(content):
        return False
    verdict = compare(text, quote)
    if verdict is None:
        return _has_negation(words) == _has_negation(quoted)
    return all(kind == DoubtKind.WORD and {*map(stem, named.split())} <= _WISH_VERBS for kind, named in verdict.reasons)


def _same_root(one: Word, other: Word) -> bool:
    return bool(one.lower and other.lower and other.content and same_root(one.lower, other.lower))


def _has_negation(words: Iterable[Word]) -> bool:
    return any(word.lower in NEGATIONS for word in words)


def contradicts(newer: str, older: str) -> bool:
    """Return whether two facts cannot both be true, as far as their words tell.

    They must share a word, and differ in a number, a name or a negation, or in a word in the same place.
    """
    shared = {*stems(newer)} & {*stems(older)} - _PERSON_WORDS - _COMPATIBLE_VERBS
    if not shared:
        return False
    verdict = compare(newer, older)
    kinds = {kind for kind, _ in verdict.reasons} if verdict is not None else set()
    if kinds & {*_CONTRADICTING}:
        return True
    return DoubtKind.WORD in kinds and len(shared) >= MIN_SHARED_STEMS
