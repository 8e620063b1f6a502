"""The list of conversations beside every page: by time, by project, or the archived ones; with one tag, or all.

It is shown page by page. By time, the pinned ones come first. A page begins after a place (`updated` and id of the row
before it), not after a count, so rows that are new above it, or move there with a new message, shift nothing.
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
from chat.conversations.branches import removal
from chat.conversations.services import MOST_PINNED, deleted_conversation, deleted_message
from chat.models import Conversation, Tag, Turn
from chat.realtime.events import Approval
from core.errors import ProductError
from projects.models import Project
from projects.planner.models import Run

PAGE = 60  # conversations
SEVERAL = "several"  # in place of the id of a deleted conversation: the session has several ids
DEEPEST = 600  # conversations that are refreshed in place; further ones are loaded again
OF_PROJECT = 8  # the newest of each project
MAX_PROJECTS = 50
SHOWN = ("id", "title", "updated", "project", "state", "pinned")


class View(StrEnum):
    TIME = "time"
    PROJECTS = "projects"
    ARCHIVED = "archived"


@dataclass(slots=True)
class Group:
    """Conversations under one label, or those of a `project`, which has `more`."""

    label: str
    conversations: list[Conversation] = field(default_factory=list)
    project: Project | None = None
    more: bool = False


@dataclass(slots=True)
class Side:
    """The list of conversations. `through` is the place of its last row; `after` is the same where more rows follow.

    `tags` are all of the person's; `chosen_tag` is the one of the list. `choosing`: several can be chosen.
    """

    view: View
    tags: list[Tag] = field(default_factory=list)
    chosen_tag: Tag | None = None
    choosing: bool = False
    groups: list[Group] = field(default_factory=list)
    after: str | None = None
    through: str | None = None

    @property
    def tag(self) -> str:
        """Return a digest of the list as it is shown, without `updated`. A page with the same tag needs no new list."""
        rows = [
            (
                group.label,
                group.more,
                [
                    (each.pk, each.title, each.state, getattr(each, "needs_person", False))
                    for each in group.conversations
                ],
            )
            for group in self.groups
        ]
        tags = [(each.name, each == self.chosen_tag) for each in self.tags]
        return sha256(repr((self.view, tags, self.choosing, bool(self.after), rows)).encode()).hexdigest()[:12]


def chosen_view(session: SessionBase, requested: str | None) -> View:
    """Return the requested view, which the session remembers."""
    if requested in set(View) and requested != session.get("side", View.TIME):
        session["side"] = requested
    stored = session.get("side")
    return View(stored) if stored in set(View) else View.TIME


def chosen_tag(session: SessionBase, requested: str | None, tags: Sequence[Tag]) -> Tag | None:
    """Return the requested tag by its id, which the session remembers; None for an empty one."""
    if requested is not None:
        session["side_tag"] = requested[:40]
    stored = session.get("side_tag")
    return next((tag for tag in tags if str(tag.pk) == stored), None)


def side(
    user: User, view: View = View.TIME, after: str | None = None, through: str | None = None, tag: Tag | None = None
) -> Side:
    """Return the page after a place, or all pages down to `through`. Raises `bad_cursor`."""
    rows = _rows(user) if tag is None else _rows(user).filter(tags=tag)
    if view == View.PROJECTS:
        return Side(view, groups=_by_project(user, rows))
    listed = rows.filter(archived=view == View.ARCHIVED)
    pinned = rows.none() if after or view == View.ARCHIVED else listed.exclude(pinned=None)
    if view == View.TIME:
        listed = listed.filter(pinned=None)
    limit = PAGE
    if after:
        at, pk = _place(after)
        # `updated__lte` follows from the other condition, but the index can use it.
        listed = listed.filter(Q(updated__lt=at) | Q(pk__lt=pk), updated__lte=at)
    elif through:
        at, pk = _place(through)
        limit = min(DEEPEST, max(PAGE, listed.filter(Q(updated__gt=at) | Q(updated=at, pk__gte=pk)).count()))
    # One statement for both.
    both = list(listed[: limit + 1] if after else pinned[:MOST_PINNED].union(listed[: limit + 1], all=True))
    above = sorted((each for each in both if each.pinned and view == View.TIME), key=_last_said, reverse=True)
    recent = sorted((each for each in both if each not in above), key=_last_said, reverse=True)
    shown = Side(view, groups=[*([Group(_("Pinned"), above)] if above else []), *_by_day(recent[:limit])])
    if recent[:limit]:
        last = recent[:limit][-1]
        shown.through = f"{last.updated.isoformat()}_{last.pk}"
        shown.after = shown.through if len(recent) > limit else None
    return shown


def _last_said(row: Conversation) -> tuple[datetime, UUID]:
    return row.updated, row.pk


def _rows(user: User) -> QuerySet[Conversation]:
    run = Run.objects.filter(conversation=OuterRef("pk"), status=Run.Status.WAITING)
    asks = [{"approval": Approval.WAITING}]
    call = Turn.objects.live().filter(conversation=OuterRef("pk"), answer__parts__contains=asks)
    rows = Conversation.objects.listed_for(user).annotate(needs_person=Exists(run) | Exists(call))
    return rows.order_by("-updated", "-id").only(*SHOWN)


def _place(cursor: str) -> tuple[datetime, UUID]:
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
    """Return the newest conversations of each project, the project with the newest first."""
    projects = {project.pk: project for project in Project.objects.visible_to(user).only("id", "name")}
    place = Window(RowNumber(), partition_by=F("project"), order_by=[F("updated").desc(), F("id").desc()])
    rows = rows.filter(archived=False, project__in=projects)
    groups: dict[UUID, Group] = {}
    for conversation in rows.annotate(place=place).filter(place__lte=OF_PROJECT + 1):
        pk = conversation.project_id
        if pk is None:
            continue
        group = groups.setdefault(pk, Group(projects[pk].name, project=projects[pk]))
        if len(group.conversations) < OF_PROJECT:
            group.conversations.append(conversation)
        else:
            group.more = True
    return list(groups.values())[:MAX_PROJECTS]


def asked_side(request: Request, *, after: str | None = None, through: str | None = None) -> Side:
    """Return the list of the request and the session: its view, its tag, and with `choose` a choice of several."""
    tags = list(Tag.objects.visible_to(request.user))
    view = chosen_view(request.session, request.GET.get("side"))
    tag = chosen_tag(request.session, request.GET.get("tag"), tags)
    shown = side(request.user, view, after, through, tag)
    shown.tags = tags
    shown.chosen_tag = tag
    shown.choosing = "choose" in request.GET
    return shown


def side_context(request: Request) -> dict[str, Any]:
    deleted = request.GET.get("deleted")
    context: dict[str, Any] = {"side": asked_side(request, after=request.GET.get("conversations"))}
    if deleted == SEVERAL:
        ids = request.session.get(SEVERAL, [])
        context["deleted_several"] = Conversation.objects.restorable_by(request.user).filter(pk__in=ids)
    elif deleted:
        context["deleted"] = deleted_conversation(request.user, deleted)
    elif message := deleted_message(request.user, request.GET.get("deleted_message")):
        context["deleted_message"] = {"row": message, "words": removal(message)}
    return context
