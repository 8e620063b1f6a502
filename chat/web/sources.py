"""What stands behind an answer: its sources as a panel, one of them as a preview, and its text as it was written.

Of each source: where its number is cited, and the passage that stands behind it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.db.models.functions import Substr
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.citations.services import contents_in, in_words
from chat.models import Conversation, Message, ToolResult
from chat.models.conversation_state import visible_conversation, visible_message
from chat.models.tree import branch_rows
from chat.rendering.references import CITED, Source
from chat.web.messages import sources_of, titles_of
from core.errors import NotFound
from core.requests import get_or_404, with_row
from files.models import File, FileText

PASSAGE = 600  # characters of one passage
AROUND = 60  # characters of the answer on either side of a citation
MOST_ANSWERS = 200  # of a conversation, the newest
MOST_PASSAGES = 40  # in one list; what comes after them can still be opened
_MARKS = re.compile(r"[*_`#>|]+")


@dataclass(frozen=True, slots=True)
class Quote:
    """A place where an answer cites a source, with the words around it."""

    message: UUID
    words: str


@dataclass(frozen=True, slots=True)
class SourceView:
    """`place` says where in the document, or on which host it is; `passage` is empty where no text can be shown."""

    number: int
    title: str
    href: str
    place: str
    passage: str
    quotes: list[Quote]


@dataclass(frozen=True, slots=True)
class _Found:
    """What one or more answers know of a number; `document` is what was found last, empty of a whole file."""

    source: Source
    document: Mapping[str, Any]
    quotes: list[Quote]


def of_answer(user: User, answer: Message) -> list[SourceView]:
    """What it cites, in the order of the numbers, and below that what its tools found and it does not cite."""
    return _views(user, _collected([answer]))


def of_conversation(user: User, conversation: Conversation) -> list[SourceView]:
    """The same for the branch on show."""
    rows = branch_rows(conversation.leaf_id).filter(role=Message.Role.ASSISTANT).order_by("-depth")[:MOST_ANSWERS]
    return _views(user, _collected(list(rows)[::-1]))


def one_source(user: User, answer: Message, number: int) -> SourceView:
    """What stands behind a number in an answer. Raises `NotFound`."""
    found = _collected([answer])
    if number not in found:
        raise NotFound("source")
    return _views(user, {number: found[number]})[0]


def _collected(answers: Sequence[Message]) -> dict[int, _Found]:
    """By number: what is cited, or was found by a tool."""
    found: dict[int, _Found] = {}
    titles = titles_of(answers[0].conversation) if answers else {}
    for answer in answers:
        sources, documents = sources_of(answer, titles), dict(_documents(answer.parts))
        quotes: dict[int, list[Quote]] = {}
        for number, words in _quotes(answer.text):
            quotes.setdefault(number, []).append(Quote(answer.pk, words))
        for number, source in sources.items():
            if number not in quotes and number not in documents:
                continue
            before = found.get(number)
            document = documents.get(number) or (before.document if before else {})
            found[number] = _Found(source, document, [*(before.quotes if before else ()), *quotes.get(number, ())])
    return found


def _documents(parts: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the answer's tools found, with the text that the model was given of it as `contents`."""
    for part in parts:
        contents = contents_in(part["text"]) if part.get("documents") else {}
        for document in part.get("documents", ()):
            yield int(document["number"]), {**document, "contents": contents.get(int(document["number"]), "")}


def _quotes(text: str) -> Iterator[tuple[int, str]]:
    for match in CITED.finditer(text):
        start, end = text[max(0, match.start() - AROUND) : match.start()], text[match.end() : match.end() + AROUND]
        if match.start() > AROUND:
            start = f"…{start.partition(' ')[2]}"
        if len(text) - match.end() > AROUND:
            end = f"{end.rpartition(' ')[0]}…"
        words = " ".join(_MARKS.sub("", f"{start}{match[0]}{end}").split())
        for number in map(int, re.findall(r"\d+", match[2])):
            yield number, words


def _views(user: User, found: Mapping[int, _Found]) -> list[SourceView]:
    """Those that are cited first."""
    ordered = sorted(found.items(), key=lambda each: (not each[1].quotes, each[0]))
    wanted = {str(_file(each)) for _, each in ordered if _file(each)}
    visible = {str(pk) for pk in File.objects.visible_to(user).filter(pk__in=wanted).values_list("pk", flat=True)}
    return [
        SourceView(
            number=number,
            title=each.source.title,
            href=each.source.href,
            place=_place(each),
            passage=_passage(each, visible) if index < MOST_PASSAGES else "",
            quotes=each.quotes,
        )
        for index, (number, each) in enumerate(ordered)
    ]


def _file(found: _Found) -> str:
    """The id of the file it is, empty for a page of the web."""
    if "file" in found.document:
        return str(found.document["file"])
    known = re.search(r"/files/([0-9a-f-]{36})/", found.source.href)
    return known[1] if known and not found.document else ""


def _place(found: _Found) -> str:
    if "url" in found.document:
        return urlsplit(str(found.document["url"])).hostname or ""
    page, heading = found.document.get("page"), str(found.document.get("heading", ""))
    return " · ".join(filter(None, (_("page %(page)d") % {"page": page} if page else "", heading)))


def _passage(found: _Found, visible: set[str]) -> str:
    """As it stands in the file now; of a page of the web, and of a file that is gone, as the model was given it."""
    document, file = found.document, _file(found)
    text = str(document.get("contents", ""))
    if file in visible:
        start = int(document.get("start", 0))
        length = min(int(document.get("end", start + PASSAGE + 1)) - start, PASSAGE + 1)
        rows = FileText.objects.filter(file=UUID(file)).annotate(passage=Substr("text", start + 1, max(1, length)))
        text = rows.values_list("passage", flat=True).first() or text
    text = text.strip()
    return text if len(text) <= PASSAGE else f"{text[:PASSAGE].rpartition(' ')[0]}…"


@with_row(visible_message, "GET")
def answer_sources(request: Request, message: Message) -> HttpResponse:
    turn = getattr(message, "turn", None)
    found = of_answer(request.user, message)
    return _panel(request, {"sources": found, "message": message, "turn": turn, "conversation": message.conversation})


@with_row(visible_conversation, "GET")
def conversation_sources(request: Request, conversation: Conversation) -> HttpResponse:
    return _panel(request, {"sources": of_conversation(request.user, conversation), "conversation": conversation})


@with_row(visible_message, "GET")
def preview(request: Request, message: Message, number: int) -> HttpResponse:
    """The card that a citation shows when it is pointed at or reached."""
    response = render(request, "chat/_source.html", {"source": one_source(request.user, message, number)})
    response["Cache-Control"] = "private, max-age=300"  # the reader may point at it again and again
    return response


@with_row(visible_message, "GET")
def doubt(request: Request, message: Message, part: int, citation: int) -> HttpResponse:
    """A sentence and the passage that does not carry it, side by side."""
    parts = message.parts[part : part + 1]
    found = (each for given in parts for each in given.get("check", {}).get("doubts", ()))
    shown = next((each for each in found if each["citation"] == citation), None)
    if shown is None:
        raise NotFound("citation")
    sources = sources_of(message, titles_of(message.conversation))
    context = {
        "message": message,
        "turn": getattr(message, "turn", None),
        "conversation": message.conversation,
        "sentence": shown["sentence"],
        "evidence": shown["evidence"],
        "reasons": in_words(shown),
        "sources": [sources[number] for number in shown["numbers"] if number in sources],
    }
    return render(request, "chat/_doubt.html" if request.htmx else "chat/doubt.html", context)


@with_row(visible_message, "GET")
def as_written(request: Request, message: Message) -> HttpResponse:
    """The message's text in the Markdown in which it was written, to copy."""
    return HttpResponse(message.text, content_type="text/markdown; charset=utf-8")


def _panel(request: Request, context: dict[str, object]) -> HttpResponse:
    return render(request, "chat/_sources.html" if request.htmx else "chat/sources.html", context)


def _visible_result(user: User, pk: object) -> ToolResult:
    """Raises `NotFound`."""
    return get_or_404(ToolResult.objects.visible_to(user).filter(message__deleted=None), pk, "result")


@with_row(_visible_result, "GET")
def tool_result(request: Request, result: ToolResult) -> HttpResponse:
    """What is kept of a tool's result that the model got in part, as plain text."""
    return HttpResponse(result.text, content_type="text/plain; charset=utf-8")
