"""Every change to a person's saved prompts, and what a / at the beginning of a message offers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import NotFound, ProductError
from core.lookups import get_or_404
from personas.models import Persona, SavedPrompt

OFFERED = 12


@dataclass(frozen=True, slots=True)
class Offered:
    """`name` is empty for a persona's starter message."""

    key: str
    name: str
    text: str


def create(*, user: User, name: str, text: str) -> SavedPrompt:
    """Raises `empty_prompt`, `prompt_name_taken` (409) and `too_many_prompts`."""
    if SavedPrompt.objects.visible_to(user).count() >= SavedPrompt.MOST:
        raise ProductError(
            "too_many_prompts", f"You have {SavedPrompt.MOST} prompts, which is the most. Delete one you do not use."
        )
    return _stored(SavedPrompt(owner=user), name, text)


def update(*, user: User, prompt: SavedPrompt, fields: dict[str, Any]) -> SavedPrompt:
    """`fields`: `name` and `text`, or one of them. Raises what `create` raises, and `not_found`."""
    _require_owner(user, prompt)
    return _stored(prompt, fields.get("name", prompt.name), fields.get("text", prompt.text))


def delete(*, user: User, prompt: SavedPrompt) -> None:
    _require_owner(user, prompt)
    prompt.delete()


def visible_prompt(user: User, pk: UUID) -> SavedPrompt:
    """Raises `NotFound`."""
    return get_or_404(SavedPrompt.objects.visible_to(user), pk, "prompt")


def offer(*, user: User, persona: Persona | None, typed: str) -> list[Offered]:
    """What may be meant by `typed` behind a /: one's own prompts by name, then the persona's starter messages."""
    typed = typed.strip().casefold()[:100]
    own = (Offered(str(each.pk), each.name, each.text) for each in SavedPrompt.objects.visible_to(user))
    starters = enumerate(persona.starter_messages) if persona else ()
    offered = [*own, *(Offered(f"starter-{number}", "", text) for number, text in starters)]
    return list(_matching(offered, typed))[:OFFERED]


def _matching(offered: Iterable[Offered], typed: str) -> Iterable[Offered]:
    """Those whose name, or text where they have none, holds what was typed."""
    return (each for each in offered if typed in (each.name or each.text).casefold())


def _stored(prompt: SavedPrompt, name: str, text: str) -> SavedPrompt:
    prompt.name, prompt.text = " ".join(name.split())[: SavedPrompt.MAX_NAME], text.strip()[: SavedPrompt.MAX_TEXT]
    if not prompt.name or not prompt.text:
        raise ProductError("empty_prompt", "Give the prompt a name and a text.")
    try:
        with transaction.atomic():
            prompt.save()
    except IntegrityError as error:
        raise ProductError(
            "prompt_name_taken", f"You have a prompt called “{prompt.name}” already. Choose another name.", status=409
        ) from error
    return prompt


def _require_owner(user: User, prompt: SavedPrompt) -> None:
    if prompt.owner_id != user.pk:
        raise NotFound("prompt")
