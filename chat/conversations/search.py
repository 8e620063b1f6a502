"""Search a user's messages (newest first), titles, and the names of projects, personas and files."""

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
from core.marks import without_marks
from files.models import File
from personas.models import Persona
from projects.models import Project

CHARACTERS_READ = READ  # characters of each message that are searched, from its beginning
PAGE_MESSAGES = 20
FIRST_TITLES = 5  # matching titles above the messages
MORE_TITLES = 100  # titles added each time the user asks for more
MAX_TITLES = 2_000  # titles on one page
MATCHES_PER_KIND = 5  # matches per kind: projects, personas and files
MAX_COUNTED = 1_000  # messages; more are not counted
EXCERPT_CHARACTERS = 260  # characters of an excerpt
EXCERPT_LEAD = 80  # most characters of an excerpt before the first match


def cut_excerpt(text: str, phrases: Sequence[Sequence[Term]]) -> list[tuple[str, bool]]:
    """Return the text around the first match, or the beginning if nothing matches.

    The text is split into pieces, each with a flag: whether it matched.
    """
    line = " ".join(unicodedata.normalize("NFC", text[:READ]).split())
    matched = spans(line, phrases)
    start = max(0, matched[0][0] - EXCERPT_LEAD) if matched else 0
    if start:
        start = line.find(" ", start, matched[0][0]) + 1 or start
    end = min(len(line), start + EXCERPT_CHARACTERS)
    pieces: list[tuple[str, bool]] = [("…", False)] if start else []
    position = start
    for left, right in matched:
        if right > end:
            break
        pieces += [(line[position:left], False), (line[left:right], True)]
        position = right
    pieces += [(line[position:end], False), ("…" if end < len(line) else "", False)]
    return [piece for piece in pieces if piece[0]]


# Newest first, but without the index of ids. The query planner assumes that every prefix is frequent. It would read
# messages one by one, newest first, until enough of them match. For a rare word it would read all messages.
_NEWEST = Coalesce("id", "id").desc()


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message with the text around its first match. Each piece of the text has a flag: whether it matched."""

    message: Message
    pieces: list[tuple[str, bool]]

    @property
    def text(self) -> str:
        return "".join(piece for piece, _matched in self.pieces)

    @property
    def highlights(self) -> list[list[int]]:
        """Return the matches as characters [start, end) of `text`."""
        ends = list(accumulate(len(piece) for piece, _matched in self.pieces))
        return [[end - len(piece), end] for (piece, matched), end in zip(self.pieces, ends, strict=True) if matched]


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of a search. The next page begins after the message `after`, which is None on the last page.

    `titled` is the number of titles that match. `match_titles` are the newest of them.
    """

    titles: list[tuple[Conversation, list[tuple[str, bool]]]]
    hits: list[MessageHit]
    after: UUID | None
    titled: int = 0


@dataclass(frozen=True, slots=True)
class NameMatches:
    """The first rows whose names contain all words of a query. `total` counts all of these rows."""

    rows: list[Any]
    total: int


def search(
    *,
    user: User,
    query: str,
    after: UUID | None = None,
    limit: int = PAGE_MESSAGES,
    most_titles: int = FIRST_TITLES,
    tag: str = "",
) -> SearchPage:
    """Search for messages and titles with all words of the query. A query without a word matches nothing.

    Words match by prefix, regardless of case and accents. With `tag`, search only the conversations with this tag.
    """
    phrases = parse_query(query)
    if not phrases:
        return SearchPage([], [], None)
    rows = _message_matches(user, phrases, tag).select_related("conversation").defer("tokens").order_by(_NEWEST)
    if after is not None:
        rows = rows.filter(pk__lt=after)
    rows_on_page = list(rows[: limit + 1])
    hits = [MessageHit(message, cut_excerpt(without_marks(message.text), phrases)) for message in rows_on_page[:limit]]
    most = most_titles if after is None else 0
    shown, titled = match_titles(user=user, query=query, most=most, tag=tag) if most else ([], 0)
    return SearchPage(shown, hits, hits[-1].message.pk if len(rows_on_page) > limit else None, titled)


def match_titles(
    *, user: User, query: str, most: int, tag: str = ""
) -> tuple[list[tuple[Conversation, list[tuple[str, bool]]]], int]:
    """Return the newest conversations whose titles match, with the pieces of the titles, and the number of matches."""
    phrases = parse_query(query)
    rows = _title_matches(user, phrases, tag).order_by("-updated", "-id") if phrases else Conversation.objects.none()
    matches = [(conversation, cut_excerpt(conversation.title, phrases)) for conversation in rows[:most]]
    return matches, len(matches) if len(matches) < most else rows.count()


def count_messages(*, user: User, query: str) -> int:
    """Return the number of messages that match. The count stops at `MAX_COUNTED` + 1."""
    phrases = parse_query(query)
    return _message_matches(user, phrases)[: MAX_COUNTED + 1].count() if phrases else 0


def match_names(*, user: User, query: str, limit: int = MATCHES_PER_KIND) -> dict[str, NameMatches]:
    """Return the projects, personas and files whose names contain all words as typed. Without words nothing matches."""
    words = query.replace("\0", " ").split()
    rows = {
        "projects": Project.objects.visible_to(user).order_by("name", "id"),
        "personas": Persona.objects.visible_to(user).order_by("name", "id"),
        "files": File.objects.visible_to(user).order_by("-created", "-id"),
    }
    return {kind: _match_names(query_set, words, limit) for kind, query_set in rows.items()}


def _match_names(rows: QuerySet[Any], words: Sequence[str], limit: int) -> NameMatches:
    if not words:
        return NameMatches([], 0)
    for word in words:
        rows = rows.filter(name__icontains=word)
    matches = list(rows[:limit])
    return NameMatches(matches, len(matches) if len(matches) < limit else rows.count())


def filter_conversations(rows: QuerySet[Conversation], user: User, query: str) -> QuerySet[Conversation]:
    """Return the conversations with all words of the query in the title or in one message.

    Raises `no_words` for a query without a letter or digit.
    """
    phrases = parse_query(query)
    if not phrases:
        raise ProductError("no_words", "Enter a word: the query has no letter and no digit.")
    matching_messages = _message_matches(user, phrases).values("conversation")
    return rows.filter(Q(pk__in=_title_matches(user, phrases).values("pk")) | Q(pk__in=matching_messages))


def _message_matches(user: User, phrases: Sequence[Sequence[Term]], tag: str = "") -> QuerySet[Message]:
    rows = Message.objects.filter(
        pk__in=messages_with(user.pk, phrases), conversation__in=_listed_conversations(user, tag)
    )
    return _with_phrases(rows, MessageWords(F("parts")), phrases)


def _title_matches(user: User, phrases: Sequence[Sequence[Term]], tag: str = "") -> QuerySet[Conversation]:
    rows = _listed_conversations(user, tag).filter(pk__in=titles_with(user.pk, phrases))
    return _with_phrases(rows, TitleWords(F("title")), phrases)


def _with_phrases(rows: QuerySet[Any], words: Func, phrases: Sequence[Sequence[Term]]) -> QuerySet[Any]:
    """Return only the rows whose text has the words of each phrase side by side: the index has only single words."""
    if any(len(phrase) > 1 for phrase in phrases):
        rows = rows.alias(words=words).filter(words=as_query(phrases))
    return rows


def _listed_conversations(user: User, tag: str) -> QuerySet[Conversation]:
    rows = Conversation.objects.listed_for(user)
    return rows.filter(tags__in=Tag.objects.visible_to(user).filter(name__iexact=tag)) if tag else rows
