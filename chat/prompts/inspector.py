"""Describe a plan or a report for the context panel, in words and shares.

The same panel shows a plan before the call and a report after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.context.build import SourceEntry
from chat.memory.models import Fact
from chat.models import Turn
from chat.models.summary import NO_MARKS, Marks, marks_on
from chat.prompts import cards, wording
from chat.prompts import report as reports
from chat.prompts.preview import Plan, PlanCost
from chat.prompts.report import Change, MessageEntry, ResolvedReport
from core.i18n import dollars, grouped, percent
from core.sentences import Sentence
from llm.learning import Evidence, describe_source
from llm.models import Effort

NARROWEST = 10  # the least width of a segment in thousandths of the bar, so that it stays visible


class Segment(NamedTuple):
    """A group's segment of the bar. `start` and `width` are in thousandths of the window."""

    group: str
    label: str
    tokens: int
    start: int
    width: int


class Sight(NamedTuple):
    """The point on the branch from which the model sees the messages.

    `first`: the id of the first message that the model sees; empty if it sees none above the question. `words` explain
    what happened to the messages above. `unseen`: the ids of messages below that are left out.
    """

    first: str
    words: str
    unseen: Sequence[str]


class PromptDetail(NamedTuple):
    """A detail of the panel: its name, its value, and an explanation."""

    name: str
    value: str
    help: str


class PanelMessage(MessageEntry):
    """A message that was sent, with the names of its section (`label`) and its group."""

    label: str
    group: str


@dataclass(frozen=True)
class Panel:
    """A report in words and shares.

    `seen`: the prompt was sent; otherwise it is planned. `cost`: the cost of a plan. `number`: the number of the call,
    from 1. `usage`: the tokens of all calls of the turn by the provider's count, with the fields of
    `llm.types.model_call.Usage`; empty while unknown. `changes`: the differences from the previous call, or for a
    turn's first call from the previous turn; `since` names which. `marks`: the current marks of the displayed branch.
    `outgoing` lists the data that the turn's tools sent out of the workspace, `proposed` the facts that were proposed.
    """

    report: ResolvedReport
    seen: bool = False
    cost: PlanCost | None = None
    number: int = 1
    usage: Mapping[str, int | None] = field(default_factory=dict)
    changes: Sequence[tuple[str, str]] = ()
    since: str = ""
    marks: Marks = NO_MARKS
    outgoing: Sequence[reports.Outgoing] = ()
    proposed: Sequence[Fact] = ()

    @property
    def percent(self) -> str:
        """Return the used part of the room, in percent."""
        return percent(self.report["used"], self.report["limit"])

    @property
    def status(self) -> wording.StatusLine:
        """Return the line that sums up the report."""
        whole = _("Everything you gave was sent") if self.seen else _("Everything you gave fits")
        return wording.status_line(self.report, whole)

    @cached_property
    def cards(self) -> list[cards.Card]:
        return cards.cards_of(self.report, self.marks)

    @cached_property
    def segments(self) -> list[Segment]:
        """Return the segments of the groups that are sent, one after the other. They end at the end of the room."""
        window = max(1, self.report["window"])
        totals = cards.totals(self.report)
        widths = {group: max(NARROWEST, round(1000 * tokens / window)) for group, tokens in totals.items()}
        if widths and (excess := sum(widths.values()) - max(self.room, NARROWEST * len(widths))) > 0:
            widths[max(widths, key=lambda group: widths[group])] -= excess
        starts = accumulate(widths.values(), initial=0)
        return [
            Segment(group, str(wording.GROUPS[group]), totals[group], start, width)
            for (group, width), start in zip(widths.items(), starts, strict=False)
        ]

    @property
    def room(self) -> int:
        """Return the end of the room on the bar, in thousandths. The rest is reserved for the answer."""
        return round(1000 * max(0, self.report["limit"]) / max(1, self.report["window"]))

    @property
    def set_aside(self) -> int:
        """Return the tokens of the window that neither messages nor the answer may take: for tools, and as a margin."""
        return max(0, self.report["window"] - self.report["limit"] - self.report["reserved_output"])

    @property
    def sight(self) -> Sight | None:
        """Return the point from which the model sees the messages. None if it sees all."""
        messages = [each for each in self.report["sources"] if each["kind"] == "message"]
        dropped = [each for each in messages if each["state"] == "left_out" and each.get("reason") in wording.NO_ROOM]
        summary = self.report.get("summary")
        left_out = len(dropped) + self.report["unloaded"]
        if not left_out and not summary:
            return None
        sent = [_row_id(each) for each in messages if each["state"] != "left_out"]
        first = next((pk for pk in sent if pk is not None and self.marks.by_message.get(pk) is None), None)
        unseen = [str(pk) for each in dropped if (pk := _row_id(each)) is not None]
        return Sight(str(first or ""), self._border(summary["messages"] if summary else 0, left_out), unseen)

    def _border(self, summarised: int, left_out: int) -> str:
        """Return the label at the point from which the model sees the messages."""
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
        """Return how much of the prompt the provider's cache served or will serve. Empty while unknown."""
        cache = self.report.get("cache")
        if cache is None:
            cached = self.usage.get("cached_input") or 0
            whole = self.usage.get("input") or 0
            return percent(cached, whole) if cached and whole else ""
        if cache["read"] is None:
            whole = self.report["used"] + self.report["tools_tokens"]
            values = {"tokens": grouped(cache["expected"]), "percent": percent(cache["expected"], whole)}
            return _("about %(tokens)s tokens (%(percent)s)") % values if cache["expected"] else ""
        total = cache["read"] + (cache["written"] or 0) + (cache["uncached"] or 0)
        numbers = {"read": grouped(cache["read"]), "total": grouped(total), "percent": percent(cache["read"], total)}
        read = _("%(read)s of %(total)s tokens (%(percent)s)") % numbers
        written = _("%(tokens)s newly kept") % {"tokens": grouped(cache["written"])} if cache["written"] else ""
        return " · ".join(part for part in (read, written) if part)

    @property
    def missed(self) -> str:
        """Return the first section that the cache does not serve, and the reason. Empty if the cache serves all."""
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
        """Return the cost of a plan in short form. Empty without a price."""
        return wording.cost_ahead(self.cost)

    @property
    def expected_cost(self) -> str:
        """Return the cost of a plan in whole sentences; empty without a price."""
        cost = self.cost
        if cost is None:
            return ""
        if not Decimal(cost["at_most"]):
            return f"{wording.cost_ahead(cost)}."
        values = {"most": dollars(Decimal(cost["at_most"]), up=True), "tokens": grouped(cost["longest_answer"])}
        at_most = _("At most %(most)s, with %(tokens)s tokens of answer, the most there can be.") % values
        return f"{wording.cost_ahead(cost)}. {at_most}"

    @property
    def messages(self) -> list[PanelMessage]:
        """Return the messages that are sent, with the names of their sections and groups."""
        return [
            {
                **message,
                "label": str(wording.SECTIONS[message["section"]]),
                "group": wording.GROUP_OF[message["section"]],
            }
            for message in self.report["messages"]
        ]

    @property
    def facts(self) -> list[PromptDetail]:
        """Return details of the prompt: the model, its settings, and the versions."""
        report = self.report
        count = report.get("provider_count")
        effort = report.get("effort", "")
        exact = _("exact") if report["exact"] else _("estimated")
        facts = [
            PromptDetail(_("Model"), report["model"], _("The model that answers.")),
            PromptDetail(
                _("Tokens"), exact, _("Pieces of words, in which models read: about four letters of English each.")
            ),
        ]
        if count:
            help_ = _("Tokens as the provider counted them, with the tool definitions.")
            facts.append(PromptDetail(_("The provider's count"), grouped(count), help_))
        if effort:
            facts.append(
                PromptDetail(_("Effort of reasoning"), str(Effort(effort).label), _("How long it may think first."))
            )
        profile = _("The share of the window that each part may take. An admin sets it.")
        facts.append(PromptDetail(_("Budget profile"), report["profile"], profile))
        if tools := report.get("tools"):
            facts.append(
                PromptDetail(_("Tools"), ", ".join(tools), _("Tools that the model may call before it answers."))
            )
        if on_demand := report.get("tools_on_demand"):
            facts += _tools_on_demand(on_demand)
        if asking := report.get("tools_asking"):
            facts.append(
                PromptDetail(_("Asks first"), ", ".join(asking), _("Calls of these may wait until you allow them."))
            )
        help_ = _("The version that was active.")
        versions = ((wording.version_named(name), number) for name, number in report["versions"].items())
        return [
            *facts,
            *(PromptDetail(name, _("version %(version)s") % {"version": each}, help_) for name, each in versions),
        ]

    @property
    def window(self) -> list[PromptDetail]:
        """Return the context window, its reserves and the room for messages (docs/develop/context.md, “The room”)."""
        report = self.report
        answer = report["reserved_output"]
        tools = report["tools_tokens"]
        room = report["limit"]
        reasoning = report.get("reserved_reasoning", 0)
        margin = report["window"] - answer - tools - room
        source = describe_source(report.get("window_source", ""), Evidence.from_json(report.get("window_evidence", {})))
        rows = [
            (_("Window in force"), report["window"], source),
            (
                _("Kept free for the answer"),
                answer - reasoning,
                _("The prompt and the answer share one window."),
            ),
            *([(_("Kept free for reasoning"), reasoning, _("The reasoning before the answer."))] if reasoning else []),
            (_("Definitions of tools"), tools, _("Sent along, so that the model knows what it may call.")),
            (_("Kept free against counting errors"), margin, _("Models count a little differently than we do.")),
            (_("Room for messages"), room, _("The room for all parts above: the whole of the percentage.")),
        ]
        return [PromptDetail(name, grouped(tokens), help_) for name, tokens, help_ in rows]


def _tools_on_demand(tools: reports.ToolsOnDemandEntry) -> Iterator[PromptDetail]:
    """Yield the facts about tools that are listed by name."""
    names = tools["listed"][: len(tools["listed"]) - tools["unnamed"]]
    yield PromptDetail(
        _("Tools listed by name (%(count)s)") % {"count": grouped(len(names))},
        ", ".join(names),
        _("The model can load these. Their definitions would take more than the share of the room for tools."),
    )
    if tools["unnamed"]:
        yield PromptDetail(
            _("Tools without room in the list (%(count)s)") % {"count": grouped(tools["unnamed"])},
            ", ".join(tools["listed"][len(names) :]),
            _("The model can find these by words, and load them."),
        )
    if tools["loaded"]:
        yield PromptDetail(
            _("Loaded tools (%(count)s)") % {"count": grouped(len(tools["loaded"]))},
            ", ".join(tools["loaded"]),
            _("The model has loaded these in this conversation."),
        )
    help_ = _("The definitions of all tools would take as many more.")
    yield PromptDetail(_("Tokens saved by the list"), grouped(tools["saved"]), help_)


def of_turn(turn: Turn, number: int | None = None) -> Panel | None:
    """Return the panel of a call of the turn: the last one, or the `number`th from 1. None if there is no such call."""
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
        proposed=reports.proposed(turn),
    )


def of_plan(plan: Plan, marks: Marks = NO_MARKS) -> Panel | None:
    """Return the panel of a plan, None if the draft does not fit."""
    return Panel(plan, cost=plan["cost"], marks=marks) if plan["fits"] is True else None


def _row_id(source: SourceEntry) -> UUID | None:
    """Return the id of a message's row, also for a step of the message. None for a draft."""
    try:
        return UUID((source.get("id") or "").partition("#")[0])
    except ValueError:
        return None


def _turn_before(turn: Turn) -> ResolvedReport | None:
    """Return the report of the previous turn on the branch."""
    previous = Turn.objects.filter(answer=turn.user_message.parent_id).first() if turn.user_message.parent_id else None
    return reports.of_turn(previous) if previous is not None else None


def _changes(before: ResolvedReport, report: ResolvedReport) -> list[tuple[str, str]]:
    """Return the name of each changed source and its change in words."""
    return [
        (wording.name_of(change), _change(change)) for change in reports.compare(before["sources"], report["sources"])
    ]


def _change(change: Change) -> str:
    """Return a change in words. A changed source shows both states or both sizes."""
    previous = change["was"]
    if previous is None:
        is_missing = change["change"] == "added" and change["state"] == "left_out"
        return wording.state_of(change) if is_missing else str(wording.CHANGES[change["change"]])
    if previous["state"] != change["state"]:
        return f"{wording.STATES[previous['state']]} → {wording.state_of(change)}"
    return _("%(before)s → %(after)s tokens") % {
        "before": grouped(previous.get("tokens") or 0),
        "after": grouped(change.get("tokens") or 0),
    }
