"""Make the cards of the context panel: one for each group of sections, with rows that add up to its tokens."""

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
from chat.prompts.wording import GROUP_OF, GROUPS, ROLES, SECTIONS, STATES, UNSEEN, is_unseen_picture, name_of, state_of
from core.i18n import grouped

ICONS = {
    "full": "full",
    "shortened": "short",
    "stubbed": "short",
    "by_search": "lens",
    "summarised": "stack",
    "left_out": "out",
}
READABLE_KINDS = ("file", "project_file")
NOT_WHOLE = ("shortened", "stubbed", "by_search", "left_out")
UNREADABLE = (*UNSEEN, "failed_file", "unread_file", "deleted_file")  # reasons of files without a text to read
MAX_ALIKE = 4  # rows of one kind and state; more rows are folded into one


class MarkTarget(NamedTuple):
    """The object that a user can mark in a row: the turn of `message`, or one `file` of the message.

    `mark` is its current mark.
    """

    message: str
    file: str
    mark: str | None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source of a prompt, as a row of a card.

    `state` is a key of `ICONS`. `words` explain the state, unless the source is sent in full. `tokens` is None for a
    source without its own tokens. The row links to the page element `message`. `rows` are the rows of a fold. `file` is
    the id of a file that the model sees only in part, so that the user can have all of it read. `quiet`: the row is no
    warning. `fact`: the id of a remembered fact, which can be pinned, left out, corrected or forgotten here.
    """

    title: str
    state: str
    tokens: int | None
    kind: str = ""
    by: str = ""
    words: str = ""
    message: str = ""
    target: MarkTarget | None = None
    used: bool = False
    rows: "Sequence[SourceRow]" = ()
    file: str = ""
    quiet: bool = False
    fact: str = ""
    pinned: bool = False
    left_out: bool = False

    @property
    def icon(self) -> str:
        return ICONS[self.state]

    @property
    def state_word(self) -> str:
        return str(STATES[self.state])


@dataclass(slots=True)
class Card:
    """The card of one group of sections. `share` is its part of all tokens sent, in thousandths."""

    group: str
    tokens: int
    share: int
    rows: list[SourceRow] = field(default_factory=list)

    @property
    def label(self) -> str:
        return str(GROUPS[self.group])

    @property
    def is_one(self) -> bool:
        """Return whether the card's only row repeats its head."""
        titles = (self.label, str(SECTIONS.get(self.group, "")))
        return len(self.rows) == 1 and self.rows[0].title in titles and self.rows[0].state == "full"


def totals(report: ResolvedReport) -> dict[str, int]:
    """Return the tokens of each group that is sent, in the order of the panel."""
    tokens_of = dict.fromkeys(GROUPS, 0)
    for section, tokens in report["sections"].items():
        tokens_of[GROUP_OF[section]] += tokens
    return {group: tokens for group, tokens in tokens_of.items() if tokens}


def cards_of(report: ResolvedReport, marks: Marks) -> list[Card]:
    """Return the cards of a report. A group that is not sent has a card if a source of it was left out."""
    tokens = totals(report)
    used = max(1, report["used"])
    rows_of: dict[str, list[SourceRow]] = {group: [] for group in GROUPS}
    for group, row in _placed(report, marks):
        rows_of[group].append(row)
    rows_of["conversation"][:0] = _not_read(report)
    cards = []
    for group, rows in rows_of.items():
        total = tokens.get(group, 0)
        if rows or total:
            complete = _complete(_joined(group, rows), total)
            cards.append(Card(group, total, round(1000 * total / used), [*_folded(complete)]))
    return cards


def _not_read(report: ResolvedReport) -> Iterator[SourceRow]:
    """Yield rows for messages that are not sources: messages that the summary covers, and messages not loaded."""
    if summary := report.get("summary"):
        words = ngettext("%(count)s older message", "%(count)s older messages", summary["messages"])
        title = words % {"count": grouped(summary["messages"])}
        yield SourceRow(title, "summarised", 0, words=str(STATES["summarised"]), message=f"summary-{summary['id']}")
    if count := report["unloaded"]:
        words = ngettext("%(count)s older message", "%(count)s older messages", count)
        yield SourceRow(words % {"count": grouped(count)}, "left_out", 0, words=_("left out: there was no room"))


def _placed(report: ResolvedReport, marks: Marks) -> Iterator[tuple[str, SourceRow]]:
    """Yield each source as a row with its group.

    In the report, files and images come before their message, and the message's tokens include its images. Here images
    have separate rows, and their tokens are subtracted from the message's row. The tokens of a tool result do not
    include its images, which are a message of their own.
    """
    sections = {entry["source"]: entry["section"] for entry in report["messages"] if entry["source"]}
    unseen = {entry.get("id") for entry in report["sources"] if entry.get("reason") == "no_vision"}
    pending_files: list[SourceEntry] = []
    for source in report["sources"]:
        kind = source["kind"]
        if kind in ("file", "image") and source.get("reason") != "no_vision":
            pending_files.append(source)
        elif kind == "message":
            group = GROUP_OF[sections.get(source.get("id") or "", "history")]
            yield from _with_files(group, source, pending_files, marks, unseen)
            pending_files = []
        elif kind == "image":
            if not any(entry.get("id") == source.get("id") and entry["kind"] == "file" for entry in report["sources"]):
                yield "files", _row(source)
        elif kind in ("task", "project_file"):
            yield "tasks" if kind == "task" else "files", _row(source)
        else:
            yield GROUP_OF[kind], _row(source)
    yield from (("files", _row(entry)) for entry in pending_files)


def _with_files(
    group: str, message: SourceEntry, files: Sequence[SourceEntry], marks: Marks, unseen: set[str | None]
) -> Iterator[tuple[str, SourceRow]]:
    """Yield a message's files and images with their groups, then the message. The images of a result come after it."""
    row_message = _uuid((message.get("id") or "").partition("#")[0])
    is_result = message.get("role") == "result"
    images = 0
    below: list[tuple[str, SourceRow]] = []
    for file in files:
        pk = _uuid(file.get("id"))
        row = replace(_row(file), message=f"m-{row_message}" if row_message else "")
        if row_message is not None and pk is not None:
            row = replace(row, target=MarkTarget(str(row_message), str(pk), marks.of_file(row_message, pk)))
        if file.get("id") in unseen:
            row = replace(row, state="left_out", words=state_of({**file, "state": "left_out", "reason": "no_vision"}))
        if file["kind"] == "image" and file["state"] == "full" and is_result:
            below.append((group, row))
        elif file["kind"] == "image" and file["state"] == "full":
            images += file.get("tokens") or 0
            yield group, row
        else:
            yield "files", row
    row = _row(message)
    if row.tokens:
        row = replace(row, tokens=row.tokens - images)
    if row_message is not None:
        row = replace(row, message=f"m-{row_message}")
    question = _uuid(message.get("id"))
    if question is not None:
        row = replace(row, target=MarkTarget(str(question), "", marks.by_message.get(question)))
    yield group, row
    yield from below


def _row(source: SourceEntry) -> SourceRow:
    state = source["state"]
    role = source.get("role", "")
    reason = source.get("reason")
    whole = state == "full" and not source.get("reason")
    partial = source["kind"] in READABLE_KINDS and state in NOT_WHOLE and source.get("reason") not in UNREADABLE
    return SourceRow(
        name_of(source) if source.get("id") != "draft" else source.get("title") or _("Your message"),
        state,
        source.get("tokens"),
        kind=role if role in ("call", "result") else source["kind"],
        by=str(ROLES.get(role, "")),
        words="" if whole else state_of(source),
        used=source.get("used", False),
        file=str(_uuid(source.get("id")) or "") if partial else "",
        quiet=is_unseen_picture(source) or reason == "memory_full",
        fact=str(_uuid(source.get("id")) or "") if source["kind"] == "fact" else "",
        pinned=reason == "pinned_fact",
        left_out=reason == "by_user",
    )


def _joined(group: str, rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Join a tool call and its results into one row, and put tasks below the row of their list."""
    if group == "tasks":
        missing = [row for row in rows if row.state == "left_out"]
        whole = [row for row in rows if row.kind != "task" and row.state != "left_out"]
        tasks = [row for row in rows if row.kind == "task" and row.state != "left_out"]
        if len(whole) != 1 or not tasks:
            return [*rows]
        title = ngettext("%(count)s task", "%(count)s tasks", len(tasks)) % {"count": grouped(len(tasks))}
        return [replace(whole[0], title=title, rows=tasks), *missing]
    joined: list[SourceRow] = []
    for row in rows:
        call = joined[-1] if joined else None
        if row.kind != "result" or call is None or call.kind != "call" or call.message != row.message:
            joined.append(row)
            continue
        tokens = None if call.tokens is None or row.tokens is None else call.tokens + row.tokens
        shown = row if row.state != "full" else call
        joined[-1] = replace(call, tokens=tokens, state=shown.state, words=shown.words)
    return joined


def _complete(rows: list[SourceRow], total: int) -> list[SourceRow]:
    """Add a row for the tokens around the other rows.

    Texts that are counted together may cost less than the sum of their separate counts. Then only the total is shown.
    """
    rest = total - sum(row.tokens or 0 for row in rows)
    if rest < 0:
        uncounted = [replace(row, tokens=None) for row in rows]
        return [*uncounted, SourceRow(_("All of it, counted together"), "full", total)]
    return [*rows, SourceRow(_("Titles and marks around it"), "full", rest, kind="rest")] if rest else rows


def _folded(rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
    """Yield the rows. More than `MAX_ALIKE` rows of one kind, state and reason are folded into one row."""
    for (kind, state, words), group in groupby(rows, key=lambda row: (row.kind, row.state, row.words)):
        alike = [*group]
        if len(alike) <= MAX_ALIKE or any(row.rows for row in alike):
            yield from alike
            continue
        tokens = [row.tokens for row in alike if row.tokens is not None]
        yield SourceRow(_count(kind, state, alike), state, sum(tokens) if tokens else None, words=words, rows=alike)


def _count(kind: str, state: str, rows: Sequence[SourceRow]) -> str:
    """Return the title of a fold: the number of its rows."""
    count = {"count": grouped(len(rows))}
    if state == "by_search":
        used = {**count, "used": grouped(sum(row.used for row in rows))}
        return ngettext(
            "%(count)s file: searched, %(used)s used", "%(count)s files: searched, %(used)s used", len(rows)
        ) % used  # fmt: skip
    if kind == "task":
        return ngettext("%(count)s task", "%(count)s tasks", len(rows)) % count
    if kind == "fact":
        return ngettext("%(count)s fact", "%(count)s facts", len(rows)) % count
    if kind in ("file", "project_file", "image"):
        return ngettext("%(count)s file", "%(count)s files", len(rows)) % count
    return ngettext("%(count)s message", "%(count)s messages", len(rows)) % count


def _uuid(text: str | None) -> UUID | None:
    """Return the id of a source's row. None for a draft, and for a step, since an answer is only marked as a whole."""
    try:
        return UUID(text or "")
    except ValueError:
        return None
