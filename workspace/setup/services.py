"""The steps of the setup by the first administrator, and their progress."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from core.errors import ProductError
from core.sentences import Sentence
from llm import model_facts
from llm.models import Model, Provider
from llm.services import test_connection, upsert_model
from personas.models import Persona
from workspace.models import Workspace
from workspace.models.settings import workspace_at
from workspace.services import set_setup


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step of the setup. `name` is the name of its page (`setup:name`)."""

    name: str
    title: str | Promise
    done: bool


def begin_setup(*, user: User) -> bool:
    """Begin the setup at the first sign-in of a superuser. Returns False at any other sign-in."""
    if not user.is_superuser or workspace_at().setup != Workspace.Setup.NEW:
        return False
    set_setup(user=user, state=Workspace.Setup.OPEN)
    return True


def steps() -> list[SetupStep]:
    """Return the steps in order. Rows that the product creates, such as the bundled model, do not count."""
    models = Model.objects.usable().filter(provider__in=connected_providers())
    shared = Persona.objects.filter(visibility=Persona.Visibility.WORKSPACE).exclude(owner=None)
    return [
        SetupStep("provider", _("Provider"), connected_providers().exists()),
        SetupStep("models", _("Models"), models.exists()),
        SetupStep("default", _("Default model"), models.filter(default=True).exists()),
        SetupStep("persona", _("Persona"), shared.exists()),
        SetupStep("people", _("People"), User.objects.count() > 1),
    ]


def connected_providers() -> QuerySet[Provider]:
    """Return the providers that an administrator has connected, newest first."""
    bundled = Q(base_url=settings.BUNDLED_MODEL_URL) if settings.BUNDLED_MODEL_URL else Q(pk__in=())
    return Provider.objects.filter(enabled=True).exclude(bundled).order_by("-created")


def bundled_model() -> Model | None:
    if not settings.BUNDLED_MODEL_URL:
        return None
    return Model.objects.usable().filter(provider__base_url=settings.BUNDLED_MODEL_URL).first()


def list_offered_models(provider: Provider) -> list[str]:
    """Return the names of the models that a provider offers. Raises `ModelError`, or `no_models` (422) for none."""
    names = test_connection(provider=provider)
    if not names:
        sentence = Sentence(
            "The server answers, but offers no model. Load or download a model there and try again, or type a "
            "model's name in the next step."
        )
        raise ProductError("no_models", sentence, status=422)
    return sorted(names)


def add_models(*, user: User, provider: Provider, names: Sequence[str]) -> list[Model]:
    """Add models with the provider's facts about them. Raises `no_model_chosen` (422) or errors of `upsert_model`."""
    if not names:
        sentence = Sentence("Choose at least one model, or type the name of one.")
        raise ProductError("no_model_chosen", sentence, status=422)
    rows = [upsert_model(user=user, provider=provider, name=name) for name in names]
    model_facts.update_models(provider, names=names, try_tools=True)
    return rows
