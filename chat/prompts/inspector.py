"""The context panel: one component for what a model will see and what it saw, in words and shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from chat.context.build import SourceEntry
from chat.models import Turn
from chat.models.summary import NO_MARKS, Marks, marks_on
from chat.prompts import report as reports
from chat.prompts.report import Change, ResolvedReport
from core.i18n import dollars, grouped
from llm.models import Effort
from personas.texts import TEXTS

SECTIONS = {
    "system": gettext_lazy("System prompt"),
    "tasks": gettext_lazy("Tasks"),
    "summary": gettext_lazy("Summary"),
    "omitted": gettext_lazy("Note about left-out messages"),
    "history": gettext_lazy("Conversation"),
    "persona": gettext_lazy("Persona and project"),
    "project_files": gettext_lazy("Project files"),
    "file_listing": gettext_lazy("List of files by search"),
    "file": gettext_lazy("Attached files"),
    "current": gettext_lazy("This turn"),
    "reminder": gettext_lazy("Reminder"),
}
KINDS = {
    "message": gettext_lazy("Message"),
    "file": gettext_lazy("File"),
    "project_file": gettext_lazy("Project file"),
    "image": gettext_lazy("Image"),
    "task": gettext_lazy("Task"),
}
STATES = {
    "full": gettext_lazy("in full"),
    "shortened": gettext_lazy("shortened"),
    "stubbed": gettext_lazy("its result is not repeated"),
    "by_search": gettext_lazy("by search"),
    "left_out": gettext_lazy("left out"),
}
REASONS = {
    "no_room": gettext_lazy("there was no room"),
    "behind_gap": gettext_lazy("older than the first message that did not fit"),
    "by_user": gettext_lazy("you have left it out"),
    "summarised": gettext_lazy("it is in the summary"),
    "failed_file": gettext_lazy("the file could not be read"),
    "unread_file": gettext_lazy("the file is still being read"),
    "deleted_file": gettext_lazy("the file was deleted"),
    "project_image": gettext_lazy("a picture of a project: attach it to a message to show it to the model"),
    "over_share": gettext_lazy("the project's files are larger than their share of the window"),
    "attached": gettext_lazy("once, with the message that it is attached to"),
    "in_project": gettext_lazy("once, with the project's files"),
    "result_without_call": gettext_lazy("a result without its call"),
    "no_vision": gettext_lazy("the model does not see images"),
    "call_without_result": gettext_lazy("a call without its result"),
}
CHANGES = {
    "added": gettext_lazy("new"),
    "changed": gettext_lazy("changed"),
    "gone": gettext_lazy("no longer sent"),
}
# Why a prompt was read again although it had been sent before; the codes are those of `chat.context.cache`.
CACHE_REASONS = {
    "model_changed": gettext_lazy("this model was not asked before, another was"),
    "expired": gettext_lazy("the last call is longer ago than the provider keeps prompts (Anthropic: 5 minutes)"),
    "settings_changed": gettext_lazy("a tool is demanded or forbidden, or the effort is another"),
    "tools_changed": gettext_lazy("the tools changed"),
    "date_changed": gettext_lazy("the date line changed"),
    "system_changed": gettext_lazy("the system prompt changed"),
    "guidance_changed": gettext_lazy("the guidance for tools or citations changed"),
    "persona_changed": gettext_lazy("the persona changed"),
    "project_changed": gettext_lazy("the instructions of the project changed"),
    "persona_moved": gettext_lazy("the persona moved: it stands below the conversation, which has grown"),
    "files_changed": gettext_lazy("the files of the project changed"),
    "files_moved": gettext_lazy("the files moved: they stand below the conversation, which has grown"),
    "tasks_changed": gettext_lazy("the tasks changed"),
    "summary_changed": gettext_lazy("the summary changed"),
    "reminder_moved": gettext_lazy("the reminder moved to the end"),
    "reminder_changed": gettext_lazy("the reminder changed"),
    "history_trimmed": gettext_lazy("older messages were left out"),
    "branch_changed": gettext_lazy("the conversation goes on from another message"),
    "message_changed": gettext_lazy("a message changed"),
    "result_stubbed": gettext_lazy("an old tool result is not repeated"),
    "result_shortened": gettext_lazy("a tool result was shortened"),
    "reasoning_dropped": gettext_lazy("reasoning of an earlier step is not sent any more"),
    "too_short": gettext_lazy("what is the same is shorter than what the provider keeps"),
    "not_kept": gettext_lazy("the prompt began the same, but the provider did not have it any more"),
}
VERSIONS = {
    "system_prompt": gettext_lazy("System prompt"),
    "persona": gettext_lazy("Persona"),
    "project": gettext_lazy("Project"),
    "summary_prompt": gettext_lazy("Summary prompt"),
}


def _text_named(name: str) -> str:
    return _("Text “%(title)s”") % {"title": TEXTS[name].title if name in TEXTS else name}


class Bar(NamedTuple):
    """A section's part of what is sent; `start` and `width` are in thousandths of all of it."""

    section: str
    label: str
    tokens: int
    start: int
    width: int


class Target(NamedTuple):
    """What a row can have marked: the turn of `message`, or one `file` of it; `mark` as it is now."""

    message: str
    file: str
    mark: str | None


class Row(NamedTuple):
    label: str
    title: str
    tokens: int | None
    words: str
    target: Target | None = None


@dataclass(frozen=True)
class Panel:
    """A report in words and shares.

    `number`: of its call, from 1. `cached_percent`: how much of the turn's prompts the provider had in its cache, for
    reports that do not say it of each call. `changes` are those since the call before, of a turn's first call since the
    turn before: `since` says which. `marks` are those of the branch on show, now. `outgoing`:
    what tools of the turn sent out of the workspace.
    """

    report: ResolvedReport
    number: int = 1
    cached_percent: int | None = None
    changes: Sequence[Row] = ()
    since: str = ""
    marks: Marks = NO_MARKS
    outgoing: Sequence[reports.Outgoing] = ()

    @property
    def percent(self) -> int:
        return min(100, -(-100 * self.report["used"] // max(1, self.report["limit"])))

    @property
    def room(self) -> int:
        """All the room on the scale of `bars`, where what is used is 1,000; at least 2 % of a meter are to be seen."""
        limit = max(1, self.report["limit"])
        return min(50_000, max(1_000, round(1_000 * limit / max(1, self.report["used"]))))

    @cached_property
    def bars(self) -> list[Bar]:
        bars: list[Bar] = []
        sections = self.report["sections"]
        total, sum_ = max(1, sum(sections.values())), 0
        for section, tokens in sections.items():
            start, sum_ = round(1000 * sum_ / total), sum_ + tokens
            width = max(1, round(1000 * sum_ / total) - start)
            bars.append(Bar(section, str(SECTIONS[section]), tokens, start, width))
        return bars

    @cached_property
    def sent(self) -> list[Row]:
        return [row for source, row in self._rows if source["state"] != "left_out"]

    @cached_property
    def left_out(self) -> list[Row]:
        return [row for source, row in self._rows if source["state"] == "left_out"]

    @cached_property
    def _rows(self) -> list[tuple[SourceEntry, Row]]:
        """With what can be marked; a message's files stand before it."""
        rows: list[tuple[SourceEntry, Row]] = []
        question: UUID | None = None
        for source in reversed(self.report["sources"]):
            row, pk = _row(source), _row_id(source)
            if source["kind"] == "message":
                question = pk
                if pk is not None:
                    row = row._replace(target=Target(str(pk), "", self.marks.by_message.get(pk)))
            elif source["kind"] in ("file", "image") and question is not None and pk is not None:
                row = row._replace(target=Target(str(question), str(pk), self.marks.of_file(question, pk)))
            rows.insert(0, (source, row))
        return rows

    @property
    def served(self) -> str:
        """How much of the prompt the provider's cache served, or is expected to; empty where that is not known."""
        cache = self.report.get("cache")
        if cache is None:
            return f"{self.cached_percent} %" if self.cached_percent is not None else ""
        if cache["read"] is None:
            whole = self.report["used"] + self.report["tools_tokens"]
            about = {"tokens": grouped(cache["expected"]), "percent": _percent(cache["expected"], whole)}
            return _("about %(tokens)s tokens (%(percent)s %%)") % about if cache["expected"] else ""
        total = cache["read"] + (cache["written"] or 0) + (cache["uncached"] or 0)
        numbers = {"read": grouped(cache["read"]), "total": grouped(total), "percent": _percent(cache["read"], total)}
        read = _("%(read)s of %(total)s tokens (%(percent)s %%)") % numbers
        written = _("%(tokens)s newly kept") % {"tokens": grouped(cache["written"])} if cache["written"] else ""
        return " · ".join(part for part in (read, written) if part)

    @property
    def missed(self) -> str:
        """From which section on the prompt is read again although it was sent before, and why; empty if it is not."""
        cache = self.report.get("cache")
        if cache is None or cache["missed_section"] is None or cache["reason"] is None:
            return ""
        return _("from “%(section)s” on: %(reason)s") % {
            "section": SECTIONS.get(cache["missed_section"], _("Definitions of tools")),
            "reason": CACHE_REASONS[cache["reason"]],
        }

    @property
    def versions(self) -> list[tuple[str, str]]:
        """Of a text with its name in the admin."""
        return [
            (str(VERSIONS[name]) if name in VERSIONS else _text_named(name), version)
            for name, version in self.report["versions"].items()
        ]

    @property
    def effort(self) -> str:
        """In words; empty where none was sent."""
        sent = self.report.get("effort", "")
        return str(Effort(sent).label) if sent else ""

    @property
    def notices(self) -> list[str]:
        """Whole sentences."""
        return [*filter(None, [self.report["refused"]]), *self.report.get("notes", ())]

    @property
    def ahead(self) -> str:
        """What a plan will cost, in whole sentences; empty without a price."""
        plan: Mapping[str, Any] = self.report
        cost = plan.get("cost")
        if cost is None:
            return ""
        if not Decimal(cost["at_most"]):
            return f"{cost_ahead(plan)}."
        most = {"most": dollars(Decimal(cost["at_most"]), up=True), "tokens": grouped(cost["longest_answer"])}
        at_most = _("At most %(most)s, with %(tokens)s tokens of answer, the most there can be.") % most
        return f"{cost_ahead(plan)}. {at_most}"

    @property
    def covered(self) -> str:
        """How many messages the summary stands for; empty without one."""
        summary = self.report.get("summary")
        if not summary:
            return ""
        return ngettext(
            "%(count)d older message is in the summary, and is not sent word for word",
            "%(count)d older messages are in the summary, and are not sent word for word",
            summary["messages"],
        ) % {"count": summary["messages"]}

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [{**message, "label": str(SECTIONS[message["section"]])} for message in self.report["messages"]]

    @property
    def window(self) -> list[tuple[str, int]]:
        """What is not room for messages, then the room; together the window (docs/context.md, “The room”)."""
        report = self.report
        answer, tools, room = report["reserved_output"], report["tools_tokens"], report["limit"]
        reasoning = report.get("reserved_reasoning", 0)
        return [
            (_("Kept free for the answer"), answer - reasoning),
            *([(_("Kept free for reasoning"), reasoning)] if reasoning else []),
            (_("Definitions of tools"), tools),
            (_("Kept free against counting errors"), report["window"] - answer - tools - room),
            (_("Room for messages"), room),
        ]


def of_turn(turn: Turn, number: int | None = None) -> Panel | None:
    """What the last model call of a turn saw, or its `number`th from 1, with what changed since the call before it;
    None where there is no such call (yet)."""
    report = reports.of_turn(turn, number)
    if report is None:
        return None
    chosen = number or len(report.get("calls", ()))
    usage = turn.usage or {}
    cached = usage.get("cached_input") or 0
    before = reports.of_turn(turn, chosen - 1) if chosen > 1 else _turn_before(turn)
    return Panel(
        report,
        number=chosen,
        cached_percent=round(100 * cached / usage["input"]) if cached and usage.get("input") else None,
        changes=_changes(before, report) if before else (),
        since=_("Changed since the call before") if chosen > 1 else _("Changed since the turn before"),
        marks=marks_on(turn.conversation_id, turn.conversation.leaf_id),
        outgoing=reports.outgoing(turn),
    )


def of_plan(plan: Mapping[str, Any], marks: Marks = NO_MARKS) -> Panel | None:
    """What would be sent; None when it does not fit."""
    return Panel(cast("ResolvedReport", plan), marks=marks) if plan["fits"] else None


def _row_id(source: SourceEntry) -> UUID | None:
    """Of the row that a source is; None for a draft, and for a step of an answer, which is marked with all of it."""
    try:
        return UUID(source.get("id") or "")
    except ValueError:
        return None


def _percent(part: int, whole: int) -> int:
    return min(100, round(100 * part / max(1, whole)))


def _row(source: SourceEntry) -> Row:
    label = str(KINDS.get(source["kind"]) or SECTIONS[source["kind"]])
    words = str(STATES[source["state"]])
    if source["state"] == "shortened" and source.get("cut_from"):
        words = _("shortened from %(before)s tokens") % {"before": grouped(source["cut_from"])}
    if source["state"] == "stubbed" and source["kind"] == "file":
        words = _("only named")
    if reason := source.get("reason"):
        words = f"{words}: {REASONS[reason]}"
    return Row(label, source.get("title", ""), source.get("tokens"), words)


def _turn_before(turn: Turn) -> ResolvedReport | None:
    """The report of the turn whose answer this turn's question stands below."""
    before = Turn.objects.filter(answer=turn.user_message.parent_id).first() if turn.user_message.parent_id else None
    return reports.of_turn(before) if before is not None else None


def _changes(before: ResolvedReport, report: ResolvedReport) -> list[Row]:
    return [
        _row(change)._replace(words=_change(change)) for change in reports.compare(before["sources"], report["sources"])
    ]


def _change(change: Change) -> str:
    """In words, with both sides of what is in another state or has another size."""
    was = change["was"]
    if was is None:
        return str(CHANGES[change["change"]])
    if was["state"] != change["state"]:
        return f"{STATES[was['state']]} → {_row(change).words}"
    return _("%(before)s → %(after)s tokens") % {
        "before": grouped(was.get("tokens") or 0),
        "after": grouped(change.get("tokens") or 0),
    }


def plan_line(plan: Mapping[str, Any]) -> str:
    """The one sentence under the composer: the room used, and what would not be sent as it is."""
    if not plan["fits"]:
        return str(plan["error"]["detail"])
    about, how, count, limit = "", _("exact"), plan["used"], plan["limit"]
    if plan["provider_count"]:
        how, count, limit = _("exact, with tools"), plan["provider_count"], plan["provider_limit"]
    elif not plan["exact"]:
        about, how = "≈ ", _("estimated")
    used = _("%(used)s of %(limit)s tokens") % {"used": grouped(count), "limit": grouped(limit)}
    summary = plan.get("summary")
    old = ngettext("%(count)d old message summarised", "%(count)d old messages summarised", summary["messages"]) % {
        "count": summary["messages"]
    } if summary else ""  # fmt: skip
    fate = _fate(plan["sources"], plan["unloaded"])
    return " · ".join(part for part in (f"{about}{used}", how, cost_ahead(plan), fate, old) if part)


def cost_ahead(plan: Mapping[str, Any]) -> str:
    """What sending costs; empty without a price."""
    cost = plan.get("cost")
    if cost is None:
        return ""
    if not Decimal(cost["at_most"]):
        return dollars(Decimal(0))
    amounts = {name: dollars(Decimal(cost[name])) for name in ("prompt", "answer_per_1000")}
    return _("%(prompt)s + %(answer_per_1000)s per 1,000 tokens of answer") % amounts


def _fate(sources: Sequence[SourceEntry], unloaded: int) -> str:
    sources = [source for source in sources if source.get("reason") != "by_user"]  # which is no news to its person
    if pinned := next((source for source in sources if source.get("mark")), None):
        return _("“%(title)s” is always to be sent, but there is no room") % {"title": pinned.get("title", "")}
    lost = [source for source in sources if source["state"] == "left_out" and source["kind"] != "message"]
    if lost:
        reason = REASONS[lost[0].get("reason") or "no_room"]
        return _("“%(title)s” will not be sent: %(reason)s") % {"title": lost[0].get("title", ""), "reason": reason}
    left_out = unloaded + sum(1 for source in sources if source["state"] == "left_out")
    shortened = sum(1 for source in sources if source["state"] == "shortened")
    searched = sum(1 for source in sources if source["state"] == "by_search")
    if left_out:
        return ngettext(
            "%(count)d older message will be left out: there is no room",
            "%(count)d older messages will be left out: there is no room",
            left_out,
        ) % {"count": left_out}
    if shortened:
        return ngettext(
            "%(count)d text will be shortened", "%(count)d texts will be shortened", shortened
        ) % {"count": shortened}  # fmt: skip
    if searched:
        return ngettext(
            "%(count)d file is reached by search", "%(count)d files are reached by search", searched
        ) % {"count": searched}  # fmt: skip
    return _("everything fits")
