"""What a text refers to: the documents it cites by number, and the tasks and files it mentions with @.

Citations: `[1]`, `[[1]]` and `[1, 3]` in an answer become links to what stands under these numbers; a number that no
document has is left as text (the documents' numbers: `chat.documents.numbers`). Mentions become links too, and are
offered while somebody writes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from markdown_it.rules_inline import StateInline

from accounts.models import User
from files.models import File
from projects.planner.models import codes
from projects.planner.models.task import Task
from projects.planner.queries import today

DOUBT = gettext_noop("The passage does not carry this sentence. Show both side by side.")
MAX_NUMBERS = 50  # of one citation; what holds more is a list of numbers
CITED = re.compile(rf"\[(\[)?(\d{{1,4}}(?:\s*,\s*\d{{1,4}}){{0,{MAX_NUMBERS - 1}}})\](?(1)\])(?!\()")


@dataclass(frozen=True, slots=True)
class Source:
    """`href` opens the document, at the page and passage that was found if one was; `heading` is the path of headings
    that this stands below."""

    number: int
    title: str
    href: str
    heading: str = ""

    @property
    def label(self) -> str:
        return f"{self.title} · {self.heading}" if self.heading else self.title

    def as_dict(self) -> dict[str, Any]:
        return {"number": self.number, "title": self.title, "href": self.href}


class Sources(dict[int, Source]):
    """What can be cited, by number. Something found by a search replaces the mere file: it knows the passage."""

    def learn(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """`documents`: `number`, `title`, and `file` (an id) with `page`, `start`, `end` if known, or `url`."""
        for document in documents:
            number = int(document["number"])
            if number in self and "start" not in document and "url" not in document:
                continue
            heading = str(document.get("heading", ""))
            self[number] = Source(number, str(document["title"]), _href(document), heading)


def _href(document: Mapping[str, Any]) -> str:
    if "url" in document:
        return str(document["url"])
    place = {name: document[name] for name in ("start", "end") if name in document}
    page = document.get("page")  # in the address too, where the server sees whether the passage is still there
    query = f"?{urlencode({**place, **({'page': page} if page else {})})}" if place else ""
    return reverse("files:file", args=[document["file"]]) + query + (f"#page-{page}" if page else "")


def cited(text: str, sources: Mapping[int, Source]) -> Iterator[Source]:
    """The sources a text cites, each once, in the order of their first mention."""
    seen: set[int] = set()
    for match in CITED.finditer(text):
        for number in map(int, re.findall(r"\d+", match[2])):
            if number in sources and number not in seen:
                seen.add(number)
                yield sources[number]


def cited_numbers(text: str) -> set[int]:
    """All numbers that a text cites, whether anything stands under them or not."""
    return {int(number) for match in CITED.finditer(text) for number in re.findall(r"\d+", match[2])}


def citation_rule(state: StateInline, silent: bool) -> bool:
    """A rule of the Markdown parser; `env["sources"]` says what can be cited.

    Citations are counted from 0; the links of one have its count as `meta["citation"]`. Behind those in
    `env["doubts"]`, a mapping to addresses, stands a sign that leads there.
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
            link.meta = {"citation": nth}
            state.push("text", "", 0).content = piece
            state.push("link_close", "a", -1)
        if (href := state.env.get("doubts", {}).get(nth)) is not None:
            state.push("link_open", "a", 1).attrs = {"href": href, "title": _(DOUBT), "class": "doubt"}
            state.push("text", "", 0).content = _("unconfirmed")
            state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


_AROUND = codes.MAX_LENGTH + 2  # its @ and the character behind it
OFFERED_TASKS, OFFERED_FILES = 8, 4


def mention_href(code: str) -> str:
    return reverse("chat:task_by_code", args=[code])


def mention_rule(state: StateInline, silent: bool) -> bool:
    """A rule of the Markdown parser: a mention becomes a link, unless it stands in one."""
    if state.src[state.pos] != "@" or state.linkLevel:
        return False
    begin = max(0, state.pos - 1)
    start, end, code = next(codes.places(state.src[begin : state.pos + _AROUND]), (-1, 0, ""))
    if begin + start != state.pos:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": mention_href(code), "class": "mention"}
        state.push("text", "", 0).content = state.src[state.pos : begin + end]
        state.push("link_close", "a", -1)
    state.pos = begin + end
    return True


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """A plain text cut at its mentions: each piece with the code that it mentions, empty for what stands between."""
    done = 0
    for start, end, code in codes.places(text):
        yield text[done:start], ""
        yield text[start:end], code
        done = end
    yield text[done:], ""


class Offered(NamedTuple):
    tasks: list[Task]
    files: list[File]


def offer(*, user: User, typed: str) -> Offered:
    """What may be meant by `typed` behind an @: tasks by code or title, today's first, and files by name."""
    typed = typed.strip()[:100]
    here = Q(level=Task.Level.TASK, horizon=Task.Horizon.DAY, date=today(user))
    rows = Task.objects.visible_to(user).filter(Q(code__istartswith=typed) | Q(title__icontains=typed))
    if "." not in typed:
        rows = rows.exclude(level=Task.Level.ITEM)
    first = ExpressionWrapper(here, output_field=BooleanField())
    tasks = rows.annotate(first=first).order_by("-first", "-date", "position", "code")
    files = File.objects.visible_to(user).filter(name__icontains=typed, status=File.Status.READY)
    return Offered(list(tasks[:OFFERED_TASKS]), list(files.order_by("-created", "-id")[:OFFERED_FILES]))
