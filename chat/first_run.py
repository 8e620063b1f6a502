"""What an empty home page offers: a few places to begin at, until somebody has begun."""

from dataclasses import dataclass

from accounts.models import User
from chat.models import Conversation
from projects.models import Project


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """`project`: the oldest that the person sees, for the first person of a workspace the demo project."""

    project: Project | None


def first_steps(user: User) -> FirstSteps | None:
    """None for whoever has a conversation, also an archived one."""
    if Conversation.objects.visible_to(user).exists():
        return None
    return FirstSteps(Project.objects.visible_to(user).order_by("created").first())
