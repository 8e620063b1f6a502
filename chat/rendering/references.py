"""Read the references of a text: documents cited by number, and tasks and files mentioned with @.

Citations `[1]`, `[[1]]` and `[1, 3]` in an answer become links to the documents with these numbers. A number without a
document stays text. The numbers are assigned in `chat.documents.numbers`. Mentions become links too, and completions
are offered while a user types.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.urls import get_script_prefix, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from markdown_it.rules_inline import StateInline

from accounts.models import User
from chat.models import Conversation, TeamShare
from chat.models.parts import CitationPlace, CitedSource
from files.models import File
from projects.planner.models import codes
from projects.planner.models.task import Task
from projects.planner.queries import today

DOUBT = gettext_noop("The passage does not support this sentence. Show both side by side.")
MAX_NUMBERS = 50  # numbers in one citation; a longer list is no citation
CITED = re.compile(rf"\[(\[)?(\d{{1,4}}(?:\s*,\s*\d{{1,4}}){{0,{MAX_NUMBERS - 1}}})\](?(1)\])(?!\()")


@dataclass(frozen=True, slots=True)
class Source:
    """A document that can be cited.

    `href` opens the document, at the page and passage of a search hit. `heading` is the path of headings above it.
    """

    number: int
    title: str
    href: str
    heading: str = ""

    @property
    def label(self) -> str:
        """Return the title with the path of headings."""
        return f"{self.title} · {self.heading}" if self.heading else self.title

    def as_dict(self) -> CitedSource:
        """Return the source as JSON."""
        return {"number": self.number, "title": self.title, "href": self.href}


class Sources(dict[int, Source]):
    """The documents that can be cited, by number."""

    def add_documents(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Add documents. A search hit replaces the whole file, since it knows the passage.

        A document is a `FoundDocument`. Imported ones may lead nowhere; these are no sources.
        """
        for document in documents:
            number = int(document["number"])
            if not document.keys() & {"url", "file", "conversation"}:
                continue
            if number in self and not document.keys() & {"start", "url", "conversation"}:
                continue
            heading = str(document.get("heading", ""))
            self[number] = Source(number, str(document["title"]), _href(document), heading)


def _href(document: Mapping[str, Any]) -> str:
    if "url" in document:
        return str(document["url"])
    if "share" in document:
        return reverse("chat:received_share", args=[document["share"]])
    if "conversation" in document:
        message = document["message"]
        return f"{reverse('chat:conversation', args=[document['conversation']])}?at={message}#m-{message}"
    place = {name: document[name] for name in ("start", "end") if name in document}
    page = document.get("page")  # also in the query, so that the server can check whether the passage still exists
    query = f"?{urlencode({**place, **({'page': page} if page else {})})}" if place else ""
    return reverse("files:file", args=[document["file"]]) + query + (f"#page-{page}" if page else "")


class PlaceLink(NamedTuple):
    """The address of the sentence that a citation leads to, and the name of the citation in its answer."""

    href: str
    name: str


def place_href(place: CitationPlace) -> str:
    """Return the address of the sentence in its file; empty for a web page."""
    if "file" not in place:
        return ""
    names = {"start": "start", "end": "end", "from": "sentence_start", "to": "sentence_end", "page": "page"}
    # mypy follows no names of members in a variable.
    query = {name: place[member] for name, member in names.items() if place.get(member) is not None}  # type: ignore[literal-required]
    if not place.get("page"):
        query.pop("page", None)
    return f"{reverse('files:file', args=[place['file']])}?{urlencode(query)}#passage"


def cited_sources(text: str, sources: Mapping[int, Source]) -> Iterator[Source]:
    """Yield the sources that a text cites, each once, in the order of their first citation."""
    seen: set[int] = set()
    for match in CITED.finditer(text):
        for number in map(int, re.findall(r"\d+", match[2])):
            if number in sources and number not in seen:
                seen.add(number)
                yield sources[number]


def cited_numbers(text: str) -> set[int]:
    """Return all numbers that a text cites, also numbers without a document."""
    return {int(number) for match in CITED.finditer(text) for number in re.findall(r"\d+", match[2])}


def citation_rule(state: StateInline, silent: bool) -> bool:
    """Parse a citation. A rule of the Markdown parser; `env["sources"]` are the documents that can be cited.

    Citations are counted from 0; each link has the count of its citation as `meta["citation"]`. A citation with an
    address in `env["doubts"]` is followed by a sign that links to that address. `env["places"]` has links to sentences,
    by the count of the citation and the number of the document.
    """
    sources: Mapping[int, Source] | None = state.env.get("sources")
    match = CITED.match(state.src, state.pos) if state.src[state.pos] == "[" else None
    if match is None or sources is None or not any(int(number) in sources for number in re.findall(r"\d+", match[2])):
        return False
    if not silent:
        state.env["steps"] = state.env.get("steps", 0) + match[2].count(",")  # each number is a link
        nth = state.env["citations"] = state.env.get("citations", -1) + 1
        for piece in re.findall(r"\d+|\D+", f"[{match[2]}]"):
            source = sources.get(int(piece)) if piece.isdecimal() else None
            if source is None:
                state.push("text", "", 0).content = piece
                continue
            link = state.push("link_open", "a", 1)
            link.attrs = {"href": source.href, "title": source.label, "class": "citation"}
            if (place := state.env.get("places", {}).get((nth, source.number))) is not None:
                link.attrs |= {"href": place.href or source.href, "data-place": place.name}
            link.meta = {"citation": nth}
            state.push("text", "", 0).content = piece
            state.push("link_close", "a", -1)
        if (href := state.env.get("doubts", {}).get(nth)) is not None:
            state.push("link_open", "a", 1).attrs = {"href": href, "title": _(DOUBT), "class": "doubt"}
            state.push("text", "", 0).content = _("unconfirmed")
            state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


_MENTION_LENGTH = codes.MAX_LENGTH + 2  # the longest code with its @ and the character after it
OFFERED_TASKS = 8
OFFERED_FILES = 4
OFFERED_CONVERSATIONS = 4
OFFERED_SHARES = 2


def mention_href(code: str) -> str:
    """Return the address of the task with this valid code, which has no character to escape."""
    return f"{_tasks_by_code(get_script_prefix())}{code}/"


@lru_cache(maxsize=8)
def _tasks_by_code(script_prefix: str) -> str:
    """Return the address that precedes a code.

    Cached per prefix: Django builds an address in 0.1 ms, and the longest text has 15,000 mentions.
    """
    return reverse("chat:task_by_code", args=["-"]).removesuffix("-/")


def mention_rule(state: StateInline, silent: bool) -> bool:
    """Parse a mention. A rule of the Markdown parser: a mention outside of links becomes a link."""
    if state.src[state.pos] != "@" or state.linkLevel:
        return False
    begin = max(0, state.pos - 1)
    start, end, code = next(codes.find_mention_spans(state.src[begin : state.pos + _MENTION_LENGTH]), (-1, 0, ""))
    if begin + start != state.pos:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": mention_href(code), "class": "mention"}
        state.push("text", "", 0).content = state.src[state.pos : begin + end]
        state.push("link_close", "a", -1)
    state.pos = begin + end
    return True


def split_mentions(text: str) -> Iterator[tuple[str, str]]:
    """Split a plain text at its mentions. Yield each piece with the code that it mentions, or with ""."""
    done = 0
    for start, end, code in codes.find_mention_spans(text):
        yield text[done:start], ""
        yield text[start:end], code
        done = end
    yield text[done:], ""


class MentionOffers(NamedTuple):
    """Completions of a mention. `shares` are conversations of other people that the user may copy."""

    tasks: list[Task]
    files: list[File]
    conversations: list[Conversation]
    shares: list[TeamShare]


def offer_mentions(*, user: User, typed: str) -> MentionOffers:
    """Return completions of the text after an @.

    These are tasks by code or title, today's first, files by name, and conversations by title, newest first. Without a
    text there are no conversations.
    """
    typed = typed.strip()[:100]
    is_today = Q(level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=today(user))
    rows = Task.objects.visible_to(user).filter(Q(code__istartswith=typed) | Q(title__icontains=typed))
    if "." not in typed:
        rows = rows.exclude(level=Task.Level.ITEM)
    first = ExpressionWrapper(is_today, output_field=BooleanField())
    tasks = rows.annotate(first=first).order_by("-first", "-date", "position", "code")
    files = File.objects.visible_to(user).filter(name__icontains=typed, status=File.Status.READY)
    conversations = Conversation.objects.listed_for(user).filter(title__icontains=typed).exclude(leaf=None)
    shares = TeamShare.objects.received_by(user).filter(title__icontains=typed, may_copy=True)
    return MentionOffers(
        list(tasks[:OFFERED_TASKS]),
        list(files.order_by("-created", "-id")[:OFFERED_FILES]),
        list(conversations.order_by("-updated", "-id")[:OFFERED_CONVERSATIONS]) if typed else [],
        list(shares.select_related("conversation__owner").order_by("-updated", "-id")[:OFFERED_SHARES])
        if typed
        else [],
    )
