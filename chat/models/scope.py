"""Where a question is asked: what a conversation, its project and its persona decide together."""

from dataclasses import dataclass

from chat.models import Conversation
from personas.models import Persona
from projects.models import Project


@dataclass(frozen=True, slots=True)
class ChatScope:
    """Where a question is asked: its conversation, if there is one yet, and the project and persona that hold there."""

    conversation: Conversation | None = None
    project: Project | None = None
    persona: Persona | None = None


def scope_of(conversation: Conversation) -> ChatScope:
    """A project that its owner has closed to the person counts no more."""
    project = conversation.project
    if project is not None and not Project.objects.visible_to(conversation.owner).filter(pk=project.pk).exists():
        project = None
    return ChatScope(conversation, project, conversation.persona or (project.persona if project else None))
