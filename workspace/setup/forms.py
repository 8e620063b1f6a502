"""The forms of setup: the admin's own, asked in fewer words."""

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
# The kind of provider that each service is, and what it is called.
SERVICES = {
    "openai": (Provider.Kind.OPENAI, "OpenAI"),
    "anthropic": (Provider.Kind.ANTHROPIC, "Anthropic"),
    "ollama": (Provider.Kind.OLLAMA, "Ollama"),
    COMPATIBLE: (Provider.Kind.OPENAI, ""),
}


class ConnectForm(ProviderForm):
    """A service, its address and its key.

    What was entered wrongly is the same row when it is corrected: that of the same name, or the one that is named by
    `of` and has no models yet.
    """

    example = "http://127.0.0.1:8001/v1"  # an address

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
        service, address = data.get("service", ""), data.get("base_url", "").strip()
        kind, name = SERVICES.get(service, (Provider.Kind.OPENAI, ""))
        name = (name or urlsplit(address).netloc or address or service)[:100]
        given = {"service": service, "base_url": address, "kind": str(kind), "name": name}
        given |= {field: data.get(field, "") for field in ("new_api_key", "clear_api_key", "of")}
        super().__init__(given, instance=_meant(name, given["of"]))

    @property
    def key_stored(self) -> bool:
        return self._had_key

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("service") == COMPATIBLE and not cleaned.get("base_url") and "base_url" not in self.errors:
            sentence = Sentence("Enter the address of the server, such as {example}.", example=self.example)
            self.add_error("base_url", str(sentence))
        return cleaned


def _meant(name: str, pk: str) -> Provider:
    known = Provider.objects.filter(name=name).first()
    if known is None and pk:
        known = get_or_404(Provider.objects.all(), pk, "provider")
        known = known if not known.models.exists() else None
    return known or Provider()


def service_of(provider: Provider | None) -> str:
    if provider is None:
        return "openai"
    kinds = {kind: service for service, (kind, _name) in SERVICES.items() if service != COMPATIBLE}
    own = provider.kind != Provider.Kind.OPENAI or not provider.base_url
    return kinds.get(Provider.Kind(provider.kind), COMPATIBLE) if own else COMPATIBLE


class FirstPersonaForm(PersonaPageForm):
    """For everybody of the workspace; what is not asked is as for a new persona."""

    def __init__(self, user: User, data: Mapping[str, Any] | None = None) -> None:
        given: Any = None
        if data is not None:
            asked = {name: data.get(name, "") for name in ("name", "description", "instructions")}
            given = {**asked, "visibility": Persona.Visibility.WORKSPACE.value, "date_awareness": "day"}
        super().__init__(given, instance=Persona(owner=user), user=user)


def invitation(user: AbstractUser, data: Any = None) -> "forms.ModelForm[User]":
    form: Any = modelform_factory(User, form=InviteForm, fields=("username", "email"))
    form.acting = user
    made: forms.ModelForm[User] = form(data, auto_id="%s")
    return made
