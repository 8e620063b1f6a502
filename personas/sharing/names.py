"""Unique names of personas. No user may see two personas with the same name, since lists show only the name."""

from django.contrib.auth.models import AnonymousUser

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence
from personas.models import Persona

NAMES_LOCK = "names of personas"  # the lock for name changes, so that simultaneous changes see each other


def require_free_name(persona: Persona, before: Persona | None = None) -> None:
    """Raise `name_taken` (409) if the owner of the persona sees another persona with this name.

    `before`: the stored persona. If name, visibility and owner are unchanged, there is no check. Personas that only
    other users see do not count, since the error would reveal them.
    """

    def identity(row: Persona) -> tuple[str, str, object]:
        return row.name.casefold(), row.visibility, row.owner_id

    if before is not None and identity(persona) == identity(before):
        return
    visible = Persona.objects.visible_to(persona.owner or AnonymousUser()).exclude(pk=persona.pk)
    if visible.filter(name__iexact=persona.name).exists():
        raise ProductError(
            "name_taken",
            Sentence("There is a persona called “{name}” already. Choose another name.", name=persona.name),
            status=409,
        )


def unique_name(base: str, owner: User) -> str:
    """Return the name, cut to `MAX_NAME`. Add a number if the owner already sees a persona with this name.

    Call it while holding `NAMES_LOCK`, or check the name again under the lock.
    """
    used = {name.casefold() for name in Persona.objects.visible_to(owner).values_list("name", flat=True)}
    name = base[: Persona.MAX_NAME]
    number = 1
    while name.casefold() in used:
        number += 1
        name = f"{base[: Persona.MAX_NAME - 6]} ({number})"
    return name
