"""Define the admin's forms for providers, models, and the services that tools use."""

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminNullBooleanSelectWidget,
    UnfoldAdminPasswordWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from core.admin import CheckboxColumns
from core.crypto import KEY_LOST, secret_state
from core.errors import ProductError
from core.net.url_safety import is_http, origin
from llm.models import Effort, Model, OpenApiDocument, Provider, ToolServer, WebSearch
from llm.providers import DEFAULT_BASE_URLS
from llm.services import UNKNOWN_MODEL_VALUES
from llm.tools.openapi import MAX_DOCUMENT, OperationLine, ReadDocument, read_with_operations
from llm.tools.openapi_calls import fetch_document_blocking

KEY_HELP_TEXTS = {
    "stored": gettext_noop("A key is stored and never shown. Leave the field empty to keep the key."),
    "lost": KEY_LOST,
    "none": gettext_noop("No key is stored. It is encrypted and never shown again."),
}
PRICE_FIELDS = ("input_price", "output_price", "cached_input_price", "cache_write_price")


class ProviderForm(forms.ModelForm[Provider]):
    """Form of a provider. The stored key is never shown. An empty field keeps it, a switch removes it."""

    new_api_key = forms.CharField(
        label="API key",
        required=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password", "spellcheck": "false"}),
    )
    clear_api_key = forms.BooleanField(
        label="Remove the stored key", required=False, widget=UnfoldBooleanSwitchWidget()
    )

    class Meta:
        model = Provider
        fields: ClassVar = ["name", "kind", "base_url", "enabled", "silence_timeout", "max_tools"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state = secret_state(self.instance.api_key)
        self._had_key = state != "none"
        self._origin_before = _origin_of_key(self.instance.kind, self.instance.base_url)
        if "new_api_key" in self.fields:  # missing for users who may only view
            self.fields["new_api_key"].help_text = gettext(KEY_HELP_TEXTS[state])
        if not self._had_key:
            self.fields.pop("clear_api_key", None)

    @property
    def api_key(self) -> str | None:
        """Return the key to store: a new one, "" to remove the old one, None to keep it."""
        if self.cleaned_data.get("clear_api_key"):
            return ""
        return self.cleaned_data.get("new_api_key") or None

    def clean_new_api_key(self) -> str:
        key = str(self.cleaned_data["new_api_key"])
        if not (key.isascii() and key.isprintable()):
            raise forms.ValidationError(gettext("The API key has characters that a key cannot have. Paste it again."))
        return key

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("clear_api_key") and cleaned.get("new_api_key"):
            self.add_error("clear_api_key", gettext("Enter a new key or remove the stored one, not both."))
        # Otherwise a user who may edit a provider could read its key by sending it to a server of their own.
        moved = _origin_of_key(cleaned.get("kind", ""), cleaned.get("base_url", "")) != self._origin_before
        if self._had_key and self.api_key is None and not self.errors and moved:
            sentence = gettext(
                "The stored key belongs to the previous address. Enter the key for this one, or remove the stored key."
            )
            self.add_error("new_api_key", sentence)
        return cleaned


def _origin_of_key(kind: str, base_url: str) -> tuple[str, str | None, int | None] | None:
    url = base_url.strip() or DEFAULT_BASE_URLS.get(kind, "")
    return origin(url) if is_http(url) else None


class WebSearchForm(ProviderForm):
    """Form of a web search, with a provider's rules for address and key."""

    class Meta:
        model = WebSearch
        fields: ClassVar = ["name", "kind", "base_url"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        keyless = self.api_key == "" or (self.api_key is None and not self.instance.api_key)
        if cleaned.get("kind") == WebSearch.Kind.BRAVE and keyless and not self.errors:
            self.add_error("new_api_key", gettext("Brave requires a key. Enter one."))
        return cleaned


FLAG_FIELDS = ("approval_required", "reaches_out")
_SIGN_IN_FIELDS = ("access", "client_id", "issuer")  # fields that decide where and as which client the secret is sent


OPERATION_FIELDS = ("operations", "unasked")


class ToolServerForm(ProviderForm):
    """Form of a tool server. `document`: the new OpenAPI document, or None."""

    document: ReadDocument | None = None

    document_file = forms.FileField(
        label="OpenAPI document",
        required=False,
        widget=UnfoldAdminFileFieldWidget(),
        help_text="JSON or YAML, version 3. It replaces the stored document.",
    )
    document_address = forms.CharField(
        label="or its address",
        required=False,
        max_length=2_000,
        widget=UnfoldAdminTextInputWidget(),
        help_text="A public address of the JSON or YAML. Glasshouse fetches it once, when you save.",
    )

    class Meta:
        model = ToolServer
        fields: ClassVar = [
            *("name", "kind", "base_url", "command", "access", "secret_name", "client_id", "issuer", "scope"),
            *(*FLAG_FIELDS, "own_network", "enabled"),
            *OPERATION_FIELDS,
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sign_in_before = [getattr(self.instance, name) for name in _SIGN_IN_FIELDS]
        for name, label in (("new_api_key", _("Secret")), ("clear_api_key", _("Remove the stored secret"))):
            if name in self.fields:
                self.fields[name].label = label
        for name in OPERATION_FIELDS:
            if name in self.fields:
                self._offer_operations(name)

    def _offer_operations(self, name: str) -> None:
        """Replace the field by checkboxes for the operations of the stored document. Without a document, remove it."""
        field = self.fields.pop(name)
        row = OpenApiDocument.objects.filter(server_id=self.instance.pk).defer("content").first()
        if row is None:
            return
        lines: list[OperationLine] = [each for each in row.operations if not each["problem"]]
        self.fields[name] = forms.MultipleChoiceField(
            label=field.label,
            help_text=field.help_text,
            required=False,
            widget=CheckboxColumns(),
            choices=[
                (each["key"], f"{each['key']}: {each['summary']}" if each["summary"] else each["key"])
                for each in lines
                if name == "operations" or not each["safe"]
            ],
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("kind") == ToolServer.Kind.OPENAPI:
            try:
                self._read_document(cleaned)
            except ProductError as error:
                self.add_error("document_file", str(error.sentence))
        if not self.errors:
            self._check_sign_in(cleaned)
        return cleaned

    def _read_document(self, cleaned: dict[str, Any]) -> None:
        """Read the new document, if there is one. Raises `openapi_document_missing` and `openapi_document_refused`."""
        upload = cleaned.get("document_file")
        address = (cleaned.get("document_address") or "").strip()
        if upload:
            self.document = read_with_operations(upload.read(MAX_DOCUMENT + 1))
        elif address:
            self.document = read_with_operations(fetch_document_blocking(address), address)
        elif not OpenApiDocument.objects.filter(server_id=self.instance.pk).exists():
            raise ProductError(
                "openapi_document_missing", "Upload the OpenAPI document of this API, or enter its address."
            )
        if self.document is None:
            return
        if not cleaned.get("base_url"):
            cleaned["base_url"] = self.document.server
        # The page offered the operations of the old document. Those that the new one lacks cannot be chosen any more.
        keys = {each.key for each in self.document.operations if each.problem is None}
        for name in OPERATION_FIELDS:
            if name in cleaned:
                cleaned[name] = [key for key in cleaned[name] if key in keys]

    def _check_sign_in(self, cleaned: dict[str, Any]) -> None:
        """Add an error if the secret, the client ID and the issuer do not belong together."""
        if cleaned.get("access") == ToolServer.Access.PERSON:
            if cleaned.get("kind") == ToolServer.Kind.OPENAPI:
                sentence = gettext("People cannot sign in to an API with a document. Use a secret of the workspace.")
                self.add_error("access", sentence)
            has_secret = self.api_key or (self.api_key is None and self._had_key)
            if cleaned.get("client_id") and not cleaned.get("issuer"):
                # The secret of the client must reach only the server that the administrator named.
                self.add_error("issuer", gettext("Enter the issuer to which the client ID belongs."))
            if has_secret and not cleaned.get("client_id"):
                sentence = gettext("If each person signs in, a secret belongs to a client ID. Enter both or none.")
                self.add_error("client_id", sentence)
        changed = [cleaned.get(name) for name in _SIGN_IN_FIELDS] != self._sign_in_before
        if self._had_key and self.api_key is None and changed and not self.errors:
            sentence = gettext(
                "The stored secret belongs to the previous sign-in. Enter the secret for this one, or remove the "
                "stored secret."
            )
            self.add_error("new_api_key", sentence)


class ModelForm(forms.ModelForm[Model]):
    """Form of a model. Empty fields of a new model get its known values. A stored model has its own values."""

    class Meta:
        model = Model
        fields: ClassVar = [
            *("provider", "name", "display_name", "description", "icon", "colour", "order", "hidden"),
            *("context_window", "max_output", "max_images", "tokenizer"),
            *("vision", "tools", "reasoning", "several_system_messages", "efforts", "effort"),
            *("written_calls", "whole_answers", "untagged_reasoning", "own_effort"),
            *("enabled", "fallback", *PRICE_FIELDS),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        window = self.fields.get("context_window")
        if window is not None:
            window.required = False
            window.help_text = _(
                "Tokens. Empty: the value that the provider reports, else the known value, else 4,096."
            )
        if "efforts" in self.fields:
            field = self.fields["efforts"]
            self.fields["efforts"] = forms.MultipleChoiceField(
                choices=Effort.choices, label=field.label, help_text=field.help_text, required=False,
                widget=CheckboxColumns(),
            )  # fmt: skip
        if self.instance._state.adding and window is not None:
            self._mark_as_optional()

    def _mark_as_optional(self) -> None:
        self.initial["context_window"] = None
        for name in ("context_window", "max_images", *PRICE_FIELDS):
            self.fields[name].widget.attrs["placeholder"] = _("as known")
        for name in ("vision", "tools", "reasoning", "written_calls"):
            field = self.fields[name]
            widget = UnfoldAdminNullBooleanSelectWidget()
            widget.choices = [("unknown", _("As known")), ("true", _("Yes")), ("false", _("No"))]
            self.fields[name] = forms.NullBooleanField(
                label=field.label, help_text=field.help_text, widget=widget, required=False
            )

    def clean_efforts(self) -> list[str] | None:
        chosen: list[str] = self.cleaned_data["efforts"]
        return None if self.instance._state.adding and not chosen else chosen

    @property
    def left_empty(self) -> list[str]:
        """Return the empty fields that get known values.

        A stored model keeps empty prices, since an empty price is a valid value.
        """
        names = UNKNOWN_MODEL_VALUES if self.instance._state.adding else ["context_window", "max_output"]
        return [name for name in names if self.cleaned_data.get(name) is None]

    @property
    def typed(self) -> list[str]:
        """Return the fields that the admin has set. They no longer follow the provider's reports."""
        filled = [name for name in UNKNOWN_MODEL_VALUES if self.cleaned_data.get(name) is not None]
        return filled if self.instance._state.adding else self.changed_data
