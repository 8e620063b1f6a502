"""What can be named as `model`: every persona and every model that the person may use, the model as itself.

A model has its plain name, a persona the slug of its own. Of several with one name the oldest keeps it, and a model
before any persona, so that nobody's new persona takes a name over; the others have their UUID. The UUID always works.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.text import slugify

from accounts.access.rights import cached_models_of
from accounts.models import User
from core.errors import ProductError
from llm.models import Model
from personas.models import Persona
from personas.services import model_for


@dataclass(frozen=True, slots=True)
class Offered:
    """Either a persona or a model as itself, to this user."""

    name: str
    row: Persona | Model
    user: User

    @property
    def persona(self) -> Persona | None:
        return self.row if isinstance(self.row, Persona) else None

    @property
    def model(self) -> Model:
        """The model that will answer. Raises `no_model`."""
        return model_for(self.row, self.user) if isinstance(self.row, Persona) else self.row

    def as_json(self) -> dict[str, Any]:
        persona = self.persona
        return {
            "id": self.name,
            "object": "model",
            "created": int(self.row.created.timestamp()),
            "owned_by": "glasshouse" if isinstance(self.row, Persona) else str(self.row.provider),
            "name": self.row.name,
            "description": persona.description if persona else "",
        }


def offered(user: User) -> list[Offered]:
    """The personas first, then the models."""
    taken: set[str] = set()
    rows = sorted(cached_models_of(user), key=lambda row: (row.created, row.pk))
    models = list(_named(user, rows, taken))
    personas = Persona.objects.visible_to(user).defer("instructions", "starter_messages")
    return [*_named(user, personas.order_by("created", "pk"), taken), *models]


def _named(user: User, rows: Iterable[Persona | Model], taken: set[str]) -> Iterator[Offered]:
    for row in rows:
        name = row.name if isinstance(row, Model) else slugify(row.name)
        if not name or name in taken or _is_uuid(name):
            name = str(row.pk)
        taken.add(name)
        yield Offered(name, row, user)


def _is_uuid(name: str) -> bool:
    try:
        return bool(UUID(name))
    except ValueError:
        return False


def find(user: User, name: str) -> Offered:
    """By name or UUID. Raises `model_not_found` (404)."""
    for each in offered(user):
        if name in (each.name, str(each.row.pk)):
            return each
    sentence = f"The model “{name[:200]}” does not exist, or you may not use it. /v1/models lists those that you may."
    raise ProductError("model_not_found", sentence, status=404, param="model")
