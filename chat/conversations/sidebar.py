"""The list of conversations beside every page: by time, by project, or the archived ones; one page of it at a time.

A page begins after a place (`updated` and id of the row before it), not after a count: rows that come in above, or
move there because something was said in them, shift nothing.
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
from chat.conversations.services import deleted_conversation
from chat.models import Conversation, Run
from core.errors import ProductError
from projects.models import Project

PAGE = 60  # conversations
DEEPEST = 600  # that are refreshed in place; who has scrolled further gets the rest anew
OF_PROJECT = 8  # the newest of each project
MAX_PROJECTS = 50
SHOWN = ("id", "title", "updated", "project", "state")


class View(StrEnum):
    TIME = "time"
    PROJECTS = "projects"
    ARCHIVED = "archived"


@dataclass(slots=True)
class Group:
    """`project`: its conversations, of which there are `more`."""

    label: str
    conversations: list[Conversation] = field(default_factory=list)
    project: Project | None = None
    more: bool = False


@dataclass(slots=True)
class Side:
    """`through`: the place of the last row. `after`: the same when more rows follow it."""

    view: View
    groups: list[Group] = field(default_factory=list)
    after: str | None = None
    through: str | None = None

    @property
    def tag(self) -> str:
        """Changes with what is shown, not with every `updated`: a page that has it has nothing to put in its place."""
        rows = [
            (
                group.label,
                group.more,
                [(each.pk, each.title, each.state, vars(each)["run_waits"]) for each in group.conversations],
            )
            for group in self.groups
        ]
        return sha256(repr((self.view, bool(self.after), rows)).encode()).hexdigest()[:12]


def chosen_view(session: SessionBase, asked: str | None) -> View:
    """The view that is asked for, from then on kept for the session."""
    if asked in set(View) and asked != session.get("side", View.TIME):
        session["side"] = asked
    kept = session.get("side")
    return View(kept) if kept in set(View) else View.TIME


def side(user: User, view: View = View.TIME, after: str | None = None, through: str | None = None) -> Side:
    """The page after a place, or everything down to `through` and that page's rest; raises `bad_cursor`."""
    if view == View.PROJECTS:
        return Side(view, _by_project(user))
    rows = _rows(user).filter(archived=view == View.ARCHIVED)
    limit = PAGE
    if after:
        at, pk = _place(after)
        # The first condition says nothing new, but is one that the index can begin at.
        rows = rows.filter(Q(updated__lt=at) | Q(pk__lt=pk), updated__lte=at)
    elif through:
        at, pk = _place(through)
        limit = min(DEEPEST, max(PAGE, rows.filter(Q(updated__gt=at) | Q(updated=at, pk__gte=pk)).count()))
    found = list(rows[: limit + 1])
    shown = Side(view, _by_day(found[:limit]))
    if found[:limit]:
        last = found[:limit][-1]
        shown.through = f"{last.updated.isoformat()}_{last.pk}"
        shown.after = shown.through if len(found) > limit else None
    return shown


def _rows(user: User) -> QuerySet[Conversation]:
    waiting = Run.objects.filter(conversation=OuterRef("pk"), status=Run.Status.WAITING)
    rows = Conversation.objects.listed_for(user).annotate(run_waits=Exists(waiting))
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


def _by_project(user: User) -> list[Group]:
    """The newest of each project, the project with the newest first. What is in none is in the other view."""
    projects = {project.pk: project for project in Project.objects.visible_to(user).only("id", "name")}
    place = Window(RowNumber(), partition_by=F("project"), order_by=[F("updated").desc(), F("id").desc()])
    rows = _rows(user).filter(archived=False, project__in=projects)
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


def side_context(request: Request) -> dict[str, Any]:
    view = chosen_view(request.session, request.GET.get("side"))
    after = request.GET.get("conversations")
    gone = request.GET.get("deleted")
    return {
        "side": side(request.user, view, after),
        "deleted": deleted_conversation(request.user, gone) if gone else None,
    }
