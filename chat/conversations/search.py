"""Search in everything somebody wrote and was answered: messages, the newest first, and titles.

Words are compared here as the database does it in `chat_words` (its migration says how).
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

from django.contrib.postgres.search import SearchQuery, SearchVectorField
from django.db.models import F, Func, Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.models import User
from chat.models import Conversation, Message
from core.errors import ProductError

PAGE = 20
TITLES = 5  # conversations found by their titles, above the messages
READ = 100_000  # characters of one message that are searched
MAX_QUERY = 200  # characters that are read
MAX_WORDS = 16
SHOWN = 260  # characters of an excerpt
BEFORE = 80  # of them at most before the first match

_MARKS = re.compile("[\u0300-\u036f]")
_ALONE = "\u3040-\u30ff\u4e00-\u9fff"  # characters of languages that write no spaces
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_PHRASE = re.compile(r'"[^"]*"|[^\s"]+')


@dataclass(frozen=True, slots=True)
class Term:
    """A folded word; a `prefix` also matches longer ones."""

    word: str
    prefix: bool

    def matches(self, folded: str) -> bool:
        return folded.startswith(self.word) if self.prefix else folded == self.word


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFD", text.lower()))
    return unicodedata.normalize("NFC", plain).replace("đ", "d")


def phrases(query: str) -> list[list[Term]]:
    """What must all be there: words that stand beside each other, each phrase's last one as a beginning.

    Quotation marks make a phrase of several words and take its last one exactly; so do the signs in a name in code.
    """
    found, left = [], MAX_WORDS
    for piece in _PHRASE.findall(query[:MAX_QUERY].replace("\0", " ")):
        exact = piece.startswith('"')
        words = _WORD.findall(fold(piece))[:left]
        left -= len(words)
        if words:
            found.append([Term(word, not exact and place == len(words) - 1) for place, word in enumerate(words)])
    return found


def tsquery(asked: Sequence[Sequence[Term]]) -> str:
    """In the language of `to_tsquery`; words hold letters and digits alone, so nothing in them is a sign of it."""

    def of(term: Term) -> str:
        return f"'{term.word}'" + (":*" if term.prefix else "")

    return " & ".join("(" + " <-> ".join(of(term) for term in phrase) + ")" for phrase in asked)


def excerpt(text: str, asked: Sequence[Sequence[Term]]) -> list[tuple[str, bool]]:
    """The place of the first match, in pieces that say whether they matched; the beginning where there is none."""
    line = " ".join(unicodedata.normalize("NFC", text[:READ]).split())
    terms = [term for phrase in asked for term in phrase]
    spans = [word.span() for word in _WORD.finditer(line) if _matches(fold(word[0]), terms)]
    start = max(0, spans[0][0] - BEFORE) if spans else 0
    if start:
        start = line.find(" ", start, spans[0][0]) + 1 or start
    end = min(len(line), start + SHOWN)
    pieces: list[tuple[str, bool]] = [("…", False)] if start else []
    at = start
    for left, right in spans:
        if right > end:
            break
        pieces += [(line[at:left], False), (line[left:right], True)]
        at = right
    pieces += [(line[at:end], False), ("…" if end < len(line) else "", False)]
    return [piece for piece in pieces if piece[0]]


def _matches(folded: str, terms: Sequence[Term]) -> bool:
    return any(term.matches(folded) for term in terms)


class TitleWords(Func):
    function = "chat_words"
    output_field = SearchVectorField()


class MessageWords(Func):
    function = "chat_message_words"
    output_field = SearchVectorField()


# Newest first, but not by the index of ids: the planner takes every beginning of a word for a frequent one, and would
# read message after message, the newest first, until enough of them match; of a rare word that is all of them.
_NEWEST = Coalesce("id", "id").desc()


@dataclass(frozen=True, slots=True)
class Hit:
    """`pieces`: text around the first match, each with whether it matched."""

    message: Message
    pieces: list[tuple[str, bool]]

    @property
    def text(self) -> str:
        return "".join(piece for piece, _matched in self.pieces)

    @property
    def highlights(self) -> list[list[int]]:
        """Characters [start, end) of `text` that match."""
        ends = list(accumulate(len(piece) for piece, _matched in self.pieces))
        return [[end - len(piece), end] for (piece, matched), end in zip(self.pieces, ends, strict=True) if matched]


@dataclass(frozen=True, slots=True)
class Found:
    """`after` is where the next page begins, None on the last."""

    titles: list[tuple[Conversation, list[tuple[str, bool]]]]
    hits: list[Hit]
    after: UUID | None


def search(*, user: User, query: str, after: UUID | None = None, limit: int = PAGE) -> Found:
    """All words of the query, as beginnings of words, without regard to case and accents. No word finds nothing."""
    asked = phrases(query)
    if not asked:
        return Found([], [], None)
    rows = _messages(user, asked).select_related("conversation").defer("tokens").order_by(_NEWEST)
    if after is not None:
        rows = rows.filter(pk__lt=after)
    found = list(rows[: limit + 1])
    hits = [Hit(message, excerpt(message.text, asked)) for message in found[:limit]]
    titles = [] if after else _titles(user, asked)
    return Found(titles, hits, hits[-1].message.pk if len(found) > limit else None)


def matching(rows: QuerySet[Conversation], user: User, query: str) -> QuerySet[Conversation]:
    """Of the conversations, those with all words of the query in the title or in one message.

    Raises `no_words` for a query without a letter or digit.
    """
    asked = phrases(query)
    if not asked:
        raise ProductError("no_words", "Search for a word: the query has no letter and no digit.")
    spoken = _messages(user, asked).values("conversation")
    return rows.filter(Q(pk__in=_titled(user, asked).values("pk")) | Q(pk__in=spoken))


def _messages(user: User, asked: Sequence[Sequence[Term]]) -> QuerySet[Message]:
    listed = Conversation.objects.listed_for(user)
    rows = Message.objects.filter(conversation__in=listed).exclude(status=Message.Status.PENDING)
    return rows.alias(words=MessageWords(F("parts"))).filter(words=_raw(asked))


def _titled(user: User, asked: Sequence[Sequence[Term]]) -> QuerySet[Conversation]:
    return Conversation.objects.listed_for(user).alias(words=TitleWords(F("title"))).filter(words=_raw(asked))


def _titles(user: User, asked: Sequence[Sequence[Term]]) -> list[tuple[Conversation, list[tuple[str, bool]]]]:
    rows = _titled(user, asked).order_by("-updated", "-id")[:TITLES]
    return [(conversation, excerpt(conversation.title, asked)) for conversation in rows]


def _raw(asked: Sequence[Sequence[Term]]) -> SearchQuery:
    return SearchQuery(tsquery(asked), config="simple", search_type="raw")
