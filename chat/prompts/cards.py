"""What the context panel shows of each group of sections: a card with its rows, which add up to its tokens."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.context.build import SourceEntry
from chat.models.summary import Marks
from chat.prompts.report import ResolvedReport
from chat.prompts.wording import GROUP_OF, GROUPS, ROLES, STATES, name_of, state_of
from core.i18n import grouped

ICONS = {
    "full": "full",
    "shortened": "short",
    "stubbed": "short",
    "by_search": "lens",
    "summarised": "stack",
    "left_out": "out",
}
FILES, NOT_WHOLE = ("file", "project_file"), ("shortened", "stubbed", "by_search", "left_out")
ALIKE = 4  # rows that are alike; more of them are folded


class Target(NamedTuple):
    """What a row can have marked: the turn of `message`, or one `file` of it; `mark` as it is now."""

    message: str
    file: str
    mark: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One source. `state` is a key of `ICONS`; `words` say how and why where it is not there in full. `message`: the
    element of the page to go to. `rows`: of a fold, those that it stands for. `tokens`: None where it has none of its
    own. `file`: the id of one that the model does not see whole, so that its person may have all of it read."""

    title: str
    state: str
    tokens: int | None
    kind: str = ""
    by: str = ""
    words: str = ""
    message: str = ""
    target: Target | None = None
    used: bool = False
    rows: "Sequence[Row]" = ()
    file: str = ""

    @property
    def icon(self) -> str:
        return ICONS[self.state]

    @property
    def state_word(self) -> str:
        return str(STATES[self.state])


@dataclass(slots=True)
class Card:
    """`share`: of all that is sent, in thousandths."""

    group: str
    tokens: int
    share: int
    rows: list[Row] = field(default_factory=list)

    @property
    def label(self) -> str:
        return str(GROUPS[self.group])

    @property
    def is_one(self) -> bool:
        """Whether its only row says nothing that its head does not."""
        return [(row.title, row.state) for row in self.rows] == [(self.label, "full")]


def totals(report: ResolvedReport) -> dict[str, int]:
    """Tokens by group, of those that are there, in the order in which they are shown."""
    found = dict.fromkeys(GROUPS, 0)
    for section, tokens in report["sections"].items():
        found[GROUP_OF[section]] += tokens
    return {group: tokens for group, tokens in found.items() if tokens}


def cards_of(report: ResolvedReport, marks: Marks) -> list[Card]:
    """With what can be marked. A group that is not sent has a card if something of it was left out."""
    tokens, used = totals(report), max(1, report["used"])
    rows: dict[str, list[Row]] = {group: [] for group in GROUPS}
    for group, row in _placed(report, marks):
        rows[group].append(row)
    rows["conversation"][:0] = _not_read(report)
    found = []
    for group, there in rows.items():
        total = tokens.get(group, 0)
        if there or total:
            complete = _complete(_joined(group, there), total)
            found.append(Card(group, total, round(1000 * total / used), [*_folded(complete)]))
    return found


def _not_read(report: ResolvedReport) -> Iterator[Row]:
    """The messages that are not among the sources: those of the summary, and those too old to have been looked at."""
    if summary := report.get("summary"):
        words = ngettext("%(count)s older message", "%(count)s older messages", summary["messages"])
        title = words % {"count": grouped(summary["messages"])}
        yield Row(title, "summarised", 0, words=str(STATES["summarised"]), message=f"summary-{summary['id']}")
    if count := report["unloaded"]:
        words = ngettext("%(count)s older message", "%(count)s older messages", count)
        yield Row(words % {"count": grouped(count)}, "left_out", 0, words=_("left out: there was no room"))


def _placed(report: ResolvedReport, marks: Marks) -> Iterator[tuple[str, Row]]:
    """Each source with its group. Files and images stand before the message that they came with, in the order of the
    report; an image's tokens are part of its message's there, and rows of their own here."""
    sections = {each["source"]: each["section"] for each in report["messages"] if each["source"]}
    unseen = {each.get("id") for each in report["sources"] if each.get("reason") == "no_vision"}
    waiting: list[SourceEntry] = []
    for source in report["sources"]:
        kind = source["kind"]
        if kind in ("file", "image") and source.get("reason") != "no_vision":
            waiting.append(source)
        elif kind == "message":
            group = GROUP_OF[sections.get(source.get("id") or "", "history")]
            yield from _with_files(group, source, waiting, marks, unseen)
            waiting = []
        elif kind == "image":
            if not any(each.get("id") == source.get("id") and each["kind"] == "file" for each in report["sources"]):
                yield "files", _row(source)
        elif kind in ("task", "project_file"):
            yield "tasks" if kind == "task" else "files", _row(source)
        else:
            yield GROUP_OF[kind], _row(source)
    yield from (("files", _row(each)) for each in waiting)


def _with_files(
    group: str, message: SourceEntry, files: Sequence[SourceEntry], marks: Marks, unseen: set[str | None]
) -> Iterator[tuple[str, Row]]:
    question = _uuid(message.get("id"))
    images = 0
    for file in files:
        pk = _uuid(file.get("id"))
        row = replace(_row(file), message=f"m-{question}" if question else "")
        if question is not None and pk is not None:
            row = replace(row, target=Target(str(question), str(pk), marks.of_file(question, pk)))
        if file.get("id") in unseen:
            row = replace(row, state="left_out", words=state_of({**file, "state": "left_out", "reason": "no_vision"}))
        if file["kind"] == "image" and file["state"] == "full":
            images += file.get("tokens") or 0
            yield group, row
        else:
            yield "files", row
    row = _row(message)
    if row.tokens:
        row = replace(row, tokens=row.tokens - images)
    whole = _uuid((message.get("id") or "").partition("#")[0])
    if whole is not None:
        row = replace(row, message=f"m-{whole}")
    if question is not None:
        row = replace(row, target=Target(str(question), "", marks.by_message.get(question)))
    yield group, row


def _row(source: SourceEntry) -> Row:
    state, role = source["state"], source.get("role", "")
    whole = state == "full" and not source.get("reason")
    return Row(
        name_of(source) if source.get("id") != "draft" else source.get("title") or _("Your message"),
        state,
        source.get("tokens"),
        kind=role if role in ("call", "result") else source["kind"],
        by=str(ROLES.get(role, "")),
        words="" if whole else state_of(source),
        used=source.get("used", False),
        file=str(_uuid(source.get("id")) or "") if source["kind"] in FILES and state in NOT_WHOLE else "",
    )


def _joined(group: str, rows: Sequence[Row]) -> list[Row]:
    """A tool's call and its results are one row; tasks stand below the row of their list."""
    if group == "tasks":
        whole = [row for row in rows if row.kind != "task"]
        tasks = [row for row in rows if row.kind == "task"]
        if len(whole) != 1 or not tasks:
            return [*rows]
        title = ngettext("%(count)s task", "%(count)s tasks", len(tasks)) % {"count": grouped(len(tasks))}
        return [replace(whole[0], title=title, rows=tasks)]
    found: list[Row] = []
    for row in rows:
        call = found[-1] if found else None
        if row.kind != "result" or call is None or call.kind != "call" or call.message != row.message:
            found.append(row)
            continue
        tokens = None if call.tokens is None or row.tokens is None else call.tokens + row.tokens
        state, words = (row.state, row.words) if row.state != "full" else (call.state, call.words)
        found[-1] = replace(call, tokens=tokens, state=state, words=words)
    return found


def _complete(rows: list[Row], total: int) -> list[Row]:
    """With a row for what stands around the others. Where texts were counted together, their own sizes may come to more
    than that: then only the whole has a number."""
    rest = total - sum(row.tokens or 0 for row in rows)
    if rest < 0:
        rows, rest = [replace(row, tokens=None) for row in rows], total
        return [*rows, Row(_("All of it, counted together"), "full", rest)]
    return [*rows, Row(_("Titles and marks around it"), "full", rest, kind="rest")] if rest else rows


def _folded(rows: Iterable[Row]) -> Iterator[Row]:
    for (kind, state, words), alike in groupby(rows, key=lambda row: (row.kind, row.state, row.words)):
        each = [*alike]
        if len(each) <= ALIKE or any(row.rows for row in each):
            yield from each
            continue
        tokens = [row.tokens for row in each if row.tokens is not None]
        yield Row(_count(kind, state, each), state, sum(tokens) if tokens else None, words=words, rows=each)


def _count(kind: str, state: str, rows: Sequence[Row]) -> str:
    count = {"count": grouped(len(rows))}
    if state == "by_search":
        used = {**count, "used": grouped(sum(row.used for row in rows))}
        return ngettext(
            "%(count)s file: searched, %(used)s used", "%(count)s files: searched, %(used)s used", len(rows)
        ) % used  # fmt: skip
    if kind in ("file", "project_file", "image"):
        return ngettext("%(count)s file", "%(count)s files", len(rows)) % count
    return ngettext("%(count)s message", "%(count)s messages", len(rows)) % count


def _uuid(text: str | None) -> UUID | None:
    """Of the row that a source is; None for a draft, and for a step of an answer, which is marked with all of it."""
    try:
        return UUID(text or "")
    except ValueError:
        return None
