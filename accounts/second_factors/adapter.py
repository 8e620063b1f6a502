"""Adapt django-allauth: when a fresh sign-in is due, how secrets are stored, and the product's name."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from django.contrib.auth.models import AbstractUser

from accounts.access.login import is_fresh, sign_in_again
from core.crypto import decrypt, encrypt, is_lost
from core.errors import ProductError
from core.sentences import Sentence
from workspace.models.settings import workspace_at


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # it has no types
    """Named by `ACCOUNT_ADAPTER`."""

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        """Require a fresh sign-in, with all factors that the person has.

        allauth's own rule never counts a sign-in as fresh, accepts a password without the second factor, and requires
        nothing of a person who has neither.
        """
        if not is_fresh(self.request):
            raise ImmediateHttpResponse(sign_in_again(self.request))
        return False

    def add_message(self, *values: Any, **options: Any) -> None:
        """Add no message: the response to each action shows its result."""


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # it has no types
    """Named by `MFA_ADAPTER`."""

    def encrypt(self, text: str) -> str:
        return encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the secret. Raises `secret_lost` (409): anyone can compute the codes of an empty secret."""
        secret = decrypt(encrypted_text)
        if is_lost(secret):
            sentence = Sentence(
                "Your second factor cannot be read, since the server's key (SECRET_KEY) is another now. Ask an "
                "administrator to remove it, or to add the old key to ENCRYPTION_KEYS."
            )
            raise ProductError("secret_lost", sentence, status=409)
        return secret

    def generate_authenticator_name(self, user: AbstractUser, type: str) -> str:
        """Return the default name of a passkey."""
        return "Passkey"

    def _get_site_name(self) -> str:
        return workspace_at().name
