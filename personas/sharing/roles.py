"""Roles of users for a persona: through ownership, a share, a group's share, or the visibility of the persona."""

from uuid import UUID

from accounts.models import EDITING, Role, User, strongest
from core.errors import NotFound, ProductError
from core.permissions import has_right
from core.requests import get_or_404
from core.sentences import Sentence
from personas.models import Persona, PersonaShare


def visible_persona(user: User, pk: UUID | str) -> Persona:
    """Return a persona. Raises `NotFound` if it does not exist or the user may not use it."""
    rows = Persona.objects.visible_to(user).select_related("owner", "budget_profile", "model__provider")
    return get_or_404(rows, pk, "persona")


def strongest_role(user: User, persona: Persona) -> Role | None:
    """Return the strongest role of the user, including roles of their groups; None if they cannot see the persona."""
    if persona.owner_id == user.pk:
        return Role.OWNER
    mine = getattr(persona, "mine", None)  # prefetched for lists, with one query for all
    if mine is None:
        mine = PersonaShare.objects.of(user).filter(persona=persona)
    roles = {share.role for share in mine}
    return strongest(roles | ({Role.READER} if persona.visibility == Persona.Visibility.WORKSPACE else set()))


def is_editor(user: User, persona: Persona) -> bool:
    return strongest_role(user, persona) in EDITING or has_right(user, "change", persona)


def is_owner(user: User, persona: Persona) -> bool:
    return strongest_role(user, persona) == Role.OWNER or has_right(user, "change", persona)


def require_editor(*, user: User, persona: Persona) -> None:
    """Raise `not_owner` (403) if the user may not change the persona, and `NotFound` if they cannot see it."""
    if is_editor(user, persona):
        return
    if strongest_role(user, persona) is None:
        raise NotFound("persona")
    sentence = Sentence(
        "You can use this persona, but not change it. Duplicate it and change the copy, or ask its owner."
    )
    raise ProductError("not_owner", sentence, status=403)


def require_owner(*, user: User, persona: Persona) -> None:
    """Require an owner, or an administrator with the right to change personas. Raises as `require_editor` does."""
    require_editor(user=user, persona=persona)
    if not is_owner(user, persona):
        raise ProductError("not_owner", "Only an owner of this persona can do this. Ask an owner.", status=403)
