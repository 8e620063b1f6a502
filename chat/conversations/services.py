"""A conversation made, changed and deleted: pages and API all come through here."""

from collections.abc import Mapping
from typing import Any

from accounts.models import User
from chat.conversations import deletion
from chat.models import Conversation, Turn
from chat.models.conversation_state import list_changed, require_owner
from chat.turns.services import stop_turn
from core.errors import ProductError
from core.lookups import get_or_404
from llm.models import Model
from personas.models import Persona
from projects.models import Project

MAX_TITLE = 200


def visible_model(pk: object) -> Model | None:
    """None for no id. Raises `NotFound` for a model that is unknown or switched off."""
    return get_or_404(Model.objects.usable(), pk, "model") if pk else None


def visible_persona(user: User, pk: object) -> Persona | None:
    """None for no id. Raises `NotFound` for a persona that this user may not use."""
    rows = Persona.objects.visible_to(user).select_related("budget_profile", "model__provider")
    return get_or_404(rows, pk, "persona") if pk else None


def create_conversation(
    *, user: User, title: str = "", persona: Persona | None = None, project: Project | None = None
) -> Conversation:
    title = title.strip()[:MAX_TITLE]
    fields = {"title": title, "titled": bool(title), "persona": persona, "project": project}
    made = Conversation.objects.create(owner=user, **fields)
    list_changed(made)
    return made


def update_conversation(*, user: User, conversation: Conversation, fields: Mapping[str, Any]) -> Conversation:
    """Changes title, persona, project or archived; an empty title is refused."""
    require_owner(user, conversation)
    changes = {name: fields[name] for name in ("title", "persona", "project", "archived") if name in fields}
    if "title" in changes:
        changes["title"] = changes["title"].strip()[:MAX_TITLE]
        if not changes["title"]:
            raise ProductError("empty_title", "Give the conversation a title of at least one character.")
        changes["titled"] = True
    for name, value in changes.items():
        setattr(conversation, name, value)
    conversation.save(update_fields=list(changes))
    list_changed(conversation)
    return conversation


def delete_conversation(*, user: User, conversation: Conversation) -> None:
    """Stops what is being answered, then hides the conversation: `deletion.restore_conversation` takes that back."""
    require_owner(user, conversation)
    for turn in Turn.objects.live().filter(conversation=conversation).select_related("conversation"):
        stop_turn(user=user, turn=turn)
    deletion.hide(conversation)
