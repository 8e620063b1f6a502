"""Secrets at rest: a text field encrypted with Fernet under `settings.ENCRYPTION_KEYS`.

A secret that no key can decrypt is a `LostSecret`. Nothing may be sent or signed with it. Code that needs a secret
calls `is_lost` first, and raises `secret_lost` with a sentence that says what to do.
"""

import base64
import hashlib
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models
from django.utils.translation import gettext_noop

KEY_LOST = gettext_noop(
    "The stored secret cannot be read, since the server's key (SECRET_KEY) has changed. An "
    "administrator must enter the secret again, or add the old key to ENCRYPTION_KEYS."
)


class LostSecret(str):
    """A secret that no key can decrypt. It is an empty text, so that no page shows it.

    A saved row keeps the `ciphertext`, since an operator may restore the key.
    """

    ciphertext: str

    def __new__(cls, ciphertext: str) -> "LostSecret":
        lost = super().__new__(cls)
        lost.ciphertext = ciphertext
        return lost

    def __getnewargs__(self) -> tuple[str]:  # for copies and pickles
        return (self.ciphertext,)


def is_lost(secret: str) -> bool:
    return isinstance(secret, LostSecret)


def secret_state(secret: str) -> str:
    """Return the state of a secret, for administrators: `stored`, `lost` or `none`."""
    return "lost" if is_lost(secret) else "stored" if secret else "none"


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    # Fernet needs 32 bytes; a hash lets an operator use any long random text as a key.
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())) for key in keys])


def encrypt(text: str) -> str:
    return _cipher(tuple(settings.ENCRYPTION_KEYS)).encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Return the plain text, or a `LostSecret` if no key in the settings can decrypt it."""
    try:
        return _cipher(tuple(settings.ENCRYPTION_KEYS)).decrypt(token.encode()).decode()
    except InvalidToken:
        return LostSecret(token)


class EncryptedTextField(models.TextField[str, str]):
    """Plain text in Python, ciphertext in the database. The first key encrypts, every key decrypts."""

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, LostSecret):
            return value.ciphertext
        return encrypt(value) if value else ""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str:
        return decrypt(value) if value else ""
