"""Build the context around the composer of a new conversation: its project, or recent projects and personas."""

from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from django.db.models import Model as Row
from django.db.models import QuerySet

from accounts.models import User
from chat.conversations.team_shares import list_received
from chat.ledger.models import ModelCall
from chat.ledger.services import describe_total
from chat.models import Conversation
from chat.models.conversation_state import ChatScope
from personas.models import Persona
from projects.models import Project
from projects.pages import project_page

RECENT_ROWS = 3  # projects and also personas on the page
PROJECT_CONVERSATIONS = 50  # conversations on a project's page
RECENT_CONVERSATIONS = 50  # newest conversations whose projects and personas count as recent
Kind = TypeVar("Kind", bound=Row)


def composer_surroundings(user: User, scope: ChatScope, *, query: str) -> Mapping[str, object]:
    """Return the context of a conversation that does not exist yet.

    With a project, that is everything of its page; `query` is what is searched in its files. Without project and
    persona, it has recent projects and personas. Others fill up the lists, so that the page is not empty.
    """
    if scope.project is not None:
        return {**project_page(user, scope.project, query=query), **own_conversations(user, scope.project)}
    if scope.persona is not None:
        return {}
    rows = Conversation.objects.listed_for(user).order_by("-updated", "-id")
    used = list(rows.values_list("project", "persona")[:RECENT_CONVERSATIONS])
    return {
        "recent_projects": _recent_first(Project.objects.visible_to(user), (project for project, _persona in used)),
        "recent_personas": _recent_first(Persona.objects.visible_to(user), (persona for _project, persona in used)),
    }


def own_conversations(user: User, project: Project) -> Mapping[str, object]:
    """Return the context of the user's conversations in a project, and of those that members share with it."""
    rows = Conversation.objects.listed_for(user).filter(project=project, archived=False).order_by("-updated", "-id")
    # The sum includes all members' conversations; it reveals nothing of their contents.
    return {
        "project_conversations": rows[:PROJECT_CONVERSATIONS],
        "shared_here": list_received(user).filter(project=project)[:PROJECT_CONVERSATIONS],
        "spent": describe_total(ModelCall.objects.filter(project=project)),
    }


def _recent_first(rows: QuerySet[Kind], used: Iterable[UUID | None]) -> list[Kind]:
    """Return the rows that were used last, then others."""
    recent = [pk for pk in dict.fromkeys(used) if pk is not None][:RECENT_ROWS]
    visible = rows.in_bulk(recent)
    shown = [visible[pk] for pk in recent if pk in visible]
    return shown + list(rows.exclude(pk__in=visible)[: RECENT_ROWS - len(shown)])
