"""Name the personas and models that a user may use as `model`.

The name of a model is its plain name, the name of a persona is the slug of its name. If several have the same name, the
oldest model keeps it, or else the oldest persona, so that a new row never takes over a name. The others are named by
their UUID. A UUID always works.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypedDict
from uuid import UUID

from django.utils.text import slugify

from accounts.access.rights import cached_models_of
from accounts.models import User
from core.errors import ProductError
from llm.models import Model
from personas.models import Persona
from personas.services import model_for


class AnthropicModelEntry(TypedDict):
    """An entry of `/v1/models` in Anthropic's protocol. `created_at` as in RFC 3339."""

    type: str
    id: str
    display_name: str
    created_at: str


class ModelEntry(TypedDict):
    """An entry of `/v1/models`."""

    id: str
    object: str
    created: int
    owned_by: str
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A persona, or a model without a persona, with the name that this user's programs send for it."""

    name: str
    row: Persona | Model
    user: User

    @property
    def persona(self) -> Persona | None:
        """Return the persona; None for a model without one."""
        return self.row if isinstance(self.row, Persona) else None

    @property
    def model(self) -> Model:
        """Return the model that will answer. Raises `no_model`."""
        return model_for(self.row, self.user) if isinstance(self.row, Persona) else self.row

    def as_json(self) -> ModelEntry:
        """Return the entry of `/v1/models`."""
        return {
            "id": self.name,
            "object": "model",
            "created": int(self.row.created.timestamp()),
            "owned_by": "glasshouse" if isinstance(self.row, Persona) else str(self.row.provider),
            "name": self.row.name if isinstance(self.row, Persona) else self.row.label,
            "description": self.row.description,
        }

    def as_anthropic(self) -> AnthropicModelEntry:
        """Return the entry of `/v1/models` in Anthropic's protocol."""
        created = self.row.created.isoformat()
        return {"type": "model", "id": self.name, "display_name": self.row.name, "created_at": created}


def named_models(user: User) -> list[NamedModel]:
    """Return the personas and models that the user may use, the personas first."""
    used_names: set[str] = set()
    rows = sorted(cached_models_of(user), key=lambda row: (row.created, row.pk))
    models = list(_name_rows(user, rows, used_names))
    personas = Persona.objects.visible_to(user).defer("instructions", "starter_messages")
    return [*_name_rows(user, personas.order_by("created", "pk"), used_names), *models]


def _name_rows(user: User, rows: Iterable[Persona | Model], used_names: set[str]) -> Iterator[NamedModel]:
    """Yield the rows with their names, and add these to `used_names`."""
    for row in rows:
        name = row.name if isinstance(row, Model) else slugify(row.name)
        if not name or name in used_names or _is_uuid(name):
            name = str(row.pk)
        used_names.add(name)
        yield NamedModel(name, row, user)


def _is_uuid(name: str) -> bool:
    try:
        return bool(UUID(name))
    except ValueError:
        return False


def find_named(user: User, name: str) -> NamedModel:
    """Return the persona or model with this name or UUID. Raises `model_not_found` (404)."""
    for each in named_models(user):
        if name in (each.name, str(each.row.pk)):
            return each
    sentence = f"The model “{name[:200]}” does not exist, or you may not use it. /v1/models lists those that you may."
    raise ProductError("model_not_found", sentence, status=404, param="model")
