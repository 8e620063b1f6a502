"""Manage public links to conversations: create them, end them, and build the page that their readers see.

If the owner allows it, readers also see how many tokens each answer's model read, by group of the prompt. This report
never shows a text of the prompt, the name of a persona, a task, or a pinned or left-out message. It shows the names of
files and the descriptions of tool calls only if the owner allows these, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.auth.hashers import check_password, make_password
from django.db import transaction
from django.db.models import F, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Length
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.access.rights import require, rights_of
from accounts.models import Right, User
from chat.context.build import SourceEntry
from chat.conversations.erasing import require_lasting
from chat.memory.services import REMEMBER_TOOL
from chat.models import Conversation, Message, Share, TeamShare, Turn
from chat.models.conversation_state import require_owner
from chat.models.tree import branch_rows
from chat.prompts import wording
from chat.prompts.cards import SourceRow
from chat.prompts.history import expand
from chat.prompts.inspector import Panel
from chat.prompts.report import FILE_KINDS, ResolvedReport
from chat.prompts.steps import answer_step
from chat.rendering.cache import render_answers
from chat.rendering.page_size import MAX_CHARACTERS, MAX_HTML, count_characters, count_fitting, html_size
from chat.rendering.references import Sources
from chat.summaries.idle import lock_idle
from chat.tools.past_conversations import SEARCH_CONVERSATIONS
from core.audit.services import record
from core.errors import NotFound, ProductError
from core.requests import get_or_404, or_404
from core.sentences import Sentence
from files.models import File
from personas.texts import BUILT_IN
from workspace.models.settings import workspace_at

PAGE_MESSAGES = 100  # messages on one page
_SHARED = "shared conversation"
MAX_SHARES = 50  # links to one conversation
MAX_SHARES_OF_PERSON = 1_000
# In all links of a person: ten of the longest conversations that can be imported, or thousands of ordinary ones.
MAX_SHARED_CHARACTERS = 100_000_000
MIN_PASSWORD = 8
UNNAMED_TOOLS = (REMEMBER_TOOL, SEARCH_CONVERSATIONS)  # readers do not learn of facts and of other conversations
# The members of a call's report that are read. `messages` is left out, since it contains texts.
REPORT_MEMBERS = ("limit", "used", "left", "window", "sections", "unloaded", "summary", "sources")


@dataclass(frozen=True, slots=True)
class ShareTerms:
    """The terms of a link. `password` is as typed, empty for none; the other fields are those of `Share`."""

    password: str = ""
    expires: datetime | None = None
    shows_context: bool = False
    names_sources: bool = False


OPEN_TERMS = ShareTerms()


def create_share(*, user: User, conversation: Conversation, terms: ShareTerms = OPEN_TERMS) -> Share:
    """Create a link to the conversation's current branch as it is now.

    Raises the errors of `lock_idle`, `sharing_off` and `right_missing` (403), `nothing_to_share`, `too_many_shares`,
    `short_password`, `bad_expiry`, `too_much_shared` and `temporary_conversation` (409).
    """
    if not workspace_at().sharing:
        sentence = Sentence(
            "Links to conversations are turned off in this workspace. An administrator can turn them on."
        )
        raise ProductError("sharing_off", sentence, status=403)
    require(user, Right.SHARE)
    if terms.password and len(terms.password) < MIN_PASSWORD:
        raise ProductError(
            "short_password",
            Sentence(
                "The password of a link needs at least {shortest_password} characters. Choose a longer one.",
                shortest_password=MIN_PASSWORD,
            ),
        )
    if terms.expires is not None and terms.expires <= timezone.now():
        raise ProductError("bad_expiry", "A link cannot expire in the past. Choose a later time, or none.")
    require_lasting(conversation)
    with lock_idle(user, conversation) as locked:
        if locked.leaf_id is None:
            raise ProductError("nothing_to_share", "There is no message to share yet. Ask something first.")
        if Share.objects.filter(conversation=locked).count() >= MAX_SHARES:
            raise ProductError(
                "too_many_shares",
                Sentence("A conversation can have at most {max_shares} links. End one first.", max_shares=MAX_SHARES),
            )
        parts = Length(Cast("parts", TextField()))
        characters = branch_rows(locked.leaf_id).aggregate(size=Sum(parts))["size"] or 0
        _check_limits(user, characters)
        link = Share.objects.create(
            conversation=locked,
            leaf_id=locked.leaf_id,
            title=locked.title,
            password=make_password(terms.password) if terms.password else "",
            expires=terms.expires,
            shows_context=terms.shows_context,
            names_sources=terms.shows_context and terms.names_sources,
            characters=characters,
        )
        _record(user, "share.made", link)
        return link


def _check_limits(user: User, characters: int) -> None:
    """Raise `too_many_shares` or `too_much_shared` if another link of `characters` exceeds the user's limits.

    Two links that are created at the same moment may both pass. The limits need not be exact.
    """
    own = Share.objects.filter(conversation__owner=user)
    if own.count() >= MAX_SHARES_OF_PERSON:
        raise ProductError(
            "too_many_shares",
            Sentence(
                "You have {max_shares_of_person} links, which is the maximum. End one first.",
                max_shares_of_person=MAX_SHARES_OF_PERSON,
            ),
        )
    shared = own.aggregate(total=Sum("characters"))["total"] or 0
    if shared + characters > MAX_SHARED_CHARACTERS:
        detail = Sentence(
            "Your links would show more than {most} million characters in total. End the link of a long conversation.",
            most=MAX_SHARED_CHARACTERS // 1_000_000,
        )
        raise ProductError("too_much_shared", detail, status=409)


def _record(user: User, action: str, share: Share) -> None:
    """Record an act on a link. The record has no password and no token, since the token opens the link."""
    changes = {
        "conversation": str(share.conversation_id),
        "expires": None if share.expires is None else share.expires.isoformat(),
        "has_password": share.has_password,
        "shows_context": share.shows_context,
    }
    record(user=user, action=action, row=share, changes=changes)


@transaction.atomic
def end_share(*, user: User, share: Share) -> None:
    """End a link."""
    require_owner(user, share.conversation)
    _record(user, "share.ended", share)
    share.delete()


def visible_share(user: User, pk: UUID) -> Share:
    """Return a link of the user. Raises `NotFound`."""
    return get_or_404(Share.objects.visible_to(user).select_related("conversation"), pk, "link")


def list_shares(user: User) -> QuerySet[Share]:
    return Share.objects.visible_to(user).select_related("conversation", "leaf").order_by("-id")


def readable_share(token: str) -> Share:
    """Return the link with this token. Raises `NotFound`, also if its owner may no longer share."""
    row = or_404(Share.objects.readable().select_related("conversation").filter(token=token).first(), _SHARED)
    if Right.SHARE not in rights_of(row.conversation.owner_id).may:
        raise NotFound(_SHARED)
    return row


def is_password(share: Share, password: str) -> bool:
    """Return whether `password` is the link's password."""
    return check_password(password, share.password)


class ContextShare(NamedTuple):
    """The tokens of one group of the prompt. `create_share` is its part of all that was sent, in thousandths."""

    group: str
    label: str
    tokens: int
    share: int


class SeenContext(NamedTuple):
    """How much an answer's model saw. `named` are files and tool calls, if the owner shows them."""

    panel: Panel
    words: str
    groups: list[ContextShare]
    named: list[SourceRow]


class SharedMessage(NamedTuple):
    """A message as a reader of a link or a team share sees it: its row, and an answer's text as safe HTML.

    Of the row, readers see only the text, the names of its files, and the name of its model.
    """

    row: Message
    blocks: list[str]
    seen: SeenContext | None

    @property
    def continues(self) -> bool:
        return self.row.continues


class SharedPage(NamedTuple):
    share: Share | TeamShare
    messages: list[SharedMessage]
    after: int | None

    @property
    def has_code(self) -> bool:
        """Return whether a message has a block that scripts copy or draw."""
        return any("data-copy" in block for message in self.messages for block in message.blocks)


def shared_page(share: Share | TeamShare, after: int = -1) -> SharedPage:
    """Return the messages below depth `after` of the shared branch, oldest first, as many as a page may hold."""
    candidates = list(branch_rows(share.leaf_id).filter(depth__gt=after).order_by("depth")[: PAGE_MESSAGES + 1])
    rows = candidates[: count_fitting(map(count_characters, candidates[:PAGE_MESSAGES]), MAX_CHARACTERS)]
    # No sources: citations would lead to files, and results of tools may be the text of files.
    blocks = render_answers([(row, Sources()) for row in rows if row.role == Message.Role.ASSISTANT])
    rows = rows[: count_fitting((html_size(row, blocks.get(row.pk, ())) for row in rows), MAX_HTML)]
    answers = [row for row in rows if row.role == Message.Role.ASSISTANT]
    seen = _seen_contexts(answers, names=share.names_sources) if share.shows_context else {}
    messages = [SharedMessage(row, list(chain.from_iterable(blocks.get(row.pk, ()))), seen.get(row.pk)) for row in rows]
    return SharedPage(share, messages, rows[-1].depth if len(rows) < len(candidates) else None)


def _seen_contexts(answers: Sequence[Message], *, names: bool) -> dict[UUID, SeenContext]:
    """Return the context of each answer that has a report, by its id. Takes one query, and one more for names."""
    report_members = {name: F(f"report__calls__-1__{name}") for name in REPORT_MEMBERS}
    reports: Iterable[Any] = Turn.objects.filter(answer__in=answers).values("answer", **report_members)
    calls = {row["answer"]: row for row in reports if row["sections"]}
    sources = [source for call in calls.values() for source in call["sources"] if source["kind"] in FILE_KINDS]
    ids = {source["id"] for source in sources if source.get("id")} if names else ()
    titles = {str(pk): name for pk, name in File.objects.filter(pk__in=ids).values_list("pk", "name")} if ids else {}
    return {
        row.pk: _seen_context(calls[row.pk], [*_named_sources(row, calls[row.pk]["sources"], titles)] if names else [])
        for row in answers
        if row.pk in calls
    }


def _named_sources(row: Message, sources: Sequence[SourceEntry], titles: Mapping[str, str]) -> Iterator[SourceRow]:
    """Yield the files and the tool calls of this answer, without files that the user left out, and `UNNAMED_TOOLS`."""
    for source in sources:
        if source["kind"] in FILE_KINDS and source.get("reason") != "by_user":
            title = titles.get(source.get("id") or "") or source.get("title") or str(wording.KINDS[source["kind"]])
            yield SourceRow(title, source["state"], source.get("tokens"), words=str(wording.STATES[source["state"]]))
    for message in expand(row, BUILT_IN):
        step = answer_step(row, message)
        if step.role == "call" and not any(call.name in UNNAMED_TOOLS for call in message.tool_calls):
            yield SourceRow(step.words, "full", None, kind="call")


def _seen_context(call: Mapping[str, Any], named: list[SourceRow]) -> SeenContext:
    # Readers do not see the user's marks, nor the sources that the user left out.
    public_sources = [
        {**source, "title": "", "mark": None} for source in call["sources"] if source.get("reason") != "by_user"
    ]
    panel = Panel(cast("ResolvedReport", {**call, "sources": public_sources, "messages": []}), seen=True)
    tokens_used = max(1, panel.report["used"])
    groups = [ContextShare(*each[:3], round(1000 * each.tokens / tokens_used)) for each in panel.segments]
    words = wording.status_line(panel.report, _("Everything was sent"), names=False).words
    return SeenContext(panel, words, groups, named)
