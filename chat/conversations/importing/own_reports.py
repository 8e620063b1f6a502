"""Read the context reports of an own export: what a model saw, what was left out, and why.

Everything in the file may be wrong, since anybody can write such a file. So each member is checked. Each id is
replaced by the id of a row that was imported with the same conversation, or dropped, since pages read titles and texts
by these ids.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from chat.context.build import SourceEntry
from chat.context.rendering import LAYOUTS
from chat.conversations.importing.own_rows import ExportedRow
from chat.conversations.importing.reading import MAX_TEXT
from chat.models import Message, Summary
from chat.prompts import wording
from chat.prompts.report import FILE_KINDS, FILE_SECTIONS, CallReport, CoveredEntry, MessageEntry, ToolsOnDemandEntry
from core.sentences import Sentence
from files.models import File
from llm.models import Effort, Model
from personas.models import BudgetProfile

MAX_CALLS = 200  # of one turn
MAX_SOURCES = 20_000  # of one call
MAX_NOTES = 50  # of one call
MAX_TOOLS = 10_000  # of one call
LOST_FILE = "lost"  # in place of the id of a file that was not imported
_KINDS = (*wording.KINDS, *wording.SECTIONS)


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """The stored rows by their ids in the export. `numbers`: the citation numbers of documents, by their stored ids.

    `file` returns None for a file that was not imported.
    """

    messages: Mapping[str, Message]
    summaries: Mapping[str, Summary]
    file: Callable[[str], File | None]
    numbers: Mapping[str, int]


def read_calls(turn: ExportedRow, rows: RestoredRows, model: Model | None) -> list[CallReport]:
    """Return the reports of a turn's model calls, as `Turn.report` stores them.

    Returns an empty list if a call has no list of sources, since exports leave out the lists of older turns.
    """
    calls = list(turn.rows("report", MAX_CALLS))
    if any("sources" not in call.values for call in calls):
        return []
    return [_read_call(call, rows, model) for call in calls]


def _read_call(call: ExportedRow, rows: RestoredRows, model: Model | None) -> CallReport:
    sources = list(_read_sources(call, rows))
    ids = {source.get("id") for source in sources}
    left_out = [source for source in sources if source["state"] == "left_out" and source.get("id")]
    entry: CallReport = {
        "cycle": max(call.number("cycle"), 1),
        "model": call.text("model", 200),
        "model_id": str(model.pk) if model is not None else "",
        "window": call.number("window"),
        "reserved_output": call.number("reserved_output"),
        "reserved_reasoning": call.number("reserved_reasoning"),
        "effort": call.choice("effort", Effort.values),
        "buffer": call.number("buffer"),
        "margin": call.share("margin"),
        "tools_tokens": call.number("tools_tokens"),
        "tools": call.texts("tools", 500, 200),
        "policy": call.choice("policy", BudgetProfile.Policy.values, BudgetProfile.Policy.RECENT),
        "layout": call.choice("layout", list(LAYOUTS), BudgetProfile.Layout.NEAR_END),
        "profile": call.text("profile", 100),
        "limit": call.number("limit"),
        "used": call.number("used"),
        "left": call.number("left"),
        "exact": call.flag("exact"),
        "sections": {name: count for name, count in call.counts("sections").items() if name in wording.SECTIONS},
        "dropped": [str(source["id"]) for source in left_out if source["kind"] in ("message", "file")],
        "unloaded": call.number("unloaded"),
        "without_room": call.number("without_room"),
        "sources": sources,
        "versions": {},  # the same numbers belong to other texts in this workspace
        "summary": _read_summary(call, rows),
        "messages": list(_read_messages(call, rows)),
        "numbers": {pk: number for pk, number in rows.numbers.items() if pk in ids},
        "refused": _dump_sentence(call.text("refused", 1_000)),
        "notes": [_dump_sentence(text) for text in call.texts("notes", MAX_NOTES, 1_000)],
        "unread": call.number("unread"),
        "notice": _dump_sentence(call.text("notice", 1_000)),
        "usage": call.counts("usage"),
        "provider_count": call.number("provider_count") or None,
    }
    if "tools_on_demand" in call.values:
        entry["tools_on_demand"] = _read_tools_on_demand(call)
    if "tools_asking" in call.values:
        entry["tools_asking"] = call.texts("tools_asking", 500, 200)
    if "sign_ins" in call.values:
        entry["sign_ins"] = call.texts("sign_ins", 500, 200)
    return entry


def _read_sources(call: ExportedRow, rows: RestoredRows) -> Iterator[SourceEntry]:
    for each in call.rows("sources", MAX_SOURCES):
        kind = each.choice("kind", _KINDS)
        state = each.choice("state", list(wording.STATES))
        if not kind or not state:
            continue
        source: SourceEntry = {
            "kind": kind,
            "state": state,
            "id": _source_id(kind, each.text("id", 100), rows),
            "tokens": each.number("tokens") if each.values.get("tokens") is not None else None,
            "reason": each.choice("reason", list(wording.REASONS)) or None,
            "exact": each.flag("exact"),
        }
        if title := each.text("title", 500):
            source["title"] = title
        if cut_from := each.number("cut_from"):
            source["cut_from"] = cut_from
        yield source


def _source_id(kind: str, key: str, rows: RestoredRows) -> str | None:
    if kind == "message":
        return _message_id(key, rows)
    if kind in FILE_KINDS:
        file = rows.file(key)
        return str(file.pk) if file is not None else None
    if kind == "summary":
        return str(rows.summaries[key].pk) if key in rows.summaries else None
    return key if kind == "task" else None


def _message_id(key: str, rows: RestoredRows) -> str | None:
    """Return the id of a message, or of a step of an answer: `ID#2`."""
    row, mark, step = key.partition("#")
    if row not in rows.messages:
        return None
    return f"{rows.messages[row].pk}{mark}{step[:20]}"


def _read_messages(call: ExportedRow, rows: RestoredRows) -> Iterator[MessageEntry]:
    for each in call.rows("messages", MAX_SOURCES):
        section = each.choice("section", list(wording.SECTIONS))
        role = each.choice("role", ("system", "user", "assistant", "tool"))
        if not section or not role:
            continue
        key = each.text("source", 50_000)
        if section in FILE_SECTIONS:
            files = [rows.file(each_key) for each_key in key.split("+")] if key else []
            source = "+".join(str(file.pk) if file is not None else LOST_FILE for file in files) or None
        else:
            source = _message_id(key, rows)
        entry: MessageEntry = {
            "section": section,
            "source": source,
            "role": role,
            "tokens": each.number("tokens"),
            "state": each.choice("state", list(wording.STATES), "full"),
        }
        if "text" in each.values:
            entry["text"] = each.text("text", MAX_TEXT)
        yield entry


def _read_tools_on_demand(call: ExportedRow) -> ToolsOnDemandEntry | None:
    tools = call.one("tools_on_demand")
    if tools is None:
        return None
    listed = tools.texts("listed", MAX_TOOLS, 200)
    return {
        "listed": listed,
        "loaded": tools.texts("loaded", MAX_TOOLS, 200),
        "unnamed": min(tools.number("unnamed"), len(listed)),
        "saved": tools.number("saved"),
    }


def _read_summary(call: ExportedRow, rows: RestoredRows) -> CoveredEntry | None:
    """Return the summary of the prompt; None if it was not imported."""
    covered = call.one("summary")
    summary = rows.summaries.get(covered.text("id", 40)) if covered is not None else None
    if covered is None or summary is None:
        return None
    return {
        "id": str(summary.pk),
        "messages": covered.number("messages"),
        "first": str(summary.first_id),
        "last": str(summary.last_id),
        "span_start": summary.span_start.isoformat(),
        "span_end": summary.span_end.isoformat(),
        "tokens_before": covered.number("tokens_before"),
    }


def _dump_sentence(text: str) -> str:
    return Sentence.verbatim(text).dump() if text else ""
