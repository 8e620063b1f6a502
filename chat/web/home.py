"""What the page of a new conversation shows beside the composer: where one is about to ask, and what was used last."""

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Model as Row
from django.db.models import QuerySet

from accounts.models import User
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from personas.models import Persona
from projects.models import Project

SHOWN = 3  # projects and personas each
LOOKED_AT = 50  # of the newest conversations
Kind = TypeVar("Kind", bound=Row)


def surroundings(user: User, scope: ChatScope) -> dict[str, Any]:
    """For a conversation that does not exist yet. In a project: how many files it has. Without
    project and persona: those of the newest conversations, or else others, so that the page is never empty."""
    if scope.project is not None:
        return {"project_files": scope.project.entries.count()}
    if scope.persona is not None:
        return {}
    rows = Conversation.objects.listed_for(user).order_by("-updated", "-id")
    used = list(rows.values_list("project", "persona")[:LOOKED_AT])
    return {
        "recent_projects": _first(Project.objects.visible_to(user), (project for project, _persona in used)),
        "recent_personas": _first(Persona.objects.visible_to(user), (persona for _project, persona in used)),
    }


def _first(rows: QuerySet[Kind], used: Iterable[UUID | None]) -> list[Kind]:
    """Those that were used last, then others."""
    wanted = [pk for pk in dict.fromkeys(used) if pk is not None][:SHOWN]
    found = rows.in_bulk(wanted)
    shown = [found[pk] for pk in wanted if pk in found]
    return shown + list(rows.exclude(pk__in=found)[: SHOWN - len(shown)])
