"""The context panel: one component for what a model will see and what it saw, in words and shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.context.build import SourceEntry
from chat.models import Turn
from chat.models.summary import NO_MARKS, Marks, marks_on
from chat.prompts import cards, wording
from chat.prompts import report as reports
from chat.prompts.report import Change, ResolvedReport
from core.i18n import dollars, grouped, percent
from core.sentences import Sentence
from llm.learning import Evidence, source_words
from llm.models import Effort

LEAST = 10  # thousandths of the bar that what is there takes at least, so that it is seen


class Segment(NamedTuple):
    """A group's piece of the bar; `start` and `width` are in thousandths of the window."""

    group: str
    label: str
    tokens: int
    start: int
    width: int


class Sight(NamedTuple):
    """Where on the branch the model begins to see: `first` is the message (empty where it sees none of those above the
    question), `words` say what became of those above it. `unseen`: ids of those that are left out below it."""

    first: str
    words: str
    unseen: Sequence[str]


class Fact(NamedTuple):
    """Something for the curious: what it is, its value, and what that means."""

    name: str
    value: str
    help: str


@dataclass(frozen=True)
class Panel:
    """A report in words and shares.

    `seen`: whether it was sent, or will be. `number`: of its call, from 1. `usage`: what all calls of the turn took, by
    the provider's count, the fields of `llm.types.model_call.Usage`; empty where it is not known. `changes`: what is
    otherwise than in the call before, of a turn's first call than in the turn before: `since` says which. `marks` are
    those of the branch on show, now. `outgoing`: what tools of the turn sent out of the workspace.
    """

    report: ResolvedReport
    seen: bool = False
    number: int = 1
    usage: Mapping[str, int | None] = field(default_factory=dict)
    changes: Sequence[tuple[str, str]] = ()
    since: str = ""
    marks: Marks = NO_MARKS
    outgoing: Sequence[reports.Outgoing] = ()

    @property
    def percent(self) -> str:
        """Of the room that is used."""
        return percent(self.report["used"], self.report["limit"])

    @property
    def fate(self) -> wording.Fate:
        whole = _("Everything you gave was sent") if self.seen else _("Everything you gave fits")
        return wording.fate_of(self.report, whole)

    @cached_property
    def cards(self) -> list[cards.Card]:
        return cards.cards_of(self.report, self.marks)

    @cached_property
    def segments(self) -> list[Segment]:
        """The groups that are there, one behind the other; together they end where the room does, at most."""
        window, totals = max(1, self.report["window"]), cards.totals(self.report)
        widths = {group: max(LEAST, round(1000 * tokens / window)) for group, tokens in totals.items()}
        if widths and (over := sum(widths.values()) - max(self.room, LEAST * len(widths))) > 0:
            widths[max(widths, key=lambda group: widths[group])] -= over
        starts = accumulate(widths.values(), initial=0)
        return [
            Segment(group, str(wording.GROUPS[group]), totals[group], start, width)
            for (group, width), start in zip(widths.items(), starts, strict=False)
        ]

    @property
    def room(self) -> int:
        """Where on the bar the room ends, in thousandths; behind that is what is kept for the answer."""
        return round(1000 * max(0, self.report["limit"]) / max(1, self.report["window"]))

    @property
    def kept(self) -> int:
        """Tokens of the window that are no room for what is sent."""
        return self.report["window"] - self.report["limit"]

    @property
    def sight(self) -> Sight | None:
        """None where the model sees everything."""
        messages = [each for each in self.report["sources"] if each["kind"] == "message"]
        out = [each for each in messages if each["state"] == "left_out" and each.get("reason") in wording.NO_ROOM]
        summary = self.report.get("summary")
        left_out = len(out) + self.report["unloaded"]
        if not left_out and not summary:
            return None
        there = [_row_id(each) for each in messages if each["state"] != "left_out"]
        first = next((pk for pk in there if pk is not None and self.marks.by_message.get(pk) is None), None)
        shown = [str(pk) for each in out if (pk := _row_id(each)) is not None]
        return Sight(str(first or ""), self._border(summary["messages"] if summary else 0, left_out), shown)

    def _border(self, summarised: int, left_out: int) -> str:
        begins = _("The model saw from here on") if self.seen else _("The model sees from here on")
        above = ngettext(
            "%(count)s message above as a summary", "%(count)s messages above as a summary", summarised
        ) % {"count": grouped(summarised)}  # fmt: skip
        missing = ngettext(
            "%(count)s older message left out", "%(count)s older messages left out", left_out
        ) % {"count": grouped(left_out)}  # fmt: skip
        return " · ".join([begins, *([above] if summarised else []), *([missing] if left_out else [])])

    @property
    def served(self) -> str:
        """How much of the prompt the provider's cache served, or is expected to; empty where that is not known."""
        cache = self.report.get("cache")
        if cache is None:
            cached, whole = self.usage.get("cached_input") or 0, self.usage.get("input") or 0
            return percent(cached, whole) if cached and whole else ""
        if cache["read"] is None:
            whole = self.report["used"] + self.report["tools_tokens"]
            about = {"tokens": grouped(cache["expected"]), "percent": percent(cache["expected"], whole)}
            return _("about %(tokens)s tokens (%(percent)s)") % about if cache["expected"] else ""
        total = cache["read"] + (cache["written"] or 0) + (cache["uncached"] or 0)
        numbers = {"read": grouped(cache["read"]), "total": grouped(total), "percent": percent(cache["read"], total)}
        read = _("%(read)s of %(total)s tokens (%(percent)s)") % numbers
        written = _("%(tokens)s newly kept") % {"tokens": grouped(cache["written"])} if cache["written"] else ""
        return " · ".join(part for part in (read, written) if part)

    @property
    def missed(self) -> str:
        """From which section on the prompt is read again although it was sent before, and why; empty if it is not."""
        cache = self.report.get("cache")
        if cache is None or cache["missed_section"] is None or cache["reason"] is None:
            return ""
        return _("from “%(section)s” on: %(reason)s") % {
            "section": wording.SECTIONS.get(cache["missed_section"], _("Definitions of tools")),
            "reason": wording.CACHE_REASONS[cache["reason"]],
        }

    @property
    def notices(self) -> list[Sentence]:
        stored = (self.report["refused"], *self.report.get("notes", ()))
        return [Sentence.load(sentence) for sentence in stored if sentence]

    @property
    def price(self) -> str:
        """Of a plan, in short; empty without one."""
        return wording.cost_ahead(cast("Mapping[str, Any]", self.report))

    @property
    def ahead(self) -> str:
        """What a plan will cost, in whole sentences; empty without a price."""
        plan: Mapping[str, Any] = self.report
        cost = plan.get("cost")
        if cost is None:
            return ""
        if not Decimal(cost["at_most"]):
            return f"{wording.cost_ahead(plan)}."
        most = {"most": dollars(Decimal(cost["at_most"]), up=True), "tokens": grouped(cost["longest_answer"])}
        at_most = _("At most %(most)s, with %(tokens)s tokens of answer, the most there can be.") % most
        return f"{wording.cost_ahead(plan)}. {at_most}"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [
            {
                **message,
                "label": str(wording.SECTIONS[message["section"]]),
                "group": wording.GROUP_OF[message["section"]],
            }
            for message in self.report["messages"]
        ]

    @property
    def facts(self) -> list[Fact]:
        """Under what the prompt was made."""
        report, counted = self.report, self.report.get("provider_count")
        effort = report.get("effort", "")
        exact = _("exact") if report["exact"] else _("estimated")
        facts = [
            Fact(_("Model"), report["model"], _("Who answers.")),
            Fact(_("Tokens"), exact, _("Pieces of words, in which models read: about four letters of English each.")),
        ]
        if counted:
            help_ = _("What the provider counted itself, with the definitions of the tools.")
            facts.append(Fact(_("The provider's count"), grouped(counted), help_))
        if effort:
            facts.append(Fact(_("Effort of reasoning"), str(Effort(effort).label), _("How long it may think first.")))
        profile = _("Which share of the window each part may take; an admin sets it.")
        facts.append(Fact(_("Budget profile"), report["profile"], profile))
        if tools := report.get("tools"):
            facts.append(Fact(_("Tools"), ", ".join(tools), _("What the model may call before it answers.")))
        if asking := report.get("tools_asking"):
            facts.append(Fact(_("Asks first"), ", ".join(asking), _("Calls of these may wait until you allow them.")))
        help_ = _("Which of its versions was in force.")
        versions = ((wording.version_named(name), number) for name, number in report["versions"].items())
        return [*facts, *(Fact(name, _("version %(version)s") % {"version": each}, help_) for name, each in versions)]

    @property
    def window(self) -> list[Fact]:
        """What is not room for messages, then the room; together the window (docs/develop/context.md, “The room”)."""
        report = self.report
        answer, tools, room = report["reserved_output"], report["tools_tokens"], report["limit"]
        reasoning = report.get("reserved_reasoning", 0)
        margin = report["window"] - answer - tools - room
        source = source_words(report.get("window_source", ""), Evidence.from_json(report.get("window_evidence", {})))
        rows = [
            (_("Window in force"), report["window"], source),
            (
                _("Kept free for the answer"),
                answer - reasoning,
                _("What is read and what is written share one window."),
            ),
            *(
                [(_("Kept free for reasoning"), reasoning, _("What it may think before it writes."))]
                if reasoning
                else []
            ),
            (_("Definitions of tools"), tools, _("Sent along, so that the model knows what it may call.")),
            (_("Kept free against counting errors"), margin, _("Models count a little differently than we do.")),
            (_("Room for messages"), room, _("What is left for everything above: the whole of the percentage.")),
        ]
        return [Fact(name, grouped(tokens), help_) for name, tokens, help_ in rows]


def of_turn(turn: Turn, number: int | None = None) -> Panel | None:
    """What the last model call of a turn saw, or its `number`th from 1, with what changed since the call before it;
    None where there is no such call (yet)."""
    report = reports.of_turn(turn, number)
    if report is None:
        return None
    chosen = number or len(report.get("calls", ()))
    before = reports.of_turn(turn, chosen - 1) if chosen > 1 else _turn_before(turn)
    return Panel(
        report,
        seen=True,
        number=chosen,
        usage=turn.usage or {},
        changes=_changes(before, report) if before else (),
        since=_("Changed since the call before") if chosen > 1 else _("Changed since the turn before"),
        marks=marks_on(turn.conversation_id, turn.conversation.leaf_id),
        outgoing=reports.outgoing(turn),
    )


def of_plan(plan: Mapping[str, Any], marks: Marks = NO_MARKS) -> Panel | None:
    """What would be sent; None when it does not fit."""
    return Panel(cast("ResolvedReport", plan), marks=marks) if plan["fits"] else None


def _row_id(source: SourceEntry) -> UUID | None:
    """Of the row that a message is, or a step of which it is; None for a draft."""
    try:
        return UUID((source.get("id") or "").partition("#")[0])
    except ValueError:
        return None


def _turn_before(turn: Turn) -> ResolvedReport | None:
    """The report of the turn whose answer this turn's question stands below."""
    before = Turn.objects.filter(answer=turn.user_message.parent_id).first() if turn.user_message.parent_id else None
    return reports.of_turn(before) if before is not None else None


def _changes(before: ResolvedReport, report: ResolvedReport) -> list[tuple[str, str]]:
    """What, and how it changed."""
    return [
        (wording.name_of(change), _change(change)) for change in reports.compare(before["sources"], report["sources"])
    ]


def _change(change: Change) -> str:
    """In words, with both sides of what is in another state or has another size."""
    was = change["was"]
    if was is None:
        return str(wording.CHANGES[change["change"]])
    if was["state"] != change["state"]:
        return f"{wording.STATES[was['state']]} → {wording.state_of(change)}"
    return _("%(before)s → %(after)s tokens") % {
        "before": grouped(was.get("tokens") or 0),
        "after": grouped(change.get("tokens") or 0),
    }
