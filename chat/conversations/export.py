"""Export conversations: Markdown of the displayed branch, JSON of the whole tree, a zip of all content of a user."""

import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypedDict
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import close_old_connections, transaction
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Length
from django.utils import timezone

from accounts.access.rights import require
from accounts.models import Right, User
from chat.ledger.models import ModelCall
from chat.ledger.services import csv_pages
from chat.memory.listing import ShownFact, list_facts, with_sources
from chat.memory.models import Profile
from chat.models import Attachment, Conversation, Mark, Message, Summary, Turn
from chat.models.parts import FoundDocument, MessagePart
from chat.models.summary import marks_on
from chat.models.tree import branch_rows, with_rows
from chat.readings.models import Reading
from chat.realtime.events import translate_parts
from chat.rendering.references import cited_numbers
from chat.summaries.headings import SummarySection
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.faces import FACE
from core.json_types import JsonObject
from core.sentences import Sentence
from files.models import File, FileText
from files.services import open_blob
from personas.models import Persona
from projects.models import Project
from projects.planner.models import Task
from projects.saved_prompts.models import SavedPrompt
from readers.api import media_types

FORMAT = "glasshouse.conversation/1"
WORKSPACE_FORMAT = "glasshouse.workspace/1"
MEDIA_TYPES = {"md": "text/markdown; charset=utf-8", "json": "application/json"}
# Notes on incomplete answers, by finish reason.
ENDING_NOTES = dict.fromkeys(Turn.CUT_SHORT, "Not finished") | {
    "refusal": "The model declined to answer",
    "content_filter": "Ended by the provider's content filter",
    Turn.UNKNOWN_END: "Ended by the provider for another reason; it may be incomplete",
}
# Members of a model call's report in the export. Older turns of a long conversation have only the brief ones, since the
# lists in a full report are long.
BRIEF_REPORT_MEMBERS = ("cycle", "limit", "used", "left", "exact", "sections", "without_room", "versions")
FULL_REPORT_MEMBERS = (
    *("model", "window", "unloaded", "reserved_output", "reserved_reasoning", "effort", "buffer", "margin"),
    *("tools_tokens", "tools", "tools_on_demand"),
    *("policy", "layout", "profile", "summary", "unread", "usage", "provider_count"),
    *("sources", "messages"),
)
MAX_WHOLE = 3_000_000  # characters of the whole reports of one conversation
CONTENTS = """\
What is in this export of {user}, made on {when}:

md/             each conversation's branch on show, with sources
json/           each conversation whole: branches, parts, marks, summaries, context reports
manifest.json   the format of this export, and how many entries each list has
settings.json   your language, time zone, colours, switches and favourite models
usage.csv       your model calls
personas.json   your personas
projects.json   your projects
prompts.json    your saved prompts, and those of your projects
readings.json   questions over whole files
tasks.json      your tasks
profile.json    what you have written about yourself for models
memory.json     facts that are remembered about you, with their sources
files.json      your files, with their places in files/
files/          the files that you uploaded
transcripts/    the texts of recordings among them
missing.txt     names of files whose bytes could not be read, if there are such

"Import and export" in the settings of a workspace takes this file, and each file in json/. It does not read
usage.csv, readings.json and transcripts/: recordings are transcribed anew if that workspace has a speech server.
Facts that are proposed or outdated stay in this file, and so do the places in conversations that facts rest on.

What is not in it:

- what older reports of a long conversation list: they are here as numbers (in the API: /api/v1/turns/ID/report/)
- the rest of long tool results that were shortened for the model
- personas, projects and conversations that others share with you, and files of others
- members of projects, shares of personas and conversations, the history of tasks, runs
- tokens, webhooks, passkeys, sessions, and sign-ins at tool servers
- what tools may do in a conversation, facts that you left out of one, and messages that wait to be sent
- encodings that you chose for files
- temporary conversations, and what was deleted
"""
BATCH_ROWS = 20  # conversations, or files, that one query loads
PIECE_BYTES = 1_000_000  # bytes of a file that are in memory at once
_UNSAFE = re.compile(r"[^\w\- ]+")


class ExportedFile(TypedDict):
    """A file of a message. `sha256` is of its bytes. `id` and `sha256` are None if the file was deleted."""

    name: str
    id: str | None
    sha256: str | None


class ExportedSummary(TypedDict):
    """A summary of a conversation; times are ISO 8601. The other members are the fields of `chat.models.Summary`."""

    id: str
    leaf: str | None
    first: str
    last: str
    messages: int
    span_start: str
    span_end: str
    sections: list[SummarySection]
    shortened: list[str]
    left_aside: list[str]
    tokens_in: int
    tokens_out: int
    as_of: str
    timezone: str
    model: str | None
    prompt_version: int
    supersedes: str | None
    withdrawn: str | None
    created: str


class ExportedMark(TypedDict):
    """A mark on the turn of the question `message`, or on a `file` of it, since the message `since`."""

    message: str
    file: str | None
    since: str
    mark: str


class ExportedMessage(TypedDict):
    """A message of a conversation. `usage`, `cost` and `report` describe its turn. `cost` is in US dollars."""

    id: str
    parent: str | None
    role: str
    created: str
    status: str
    error_code: str
    error_detail: str
    finish_reason: str | None
    finish_detail: str | None
    model: str | None
    feedback: str
    feedback_reasons: list[str]
    feedback_comment: str
    feedback_at: str | None
    usage: JsonObject | None
    cost: str | None
    report: list[JsonObject]
    files: list[str]
    attachments: list[ExportedFile]
    parts: list[MessagePart]
    mark: str | None
    context_notice: str


def export(conversation: Conversation, kind: str) -> str:
    """Return a conversation as a file of this kind, md or json. Raises `NotFound` for another kind."""
    if kind not in MEDIA_TYPES:
        raise NotFound("kind of export")
    return to_markdown(conversation) if kind == "md" else to_json(conversation)


@transaction.atomic
def record_export(*, user: User, conversation: Conversation | None = None) -> None:
    """Record the export of one conversation. None: the export of everything. Raises `right_missing` (403)."""
    require(user, Right.EXPORT)
    action = "conversation.all_exported" if conversation is None else "conversation.exported"
    record(user=user, action=action, row=conversation)


def file_name(conversation: Conversation, kind: str) -> str:
    """Return a file name that is safe on every system and unique, as the id is part of it."""
    words = " ".join(_UNSAFE.sub(" ", conversation.title).split())[:60].strip() or "conversation"
    return f"{words} {str(conversation.pk)[-12:]}.{kind}"


def to_markdown(conversation: Conversation) -> str:
    """Return the displayed branch as Markdown: authors, names of files, texts, sources and marks."""
    marks = marks_on(conversation.pk, conversation.leaf_id).by_message
    files = _file_documents(conversation)
    lines = [f"# {conversation.title or 'Conversation'}", ""]
    branch = branch_rows(conversation.leaf_id).order_by("depth")
    if hidden := Message.objects.filter(conversation=conversation).count() - branch.count():
        lines += [
            f"*(Messages on other branches that are not in this file: {hidden:,}. The JSON file has them.)*",
            "",
        ]
    for message in branch.iterator(500):
        author = "You" if message.role == Message.Role.USER else (message.model.name if message.model else "Answer")
        lines += [f"## {author} · {message.created:%Y-%m-%d %H:%M} UTC", ""]
        lines += [f"*File: {attachment.name}*\n" for attachment in message.attachments.all()]
        lines += [f"*(Called {part['name']} with {part['arguments']})*\n" for part in _tool_calls(message)]
        lines += [message.text, "", *_source_list(message, message.text, files)]
        lines += [f"*({sentence.english})*\n" for sentence in _shortening_notes(message.parts)]
        if message.edited:
            lines += ["*(Edited by a person)*", ""]
        if mark := marks.get(message.pk):
            lines += [f"*({Mark.Kind(mark).label})*", ""]
        if message.status not in (Message.Status.DONE, Message.Status.PENDING):
            lines += [f"*({message.get_status_display()})*", ""]
        elif message.finish_reason in ENDING_NOTES:
            lines += [f"*({ENDING_NOTES[message.finish_reason]})*", ""]
        if notice := _context_notice(message):
            lines += [f"*({notice})*", ""]
    return "\n".join(lines)


def _tool_calls(message: Message) -> Iterator[MessagePart]:
    return (part for part in message.parts if part["type"] == "tool_call")


def _file_documents(conversation: Conversation) -> list[FoundDocument]:
    """Return the files that have a number in the conversation and still exist."""
    numbers = {pk: number for pk, number in conversation.documents.items() if _is_id(pk)}
    rows = File.objects.filter(pk__in=numbers).values_list("pk", "name")
    return [{"number": numbers[str(pk)], "title": name, "file": str(pk)} for pk, name in rows]


def _is_id(source: str) -> bool:
    """Return whether a numbered source is a file; pages of the web are named by their address."""
    try:
        UUID(source)
    except ValueError:
        return False
    return True


def _source_list(message: Message, text: str, files: Sequence[FoundDocument]) -> list[str]:
    """Return the lines below an answer with the sources of its citations."""
    if message.role == Message.Role.USER or not cited_numbers(text):
        return []
    places: dict[int, list[str]] = {}
    for document in (*files, *(each for part in message.parts for each in part.get("documents", ()))):
        page = f", page {document['page']}" if document.get("page") else ""
        url = f", {document['url']}" if document.get("url") else ""
        day = f", conversation of {document['date']}" if document.get("date") else ""
        place = f"{document['title']}{page}{url}{day}"
        listed = places.setdefault(int(document["number"]), [])
        if page and listed == [document["title"]]:
            listed.clear()  # the page says more than the file alone
        if place not in listed:
            listed.append(place)
    cited = sorted(cited_numbers(text) & places.keys())
    return ["Sources:", *(f"- [{number}] {'; '.join(places[number])}" for number in cited), ""] if cited else []


def _shortening_notes(parts: Sequence[MessagePart]) -> Iterator[Sentence]:
    """Yield a sentence for each result of a tool that was shortened for the model."""
    names = {part["id"]: part["name"] for part in parts if part["type"] == "tool_call"}
    for part in parts:
        stored = part.get("stored")
        if stored and stored["marker"]:
            name = names.get(part["id"], "a tool")
            yield Sentence(
                "The result of {name} was shortened for the model; it has {tokens} tokens, {characters} characters.",
                name=name,
                tokens=stored["tokens"],
                characters=stored["characters"],
            )


def to_json(conversation: Conversation) -> str:
    """Return the whole tree as JSON. `leaf` is the end of the branch on show, `parent` the message above."""
    marks = marks_on(conversation.pk, conversation.leaf_id).by_message
    rows = with_rows(Message.objects.filter(conversation=conversation)).order_by("depth", "id")
    whole = _turns_with_full_reports(conversation)
    body = {
        "format": FORMAT,
        "id": str(conversation.pk),
        "title": conversation.title,
        "created": conversation.created.isoformat(),
        "updated": conversation.updated.isoformat(),
        "archived": conversation.archived,
        "pinned": conversation.pinned is not None,
        "pinned_since": conversation.pinned.isoformat() if conversation.pinned else None,
        "effort": conversation.effort,
        "tasks_in_prompts": conversation.tasks_in_prompts,
        "memory_in_prompts": conversation.memory_in_prompts,
        "findable": conversation.findable,
        "automatic_summaries": conversation.automatic_summaries,
        "tags": [tag.name for tag in conversation.tags.all()],
        "persona": conversation.persona.name if conversation.persona else None,
        "persona_id": str(conversation.persona_id) if conversation.persona_id else None,
        "project": conversation.project.name if conversation.project else None,
        "project_id": str(conversation.project_id) if conversation.project_id else None,
        "leaf": str(conversation.leaf_id) if conversation.leaf_id else None,
        "documents": conversation.documents,
        "summaries": [_export_summary(summary) for summary in conversation.summaries.order_by("pk")],
        "marks": [_export_mark(mark) for mark in conversation.marks.order_by("pk")],
        "messages": [_export_message(message, marks.get(message.pk), whole) for message in rows.iterator(500)],
    }
    return json.dumps(body, ensure_ascii=False, indent=1)


def _export_summary(summary: Summary) -> ExportedSummary:
    return {
        "id": str(summary.pk),
        "leaf": str(summary.leaf_id) if summary.leaf_id else None,
        "first": str(summary.first_id),
        "last": str(summary.last_id),
        "messages": summary.messages,
        "span_start": summary.span_start.isoformat(),
        "span_end": summary.span_end.isoformat(),
        "sections": summary.sections,
        "shortened": summary.shortened,
        "left_aside": summary.left_aside,
        "tokens_in": summary.tokens_in,
        "tokens_out": summary.tokens_out,
        "as_of": summary.as_of.isoformat(),
        "timezone": summary.timezone,
        "model": summary.model_name or None,
        "prompt_version": summary.prompt_version,
        "supersedes": str(summary.supersedes_id) if summary.supersedes_id else None,
        "withdrawn": summary.withdrawn.isoformat() if summary.withdrawn else None,
        "created": summary.created.isoformat(),
    }


def _export_mark(mark: Mark) -> ExportedMark:
    return {
        "message": str(mark.message_id),
        "file": str(mark.file_id) if mark.file_id else None,
        "since": str(mark.since_id),
        "mark": mark.mark,
    }


def _turns_with_full_reports(conversation: Conversation) -> set[UUID]:
    """Return the newest turns whose reports have at most `MAX_WHOLE` characters together.

    A report lists each message of its prompt. So all reports of a long conversation together would list thousands of
    times as many messages as it has.
    """
    size = Length(Cast("report", TextField()))
    sizes = Turn.objects.filter(conversation=conversation).order_by("-pk").values_list("pk", size)
    newest: set[UUID] = set()
    total = 0
    for pk, characters in sizes.iterator(500):
        total += characters
        if total > MAX_WHOLE:
            break
        newest.add(pk)
    return newest


def _export_reports(turn: Turn, *, whole: bool) -> list[JsonObject]:
    """Return the report of each model call of a turn: its numbers, and if `whole` also its lists."""
    names = (*BRIEF_REPORT_MEMBERS, *FULL_REPORT_MEMBERS) if whole else BRIEF_REPORT_MEMBERS
    return [
        {name: call[name] for name in names if name in call}
        | {name: Sentence.load(call.get(name, "")).english for name in ("refused", "notice")}
        | {"notes": [Sentence.load(note).english for note in call.get("notes", ())]}
        for call in (turn.report or {}).get("calls", ())
    ]


def _export_message(message: Message, mark: str | None, whole: Collection[UUID]) -> ExportedMessage:
    turn: Turn | None = getattr(message, "turn", None)
    return {
        "id": str(message.pk),
        "parent": str(message.parent_id) if message.parent_id else None,
        "role": message.role,
        "created": message.created.isoformat(),
        "status": message.status,
        "error_code": message.error_code,
        "error_detail": message.error_detail.english,
        "finish_reason": message.finish_reason or None,
        "finish_detail": message.finish_detail or None,
        "model": message.model.name if message.model else None,
        "feedback": message.feedback,
        "feedback_reasons": message.feedback_reasons,
        "feedback_comment": message.feedback_comment,
        "feedback_at": message.feedback_at.isoformat() if message.feedback_at else None,
        "usage": turn.usage if turn else None,
        "cost": f"{turn.cost:f}" if turn and turn.cost is not None else None,
        "report": _export_reports(turn, whole=turn.pk in whole) if turn else [],
        "files": [attachment.name for attachment in message.attachments.all()],
        "attachments": [_export_attachment(attachment) for attachment in message.attachments.all()],
        "parts": translate_parts(message.separated_parts, attrgetter("english")),
        "mark": mark,
        "context_notice": _context_notice(message),
    }


def _export_attachment(attachment: Attachment) -> ExportedFile:
    """Return a file by its name, with its id and the SHA-256 of its bytes while it exists."""
    file = attachment.file
    return {
        "name": attachment.name,
        "id": str(file.pk) if file else None,
        "sha256": file.sha256 if file else None,
    }


def _context_notice(message: Message) -> str:
    """Return the notice on the answer's context, empty if the model read everything."""
    return message.turn.context_notice.english if hasattr(message, "turn") else ""


async def zip_everything(user: User) -> AsyncIterator[bytes]:
    """Yield a zip of all content of a person. It is written while it is sent, and never stored.

    `CONTENTS` describes it. `missing.txt` names the files whose bytes are lost. `chat.conversations.importing` reads
    it.
    """
    async for piece in iterate_async(_zip(user)):
        yield piece


async def zip_conversations(user: User, ids: Sequence[UUID]) -> AsyncIterator[bytes]:
    """Yield a zip of these of the user's conversations, written while it is sent."""
    async for piece in iterate_async(_zip(user, ids)):
        yield piece


async def iterate_async(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces. Each is made in a thread."""
    while piece := await sync_to_async(_next_piece)(pieces):
        yield piece


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    try:
        return next((piece for piece in pieces if piece), b"")
    finally:
        close_old_connections()


def _zip(user: User, ids: Sequence[UUID] | None = None) -> Iterator[bytes]:
    """Yield a zip of the conversations with these ids. Without ids it has all content of the person."""
    sink = ZipSink()
    rows = Conversation.objects.listed_for(user).select_related("persona", "project").order_by("pk")
    if ids is not None:
        rows = rows.filter(pk__in=ids)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        last = None
        while batch := list(rows.filter(pk__gt=last)[:BATCH_ROWS] if last else rows[:BATCH_ROWS]):
            for conversation in batch:
                for kind in MEDIA_TYPES:
                    archive.writestr(f"{kind}/{file_name(conversation, kind)}", export(conversation, kind))
                yield sink.take()
            last = batch[-1].pk
        if ids is None:
            when = f"{timezone.now():%Y-%m-%d %H:%M} UTC"
            archive.writestr("README.txt", CONTENTS.format(user=user.get_username(), when=when))
            with archive.open("usage.csv", "w") as table:
                for page in csv_pages(ModelCall.objects.visible_to(user)):
                    table.write(page.encode())
                    yield sink.take()
            counts: dict[str, int] = {}
            for name, listed in _json_lists(user).items():
                entries = list(listed)
                counts[name] = len(entries)
                archive.writestr(name, json.dumps(entries, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1))
                yield sink.take()
            manifest = {"format": WORKSPACE_FORMAT, "user": user.get_username(), "made": when, "entries": counts}
            archive.writestr("manifest.json", json.dumps(manifest, ensure_ascii=False, indent=1))
            yield from _zip_originals(user, archive, sink)
            yield from _zip_transcripts(user, archive, sink)
    yield sink.take()


def _json_lists(user: User) -> dict[str, Iterable[Any]]:
    """Return the lists for the JSON files of the zip, by file name."""
    persona = (
        *("id", "name", "description", "instructions", "replaces_system_prompt", "starter_messages", "tools", "effort"),
        *("date_awareness", "memory", "own_reminder", "visibility", "created", *FACE),
    )
    setting = (
        *(*FACE, "language", "timezone", "theme", "accepts_model_tasks", "asks_before_search", "tasks_in_prompts"),
        "tasks_notice_seen",
    )
    reading = ("file_name", "question", "model_name", "status", "answer", "citation_check", "created", "finished")
    task = (
        *("code", "level", "horizon", "date", "title", "notes", "archetype", "status", "breakpoint", "needs"),
        *("cleared", "position", "model", "proposed", "created", "finished", "project", "project__name"),
        *("parent__code", "moved_to__code"),
    )
    profile = ("about", "answering", "in_prompts", "proposals", "search_conversations", "updated")
    return {
        "personas.json": [
            {name: getattr(row, name) for name in persona}
            | {"model": row.model.name if row.model else None}
            | {"budget_profile": row.budget_profile.name if row.budget_profile else None}
            for row in Persona.objects.filter(owner=user).select_related("model", "budget_profile").order_by("pk")
        ],
        "projects.json": [
            {name: getattr(row, name) for name in ("id", "name", "instructions", "web", "findable", "created", *FACE)}
            | {"persona": row.persona.name if row.persona else None, "persona_id": row.persona_id}
            | {"files": list(row.entries.values("file", "file__name", "pinned"))}
            for row in Project.objects.filter(owner=user).select_related("persona").order_by("pk")
        ],
        "prompts.json": SavedPrompt.objects.filter(Q(owner=user) | Q(project__owner=user))
        .order_by("pk")
        .values("name", "text", "project", "project__name"),
        "settings.json": [
            {name: getattr(user, name) for name in setting}
            | {"favourite_models": list(user.favourite_models.order_by("pk").values_list("model__name", flat=True))}
        ],
        "files.json": [
            {"id": row.pk, "name": row.name, "sha256": row.sha256, "created": row.created, "path": _zip_path(row)}
            for row in File.objects.filter(owner=user).only("name", "sha256", "created").order_by("pk")
        ],
        "readings.json": [
            {**{name: getattr(row, name) for name in reading}, "citation_check": _check(row.citation_check)}
            | {"parts": list(row.parts.filter(level=0).values("start", "end", "state", "findings"))}
            for row in Reading.objects.listed_for(user).order_by("pk")
        ],
        "profile.json": Profile.objects.filter(person=user).values(*profile),
        "memory.json": [_fact(shown) for shown in with_sources(list(list_facts(user).order_by("pk")))],
        "tasks.json": Task.objects.filter(owner=user).order_by("pk").values(*task),
    }


def _fact(shown: ShownFact) -> JsonObject:
    row = shown.row
    fact = ("text", "status", "scope", "pinned", "proposed_by", "created", "confirmed", "last_used")
    return {name: getattr(row, name) for name in fact} | {
        "id": row.pk,
        "project": row.project.name if row.project else None,
        "persona": row.persona.name if row.persona else None,
        "outdated_by": row.outdated_by_id,
        "sources": [
            {"quote": source.quote, "message": source.message, "conversation": source.conversation}
            for source in shown.sources
        ],
    }


def _check(check: JsonObject | None) -> JsonObject | None:
    return {**check, "note": Sentence.load(check["note"]).english} if check else check


def _zip_originals(user: User, archive: zipfile.ZipFile, sink: "ZipSink") -> Iterator[bytes]:
    yield from zip_files(File.objects.filter(owner=user), archive, sink, _zip_path)


def _zip_transcripts(user: User, archive: zipfile.ZipFile, sink: "ZipSink") -> Iterator[bytes]:
    """Write the texts of recordings, which a speech server has made."""
    rows = FileText.objects.filter(file__owner=user, file__media_type__in=list(media_types.SOUNDS))
    for row in rows.select_related("file").order_by("pk").iterator(1):
        path = _zip_path(row.file).removeprefix("files/")
        archive.writestr(f"transcripts/{path}.txt", row.text)
        yield sink.take()


def zip_files(
    rows: QuerySet[File], archive: zipfile.ZipFile, sink: "ZipSink", path_of: Callable[[File], str]
) -> Iterator[bytes]:
    """Write the bytes of files into a zip, and the names of those whose bytes cannot be read into `missing.txt`."""
    rows = rows.order_by("pk")
    last: UUID | None = None
    missing: list[str] = []
    while batch := list(rows.filter(pk__gt=last)[:BATCH_ROWS] if last else rows[:BATCH_ROWS]):
        for file in batch:
            try:
                content = open_blob(file=file)
            except ProductError:
                missing.append(file.name)
                continue
            with content, archive.open(path_of(file), "w", force_zip64=True) as copy:
                while piece := content.read(PIECE_BYTES):
                    copy.write(piece)
                    yield sink.take()
        last = batch[-1].pk
    if missing:
        archive.writestr("missing.txt", "".join(f"{name}\n" for name in missing))


def _zip_path(file: File) -> str:
    """Return the path of the file in the zip. It is unique, as the id is part of it."""
    stem, _dot, suffix = file.name.rpartition(".")
    safe = " ".join(_UNSAFE.sub(" ", stem or suffix).split())[:60].strip() or "file"
    ending = f".{suffix}" if stem and suffix.isalnum() and len(suffix) < 10 else ""
    return f"files/{safe} {str(file.pk)[-12:]}{ending}"


class ZipSink(io.RawIOBase):
    """Buffer for the bytes that a `ZipFile` writes. It cannot seek, so `ZipFile` never changes earlier bytes."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        piece = bytes(self._written)
        self._written = bytearray()
        return piece
