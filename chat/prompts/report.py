"""What the model saw, as it is stored with a turn and shown to people and programs.

`Turn.report` is `{"calls": [call, …]}`, one for each model call. A call holds the engine's report and the list of its
messages; the text of a message that is stored anyway is not stored again but found by its source.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict, cast
from uuid import UUID

from django.utils import timezone

from chat.context.build import ReportEntry, SourceEntry
from chat.context.cache import CacheEntry
from chat.context.rendering import Numbers, documents_text
from chat.context.types import Document, PromptMessage
from chat.models import Message, Summary, Turn
from chat.models.tree import branch_rows
from chat.prompts.builder import Planned, true_room, with_count
from chat.prompts.history import expand
from chat.prompts.steps import Step, found_by, step_of
from chat.prompts.turn_context import TurnContext
from chat.tools.toolbox import without_tools
from core.background import on_database
from core.errors import ProductError
from core.lines import first_line
from core.net.outgoing import OutgoingRequest
from core.sentences import Sentence
from files.models import File
from llm.counting import exact_count
from llm.truncation import Sent as SentTokens
from llm.truncation import Truncation, TruncationSuspicion
from llm.types.model_call import ModelRequest, ParametersLeftOut
from personas.services import texts_then
from personas.texts import Texts

FILES = ("project_files", "file")  # sections whose text is made of files
FILE_KINDS = ("project_file", "file", "image")
TITLE = 80  # characters of a message that name it in a list
INTERNAL = ("numbers", "made_with", "at")  # members of a call that nobody is shown
GONE = "[This text is not stored any more.]"


class MessageEntry(TypedDict):
    """A message as it was sent; without `text` where that is found again by its source."""

    section: str
    source: str | None
    role: str
    tokens: int
    state: str
    text: NotRequired[str | None]


class CoveredEntry(TypedDict):
    """The summary that stood in the prompt, and the messages for which it stood."""

    id: str
    messages: int
    first: str
    last: str
    span_start: str
    span_end: str
    tokens_before: int


class CallReport(ReportEntry):
    """One model call as it is stored: the engine's report, and under what it was made; all numbers in tokens.

    `effort` of reasoning as sent; `reserved_reasoning`: what of `reserved_output` is for it; both not in those of
    earlier versions.
    `numbers`: the documents' numbers. `refused`: what the provider said to a longer prompt before this one. `notes`:
    sentences on what should have been there and was not. `unread`: tokens that the server did not read, by its count.
    `cache`: what the provider's cache was to serve, and did.
    `usage`: what the provider has reported, the fields of `llm.types.model_call.Usage`; empty while it has not.
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
    tools_asking: NotRequired[list[str]]  # those whose calls a person may have to allow
    policy: str
    layout: str
    profile: str
    summary: CoveredEntry | None
    messages: list[MessageEntry]
    numbers: NotRequired[Mapping[str, int]]
    refused: str
    notes: list[str]
    # Not in those of earlier versions:
    unread: int
    notice: str  # the sentence about it, or about an oddly low count
    model_id: str
    usage: dict[str, int]
    provider_count: int | None  # the prompt with its tools, as the provider counted it before it was sent
    cache: NotRequired[CacheEntry]
    window_source: NotRequired[str]  # see `chat.prompts.turn_context.TurnContext.window_source`
    window_evidence: NotRequired[dict[str, Any]]  # of a learnt one, see `llm.learning.Evidence`
    # Shown to nobody; for planning the same again:
    made_with: NotRequired[dict[str, Any]]  # see `chat.prompts.turn_context.TurnContext.made_with`
    at: NotRequired[float]  # seconds since the epoch


class ShortCall(TypedDict):
    cycle: int
    model: str
    limit: int
    used: int
    refused: str


class ResolvedReport(CallReport):
    """With titles and exact messages; of a turn also with all its calls in short."""

    calls: NotRequired[list[ShortCall]]


class Change(SourceEntry):
    """A source that is new (`added`), `gone` or `changed` between two calls; `was`: its state and tokens before."""

    change: str
    was: SourceEntry | None


class WindowEntry(TypedDict):
    """The window in force, and where it comes from; the members of a `CallReport` by the same names."""

    window: int
    window_source: str
    window_evidence: dict[str, Any]


def window_of(context: TurnContext) -> WindowEntry:
    """Return the window that a prompt is planned for, and where it comes from."""
    learnt = context.window == context.model.window and context.window < context.model.context_window
    evidence = context.model.window_evidence if learnt else {}
    return {"window": context.window, "window_source": context.window_source, "window_evidence": evidence}


def stored(
    context: TurnContext, planned: Planned, *, cycle: int, refused: Sentence | None, cache: CacheEntry
) -> CallReport:
    """The JSON of one model call."""
    report, summary = planned.prompt.report.as_dict(), planned.summary
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
        "policy": context.profile.policy,
        "layout": context.profile.layout,
        "profile": context.profile.name,
        **report,
        "sources": [*(_named(source, planned) for source in report["sources"]), *_tasks(context)],
        "versions": {**report["versions"], **versions},
        "summary": _covered(summary) if summary is not None else None,
        "messages": [_stored_message(message) for message in planned.prompt.messages],
        "numbers": planned.documents.numbers.known,
        "refused": refused.dump() if refused else "",
        "notes": [note.dump() for note in (context.effort.note, *planned.notes, *context.toolbox.all_notes) if note],
        "unread": 0,
        "cache": cache,
        "notice": "",
        "usage": {},
        "provider_count": None,
        "made_with": context.made_with(),
        "at": timezone.now().timestamp(),
    }


Made = tuple[Planned, CallReport, ModelRequest]


async def counted(context: TurnContext, made: Made, plan: Callable[[TurnContext], Made], *, ask: bool = True) -> Made:
    """What was `made` with the provider's own count; planned anew, once, where that changes what fits.

    Without `ask` only with what the provider has counted before. `plan` runs in a thread with a database connection.
    """
    room = true_room(context)
    planned, report, request = made
    count = report["provider_count"] = await exact_count(context.model, request, ask=ask)
    true = with_count(context, planned.prompt, count) if count is not None else None
    if count is None or true is None:
        return made
    try:
        again = await on_database(plan, true)
    except ProductError:
        return made  # it is for the provider to refuse what we cannot make smaller
    recount = again[1]["provider_count"] = await exact_count(context.model, again[2], ask=ask)
    if count <= room and (recount is None or recount > room):
        again = await on_database(plan, context)
        again[1]["provider_count"] = count
    return again


def truncated(truncation: Truncation) -> Sentence:
    """Return what is said of an answer whose server did not read the whole prompt, with what helps on such a server."""
    read, sent = truncation.read, truncation.sent
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
    """Write down what a call was sent without, for its model's sake.

    Returns what the rest of the turn goes by: without the tools that were refused, which are not counted either.
    """
    if event.names:
        refused_names = Sentence("The model refuses this, so it was not sent: {names}.", names=", ".join(event.names))
        call["notes"].append(refused_names.dump())
    if not event.tools:
        return context, sent
    names = ", ".join(event.tools)
    note = Sentence("The model's provider refuses these tools, so they were not sent: {names}.", names=names)
    call["notes"].append(note.dump())
    box = without_tools(context.toolbox, event.tools, note)
    left = replace(context, toolbox=box)
    call["tools"] = [tool.name for tool in box.definitions]
    call["tools_tokens"] = left.room.tools_tokens
    return left, sent._replace(tools=box.tokens(context.tokenizer) if sent.tools else 0)


def suspected(suspicion: TruncationSuspicion) -> Sentence:
    """Return what is said under an answer whose server reported oddly few tokens."""
    return Sentence(
        "The server reported {reported} of {sent} tokens: it may count differently, or it may "
        "have cut the prompt. An admin can test that on the model's page.",
        reported=suspicion.reported,
        sent=suspicion.sent,
    )


def refused(before: int, window: int) -> Sentence:
    return Sentence(
        "The provider refused a prompt that fits into {before} tokens. It named its limit: from now on {window}. "
        "An admin can correct the model's window.",
        before=before,
        window=window,
    )


def refused_for_account(limit: int, requested: int) -> Sentence:
    return Sentence(
        "The provider's account allows {limit} tokens a minute, and this request had {requested}. Less was sent, "
        "in this answer only.",
        limit=limit,
        requested=requested,
    )


def refused_without_limit(before: int, window: int) -> Sentence:
    return Sentence(
        "The provider refused a prompt that fits into {before} tokens. It named no usable limit, so it was planned "
        "again for {window}, in this conversation only.",
        before=before,
        window=window,
    )


def images_refused(sent: int, limit: int | None) -> Sentence:
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
    return Sentence(
        "Of {checked} sentences compared with the passages that they cite, {doubts} are not carried by them.",
        checked=checked,
        doubts=doubts,
    )


def fallen_back(first: str, second: str, why: Sentence, *, thought: bool) -> list[Sentence]:
    """`thought`: the first model has reasoned in this turn."""
    said = [
        Sentence(
            "{second} was asked instead of {first}, which was not available (“{why}”).",
            second=second,
            first=first,
            why=why,
        )
    ]
    if thought:
        said.append(
            Sentence("What {first} had thought before its calls was not sent to {second}.", first=first, second=second)
        )
    return said


def _named(source: SourceEntry, planned: Planned) -> SourceEntry:
    """The summary by its row, a file as found by search where the model is told of it, and what is always to be sent
    as such where it does not fit."""
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
    """The tasks of the prompt as sources; their tokens are the section's, the titles those of that moment."""
    shown = (*context.tasks.today, *context.tasks.mentioned) if context.tasks else ()
    return [
        {"kind": "task", "id": task.code, "title": f"{task.code} {task.title}", "state": "full", "exact": context.exact}
        for task in shown
    ]


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


def _stored_message(message: PromptMessage) -> MessageEntry:
    entry: MessageEntry = {
        "section": message.section,
        "source": message.source,
        "role": message.role,
        "tokens": message.tokens,
        "state": message.state,
    }
    changed = message.state != "full" and not message.as_stored
    if changed or (message.source is None and message.section not in FILES):
        entry["text"] = message.text
    return entry


def of_turn(turn: Turn, number: int | None = None) -> ResolvedReport | None:
    """The report of the turn's last call, or of the `number`th from 1, with titles and exact messages, and all calls in
    short; None where there is no such call (yet)."""
    calls: list[CallReport] = turn.report.get("calls", [])
    chosen = len(calls) if number is None else number
    if not 1 <= chosen <= len(calls):
        return None
    # Reports of earlier versions lack these.
    report = resolved(calls[chosen - 1])
    report.setdefault("tools", [])
    report.setdefault("effort", "")
    report.setdefault("reserved_reasoning", 0)
    report["calls"] = [_short(each) for each in calls]
    return report


def readable(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report or a plan with its sentences in the reader's language."""
    read = dict(report)
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


def call_number(asked: str | None) -> int | None:
    """From an address; what is no number is none of the calls."""
    if not asked:
        return None
    return int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 5 else 0


class Outgoing(OutgoingRequest):
    """`tool`: the name of the one that sent it."""

    tool: str


def outgoing(turn: Turn) -> list[Outgoing]:
    """What left the workspace in this turn, in the order of its calls, whether or not there was an answer."""
    parts = turn.answer.parts
    names = {part["id"]: part["name"] for part in parts if part["type"] == "tool_call"}
    results = (part for part in parts if part["type"] == "tool_result")
    return [
        {"tool": names.get(part["id"], ""), "host": each["host"], "what": each["what"]}
        for part in results
        for each in part.get("outgoing", ())
    ]


def summarised(turn: Turn) -> list[SourceEntry]:
    """The messages for which the summary of the turn's last call stands, oldest first, as sources of its report.

    They are not stored with every report but found by the summary's last message, which is on the turn's branch.
    """
    calls: list[CallReport] = turn.report.get("calls", [])
    summary = calls[-1].get("summary") if calls else None
    if not summary:
        return []
    rows = branch_rows(UUID(summary["last"])).order_by("depth")
    return [
        _summarised(*each)
        for row in rows
        for each in (
            *(("file", str(a.file_id), a.name) for a in row.attachments.all() if a.file_id),
            ("message", str(row.pk), _shortened(row.text)),
        )
    ]


def _summarised(kind: str, pk: str, title: str) -> SourceEntry:
    left_out: SourceEntry = {"kind": kind, "state": "left_out", "reason": "summarised", "tokens": 0, "exact": True}
    return {**left_out, "id": pk, "title": title}


def resolved(call: CallReport, draft: str | None = None, *, whole: bool = True) -> ResolvedReport:
    """A stored call with what its sources refer to. `draft` is the text of a message that is not stored yet.

    Without `whole` no more than what a sentence about it may name: files, and messages that a person has marked. The
    line under the composer is asked for with every page and almost every key; texts are read for a panel alone.
    """
    sources, words = call["sources"], texts_then(call["versions"])
    messages = call["messages"] if whole else []
    named = (source for source in sources if source["kind"] == "message" and (whole or source.get("mark")))
    wanted = {_row_id(source.get("id")) for source in named}
    wanted |= {_row_id(message["source"]) for message in messages if message["section"] in ("history", "current")}
    texts, steps = _texts([pk for pk in wanted if pk is not None], words)
    if draft is not None:
        texts["draft"], steps["draft"] = draft, Step("question", draft)
    files = _files((_row_id(source.get("id")) for source in sources if source["kind"] in FILE_KINDS), texts=whole)
    report = cast("ResolvedReport", {name: value for name, value in call.items() if name not in INTERNAL})
    found = found_by(steps[source.get("id") or ""] for source in sources if (source.get("id") or "") in steps)
    report["sources"] = [_source(source, steps, files, found) for source in sources]
    report["messages"] = [_message(message, texts, _documents(call, message, files, words)) for message in messages]
    return report


def _files(ids: Iterable[UUID | None], *, texts: bool) -> dict[str, File]:
    wanted = [pk for pk in ids if pk is not None]
    rows = File.objects.filter(pk__in=wanted)
    return {str(file.pk): file for file in (rows.select_related("content") if texts else rows)} if wanted else {}


def _documents(call: CallReport, message: MessageEntry, files: Mapping[str, File], words: Texts) -> str | None:
    """The text of a message of files, made again from the files as they are stored; None for other messages."""
    if message["section"] not in FILES or message["state"] != "full":
        return None
    ids = (message["source"] or "").split("+")
    if message["section"] == "project_files":
        inline = (each for each in call["sources"] if each["kind"] == "project_file" and each["state"] == "full")
        ids = [str(each["id"]) for each in inline if not each.get("reason")]
    found = [(files[pk], pk) for pk in ids if pk in files]
    if len(found) < len(ids):
        return GONE
    documents = [Document(pk, file.name, _text_of(file, words)) for file, pk in found]
    return documents_text(documents, Numbers(call.get("numbers", {})), words)


def _text_of(file: File, words: Texts) -> str:
    """As it was sent; an image is a document where the model does not see it."""
    if file.is_image:
        return words["image_unseen"]
    return file.content.text if hasattr(file, "content") else ""


def _row_id(source: str | None) -> UUID | None:
    try:
        return UUID((source or "").partition("#")[0])
    except ValueError:
        return None


def _texts(ids: Iterable[UUID], words: Texts) -> tuple[dict[str, str], dict[str, Step]]:
    """The exact text of every engine's message of these rows by its id, and what a person reads in its place."""
    texts: dict[str, str] = {}
    steps: dict[str, Step] = {}
    wanted = list(ids)
    for row in Message.objects.filter(pk__in=wanted) if wanted else ():
        for message in expand(row, words):
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            texts[message.id] = "\n".join([message.text or "", *calls]).strip()
            steps[message.id] = step_of(row, message)
    return texts, steps


def _source(
    source: SourceEntry, steps: Mapping[str, Step], files: Mapping[str, File], found: frozenset[str]
) -> SourceEntry:
    pk, title = source.get("id") or "", source.get("title", "")
    more: dict[str, Any] = {}
    if source["kind"] == "message":
        step = steps.get(pk)
        title = _shortened(step.words) if step else ""
        more = {"role": step.role} if step else {}
    elif source["kind"] in FILE_KINDS:
        title = files[pk].name if pk in files else title or pk
        more = {"used": pk in found} if source["state"] == "by_search" else {}
    unsaid: SourceEntry = {"kind": source["kind"], "state": source["state"], "id": None, "reason": None}
    return cast("SourceEntry", {**unsaid, **source, "title": title, **more})


def _shortened(text: str) -> str:
    line = first_line(text, TITLE)
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


def _message(message: MessageEntry, texts: Mapping[str, str], documents: str | None) -> MessageEntry:
    text = documents
    if text is None:
        text = message["text"] if "text" in message else texts.get(message["source"] or "", GONE)
    return {**message, "text": text}


def compare(before: Sequence[SourceEntry], after: Sequence[SourceEntry]) -> list[Change]:
    """What changed between the sources of two calls: each source that is new, gone, or in another state."""
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
