"""The tools that the product offers to MCP clients: search projects, read files, ask a persona, read a report.

Each tool does what an endpoint of the REST API does, through the same services and with the same scope of the token.
Texts for the client's model are in English.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accounts.models import User
from chat.conversations.services import visible_persona
from chat.models import Turn
from chat.models.conversation_state import ChatScope, visible_conversation, visible_turn
from chat.prompts import report as reports
from chat.realtime.event_stream import load_turn, threaded, wire_events
from chat.sending import services as sending
from chat.tools.files import reading_span
from chat.turns.submit import Ask
from core.audit.origin import current_origin
from core.errors import NotFound, ProductError
from core.json_types import JsonObject
from files.index.finding import find_passages
from files.index.ledger import Payer
from files.index.search import ChunkHit
from files.models import File, FileText
from files.services import visible_file
from llm.types.tools import BadArguments
from personas.models import Persona
from projects.models import Project
from projects.models.roles import visible_project

MAX_LISTED = 100  # projects or personas in one result
MAX_HITS = 20
MAX_QUESTION_LENGTH = 100_000  # characters of a question
ANSWER_TIMEOUT = 240.0  # seconds for an answer; clients of the protocol wait 300 for the next bytes of a response


class ToolArguments(BaseModel):
    """Base of the arguments of tools. Unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid")


class NameArguments(ToolArguments):
    """Arguments of the tools that list something."""

    name: str = Field("", max_length=200, description="A part of the name; empty for all.")


class SearchArguments(ToolArguments):
    """Arguments of `search_projects`."""

    query: str = Field(min_length=1, max_length=1_000, description="Such as: notice period of tenants")
    project: UUID | None = Field(None, description="The id of a project; all of them without it.")
    limit: int = Field(8, ge=1, le=MAX_HITS, description="How many passages.")


class ReadArguments(ToolArguments):
    """Arguments of `read_passage`."""

    file: UUID = Field(description="The id of a file, as search_projects returns it.")
    page: int | None = Field(None, ge=1, description="A page, such as 12.")
    start: int | None = Field(None, ge=0, description="The first character, such as 4000.")


class AskArguments(ToolArguments):
    """Arguments of `ask_persona`."""

    question: str = Field(min_length=1, max_length=MAX_QUESTION_LENGTH)
    persona: UUID | None = Field(None, description="The id of a persona, as list_personas returns it; none without it.")
    project: UUID | None = Field(None, description="The id of a project whose files the answer may use.")
    conversation: UUID | None = Field(
        None, description="The id of an earlier conversation to continue. Leave out persona and project then."
    )


class TurnArguments(ToolArguments):
    """Arguments of `read_answer`."""

    turn: UUID = Field(description="The id of a turn, as ask_persona returns it.")


class ReportArguments(TurnArguments):
    """Arguments of `read_report`."""

    call: int | None = Field(None, ge=1, description="The number of a model call from 1; the last one without it.")


@dataclass(frozen=True, slots=True)
class McpCaller:
    """The user and the scopes of a token. `address` turns a path into a full address."""

    user: User
    scopes: frozenset[str]
    address: Callable[[str], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool: `text` for the model, and `data` for programs."""

    text: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool. `scope`: the scope that a token needs. `reads`: whether it only reads."""

    name: str
    description: str
    scope: str
    arguments: type[ToolArguments]
    run: Callable[[McpCaller, Any], Awaitable[ToolAnswer]] = field(repr=False)
    reads: bool = True

    async def call(self, caller: McpCaller, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Check the arguments and run the tool. Raises `BadArguments` and `ProductError`."""
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(each) for each in first["loc"]) or "arguments"
            raise BadArguments(f"“{place[:100]}” is not right: {first['msg']}.") from error
        return await self.run(caller, checked)


async def _list_projects(caller: McpCaller, arguments: NameArguments) -> ToolAnswer:
    return await threaded(_list_rows)(Project.objects.visible_to(caller.user), "projects", arguments.name)


async def _list_personas(caller: McpCaller, arguments: NameArguments) -> ToolAnswer:
    return await threaded(_list_rows)(Persona.objects.visible_to(caller.user), "personas", arguments.name)


def _list_rows(rows: "QuerySet[Any]", kind: str, name: str) -> ToolAnswer:
    matches = list(rows.filter(name__icontains=name).order_by("name", "pk")[: MAX_LISTED + 1])
    shown = [{"id": str(row.pk), "name": row.name} for row in matches[:MAX_LISTED]]
    lines = [f"- {each['id']} {each['name']}" for each in shown]
    more = ["There are more. Narrow the list by a part of the name."] if len(matches) > MAX_LISTED else []
    return ToolAnswer("\n".join([*lines, *more]) or f"There are no such {kind}.", {kind: shown})


async def _search_projects(caller: McpCaller, arguments: SearchArguments) -> ToolAnswer:
    return await threaded(_search_files)(caller.user, arguments)


def _search_files(user: User, arguments: SearchArguments) -> ToolAnswer:
    projects = (
        Project.objects.visible_to(user)
        if arguments.project is None
        else Project.objects.filter(pk=visible_project(user, arguments.project).pk)
    )
    files = File.objects.filter(project_entries__project__in=projects.values("pk")).distinct()
    payer = Payer(user.pk, current_origin().token_id)
    result = find_passages(queries=[arguments.query], files=files, limit=arguments.limit, payer=payer)
    passages = [_passage_data(hit) for hit in result.hits]
    notes = [note.english for note in result.notes]
    text = "\n\n".join(_passage_text(each) for each in passages) or "Nothing was found. Try other words."
    return ToolAnswer("\n\n".join([text, *notes]), {"passages": passages, "notes": notes})


def _passage_data(hit: ChunkHit) -> JsonObject:
    return {
        "file": str(hit.file),
        "title": hit.name,
        "page": hit.page,
        "start": hit.start,
        "end": hit.end,
        "heading": hit.heading,
        "text": hit.text,
    }


def _passage_text(passage: Mapping[str, Any]) -> str:
    page = f", page {passage['page']}" if passage["page"] else ""
    where = f"{passage['title']}{page} (file {passage['file']}, characters {passage['start']} to {passage['end']})"
    return f"{where}\n{passage['text']}"


async def _read_passage(caller: McpCaller, arguments: ReadArguments) -> ToolAnswer:
    return await threaded(_read_file)(caller.user, arguments)


def _read_file(user: User, arguments: ReadArguments) -> ToolAnswer:
    file = visible_file(user, arguments.file)
    content = FileText.objects.filter(file=file).first()
    if content is None:
        raise ProductError("no_text", "This file has no text that can be read. Wait until it is ready.", status=409)
    page, start, end = reading_span(content, arguments.model_dump(include={"page", "start"}))
    text = content.text[start:end]
    if not text:
        raise BadArguments(f"The file ends at character {len(content.text)}.")
    more = end < len(content.text)
    follows = f"It goes on at character {end}." if more else "This is its end."
    data = {"file": str(file.pk), "title": file.name, "page": page, "start": start, "end": end, "more": more}
    return ToolAnswer(f"{file.name}, characters {start} to {end}. {follows}\n\n{text}", {**data, "text": text})


async def _ask_persona(caller: McpCaller, arguments: AskArguments) -> ToolAnswer:
    turn = await threaded(_send_question)(caller.user, arguments)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            async for _event in wire_events(turn):
                pass
    except TimeoutError:
        pass  # the answer goes on; `read_answer` returns it later
    return await threaded(_make_answer)(caller, await load_turn(turn.pk))


def _send_question(user: User, arguments: AskArguments) -> Turn:
    """Send the question as the REST API does, and return its turn."""
    ask = Ask(text=arguments.question)
    if arguments.conversation is None:
        project = visible_project(user, arguments.project) if arguments.project is not None else None
        scope = ChatScope(project=project, persona=visible_persona(user, arguments.persona))
        conversation = sending.start_conversation(user=user, scope=scope, ask=ask)
        return Turn.objects.filter(conversation=conversation).latest("created")
    if arguments.persona is not None or arguments.project is not None:
        raise BadArguments("A conversation has its persona and project already. Leave both out.")
    conversation = visible_conversation(user, arguments.conversation)
    return sending.send(user=user, conversation=conversation, ask=ask)[0]


def _make_answer(caller: McpCaller, turn: Turn) -> ToolAnswer:
    text = turn.answer.text
    live = turn.status in Turn.LIVE
    data: JsonObject = {
        "turn": str(turn.pk),
        "conversation": str(turn.conversation_id),
        "status": turn.status,
        "answer": text,
        "page": caller.address(reverse("chat:conversation", args=[turn.conversation_id])),
        "report": caller.address(reverse("turn-report", args=[turn.pk])),
    }
    lines = [text] if text else []
    if live:
        lines.append(f"[The answer is not complete yet. Call read_answer with the turn {turn.pk} later.]")
    elif turn.status != Turn.Status.DONE:
        lines.append(f"[The answer ended as {turn.status}: {turn.answer.error_detail.english or 'no reason is known'}]")
    lines.append(f"[turn {turn.pk}, conversation {turn.conversation_id}; read_report tells what the model saw]")
    return ToolAnswer("\n\n".join(lines), data)


async def _read_answer(caller: McpCaller, arguments: TurnArguments) -> ToolAnswer:
    turn = await threaded(visible_turn)(caller.user, arguments.turn)
    return await threaded(_make_answer)(caller, turn)


async def _read_report(caller: McpCaller, arguments: ReportArguments) -> ToolAnswer:
    return await threaded(_load_report)(caller.user, arguments)


def _load_report(user: User, arguments: ReportArguments) -> ToolAnswer:
    turn = visible_turn(user, arguments.turn)
    report = reports.of_turn(turn, arguments.call)
    if report is None:
        raise NotFound("report")
    whole = reports.readable(report)
    sources = [*report["sources"], *reports.summarised(turn)]
    data = {**{name: whole[name] for name in _REPORT_MEMBERS if name in whole}, "sources": sources}
    lines = [
        f"Model {report['model']}: {report['used']} of {report['limit']} tokens used, "
        f"{report['tools_tokens']} more for definitions of tools.",
        *(_source_line(each) for each in sources[:MAX_LISTED]),
    ]
    if len(sources) > MAX_LISTED:
        lines.append(f"[{len(sources) - MAX_LISTED} more sources are in the structured result]")
    lines += whole.get("notes", [])
    return ToolAnswer("\n".join(lines), data)


# Members of a report in a result, without the messages, which may be longer than the window of the client's model.
_REPORT_MEMBERS = (
    *("cycle", "model", "window", "limit", "used", "left", "exact", "tools_tokens", "tools", "tools_on_demand"),
    *("sections", "versions", "summary", "notes", "usage", "provider_count", "calls"),
)


def _source_line(source: Mapping[str, Any]) -> str:
    reason = f" ({source['reason']})" if source.get("reason") else ""
    tokens = f", {source['tokens']} tokens" if source.get("tokens") else ""
    return f"- {source['kind']} {source.get('title') or source.get('id') or ''}: {source['state']}{reason}{tokens}"


TOOLS: Sequence[McpTool] = (
    McpTool(
        "list_projects",
        "Lists the projects that you may use, with their ids.",
        "projects",
        NameArguments,
        _list_projects,
    ),
    McpTool(
        "search_projects",
        "Searches the files of your projects by words and by meaning. Returns the best passages with their places.",
        "projects",
        SearchArguments,
        _search_projects,
    ),
    McpTool(
        "read_passage",
        "Reads a page of a file, or its text from a character on: 12,000 characters at most.",
        "files",
        ReadArguments,
        _read_passage,
    ),
    McpTool(
        "list_personas", "Lists the personas that you may ask, with their ids.", "chat", NameArguments, _list_personas
    ),
    McpTool(
        "ask_persona",
        "Asks a persona, or the default model without one, and waits for the answer. It is a conversation of yours, "
        "and counts towards your limits.",
        "chat",
        AskArguments,
        _ask_persona,
        reads=False,
    ),
    McpTool(
        "read_answer", "Returns the answer of a turn, as far as it is written.", "chat", TurnArguments, _read_answer
    ),
    McpTool(
        "read_report",
        "Tells what the model saw for an answer: its sources with their tokens, and what was left out and why.",
        "chat",
        ReportArguments,
        _read_report,
    ),
)
TOOLS_BY_NAME: Mapping[str, McpTool] = {tool.name: tool for tool in TOOLS}
SCOPES = frozenset(tool.scope for tool in TOOLS)
