"""Search in everything somebody wrote and was answered: messages, the newest first, titles, and what has a name."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from uuid import UUID

from django.db.models import F, Func, Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.models import User
from chat.models import Conversation, Message, Tag
from chat.models.words import (
    READ,
    MessageWords,
    Term,
    TitleWords,
    as_query,
    messages_with,
    parse_query,
    spans,
    titles_with,
)
from core.errors import ProductError
from files.models import File
from personas.models import Persona
from projects.models import Project

PAGE = 20
TITLES = 5  # conversations found by their titles, above the messages
SOME_TITLES = 100  # where somebody asks for more of them, and with every time that they do
MOST_TITLES = 2_000  # on one page
NAMED = 5  # projects, personas and files each
MANY = 1_000  # messages beyond which nobody counts
SHOWN = 260  # characters of an excerpt
BEFORE = 80  # of them at most before the first match


# Of Markdown, what nobody reads: fences and the rule below a table's head, as lines; marks of headings, quotations and
# cells; and those around words. How far a pair may reach is bounded, and so is the time that looking for it takes.
_LINES = re.compile(r"^[ \t]*+(?:(?:`{3}|~{3}).*|(?:\|[ \t]*+)?:?-{3}[-:| \t]*)$", re.MULTILINE)
_BEGINNINGS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|\|[ \t]*)|\|[ \t]*$", re.MULTILINE)
_PAIRS = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]{1,200})(?<=\S)\*\*(?![\w*])|`([^`\n]{1,200})`")


def without_marks(text: str) -> str:
    """The words of a message written in Markdown, for a place that shows a line of it; between cells of a table are
    dots."""
    text = _BEGINNINGS.sub("", _LINES.sub("", text))
    return _PAIRS.sub(r"\1\2", text).replace(" | ", " · ")


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
    """`after` is where the next page begins, None on the last. `titled`: how many titles match, of which `titles` are
    the newest."""

    titles: list[tuple[Conversation, list[tuple[str, bool]]]]
    hits: list[Hit]
    after: UUID | None
    titled: int = 0


@dataclass(frozen=True, slots=True)
class Named:
    """What has all words of a query in its name: the first rows of `total`."""

    rows: list[Any]
    total: int


def search(
    *, user: User, query: str, after: UUID | None = None, limit: int = PAGE, most_titles: int = TITLES, tag: str = ""
) -> Found:
    """All words of the query, as beginnings of words, without regard to case and accents. No word finds nothing.

    With the name of a `tag`, in conversations that have it.
    """
    asked = parse_query(query)
    if not asked:
        return Found([], [], None)
    rows = _messages(user, asked, tag).select_related("conversation").defer("tokens").order_by(_NEWEST)
    if after is not None:
        rows = rows.filter(pk__lt=after)
    found = list(rows[: limit + 1])
    hits = [Hit(message, excerpt(without_marks(message.text), asked)) for message in found[:limit]]
    wanted = most_titles if after is None else 0
    shown, titled = titles(user=user, query=query, most=wanted, tag=tag) if wanted else ([], 0)
    return Found(shown, hits, hits[-1].message.pk if len(found) > limit else None, titled)


def titles(
    *, user: User, query: str, most: int, tag: str = ""
) -> tuple[list[tuple[Conversation, list[tuple[str, bool]]]], int]:
    """The newest conversations whose titles match, with the pieces of these, and how many there are."""
    asked = parse_query(query)
    rows = _titled(user, asked, tag).order_by("-updated", "-id") if asked else Conversation.objects.none()
    found = [(conversation, excerpt(conversation.title, asked)) for conversation in rows[:most]]
    return found, len(found) if len(found) < most else rows.count()


def spoken(*, user: User, query: str) -> int:
    """How many messages a query finds, counted as far as one beyond `MANY`."""
    asked = parse_query(query)
    return _messages(user, asked)[: MANY + 1].count() if asked else 0


def named(*, user: User, query: str, limit: int = NAMED) -> dict[str, Named]:
    """Projects, personas and files by their names, as they are typed; no word finds nothing."""
    words = query.replace("\0", " ").split()
    rows = {
        "projects": Project.objects.visible_to(user).order_by("name", "id"),
        "personas": Persona.objects.visible_to(user).order_by("name", "id"),
        "files": File.objects.visible_to(user).order_by("-created", "-id"),
    }
    return {kind: _named(found, words, limit) for kind, found in rows.items()}


def _named(rows: QuerySet[Any], words: Sequence[str], limit: int) -> Named:
    if not words:
        return Named([], 0)
    for word in words:
        rows = rows.filter(name__icontains=word)
    found = list(rows[:limit])
    return Named(found, len(found) if len(found) < limit else rows.count())


def matching(rows: QuerySet[Conversation], user: User, query: str) -> QuerySet[Conversation]:
    """Of the conversations, those with all words of the query in the title or in one message.

    Raises `no_words` for a query without a letter or digit.
    """
    asked = parse_query(query)
    if not asked:
        raise ProductError("no_words", "Search for a word: the query has no letter and no digit.")
    spoken = _messages(user, asked).values("conversation")
    return rows.filter(Q(pk__in=_titled(user, asked).values("pk")) | Q(pk__in=spoken))


def _messages(user: User, asked: Sequence[Sequence[Term]], tag: str = "") -> QuerySet[Message]:
    rows = Message.objects.filter(pk__in=messages_with(user.pk, asked), conversation__in=_listed(user, tag))
    return _beside(rows, MessageWords(F("parts")), asked)


def _titled(user: User, asked: Sequence[Sequence[Term]], tag: str = "") -> QuerySet[Conversation]:
    rows = _listed(user, tag).filter(pk__in=titles_with(user.pk, asked))
    return _beside(rows, TitleWords(F("title")), asked)


def _beside(rows: QuerySet[Any], words: Func, asked: Sequence[Sequence[Term]]) -> QuerySet[Any]:
    """Of rows that were found by the index of each person's own words, those where the words of each phrase stand
    beside each other, which is seen in the text."""
    if any(len(phrase) > 1 for phrase in asked):
        rows = rows.alias(words=words).filter(words=as_query(asked))
    return rows


def _listed(user: User, tag: str) -> QuerySet[Conversation]:
    rows = Conversation.objects.listed_for(user)
    return rows.filter(tags__in=Tag.objects.visible_to(user).filter(name__iexact=tag)) if tag else rows
