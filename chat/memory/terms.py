"""Words of facts: the keys of their search, and comparisons of two texts.

Words are those of `chat.citations.words`: function words are left out, and forms of one word have one stem. The search
keys are digests of the owner and the stem, so that one index serves all people and holds no text.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from uuid import UUID

from chat.citations.differences import DoubtKind
from chat.citations.support import compare
from chat.citations.vocabulary import NEGATIONS
from chat.citations.words import Word, same_root, stem, words_of

MAX_WORDS = 64  # stems of a text that are looked at
READ = 2_000  # characters of a question that are looked at
# Words that a fact may add to what the person has said: they name the person.
_OF_THE_PERSON = frozenset({"person", "user", "they", "people", "name", "someone"})
# The subject of a fact, which the person's own words do not have.
_SUBJECT = re.compile(
    r"^(?:(?:the |this )?(?:user|person)(?:['’]s)?|(?:der |die )?(?:nutzer|benutzer)(?:in)?|người dùng|用户)\s*",
    re.IGNORECASE,
)
# Verbs that a fact may put in place of a request: “prefers short answers” for “keep answers short”.
_OF_WISHES = frozenset(map(stem, ["prefer", "prefers", "want", "wants", "like", "likes", "wish", "wishes", "expects"]))
# Verbs of which several things may be true at once: “likes Bach” does not contradict “likes Mozart”.
_OF_MANY = frozenset(
    map(
        stem,
        ["like", "likes", "love", "enjoy", "know", "speak", "visit", "read", "play", "own", "use", "hate", "prefer"],
    )
)
_CONTRADICTING = (DoubtKind.NUMBER, DoubtKind.NAME, DoubtKind.NEGATION, DoubtKind.OPPOSITE)
LEAST_SHARED_OF_WORDS = 2  # shared stems with which another word in the same place contradicts


def stems(text: str) -> list[str]:
    """Return the stems of the text's content words, each once, at most `MAX_WORDS`."""
    unique = dict.fromkeys(_stem(word) for word in words_of(text[:READ]) if word.content)
    return list(unique)[:MAX_WORDS]


def _stem(word: Word) -> str:
    """Return the stem. “lives” is a form of “live”, too, whose stem as a noun would be “life”."""
    return stem(word.lower.removesuffix("s")) if word.lower.endswith("ves") else word.stem


def keys_of(owner: UUID, words: Iterable[str]) -> list[int]:
    """Return the search keys of stems, ascending."""
    keys = (blake2b(owner.bytes + word.encode(), digest_size=8).digest() for word in words)
    return sorted({int.from_bytes(key, signed=True) for key in keys})


def rests_on(text: str, quote: str) -> bool:
    """Return whether a fact says nothing but what the quoted words say.

    More than half of its content words must be in the quote, and the comparison of citations must find no other number,
    name, negation or subject.
    """
    quoted = words_of(quote[:READ])
    quoted_stems = {_stem(word) for word in quoted}
    text = _SUBJECT.sub("", text[:READ], count=1)
    words = words_of(text)
    content = [word for word in words if word.content and word.stem not in _OF_THE_PERSON]
    shared = sum(_stem(word) in quoted_stems or any(_alike(word, other) for other in quoted) for word in content)
    if not content or shared * 2 <= len(content):
        return False
    verdict = compare(text, quote)
    if verdict is None:
        return _denies(words) == _denies(quoted)
    return all(kind == DoubtKind.WORD and {*map(stem, named.split())} <= _OF_WISHES for kind, named in verdict.reasons)


def _alike(one: Word, other: Word) -> bool:
    return bool(one.lower and other.lower and other.content and same_root(one.lower, other.lower))


def _denies(words: Iterable[Word]) -> bool:
    return any(word.lower in NEGATIONS for word in words)


def contradicts(newer: str, older: str) -> bool:
    """Return whether two facts cannot both be true, as far as their words tell.

    They must share a word, and differ in a number, a name or a negation, or in a word in the same place.
    """
    shared = {*stems(newer)} & {*stems(older)} - _OF_THE_PERSON - _OF_MANY
    if not shared:
        return False
    verdict = compare(newer, older)
    kinds = {kind for kind, _ in verdict.reasons} if verdict is not None else set()
    if kinds & {*_CONTRADICTING}:
        return True
    return DoubtKind.WORD in kinds and len(shared) >= LEAST_SHARED_OF_WORDS
