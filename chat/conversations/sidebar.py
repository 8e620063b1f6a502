"""List conversations in the sidebar: by time, by project, or archived ones. A tag filters each of these views.

The list has pages. By time, pinned conversations come first. A page begins after a cursor: `updated` and id of the last
row of the previous page. So new rows at the top, and rows that move up with a new message, do not shift the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.contrib.sessions.backends.base import SessionBase
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.conversations.branches import describe_removal
from chat.conversations.services import MAX_PINNED, deleted_conversation, deleted_message
from chat.models import Conversation, Tag, Turn
from chat.realtime.events import Approval
from core.errors import ProductError
from projects.models import Project
from projects.planner.models import Run

PAGE = 60  # conversations
SEVERAL = "several"  # replaces the id of a deleted conversation if the session holds several ids
MAX_REFRESHED = 600  # conversations that one refresh of the list returns
PROJECT_CONVERSATIONS = 8  # newest conversations shown per project
MAX_PROJECTS = 50
ROW_FIELDS = ("id", "title", "updated", "project", "state", "pinned")


class View(StrEnum):
    TIME = "time"
    PROJECTS = "projects"
    ARCHIVED = "archived"


@dataclass(slots=True)
class Group:
    """Conversations under one label, or those of a `project`. `more`: the project has more than these."""

    label: str
    conversations: list[Conversation] = field(default_factory=list)
    project: Project | None = None
    more: bool = False


@dataclass(slots=True)
class ConversationList:
    """The list of conversations, or one page of it.

    `last_cursor`: the cursor of its last row. `next_cursor`: the same, but None if no rows follow. `tags`: all tags of
    the user. `chosen_tag` filters the list. `selecting`: the user selects several conversations.
    """

    view: View
    tags: list[Tag] = field(default_factory=list)
    chosen_tag: Tag | None = None
    selecting: bool = False
    groups: list[Group] = field(default_factory=list)
    next_cursor: str | None = None
    last_cursor: str | None = None

    @property
    def digest(self) -> str:
        """Return a digest of the displayed list, without `updated`. A page with the same digest needs no new list."""
        rows = [
            (
                group.label,
                group.more,
                [(row.pk, row.title, row.state, getattr(row, "needs_person", False)) for row in group.conversations],
            )
            for group in self.groups
        ]
        tags = [(row.name, row == self.chosen_tag) for row in self.tags]
        return sha256(repr((self.view, tags, self.selecting, bool(self.next_cursor), rows)).encode()).hexdigest()[:12]


def chosen_view(session: SessionBase, requested: str | None) -> View:
    """Return the requested view and store it in the session. If none is requested, return the stored view."""
    if requested in set(View) and requested != session.get("side", View.TIME):
        session["side"] = requested
    stored = session.get("side")
    return View(stored) if stored in set(View) else View.TIME


def chosen_tag(session: SessionBase, requested: str | None, tags: Sequence[Tag]) -> Tag | None:
    """Return the tag with the requested id, and store the id in the session. An empty id selects no tag.

    If none is requested, return the stored tag.
    """
    if requested is not None:
        session["side_tag"] = requested[:40]
    stored = session.get("side_tag")
    return next((tag for tag in tags if str(tag.pk) == stored), None)


def list_conversations(
    user: User, view: View = View.TIME, after: str | None = None, through: str | None = None, tag: Tag | None = None
) -> ConversationList:
    """Return the page after the cursor `after`, or all rows down to the cursor `through`. Raises `bad_cursor`."""
    rows = _rows(user) if tag is None else _rows(user).filter(tags=tag)
    if view == View.PROJECTS:
        return ConversationList(view, groups=_by_project(user, rows))
    listed = rows.filter(archived=view == View.ARCHIVED)
    pinned = rows.none() if after or view == View.ARCHIVED else listed.exclude(pinned=None)
    if view == View.TIME:
        listed = listed.filter(pinned=None)
    limit = PAGE
    if after:
        updated, pk = _parse_cursor(after)
        # `updated__lte` follows from the other condition, but the index can use it.
        listed = listed.filter(Q(updated__lt=updated) | Q(pk__lt=pk), updated__lte=updated)
    elif through:
        updated, pk = _parse_cursor(through)
        limit = min(
            MAX_REFRESHED, max(PAGE, listed.filter(Q(updated__gt=updated) | Q(updated=updated, pk__gte=pk)).count())
        )
    # One query for pinned and other conversations.
    both_lists = list(listed[: limit + 1] if after else pinned[:MAX_PINNED].union(listed[: limit + 1], all=True))
    pinned_rows = sorted((row for row in both_lists if row.pinned and view == View.TIME), key=_sort_key, reverse=True)
    recent = sorted((row for row in both_lists if row not in pinned_rows), key=_sort_key, reverse=True)
    page = ConversationList(
        view, groups=[*([Group(_("Pinned"), pinned_rows)] if pinned_rows else []), *_by_day(recent[:limit])]
    )
    if recent[:limit]:
        last = recent[:limit][-1]
        page.last_cursor = f"{last.updated.isoformat()}_{last.pk}"
        page.next_cursor = page.last_cursor if len(recent) > limit else None
    return page


def _sort_key(row: Conversation) -> tuple[datetime, UUID]:
    return row.updated, row.pk


def _rows(user: User) -> QuerySet[Conversation]:
    run = Run.objects.filter(conversation=OuterRef("pk"), status=Run.Status.WAITING)
    waiting_part = [{"approval": Approval.WAITING}]
    call = Turn.objects.live().filter(conversation=OuterRef("pk"), answer__parts__contains=waiting_part)
    rows = Conversation.objects.listed_for(user).annotate(needs_person=Exists(run) | Exists(call))
    return rows.order_by("-updated", "-id").only(*ROW_FIELDS)


def _parse_cursor(cursor: str) -> tuple[datetime, UUID]:
    stamp, _separator, pk = cursor.partition("_")
    try:
        return datetime.fromisoformat(stamp), UUID(pk)
    except ValueError as error:
        raise ProductError("bad_cursor", "This page of the list does not exist. Reload the list.") from error


def _by_day(rows: Sequence[Conversation]) -> list[Group]:
    groups: list[Group] = []
    for conversation in rows:
        label = _day_label(conversation.updated)
        if not groups or groups[-1].label != label:
            groups.append(Group(label))
        groups[-1].conversations.append(conversation)
    return groups


def _day_label(moment: datetime) -> str:
    days = timezone.localdate() - timezone.localdate(moment)
    if days <= timedelta(0):
        return _("Today")
    if days == timedelta(1):
        return _("Yesterday")
    return _("Last 7 days") if days <= timedelta(7) else _("Older")


def _by_project(user: User, rows: QuerySet[Conversation]) -> list[Group]:
    """Return the newest conversations of each project. The project with the newest conversation comes first."""
    projects = {project.pk: project for project in Project.objects.visible_to(user).only("id", "name")}
    place = Window(RowNumber(), partition_by=F("project"), order_by=[F("updated").desc(), F("id").desc()])
    rows = rows.filter(archived=False, project__in=projects)
    groups: dict[UUID, Group] = {}
    for conversation in rows.annotate(place=place).filter(place__lte=PROJECT_CONVERSATIONS + 1):
        pk = conversation.project_id
        if pk is None:
            continue
        group = groups.setdefault(pk, Group(projects[pk].name, project=projects[pk]))
        if len(group.conversations) < PROJECT_CONVERSATIONS:
            group.conversations.append(conversation)
        else:
            group.more = True
    return list(groups.values())[:MAX_PROJECTS]


def requested_list(request: Request, *, after: str | None = None, through: str | None = None) -> ConversationList:
    """Return the list with the view and tag of the request or, if it names none, of the session."""
    tags = list(Tag.objects.visible_to(request.user))
    view = chosen_view(request.session, request.GET.get("side"))
    tag = chosen_tag(request.session, request.GET.get("tag"), tags)
    page = list_conversations(request.user, view, after, through, tag)
    page.tags = tags
    page.chosen_tag = tag
    page.selecting = "choose" in request.GET
    return page


def side_context(request: Request) -> dict[str, Any]:
    deleted = request.GET.get("deleted")
    context: dict[str, Any] = {"side": requested_list(request, after=request.GET.get("conversations"))}
    if deleted == SEVERAL:
        ids = request.session.get(SEVERAL, [])
        context["deleted_several"] = Conversation.objects.restorable_by(request.user).filter(pk__in=ids)
    elif deleted:
        context["deleted"] = deleted_conversation(request.user, deleted)
    elif message := deleted_message(request.user, request.GET.get("deleted_message")):
        context["deleted_message"] = {"row": message, "words": describe_removal(message)}
    return context
