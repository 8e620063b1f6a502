"""The forms of the setup: the admin's forms with fewer fields."""

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django import forms
from django.contrib.auth.models import AbstractUser
from django.forms import modelform_factory
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from accounts.people_admin import InviteForm
from core.requests import get_or_404
from core.sentences import Sentence
from llm.forms import ProviderForm
from llm.models import Provider
from personas.forms import PersonaPageForm
from personas.models import Persona

COMPATIBLE = "compatible"
# The kind of provider and the name of each service.
SERVICES = {
    "openai": (Provider.Kind.OPENAI, "OpenAI"),
    "anthropic": (Provider.Kind.ANTHROPIC, "Anthropic"),
    "ollama": (Provider.Kind.OLLAMA, "Ollama"),
    COMPATIBLE: (Provider.Kind.OPENAI, ""),
}


class ConnectForm(ProviderForm):
    """A service, its address and its key.

    A corrected entry updates the row of the previous entry: the row with the same name, or the row in `of` if that has
    no models.
    """

    example = "http://127.0.0.1:8001/v1"  # shown in the error for a missing address

    of = forms.CharField(required=False)

    service = forms.ChoiceField(
        choices=[
            ("openai", _("OpenAI")),
            ("anthropic", _("Anthropic")),
            ("ollama", _("Ollama")),
            (COMPATIBLE, _("Another server that speaks OpenAI's protocol")),
        ]
    )

    class Meta(ProviderForm.Meta):
        fields: ClassVar = ["name", "kind", "base_url"]

    def __init__(self, data: Mapping[str, Any] | None = None, *, provider: Provider | None = None) -> None:
        if data is None:
            initial = {"service": service_of(provider), "of": provider.pk if provider is not None else ""}
            super().__init__(instance=provider, initial=initial)
            return
        service = data.get("service", "")
        address = data.get("base_url", "").strip()
        kind, name = SERVICES.get(service, (Provider.Kind.OPENAI, ""))
        name = (name or urlsplit(address).netloc or address or service)[:100]
        fields = {"service": service, "base_url": address, "kind": str(kind), "name": name}
        fields |= {field: data.get(field, "") for field in ("new_api_key", "clear_api_key", "of")}
        super().__init__(fields, instance=_provider_for(name, fields["of"]))

    @property
    def key_stored(self) -> bool:
        return self._had_key

    def clean(self) -> Any:
        cleaned = super().clean()
        if cleaned.get("service") == COMPATIBLE and not cleaned.get("base_url") and "base_url" not in self.errors:
            sentence = Sentence("Enter the address of the server, such as {example}.", example=self.example)
            self.add_error("base_url", str(sentence))
        return cleaned


def _provider_for(name: str, pk: str) -> Provider:
    """Return the provider of this name, else the provider of this id if it has no models, else a new one."""
    provider = Provider.objects.filter(name=name).first()
    if provider is None and pk:
        earlier = get_or_404(Provider.objects.all(), pk, "provider")
        provider = earlier if not earlier.models.exists() else None
    return provider or Provider()


def service_of(provider: Provider | None) -> str:
    """Return the key in `SERVICES` of a provider."""
    if provider is None:
        return "openai"
    kinds = {kind: service for service, (kind, _name) in SERVICES.items() if service != COMPATIBLE}
    own = provider.kind != Provider.Kind.OPENAI or not provider.base_url
    return kinds.get(Provider.Kind(provider.kind), COMPATIBLE) if own else COMPATIBLE


class FirstPersonaForm(PersonaPageForm):
    """A persona for the whole workspace. All other fields get the defaults of a new persona."""

    def __init__(self, user: User, data: Mapping[str, Any] | None = None) -> None:
        fields: Any = None
        if data is not None:
            fields = {name: data.get(name, "") for name in ("name", "description", "instructions")}
            fields |= {"visibility": Persona.Visibility.WORKSPACE.value, "date_awareness": "day"}
        super().__init__(fields, instance=Persona(owner=user), user=user)


def invitation(user: AbstractUser, data: Any = None) -> "forms.ModelForm[User]":
    """Return the form of a new person with only name and address. `user` fills it in."""
    form_class: Any = modelform_factory(User, form=InviteForm, fields=("username", "email"))
    form_class.acting_user = user
    form: forms.ModelForm[User] = form_class(data, auto_id="%s")
    return form
