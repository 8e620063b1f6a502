"""Show the sources of answers, previews of single sources, doubted sentences with their passages, and Markdown.

Each source is shown with its passage and the places that cite it.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from django.db.models.functions import Substr
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.citations.services import contents_in, in_words
from chat.models import Conversation, Message, ToolResult
from chat.models.conversation_state import visible_conversation, visible_message
from chat.models.parts import CitationPlace, MessagePart
from chat.models.tree import branch_rows
from chat.rendering.documents import MARKDOWN_TYPES
from chat.rendering.references import CITED, Source, place_href
from chat.web.messages import file_titles, sources_of_message
from core.errors import NotFound
from core.requests import get_or_404, with_row
from files.models import File, FileText

PASSAGE_CHARACTERS = 600  # characters of one passage
LEAD_CHARACTERS = 120  # characters before the sentence that a citation leads to
CHARACTERS_AROUND = 60  # characters of the answer on either side of a citation
MAX_ANSWERS = 200  # newest answers of a conversation whose sources are listed
MAX_PASSAGES = 40  # passages shown in one list; later sources can still be opened
_MARKS = re.compile(r"[*_`#>|]+")


@dataclass(frozen=True, slots=True)
class Quote:
    """A place where an answer cites a source, with the words around it."""

    message: UUID
    words: str


class SourceExcerpt(NamedTuple):
    """A passage: the sentence that a citation leads to, and the text around it."""

    lead: str = ""
    sentence: str = ""
    tail: str = ""


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source as a list shows it.

    `place` is the page and heading, or the host of a web page. `excerpt` is empty if no text can be shown. Without a
    known sentence it has a tail only. `markdown`: the excerpt is Markdown, as that of most kinds of files.
    """

    number: int
    title: str
    href: str
    place: str
    excerpt: SourceExcerpt
    quotes: list[Quote]
    markdown: bool


@dataclass(frozen=True, slots=True)
class _NumberedSource:
    """A source with the quotes of one or more answers.

    `document` is the last search hit, empty for a whole file. `place` is the sentence that a citation leads to.
    """

    source: Source
    document: Mapping[str, Any]
    place: CitationPlace | None
    quotes: list[Quote]


def sources_of_answer(user: User, answer: Message, citation: str = "") -> list[SourceView]:
    """Return the cited sources of an answer in the order of their numbers, then the hits that it does not cite.

    Each shows the sentence that its first citation leads to, or `citation`: the index of a part and the number of a
    citation in it, as in “2.0”.
    """
    return _views(user, _collect_sources([answer], citation))


def sources_of_conversation(user: User, conversation: Conversation) -> list[SourceView]:
    """Return the sources of the displayed branch, in the order of `sources_of_answer`."""
    rows = branch_rows(conversation.leaf_id).filter(role=Message.Role.ASSISTANT).order_by("-depth")[:MAX_ANSWERS]
    return _views(user, _collect_sources(list(rows)[::-1]))


def one_source(user: User, answer: Message, number: int, citation: str = "") -> SourceView:
    """Return the source with this number in an answer, as `sources_of_answer`. Raises `NotFound`."""
    numbered = _collect_sources([answer], citation)
    if number not in numbered:
        raise NotFound("source")
    return _views(user, {number: numbered[number]})[0]


def _collect_sources(answers: Sequence[Message], citation: str = "") -> dict[int, _NumberedSource]:
    """Return the sources that are cited or were returned by a tool, by number."""
    collected: dict[int, _NumberedSource] = {}
    titles = file_titles(answers[0].conversation) if answers else {}
    for answer in answers:
        sources = sources_of_message(answer, titles)
        documents = dict(_documents(answer.parts))
        places = _places(answer.parts, citation)
        quotes: dict[int, list[Quote]] = {}
        for number, words in _quotes(answer.text):
            quotes.setdefault(number, []).append(Quote(answer.pk, words))
        for number, source in sources.items():
            if number not in quotes and number not in documents:
                continue
            earlier = collected.get(number)
            document = documents.get(number) or (earlier.document if earlier else {})
            all_quotes = [*(earlier.quotes if earlier else ()), *quotes.get(number, ())]
            place = places.get(number) or (earlier.place if earlier else None)
            collected[number] = _NumberedSource(source, document, place, all_quotes)
    return collected


def _places(parts: Sequence[MessagePart], citation: str) -> dict[int, CitationPlace]:
    """Return the first place of each number, and those of `citation` instead."""
    places: dict[int, CitationPlace] = {}
    for at, part in enumerate(parts):
        for place in part.get("places", ()):
            if place["number"] not in places or f"{at}.{place['citation']}" == citation:
                places[place["number"]] = place
    return places


def _documents(parts: Iterable[MessagePart]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the documents that the answer's tools returned, with the text that the model got as `contents`."""
    for part in parts:
        contents = contents_in(part["text"]) if part.get("documents") else {}
        for document in part.get("documents", ()):
            yield int(document["number"]), {**document, "contents": contents.get(int(document["number"]), "")}


def _quotes(text: str) -> Iterator[tuple[int, str]]:
    """Yield each cited number with the words around its citation."""
    for match in CITED.finditer(text):
        start = text[max(0, match.start() - CHARACTERS_AROUND) : match.start()]
        end = text[match.end() : match.end() + CHARACTERS_AROUND]
        if match.start() > CHARACTERS_AROUND:
            start = f"…{start.partition(' ')[2]}"
        if len(text) - match.end() > CHARACTERS_AROUND:
            end = f"{end.rpartition(' ')[0]}…"
        words = " ".join(_MARKS.sub("", f"{start}{match[0]}{end}").split())
        for number in map(int, re.findall(r"\d+", match[2])):
            yield number, words


def _views(user: User, numbered: Mapping[int, _NumberedSource]) -> list[SourceView]:
    """Return the views of the sources, the cited ones first."""
    ordered = sorted(numbered.items(), key=lambda entry: (not entry[1].quotes, entry[0]))
    files = {str(_file_id(entry)) for _, entry in ordered if _file_id(entry)}
    rows = File.objects.visible_to(user).filter(pk__in=files).values_list("pk", "media_type")
    visible = {str(pk): media_type for pk, media_type in rows}
    return [
        SourceView(
            number=number,
            title=entry.source.title,
            href=(place_href(entry.place) if entry.place else "") or entry.source.href,
            place=_place(entry),
            excerpt=_excerpt(entry, visible) if index < MAX_PASSAGES else SourceExcerpt(),
            quotes=entry.quotes,
            markdown=visible.get(_file_id(entry)) in MARKDOWN_TYPES,
        )
        for index, (number, entry) in enumerate(ordered)
    ]


def _file_id(numbered: _NumberedSource) -> str:
    """Return the id of the source's file, empty for a web page."""
    if "file" in numbered.document:
        return str(numbered.document["file"])
    match = re.search(r"/files/([0-9a-f-]{36})/", numbered.source.href)
    return match[1] if match and not numbered.document else ""


def _place(numbered: _NumberedSource) -> str:
    """Return the place of the passage: page and heading, the host, or the day of another conversation."""
    document = numbered.document
    if "url" in document:
        return urlsplit(str(document["url"])).hostname or ""
    if "date" in document:
        return date_format(date.fromisoformat(document["date"]), "DATE_FORMAT")
    position: Mapping[str, Any] = numbered.place or document
    page = position.get("page")
    heading = str(position.get("heading", ""))
    return " · ".join(filter(None, (_("page %(page)d") % {"page": page} if page else "", heading)))


def _excerpt(numbered: _NumberedSource, visible: Container[str]) -> SourceExcerpt:
    """Return the passage from the file's current text. A web page or deleted file has the text that the model got."""
    document, place = numbered.document, numbered.place
    file = _file_id(numbered)
    contents = str(document.get("contents", "")).strip()
    if place is not None and "quote" in place:
        start = contents.find(place["quote"])
        return (
            _around(contents, start, start + len(place["quote"])) if start >= 0 else SourceExcerpt(tail=_cut(contents))
        )
    if file not in visible:
        return SourceExcerpt(tail=_cut(contents))
    if place is not None and "file" in place:
        first = max(place["start"], place["sentence_start"] - LEAD_CHARACTERS - 1)
        length = min(place["end"], place["sentence_end"] + PASSAGE_CHARACTERS + 1) - first
        if text := _load_text(file, first, length):
            return _around(text, place["sentence_start"] - first, place["sentence_end"] - first)
    start = int(document.get("start", 0))
    length = min(int(document.get("end", start + PASSAGE_CHARACTERS + 1)) - start, PASSAGE_CHARACTERS + 1)
    return SourceExcerpt(tail=_cut(_load_text(file, start, length).strip() or contents))


def _load_text(file: str, start: int, length: int) -> str:
    """Return characters of the file's text; empty for a file without a text."""
    rows = FileText.objects.filter(file=UUID(file)).annotate(passage=Substr("text", start + 1, max(1, length)))
    return rows.values_list("passage", flat=True).first() or ""


def _around(text: str, start: int, end: int) -> SourceExcerpt:
    """Return the sentence [start, end) with text around it: `PASSAGE_CHARACTERS` in total, or the whole sentence."""
    lead = text[max(0, start - LEAD_CHARACTERS) : start]
    if start > LEAD_CHARACTERS:
        lead = f"…{lead.partition(' ')[2]}"
    tail = text[end:]
    room = max(0, PASSAGE_CHARACTERS - len(lead) - (end - start))
    return SourceExcerpt(
        lead.lstrip(), text[start:end], f"{tail[:room].rpartition(' ')[0]}…" if len(tail) > room else tail
    )


def _cut(text: str) -> str:
    return text if len(text) <= PASSAGE_CHARACTERS else f"{text[:PASSAGE_CHARACTERS].rpartition(' ')[0]}…"


@with_row(visible_message, "GET")
def answer_sources(request: Request, message: Message) -> HttpResponse:
    return _panel(
        request,
        {
            "sources": sources_of_answer(request.user, message, request.GET.get("citation", "")),
            "message": message,
            "turn": getattr(message, "turn", None),
            "conversation": message.conversation,
        },
    )


@with_row(visible_conversation, "GET")
def conversation_sources(request: Request, conversation: Conversation) -> HttpResponse:
    return _panel(
        request, {"sources": sources_of_conversation(request.user, conversation), "conversation": conversation}
    )


@with_row(visible_message, "GET")
def preview(request: Request, message: Message, number: int) -> HttpResponse:
    """Show the card of a citation that is hovered or focused."""
    source = one_source(request.user, message, number, request.GET.get("citation", ""))
    response = render(request, "chat/_source.html", {"source": source})
    response["Cache-Control"] = "private, max-age=300"  # the reader may hover it again and again
    return response


@with_row(visible_message, "GET")
def doubt(request: Request, message: Message, part: int, citation: int) -> HttpResponse:
    """Show a sentence with the passage that does not support it."""
    doubts = (each for checked in message.parts[part : part + 1] for each in checked.get("check", {}).get("doubts", ()))
    shown = next((each for each in doubts if each["citation"] == citation), None)
    if shown is None:
        raise NotFound("citation")
    sources = sources_of_message(message, file_titles(message.conversation))
    places = (each for checked in message.parts[part : part + 1] for each in checked.get("places", ()))
    links = {each["number"]: place_href(each) for each in places if each["citation"] == citation}
    context = {
        "message": message,
        "turn": getattr(message, "turn", None),
        "conversation": message.conversation,
        "sentence": shown["sentence"],
        "evidence": shown["evidence"],
        "reasons": in_words(shown),
        "sources": [
            replace(sources[number], href=links.get(number) or sources[number].href)
            for number in shown["numbers"]
            if number in sources
        ],
    }
    return render(request, "chat/_doubt.html" if request.htmx else "chat/doubt.html", context)


@with_row(visible_message, "GET")
def as_written(request: Request, message: Message) -> HttpResponse:
    """Return the message's Markdown for copying."""
    return HttpResponse(message.text, content_type="text/markdown; charset=utf-8")


def _panel(request: Request, context: dict[str, object]) -> HttpResponse:
    return render(request, "chat/_sources.html" if request.htmx else "chat/sources.html", context)


def _visible_result(user: User, pk: object) -> ToolResult:
    """Return a stored tool result that the user may see. Raises `NotFound`."""
    return get_or_404(ToolResult.objects.visible_to(user).filter(message__deleted=None), pk, "result")


@with_row(_visible_result, "GET")
def tool_result(request: Request, result: ToolResult) -> HttpResponse:
    """Return the stored text of a tool result that the model got in part."""
    return HttpResponse(result.text, content_type="text/plain; charset=utf-8")
