"""The admin of OpenID providers. Only superusers change them, since a provider decides who a person is."""

from copy import copy
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from unfold.widgets import UnfoldAdminPasswordWidget

from accounts.models import OpenIDProvider
from accounts.openid import services
from accounts.openid.reading import read
from core.admin import RowAdmin, acting_user, button, display
from core.crypto import KEY_LOST, secret_state
from core.errors import ProductError
from core.permissions import has_right

SECRET_HELP = {
    "stored": gettext_noop("A secret is stored and never shown. Leave the field empty to keep the secret."),
    "lost": KEY_LOST,
    "none": gettext_noop("No secret is stored. It is encrypted and never shown again."),
}


class OpenIDProviderForm(forms.ModelForm[OpenIDProvider]):
    """The form of a provider. It never shows the stored secret; an empty field keeps it."""

    new_secret = forms.CharField(
        label="Client secret",
        required=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password", "spellcheck": "false"}),
    )

    class Meta:
        model = OpenIDProvider
        fields: ClassVar = [
            *("name", "issuer", "client_id", "enabled", "groups_claim", "admin_group"),
            *("creates_accounts", "matches_email", "only"),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._before = copy(self.instance)
        if "new_secret" in self.fields:
            self.fields["new_secret"].help_text = gettext(SECRET_HELP[secret_state(self.instance.client_secret)])

    @property
    def secret(self) -> str | None:
        return self.cleaned_data.get("new_secret") or None

    def clean(self) -> Any:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                services.require_secret_for(self._before, cleaned["issuer"], self.secret)
            except ProductError as error:
                self.add_error("new_secret", str(error.sentence))
        return cleaned


@admin.register(OpenIDProvider)
class OpenIDProviderAdmin(RowAdmin):
    empty_words = "No provider yet: people sign in with a password."
    kind = "openid_provider"
    form = OpenIDProviderForm
    list_display = ("name", "issuer", "enabled", "only", "secret_state")
    search_fields = ("name", "issuer")
    actions_detail = ("test",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets: list[Any] = [
            (None, {"fields": ("name", "issuer", "client_id", "new_secret", "enabled", "only")}),
            (_("People"), {"fields": ("creates_accounts", "matches_email", "groups_claim", "admin_group")}),
        ]
        if obj is not None:
            fieldsets[0][1]["description"] = self._addresses(request, obj)
        return fieldsets

    def _addresses(self, request: HttpRequest, provider: OpenIDProvider) -> str:
        names = ("login-openid-done", "openid-sign-out")
        redirect, sign_out = (request.build_absolute_uri(reverse(name, args=[provider.pk])) for name in names)
        return format_html(
            "{} <code>{}</code><br>{} <code>{}</code>",
            _("Enter this redirect address at the provider:"),
            redirect,
            _("If the provider supports back-channel logout, enter this address for it:"),
            sign_out,
        )

    @method_decorator(sensitive_post_parameters("new_secret"))
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().changeform_view(request, *args, **kwargs)

    @display(description="Secret", label={"stored": "success", "lost": "danger", "none": "info"})
    def secret_state(self, provider: OpenIDProvider) -> str:
        return secret_state(provider.client_secret)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user is a superuser. The right to view is enough to see providers."""
        return bool(request.user.is_active and request.user.is_superuser)

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(acting_user(request), "view", OpenIDProvider)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        services.store_provider(user=acting_user(request), provider=obj, secret=form.secret)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_provider(user=acting_user(request), provider=obj)

    @button("Test", icon="network_check")
    def test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Read the provider's discovery document and keys, and show a report."""
        provider = self.row(request, object_id)
        try:
            report = read(provider)
        except ProductError as error:
            self.message_user(request, error.sentence, messages.ERROR)
        else:
            self.message_user(request, report.sentence, messages.WARNING if report.lacks else messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:accounts_openidprovider_change", args=[provider.pk]))
