"""Collect the context of a new conversation's page: its project, or recent projects and personas."""

from collections.abc import Iterable
from typing import TypedDict, TypeVar
from uuid import UUID

from django.db.models import Model as Row
from django.db.models import QuerySet

from accounts.models import User
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from personas.models import Persona
from projects.models import Project

SHOWN = 3  # projects and also personas on the page
CONSIDERED = 50  # newest conversations whose projects and personas count as recent
Kind = TypeVar("Kind", bound=Row)


class Surroundings(TypedDict, total=False):
    """The context of a new conversation, for its template. `project_files` is the number of the project's files."""

    project_files: int
    recent_projects: list[Project]
    recent_personas: list[Persona]


def surroundings(user: User, scope: ChatScope) -> Surroundings:
    """Return the context of a conversation that does not exist yet.

    With a project, it has the number of the project's files. Without project and persona, it has recent projects and
    personas. Others fill up the lists, so that the page is not empty.
    """
    if scope.project is not None:
        return {"project_files": scope.project.entries.count()}
    if scope.persona is not None:
        return {}
    rows = Conversation.objects.listed_for(user).order_by("-updated", "-id")
    used = list(rows.values_list("project", "persona")[:CONSIDERED])
    return {
        "recent_projects": _first(Project.objects.visible_to(user), (project for project, _persona in used)),
        "recent_personas": _first(Persona.objects.visible_to(user), (persona for _project, persona in used)),
    }


def _first(rows: QuerySet[Kind], used: Iterable[UUID | None]) -> list[Kind]:
    """Return the rows that were used last, then others."""
    recent = [pk for pk in dict.fromkeys(used) if pk is not None][:SHOWN]
    visible = rows.in_bulk(recent)
    shown = [visible[pk] for pk in recent if pk in visible]
    return shown + list(rows.exclude(pk__in=visible)[: SHOWN - len(shown)])
