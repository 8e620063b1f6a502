"""The forms that check a second factor: a code, the code of a new app, a passkey for a sign-in, a new passkey.

django-allauth checks passkeys (WebAuthn). The challenge is in the session. A device finds a passkey without a user
name. It asks for its PIN or a fingerprint (`MFA_WEBAUTHN_USER_VERIFICATION`), so a passkey counts as two factors.
"""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AddWebAuthnForm, AuthenticateWebAuthnForm
from django import forms
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from accounts.access import sign_ins
from accounts.access.login_throttle import LimitedTriesMixin, begin_code
from accounts.models import User
from accounts.second_factors import services
from core.crypto import decrypt, encrypt
from core.errors import ProductError
from core.sentences import Sentence

NEW_APP = "new_app"  # in the session: the encrypted secret of the app that is being set up
MAX_LENGTH = 20_000  # characters in a browser's answer
MAX_NAME_LENGTH = 100  # characters in a passkey's name
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # raised by malformed answers


def passkey_refused() -> ProductError:
    sentence = Sentence(
        "The passkey was not accepted: it is unknown here, or the page was open for too long. Try again."
    )
    return ProductError("passkey_refused", sentence, status=403)


class CodeForm(LimitedTriesMixin, forms.Form):
    """Checks a code of the person's app or a recovery code. The number of tries is limited."""

    code = forms.CharField(max_length=40)

    def __init__(self, request: HttpRequest, user: User, data: Any = None) -> None:
        super().__init__(data)
        self.request = request
        self.user = user

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        with self.trying(begin_code(self.request, self.user, services.kind_of_code(code))):
            if not services.takes_code(user=self.user, code=code):
                sign_ins.code_refused(self.user)
                sentence = _("This code is wrong or was used already. Enter the next code that your app shows.")
                raise ValidationError(sentence, code="wrong_code")
        return code


class NewAppForm(forms.Form):
    """Checks the first code of a new app. Until then the app's secret is in the session, encrypted.

    allauth's own form keeps it there as plain text. allauth's view shows and stores the form's `secret`.
    """

    code = forms.CharField(max_length=40)

    def __init__(self, *args: Any, user: User, session: SessionBase, **options: Any) -> None:
        super().__init__(*args, **options)
        stored = decrypt(session.get(NEW_APP, "")) if self.is_bound else ""
        self.secret = stored or services.new_secret()
        if not stored:
            session[NEW_APP] = encrypt(self.secret)

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        if services.step_of(self.secret, code) is None:
            raise ValidationError(services.wrong_code().detail, code="wrong_code")
        return code


class CredentialField(forms.JSONField):
    """Reads the answer of a browser to a challenge."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value[:MAX_LENGTH])
        except MALFORMED as error:
            raise _refusal() from error


class PasskeyForm(AuthenticateWebAuthnForm):  # type: ignore[misc]  # it has no types
    """Checks the passkey that has signed the challenge. Without a `user` it accepts the passkey of any person."""

    credential = CredentialField()

    def clean_credential(self) -> Authenticator:
        try:
            row: Authenticator = super().clean_credential()
        except MALFORMED as error:
            raise _refusal() from error
        if not row.user.is_active:
            raise _refusal()
        return row

    @property
    def row(self) -> Authenticator:
        row: Authenticator = self.cleaned_data["credential"]
        return row


def require_passkey(user: User, data: Any) -> Authenticator:
    """Return the passkey of this person that has signed the challenge. Raises `passkey_refused` (403)."""
    form = PasskeyForm(user=user, data=data)
    if not form.is_valid():
        raise passkey_refused()
    return form.row


class PasskeySignInForm(PasskeyForm):
    """Checks the passkey of a person who signs in. A person who is signed in must use their own passkey."""

    def __init__(self, request: HttpRequest, **options: Any) -> None:
        super().__init__(user=request.user if request.user.is_authenticated else None, **options)


class NewPasskeyForm(AddWebAuthnForm):  # type: ignore[misc]  # it has no types
    """Checks the new passkey that a browser has made."""

    credential = CredentialField()

    def clean_name(self) -> str:
        return str(super().clean_name())[:MAX_NAME_LENGTH]

    def clean(self) -> Any:
        try:
            return super().clean()
        except MALFORMED as error:
            raise _refusal() from error


def _refusal() -> ValidationError:
    refused = passkey_refused()
    return ValidationError(refused.detail, code=refused.code)
