"""Search in everything somebody wrote and was answered: messages, the newest first, and titles."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

from django.contrib.postgres.search import SearchVectorField
from django.db.models import F, Func, Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.models import User
from chat.models import Conversation, Message
from chat.models.words import READ, MessageWords, Term, as_query, phrases, spans
from core.errors import ProductError

PAGE = 20
TITLES = 5  # conversations found by their titles, above the messages
SHOWN = 260  # characters of an excerpt
BEFORE = 80  # of them at most before the first match


def excerpt(text: str, asked: Sequence[Sequence[Term]]) -> list[tuple[str, bool]]:
    """The place of the first match, in pieces that say whether they matched; the beginning where there is none."""
    line = " ".join(unicodedata.normalize("NFC", text[:READ]).split())
    matched = spans(line, asked)
    start = max(0, matched[0][0] - BEFORE) if matched else 0
    if start:
        start = line.find(" ", start, matched[0][0]) + 1 or start
    end = min(len(line), start + SHOWN)
    pieces: list[tuple[str, bool]] = [("…", False)] if start else []
    at = start
    for left, right in matched:
        if right > end:
            break
        pieces += [(line[at:left], False), (line[left:right], True)]
        at = right
    pieces += [(line[at:end], False), ("…" if end < len(line) else "", False)]
    return [piece for piece in pieces if piece[0]]


class TitleWords(Func):
    function = "chat_words"
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
    return rows.alias(words=MessageWords(F("parts"))).filter(words=as_query(asked))


def _titled(user: User, asked: Sequence[Sequence[Term]]) -> QuerySet[Conversation]:
    return Conversation.objects.listed_for(user).alias(words=TitleWords(F("title"))).filter(words=as_query(asked))


def _titles(user: User, asked: Sequence[Sequence[Term]]) -> list[tuple[Conversation, list[tuple[str, bool]]]]:
    rows = _titled(user, asked).order_by("-updated", "-id")[:TITLES]
    return [(conversation, excerpt(conversation.title, asked)) for conversation in rows]
