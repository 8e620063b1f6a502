"""A conversation made, changed, deleted and brought back: pages and API all come through here.

One that is deleted is hidden at once, and gone a day later.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts.models import User
from audit.services import record
from chat.models import RESTORABLE_FOR, Conversation, Turn
from chat.models.conversation_state import list_changed, require_owner
from chat.turns.services import stop_turn
from core.errors import NotFound, ProductError
from core.requests import get_or_404, identifier
from llm.models import Model
from personas.models import Persona
from projects.models import Project

MAX_TITLE = 200
PURGED_AT_ONCE = 100  # conversations; the sweeper comes again in a minute


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
    """Changes title, persona, project, effort or archived; an empty title is refused."""
    require_owner(user, conversation)
    changes = {name: fields[name] for name in ("title", "persona", "project", "effort", "archived") if name in fields}
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
    """Stops what is being answered, then hides the conversation: `restore_conversation` takes that back."""
    require_owner(user, conversation)
    for turn in Turn.objects.live().filter(conversation=conversation).select_related("conversation"):
        stop_turn(user=user, turn=turn)
    with transaction.atomic():
        conversation.deleted = timezone.now()
        conversation.save(update_fields=["deleted"])
        record(user=user, action="conversation.deleted", row=conversation)
        list_changed(conversation)


@transaction.atomic
def restore_conversation(*, user: User, pk: object) -> Conversation:
    """Raises `not_found` for what was not deleted, or longer ago than `RESTORABLE_FOR`."""
    rows = Conversation.objects.restorable_by(user).filter(pk=identifier(pk, "conversation"))
    if not rows.update(deleted=None):
        raise NotFound("deleted conversation")
    restored = Conversation.objects.visible_to(user).get(pk=identifier(pk, "conversation"))
    record(user=user, action="conversation.restored", row=restored)
    list_changed(restored)
    return restored


def deleted_conversation(user: User, pk: str | None) -> Conversation | None:
    """The one that was deleted and can be restored, if there is such a one."""
    try:
        return Conversation.objects.restorable_by(user).filter(pk=UUID(pk or "")).first()
    except ValueError:
        return None


def purge() -> int:
    """Removes what was deleted too long ago to be restored, with all its messages. Returns how many those were."""
    over = Conversation.objects.filter(deleted__lt=timezone.now() - RESTORABLE_FOR).values("pk")[:PURGED_AT_ONCE]
    ids = [row["pk"] for row in over]
    with transaction.atomic():
        for pk in ids:
            record(user=None, action="conversation.erased", row=Conversation(pk=pk))
        Conversation.objects.filter(pk__in=ids).delete()
    return len(ids)
