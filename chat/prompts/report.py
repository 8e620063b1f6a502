"""Store a report of each model call with its turn, and show it to users and programs.

`Turn.report` is `{"calls": [call, …]}`, with one `CallReport` for each model call. A call holds the engine's report and
the list of the messages that were sent. It does not repeat texts that are stored elsewhere: `resolved` reads them from
the source of the message.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, NotRequired, TypedDict, cast
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext

from chat.context.build import ReportEntry, SourceEntry
from chat.context.cache import CacheEntry
from chat.context.rendering import CitationNumbers, documents_text, memory_text
from chat.context.types import Document, Memory, MemoryFact, PromptMessage, Reason
from chat.memory.models import Fact
from chat.models import Message, Summary, Turn
from chat.models.conversation import TurnScope
from chat.models.tree import branch_rows
from chat.prompts.builder import PlannedCall, true_room, with_true_ratio
from chat.prompts.history import expand
from chat.prompts.steps import AnswerStep, answer_step, files_read
from chat.prompts.turn_context import MadeWith, TurnContext
from chat.tools.on_demand import ToolsOnDemand
from chat.tools.toolbox import without_tools
from core.background import on_database
from core.errors import ProductError
from core.json_types import JsonObject
from core.marks import plain_line
from core.net.outgoing import OutgoingRequest
from core.sentences import Sentence, gettext_noop
from files.models import File
from llm.counting import exact_count
from llm.learning import EvidenceJson
from llm.truncation import SentTokens, Truncation, TruncationSuspicion
from llm.types.model_call import ModelRequest, ParametersLeftOut
from personas.services import texts_from_report
from personas.texts import Texts

FILE_SECTIONS = ("project_files", "file")  # sections that consist of the texts of files
FILE_KINDS = ("project_file", "file", "image")
TITLE = 80  # characters of a message's text that are its title in a list
INTERNAL = ("numbers", "made_with", "memory", "at")  # members of a call that are never shown
NOT_STORED = "[This text is not stored any more.]"
FORGOTTEN = gettext_noop("A fact that was forgotten")


class MessageEntry(TypedDict):
    """A message as it was sent. `text` is missing if it can be read from the message's source."""

    section: str
    source: str | None
    role: str
    tokens: int
    state: str
    text: NotRequired[str | None]


class CoveredEntry(TypedDict):
    """The summary in the prompt, and the messages that it covers. `first` and `last` are their ids."""

    id: str
    messages: int
    first: str
    last: str
    span_start: str
    span_end: str
    tokens_before: int


class ToolsOnDemandEntry(TypedDict):
    """The tools of a call that were listed by name, and those among them whose definitions were sent.

    `unnamed`: how many of the last ones were not in the list either, for lack of room. `saved` is in tokens.
    """

    listed: list[str]
    loaded: list[str]
    unnamed: int
    saved: int


class StoredFact(TypedDict):
    """A fact of the memory section, without its text. The fields are those of `chat.context.types.MemoryFact`."""

    id: str
    reason: Reason
    tokens: int | None
    required: bool


class StoredMemory(TypedDict):
    """The memory section of a call, without the texts of its facts: a fact that is forgotten is gone from reports."""

    heading: str
    profile: str
    profile_tokens: int | None
    wrap: str
    facts: list[StoredFact]


class CallReport(ReportEntry):
    """One model call as it is stored: the engine's report and the facts of the call. All numbers are tokens.

    `effort` is the effort of reasoning that was sent; `reserved_reasoning` is the part of `reserved_output` for it.
    `tools_asking` are the tools whose calls a user may have to allow. `tools_on_demand` is None if all tools were
    defined. `sign_ins` are the names of tool servers that were left out because the user was not signed in to them.
    `numbers` are the citation numbers of the documents. `refused` is the note about a longer prompt that the provider
    refused before. `notes` are sentences about parts and parameters that were not sent. `unread` is the number of
    tokens that the server, by its count, did not read. `notice` is the sentence about these tokens, or about an oddly
    low count. `usage` holds the provider's counts, the fields of `llm.types.model_call.Usage`; it is empty until the
    provider reports them. `provider_count` is the provider's count of the prompt and its tools before they were sent.
    `window_source` is `TurnContext.window_source`, `window_evidence` the stored `llm.learning.Evidence` of a learnt
    window.

    `scope` names the persona, the project and the model of the call.

    `memory` is the section of the memory, from which its text is made again.

    `made_with` and `at` (seconds since the epoch) are used to plan the same prompt again. They are never shown. Members
    that are not required are missing in reports of earlier versions.
    """

    cycle: int
    model: str
    window: int
    reserved_output: int
    reserved_reasoning: NotRequired[int]
    effort: NotRequired[str]
    buffer: int
    margin: float
    tools_tokens: int
    tools: NotRequired[list[str]]
    tools_asking: NotRequired[list[str]]
    tools_on_demand: NotRequired[ToolsOnDemandEntry | None]
    sign_ins: NotRequired[list[str]]
    policy: str
    layout: str
    profile: str
    scope: NotRequired[TurnScope]
    summary: CoveredEntry | None
    messages: list[MessageEntry]
    numbers: NotRequired[Mapping[str, int]]
    refused: str
    notes: list[str]
    # The next five are missing in reports of earlier versions too.
    unread: int
    notice: str
    model_id: str
    usage: dict[str, int]
    provider_count: int | None
    cache: NotRequired[CacheEntry]
    window_source: NotRequired[str]
    window_evidence: NotRequired[EvidenceJson]
    made_with: NotRequired[MadeWith]
    memory: NotRequired[StoredMemory]
    at: NotRequired[float]


class ShortCall(TypedDict):
    """The main numbers of a model call."""

    cycle: int
    model: str
    limit: int
    used: int
    refused: str


class ResolvedReport(CallReport):
    """A call's report with titles and the exact messages. In the report of a turn, `calls` lists all its calls."""

    calls: NotRequired[list[ShortCall]]


class Change(SourceEntry):
    """A source that differs between two calls.

    `change` is `added`, `gone` or `changed`. `was` is the earlier entry of a changed source.
    """

    change: str
    was: SourceEntry | None


class WindowEntry(TypedDict):
    """The window in force and its source. The names are those of `CallReport`."""

    window: int
    window_source: str
    window_evidence: EvidenceJson


class PlannedRequest(NamedTuple):
    """A planned call with its report and the request for the model."""

    planned: PlannedCall
    report: CallReport
    request: ModelRequest


def window_of(context: TurnContext) -> WindowEntry:
    """Return the window that a prompt is planned for, with its source."""
    learnt = context.window == context.model.window and context.window < context.model.context_window
    evidence: EvidenceJson = context.model.window_evidence if learnt else {}
    return {"window": context.window, "window_source": context.window_source, "window_evidence": evidence}


def stored(
    context: TurnContext, planned: PlannedCall, *, cycle: int, refused: Sentence | None, cache: CacheEntry
) -> CallReport:
    """Return the report of one model call for storage."""
    report = planned.prompt.report.as_dict()
    summary = planned.summary
    versions = {"summary_prompt": str(summary.prompt_version)} if summary is not None else {}
    return {
        "cycle": cycle,
        "model": context.model.name,
        "model_id": str(context.model.pk),
        **window_of(context),
        "reserved_output": context.room.reserved_output,
        "reserved_reasoning": context.reasoning_tokens,
        "effort": context.effort.sent,
        "buffer": context.room.buffer,
        "margin": float(context.margin),
        "tools_tokens": context.room.tools_tokens,
        "tools": [tool.name for tool in context.toolbox.definitions],
        "tools_asking": sorted(context.toolbox.approval),
        "tools_on_demand": _tools_on_demand(context.toolbox.on_demand),
        "sign_ins": [*context.toolbox.sign_ins],
        "policy": context.profile.policy,
        "layout": context.profile.layout,
        "profile": context.profile.name,
        "scope": context.scope,
        **report,
        "sources": [*(_named(source, planned) for source in report["sources"]), *_tasks(context), *planned.missing],
        "versions": {**report["versions"], **versions},
        "summary": _covered(summary) if summary is not None else None,
        "messages": [_stored_message(message) for message in planned.prompt.messages],
        "numbers": planned.documents.numbers.assigned,
        "refused": refused.dump() if refused else "",
        "notes": [note.dump() for note in (context.effort.note, *planned.notes, *context.toolbox.all_notes) if note],
        "unread": 0,
        "cache": cache,
        "notice": "",
        "usage": {},
        "provider_count": None,
        "made_with": context.made_with(),
        **_stored_memory(planned),
        "at": timezone.now().timestamp(),
    }


async def with_provider_count(
    context: TurnContext,
    first: PlannedRequest,
    plan: Callable[[TurnContext], PlannedRequest],
    *,
    ask: bool = True,
) -> PlannedRequest:
    """Ask the provider for its count of the request, and plan once more if the count changes what fits.

    Without `ask`, only a cached count is used. `plan` runs in a thread with a database connection. The rule:
    docs/develop/context.md, “The room”.
    """
    room = true_room(context)
    count = first.report["provider_count"] = await exact_count(context.model, first.request, ask=ask)
    recounted = with_true_ratio(context, first.planned.prompt, count) if count is not None else None
    if count is None or recounted is None:
        return first
    try:
        replanned = await on_database(plan, recounted)
    except ProductError:
        return first  # the prompt cannot be made smaller, so the provider will refuse it
    recount = replanned.report["provider_count"] = await exact_count(context.model, replanned.request, ask=ask)
    if count <= room and (recount is None or recount > room):
        replanned = await on_database(plan, context)
        replanned.report["provider_count"] = count
    return replanned


def truncated(truncation: Truncation) -> Sentence:
    """Return the notice that the server did not read the whole prompt, with advice for this kind of server."""
    read = truncation.read
    sent = truncation.sent
    if truncation.server == "ollama":
        return Sentence(
            "The server read {read} of {sent} tokens: the beginning of the conversation was missing for it. Let an "
            "admin set this provider's kind to Ollama, which tells the server how large the window is to be, or start "
            "the server with a larger OLLAMA_CONTEXT_LENGTH, and try again.",
            read=read,
            sent=sent,
        )
    return Sentence(
        "The server read {read} of {sent} tokens: the beginning of the conversation was missing for it. Start the "
        "server with a larger context (-c) and without --context-shift, and try again.",
        read=read,
        sent=sent,
    )


def without(
    call: CallReport, event: ParametersLeftOut, context: TurnContext, sent: SentTokens
) -> tuple[TurnContext, SentTokens]:
    """Note in the report which parameters and tools were not sent because the model or its provider refuses them.

    Return the context and the counts for the rest of the turn, without the refused tools.
    """
    if event.names:
        refused_names = Sentence("The model refuses this, so it was not sent: {names}.", names=", ".join(event.names))
        call["notes"].append(refused_names.dump())
    if not event.tools:
        return context, sent
    names = ", ".join(event.tools)
    note = Sentence("The model's provider refuses these tools, so they were not sent: {names}.", names=names)
    call["notes"].append(note.dump())
    toolbox = without_tools(context.toolbox, event.tools, note)
    new_context = replace(context, toolbox=toolbox)
    call["tools"] = [tool.name for tool in toolbox.definitions]
    call["tools_on_demand"] = _tools_on_demand(toolbox.on_demand)
    call["tools_tokens"] = new_context.room.tools_tokens
    return new_context, sent._replace(tools=toolbox.tokens(context.tokenizer) if sent.tools else 0)


def suspected(suspicion: TruncationSuspicion) -> Sentence:
    """Return the notice that the server reported oddly few tokens."""
    return Sentence(
        "The server reported {reported} of {sent} tokens: it may count differently, or it may "
        "have cut the prompt. An admin can test that on the model's page.",
        reported=suspicion.reported,
        sent=suspicion.sent,
    )


def refused(before: int, window: int) -> Sentence:
    """Return the note that the provider refused the prompt and named its window."""
    return Sentence(
        "The provider refused a prompt that fits into {before} tokens. It named its limit: from now on {window}. "
        "An admin can correct the model's window.",
        before=before,
        window=window,
    )


def refused_for_account(limit: int, requested: int) -> Sentence:
    """Return the note that the provider's account has a limit of tokens a minute."""
    return Sentence(
        "The provider's account allows {limit} tokens a minute, and this request had {requested}. Less was sent, "
        "in this answer only.",
        limit=limit,
        requested=requested,
    )


def refused_without_limit(before: int, window: int) -> Sentence:
    """Return the note that the provider refused the prompt without a usable limit."""
    return Sentence(
        "The provider refused a prompt that fits into {before} tokens. It named no usable limit, so it was planned "
        "again for {window}, in this conversation only.",
        before=before,
        window=window,
    )


def images_refused(sent: int, limit: int | None) -> Sentence:
    """Return the note that the provider refused `sent` images. `limit` is the limit that it named, if any."""
    if limit is None:
        return Sentence(
            "The provider refused {sent} images in one prompt without naming its limit, so half of them were sent.",
            sent=sent,
        )
    return Sentence(
        "The provider refused {sent} images in one prompt. It named its limit: from now on {limit}.",
        sent=sent,
        limit=limit,
    )


def doubted(doubts: int, checked: int) -> Sentence:
    """Return the note on sentences that their cited passages do not support."""
    return Sentence(
        "{doubts} of {checked} sentences do not agree with the passages that they cite.",
        checked=checked,
        doubts=doubts,
    )


def fallen_back(first: str, second: str, why: Sentence, *, reasoned: bool) -> list[Sentence]:
    """Return the notes about a fallback to another model. `reasoned`: the first model has reasoned in this turn."""
    notes = [
        Sentence(
            "{second} was asked instead of {first}, which was not available (“{why}”).",
            second=second,
            first=first,
            why=why,
        )
    ]
    if reasoned:
        notes.append(
            Sentence("{second} did not get the reasoning of {first} before its tool calls.", first=first, second=second)
        )
    return notes


def _named(source: SourceEntry, planned: PlannedCall) -> SourceEntry:
    """Complete an entry of the engine with facts from its row.

    The summary gets its id. A left-out file that the prompt lists gets the state `by_search`. A message that does not
    fit gets its mark.
    """
    if source["kind"] == "summary" and planned.summary is not None:
        return {**source, "id": str(planned.summary.pk)}
    if source["kind"] == "file" and source["state"] == "left_out" and source.get("id") in planned.searched:
        return {**source, "state": "by_search"}
    if source["kind"] == "message" and source["state"] == "left_out" and source.get("reason") == "no_room":
        pk = _row_id(source.get("id"))
        mark = planned.documents.marks.by_message.get(pk) if pk is not None else None
        return {**source, "mark": mark} if mark else source
    return source


def _tasks(context: TurnContext) -> list[SourceEntry]:
    """Return the tasks of the prompt as sources with their present titles. Only their section counts tokens."""
    shown = context.tasks.rows if context.tasks and not context.tasks_off else ()
    return [
        {"kind": "task", "id": task.code, "title": f"{task.code} {task.title}", "state": "full", "exact": context.exact}
        for task in shown
    ]


def _tools_on_demand(on_demand: ToolsOnDemand | None) -> ToolsOnDemandEntry | None:
    if on_demand is None:
        return None
    return {
        "listed": list(on_demand.names),
        "loaded": list(on_demand.loaded),
        "unnamed": on_demand.unnamed,
        "saved": on_demand.saved,
    }


def _covered(summary: Summary) -> CoveredEntry:
    return {
        "id": str(summary.pk),
        "messages": summary.messages,
        "first": str(summary.first_id),
        "last": str(summary.last_id),
        "span_start": summary.span_start.isoformat(),
        "span_end": summary.span_end.isoformat(),
        "tokens_before": summary.tokens_in,
    }


class _MemoryMember(TypedDict, total=False):
    memory: StoredMemory


def _stored_memory(planned: PlannedCall) -> _MemoryMember:
    """Return the member `memory` of a report; nothing for a prompt without the section."""
    if planned.memory is None or not any(each.section == "memory" for each in planned.prompt.messages):
        return {}
    memory = planned.memory.memory
    facts: list[StoredFact] = [
        {"id": fact.id, "reason": fact.reason, "tokens": fact.tokens, "required": fact.required}
        for fact in memory.facts
    ]
    return {
        "memory": {
            "heading": memory.heading,
            "profile": memory.profile,
            "profile_tokens": memory.profile_tokens,
            "wrap": memory.wrap,
            "facts": facts,
        }
    }


def memory_then(call: CallReport) -> Memory | None:
    """Return the memory section of a stored call with the texts of its facts; None if it had none."""
    stored = call.get("memory")
    if stored is None:
        return None
    texts = fact_texts(fact["id"] for fact in stored["facts"])
    facts = (
        MemoryFact(
            fact["id"], texts.get(fact["id"], f"[{FORGOTTEN}]"), fact["reason"], fact["tokens"], fact["required"]
        )
        for fact in stored["facts"]
    )
    return Memory(stored["heading"], stored["profile"], tuple(facts), stored["wrap"], stored["profile_tokens"])


def fact_texts(ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of facts that are not forgotten, by their ids. Reports hold the ids of their owner's facts."""
    present = [pk for name in ids if (pk := _row_id(name)) is not None]
    rows = Fact.objects.filter(pk__in=present).exclude(status=Fact.Status.FORGOTTEN) if present else ()
    return {str(row.pk): row.text for row in rows}


def _stored_message(message: PromptMessage) -> MessageEntry:
    entry: MessageEntry = {
        "section": message.section,
        "source": message.source,
        "role": message.role,
        "tokens": message.tokens,
        "state": message.state,
    }
    changed = message.state != "full" and not message.as_stored
    if message.section == "memory":
        return entry  # the texts of its facts may be forgotten
    if changed or (message.section not in FILE_SECTIONS and message.source is None) or _names_images(message):
        entry["text"] = message.text
    return entry


def _names_images(message: PromptMessage) -> bool:
    """Return whether this is the message of the project's images. Its text is stored, since no row has it."""
    return message.section == "project_files" and bool(message.images)


def of_turn(turn: Turn, number: int | None = None) -> ResolvedReport | None:
    """Return the resolved report of the turn's last call, or of the call `number`, counted from 1.

    It also has a short entry for each call of the turn. Returns None if there is no such call (yet).
    """
    calls: list[CallReport] = turn.report.get("calls", [])
    chosen = len(calls) if number is None else number
    if not 1 <= chosen <= len(calls):
        return None
    # Reports of earlier versions lack these members.
    report = resolved(calls[chosen - 1])
    report.setdefault("tools", [])
    report.setdefault("effort", "")
    report.setdefault("reserved_reasoning", 0)
    report["calls"] = [_short(each) for each in calls]
    return report


def readable(report: Mapping[str, object]) -> JsonObject:
    """Return a report or a plan with its sentences in the reader's language."""
    read: JsonObject = dict(report)
    if "notes" in read:
        read["notes"] = [str(Sentence.load(note)) for note in read["notes"]]
    for name in ("refused", "notice"):
        if name in read:
            read[name] = str(Sentence.load(read[name]))
    if "calls" in read:
        read["calls"] = [{**call, "refused": str(Sentence.load(call["refused"]))} for call in read["calls"]]
    return read


def _short(call: CallReport) -> ShortCall:
    return ShortCall(
        cycle=call["cycle"], model=call["model"], limit=call["limit"], used=call["used"], refused=call["refused"]
    )


def call_number(text: str | None) -> int | None:
    """Parse the number of a call from a URL. Return None for an empty text, and 0 (no call) for an invalid one."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0


class Outgoing(OutgoingRequest):
    """A request that a tool sent out of the workspace. `tool` is the tool's name."""

    tool: str


def outgoing(turn: Turn) -> list[Outgoing]:
    """Return all requests that tools of the turn sent out of the workspace, in the order of the calls."""
    parts = turn.answer.parts
    names = {part["id"]: part["name"] for part in parts if part["type"] == "tool_call"}
    results = (part for part in parts if part["type"] == "tool_result")
    return [
        {"tool": names.get(part["id"], ""), "host": each["host"], "what": each["what"]}
        for part in results
        for each in part.get("outgoing", ())
    ]


def proposed(turn: Turn) -> list[Fact]:
    """Return the facts that were proposed below the turn's answer, also those that were forgotten since."""
    if not turn.conversation.proposes:
        return []
    return list(Fact.objects.filter(answer=turn.answer_id, owner=turn.conversation.owner_id).order_by("id"))


def summarised(turn: Turn) -> list[SourceEntry]:
    """Return the messages that the summary of the turn's last call covers, oldest first, as sources of its report.

    Reports do not store these messages. The query starts from the summary's last message, which is on the branch.
    """
    calls: list[CallReport] = turn.report.get("calls", [])
    summary = calls[-1].get("summary") if calls else None
    if not summary:
        return []
    rows = branch_rows(UUID(summary["last"])).order_by("depth")
    return [
        source
        for row in rows
        for source in (
            *(_summarised_source("file", str(a.file_id), a.name) for a in row.attachments.all() if a.file_id),
            _summarised_source("message", str(row.pk), _shortened(row.text)),
        )
    ]


def _summarised_source(kind: str, pk: str, title: str) -> SourceEntry:
    left_out: SourceEntry = {"kind": kind, "state": "left_out", "reason": "summarised", "tokens": 0, "exact": True}
    return {**left_out, "id": pk, "title": title}


def resolved(call: CallReport, draft: str | None = None, *, whole: bool = True) -> ResolvedReport:
    """Return a stored call with the titles and texts of its sources.

    `draft` is the text of a message that is not stored yet. Without `whole`, only files and marked messages get titles,
    and no texts are read. The line under the composer needs no more, and is requested at almost every keystroke.
    """
    sources = call["sources"]
    own_texts = texts_from_report(call["versions"])
    messages = call["messages"] if whole else []
    messages_to_name = (source for source in sources if source["kind"] == "message" and (whole or source.get("mark")))
    ids = {_row_id(source.get("id")) for source in messages_to_name}
    ids |= {_row_id(message["source"]) for message in messages if message["section"] in ("history", "current")}
    texts, steps = _texts([pk for pk in ids if pk is not None], own_texts)
    if draft is not None:
        texts["draft"] = draft
        steps["draft"] = AnswerStep("question", draft)
    files = _files((_row_id(source.get("id")) for source in sources if source["kind"] in FILE_KINDS), texts=whole)
    facts = fact_texts(source.get("id") or "" for source in sources if source["kind"] == "fact")
    memory = memory_then(call) if any(message["section"] == "memory" for message in messages) else None
    report = cast("ResolvedReport", {name: value for name, value in call.items() if name not in INTERNAL})
    used_files = files_read(steps[source.get("id") or ""] for source in sources if (source.get("id") or "") in steps)
    report["sources"] = [_source(source, steps, files, used_files, facts) for source in sources]
    report["messages"] = [
        _message(message, texts, _documents(call, message, files, own_texts) or _remembered(message, memory))
        for message in messages
    ]
    return report


def _remembered(message: MessageEntry, memory: Memory | None) -> str | None:
    """Return the text of the memory section; None for other messages."""
    if message["section"] != "memory" or memory is None:
        return None
    sent = _ids(message["source"])
    return memory_text(memory, [fact for fact in memory.facts if fact.id in sent])


def _files(ids: Iterable[UUID | None], *, texts: bool) -> dict[str, File]:
    """Return the files with these ids, by id as a string. `texts`: load their contents, too."""
    present = [pk for pk in ids if pk is not None]
    rows = File.objects.filter(pk__in=present)
    return {str(file.pk): file for file in (rows.select_related("content") if texts else rows)} if present else {}


def _documents(call: CallReport, message: MessageEntry, files: Mapping[str, File], own_texts: Texts) -> str | None:
    """Build the text of a file message again from the stored files. Return None for other messages."""
    if message["section"] not in FILE_SECTIONS or message["state"] != "full" or "text" in message:
        return None
    ids = _ids(message["source"])
    if message["section"] == "project_files":
        inline = (each for each in call["sources"] if each["kind"] == "project_file" and each["state"] == "full")
        images = {pk for each in call["messages"] if each["section"] == "project_files" for pk in _ids(each["source"])}
        ids = [str(each["id"]) for each in inline if not each.get("reason") and each["id"] not in images]
    present = [(files[pk], pk) for pk in ids if pk in files]
    if len(present) < len(ids):
        return NOT_STORED
    documents = [Document(pk, file.name, _text_of(file, own_texts)) for file, pk in present]
    return documents_text(documents, CitationNumbers(call.get("numbers", {})), own_texts)


def _ids(source: str | None) -> list[str]:
    """Return the ids of a message's source; empty for a message without one."""
    return source.split("+") if source else []


def _text_of(file: File, own_texts: Texts) -> str:
    """Return the file's text as it was sent.

    An image is a document with a fixed text if the model does not see images.
    """
    if file.is_image:
        return own_texts["image_unseen"]
    return file.content.text if hasattr(file, "content") else ""


def _row_id(source: str | None) -> UUID | None:
    """Return the id of the row behind a source, None for a draft."""
    try:
        return UUID((source or "").partition("#")[0])
    except ValueError:
        return None


def _texts(ids: Sequence[UUID], own_texts: Texts) -> tuple[dict[str, str], dict[str, AnswerStep]]:
    """Return the exact texts and the descriptions for users of the rows' messages, by the engine's message id."""
    texts: dict[str, str] = {}
    steps: dict[str, AnswerStep] = {}
    for row in Message.objects.filter(pk__in=ids) if ids else ():
        for message in expand(row, own_texts):
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            texts[message.id] = "\n".join(filter(None, [message.text, *calls]))
            steps[message.id] = answer_step(row, message)
    return texts, steps


def _source(
    source: SourceEntry,
    steps: Mapping[str, AnswerStep],
    files: Mapping[str, File],
    used: frozenset[str],
    facts: Mapping[str, str],
) -> SourceEntry:
    """Return the source with its title. `used` are the ids of the files whose passages were found in this turn.

    `facts` are the texts of facts by id.
    """
    pk = source.get("id") or ""
    entry: SourceEntry = {
        "kind": source["kind"], "state": source["state"], "id": None, "reason": None,
    }  # fmt: skip
    entry |= source
    entry["title"] = source.get("title", "")
    if source["kind"] == "message":
        step = steps.get(pk)
        entry["title"] = _shortened(step.words) if step else ""
        if step:
            entry["role"] = step.role
    elif source["kind"] == "fact":
        entry["title"] = facts.get(pk) or gettext(FORGOTTEN)
    elif source["kind"] in FILE_KINDS:
        entry["title"] = files[pk].name if pk in files else entry["title"] or pk
        if source["state"] == "by_search":
            entry["used"] = pk in used
    return entry


def _shortened(text: str) -> str:
    line = plain_line(text, TITLE)
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


def _message(message: MessageEntry, texts: Mapping[str, str], documents: str | None) -> MessageEntry:
    text = documents
    if text is None:
        text = message["text"] if "text" in message else texts.get(message["source"] or "", NOT_STORED)
    return {**message, "text": text}


def compare(before: Sequence[SourceEntry], after: Sequence[SourceEntry]) -> list[Change]:
    """Return the sources that differ between two calls: new, gone, or in another state."""
    old = {(source["kind"], source.get("id")): source for source in before}
    new = {(source["kind"], source.get("id")): source for source in after}
    changes: list[Change] = []
    for key, source in new.items():
        was = old.get(key)
        if was is None:
            changes.append({**source, "change": "added", "was": None})
        elif (was["state"], was.get("tokens")) != (source["state"], source.get("tokens")):
            changes.append({**source, "change": "changed", "was": was})
    changes += [{**source, "change": "gone", "was": None} for key, source in old.items() if key not in new]
    return changes
