"""What the model saw, as it is stored with a turn and shown to people and programs.

`Turn.report` is `{"calls": [call, …]}`, one for each model call. A call holds the engine's report and the list of its
messages; the text of a message that is stored anyway is not stored again but found by its source.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from chat.context.documents import Numbers, documents_text
from chat.context.report import Report
from chat.context.types import Document, PromptMessage
from chat.models import Message, Summary, Turn
from chat.prompts import Planned, Setting
from chat.sources import expand
from chat.tree import branch_rows
from files.models import File

FILES = ("project_files", "file")  # sections whose text is made of files
FILE_KINDS = ("project_file", "file", "image")
TITLE = 80  # characters of a message that name it in a list
GONE = "[This text is not stored any more.]"


def stored(setting: Setting, planned: Planned, *, cycle: int, refused: str = "") -> dict[str, Any]:
    """The JSON of one model call. `refused`: what the provider said to a longer prompt before this one."""
    prompt = planned.prompt
    return {
        "cycle": cycle,
        "model": setting.model.name,
        "window": setting.room.window,
        "reserved_output": setting.room.reserved_output,
        "buffer": setting.room.buffer,
        "margin": float(setting.margin),
        "tools_tokens": setting.room.tools_tokens,
        "tools": [tool.name for tool in setting.toolbox.definitions],
        "policy": setting.profile.policy,
        "layout": setting.profile.layout,
        "profile": setting.profile.name,
        **_as_dict(prompt.report, planned.summary, _tasks(setting)),
        "messages": [_stored_message(message) for message in prompt.messages],
        "numbers": planned.documents.numbers.known,
        "refused": refused,
        "notes": list(setting.toolbox.notes),
    }


def _tasks(setting: Setting) -> list[dict[str, Any]]:
    """The tasks of section K as sources; its tokens are the section's, and the titles are those of that moment."""
    shown = (*setting.tasks.today, *setting.tasks.mentioned) if setting.tasks else ()
    return [
        {"kind": "task", "id": task.code, "title": f"{task.code} {task.title}", "state": "full", "exact": setting.exact}
        for task in shown
    ]


def _as_dict(report: Report, summary: Summary | None, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The engine's report, and which summary it is that the prompt holds, with what it stands for."""
    stored = {**report.as_dict(), "summary": None}
    stored["sources"] += tasks
    if summary is None:
        return stored
    stored["versions"]["summary_prompt"] = str(summary.prompt_version)
    stored["summary"] = {
        "id": str(summary.pk),
        "messages": summary.messages,
        "first": str(summary.first_id),
        "last": str(summary.last_id),
        "span_start": summary.span_start.isoformat(),
        "span_end": summary.span_end.isoformat(),
        "tokens_before": summary.tokens_in,
    }
    stored["sources"] = [
        {**source, "id": str(summary.pk)} if source["kind"] == "summary" else source for source in stored["sources"]
    ]
    return stored


def _stored_message(message: PromptMessage) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "section": message.section,
        "source": message.source,
        "role": message.role,
        "tokens": message.tokens,
        "state": message.state,
    }
    if message.section not in FILES and (message.source is None or message.state != "full"):
        entry["text"] = message.text
    return entry


def of_turn(turn: Turn, number: int | None = None) -> dict[str, Any] | None:
    """The report of the turn's last call, or of the `number`th from 1, with titles and exact messages, and all calls in
    short; None where there is no such call (yet)."""
    calls: list[dict[str, Any]] = turn.report.get("calls", [])
    chosen = len(calls) if number is None else number
    if not 1 <= chosen <= len(calls):
        return None
    # A report from before tools had names in it has none.
    return {"tools": [], **resolved(calls[chosen - 1]), "calls": [_short(call) for call in calls]}


def call_number(asked: str | None) -> int | None:
    """From an address; what is no number is none of the calls."""
    if not asked:
        return None
    return int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 5 else 0


def summarised(turn: Turn) -> list[dict[str, Any]]:
    """The messages for which the summary of the turn's last call stands, oldest first, as sources of its report.

    They are not stored with every report but found by the summary's last message, which is on the turn's branch.
    """
    calls: list[dict[str, Any]] = turn.report.get("calls", [])
    summary = calls[-1].get("summary") if calls else None
    if not summary:
        return []
    rows = branch_rows(UUID(summary["last"])).order_by("depth")
    return [
        {**_LEFT_OUT, **each}
        for row in rows
        for each in (
            *({"kind": "file", "id": str(a.file_id), "title": a.name} for a in row.attachments.all() if a.file_id),
            {"kind": "message", "id": str(row.pk), "title": _shortened(row.text)},
        )
    ]


_LEFT_OUT = {"state": "left_out", "reason": "summarised", "tokens": 0, "exact": True}


def _short(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in ("cycle", "model", "limit", "used", "refused")}


def resolved(call: Mapping[str, Any], draft: str | None = None) -> dict[str, Any]:
    """A stored call with what its sources refer to. `draft` is the text of a message that is not stored yet."""
    sources = call["sources"]
    wanted = {_row_id(source["id"]) for source in sources if source["kind"] == "message"}
    wanted |= {
        _row_id(message["source"]) for message in call["messages"] if message["section"] in ("history", "current")
    }
    texts = _texts(pk for pk in wanted if pk is not None) | ({"draft": draft} if draft is not None else {})
    files = _files(_row_id(source["id"]) for source in sources if source["kind"] in FILE_KINDS)
    return {
        **{name: value for name, value in call.items() if name != "numbers"},
        "sources": [_source(source, texts, files) for source in sources],
        "messages": [_message(message, texts, _documents(call, message, files)) for message in call["messages"]],
    }


def _files(ids: Iterable[UUID | None]) -> dict[str, File]:
    rows = File.objects.filter(pk__in=[pk for pk in ids if pk is not None]).select_related("content")
    return {str(file.pk): file for file in rows}


def _documents(call: Mapping[str, Any], message: Mapping[str, Any], files: Mapping[str, File]) -> str | None:
    """The text of a message of files, made again from the files as they are stored; None for other messages."""
    if message["section"] not in FILES:
        return None
    ids = (message["source"] or "").split("+")
    if message["section"] == "project_files":
        ids = [each["id"] for each in call["sources"] if each["kind"] == "project_file" and each["state"] == "full"]
    found = [(files[pk], pk) for pk in ids if pk in files]
    if len(found) < len(ids):
        return GONE
    documents = [Document(pk, file.name, file.content.text if hasattr(file, "content") else "") for file, pk in found]
    return documents_text(documents, Numbers(call["numbers"]))


def _row_id(source: str | None) -> UUID | None:
    try:
        return UUID((source or "").partition("#")[0])
    except ValueError:
        return None


def _texts(ids: Iterable[UUID]) -> dict[str, str]:
    """The text of every engine's message of these rows, by its id."""
    rows = Message.objects.filter(pk__in=list(ids))
    texts: dict[str, str] = {}
    for row in rows:
        for message in expand(row):
            calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
            texts[message.id] = "\n".join([message.text or "", *calls]).strip()
    return texts


def _source(source: Mapping[str, Any], texts: Mapping[str, str], files: Mapping[str, File]) -> dict[str, Any]:
    title = source.get("title", "")
    if source["kind"] == "message":
        title = _shortened(texts.get(source["id"], ""))
    elif source["kind"] in FILE_KINDS:
        title = files[source["id"]].name if source["id"] in files else source["id"]
    return {"id": None, "reason": None, **source, "title": title}


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


def _message(message: Mapping[str, Any], texts: Mapping[str, str], documents: str | None) -> dict[str, Any]:
    if documents is not None:
        return {**message, "text": documents}
    return {**message, "text": message["text"] if "text" in message else texts.get(message["source"], GONE)}


def compare(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What changed between the sources of two calls: each source that is new, gone, or in another state."""
    old = {(source["kind"], source["id"]): source for source in before}
    new = {(source["kind"], source["id"]): source for source in after}
    changes: list[dict[str, Any]] = []
    for key, source in new.items():
        was = old.get(key)
        if was is None:
            changes.append({**source, "change": "added", "was": None})
        elif any(was.get(name) != source.get(name) for name in ("state", "tokens")):
            before_it = {"state": was["state"], "tokens": was.get("tokens")}
            changes.append({**source, "change": "changed", "was": before_it})
    changes += [{**source, "change": "gone", "was": None} for key, source in old.items() if key not in new]
    return changes
