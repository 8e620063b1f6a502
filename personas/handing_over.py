"""Change the owner of one persona (`services.update_persona`), or of all personas of a user who leaves."""

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.utils import timezone

from accounts.access.delegation import require_rank
from accounts.access.holds import require_movable
from accounts.models import User
from core.errors import ProductError
from core.locks import lock
from core.permissions import require_right
from core.sentences import Sentence
from personas.models import Persona
from personas.sharing.names import NAMES_LOCK, unique_name


def require_hand_over(user: AbstractUser, persona: Persona, to: User) -> None:
    """Check that the user may give the persona to the new owner `to`.

    Raises `not_active` (422), `outranked` and `right_missing` (403), and `legal_hold` (409).
    """
    require_right(user, "change", persona)
    if persona.owner is not None:
        require_rank(user, persona.owner)
    require_movable(persona)
    if not to.is_active:
        raise ProductError(
            "not_active", Sentence("“{to}” is deactivated. Choose an active person.", to=str(to)), status=422
        )


@transaction.atomic
def hand_over_personas(*, person: User, to: User) -> int:
    """Give all personas of the user `person` to the user `to`. Return their number. The caller has checked the rights.

    A persona whose name the new owner already sees gets a number in its name. Raises `legal_hold` (409).
    """
    lock(NAMES_LOCK)
    rows = list(Persona.objects.select_for_update().filter(owner=person).order_by("pk"))
    require_movable(*rows)
    for persona in rows:
        name = persona.name
        if Persona.objects.visible_to(to).exclude(pk=persona.pk).filter(name__iexact=name).exists():
            name = unique_name(name, to)
        Persona.objects.filter(pk=persona.pk).update(owner=to, name=name, updated=timezone.now())
    return len(rows)
