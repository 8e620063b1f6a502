"""Nobody sees two personas of one name: they could not be told apart where one is chosen."""

from django.contrib.auth.models import AnonymousUser

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence
from personas.models import Persona

NAMES = "names of personas"  # the lock under which they are given: of two who do at once the second finds the first's


def require_free_name(persona: Persona, before: Persona | None = None) -> None:
    """Raises `name_taken` (409) where its owner sees another persona of this name, which nobody could tell from it.

    What changes nothing of that beside `before`, as it is stored, passes. What only others see is not looked at: it is
    none of the owner's business.
    """

    def known(row: Persona) -> tuple[str, str, object]:
        return row.name.casefold(), row.visibility, row.owner_id

    if before is not None and known(persona) == known(before):
        return
    seen = Persona.objects.visible_to(persona.owner or AnonymousUser()).exclude(pk=persona.pk)
    if seen.filter(name__iexact=persona.name).exists():
        raise ProductError(
            "name_taken",
            Sentence("There is a persona called “{name}” already. Choose another name.", name=persona.name),
            status=409,
        )


def free_name(wanted: str, owner: User) -> str:
    """The name, with a number behind it where the owner sees a persona that is called so."""
    taken = {name.casefold() for name in Persona.objects.visible_to(owner).values_list("name", flat=True)}
    name, number = wanted[: Persona.MAX_NAME], 1
    while name.casefold() in taken:
        number += 1
        name = f"{wanted[: Persona.MAX_NAME - 6]} ({number})"
    return name
