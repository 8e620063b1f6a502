"""Secrets at rest: a text field encrypted with Fernet under `settings.ENCRYPTION_KEYS`."""

import base64
import hashlib
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    # Fernet wants 32 bytes; a hash lets an operator use any long random text as a key.
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())) for key in keys])


def encrypt(text: str) -> str:
    return _cipher(tuple(settings.ENCRYPTION_KEYS)).encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Empty when no key of the settings opens it: the operator then enters the secret again."""
    try:
        return _cipher(tuple(settings.ENCRYPTION_KEYS)).decrypt(token.encode()).decode()
    except InvalidToken:
        return ""


class EncryptedTextField(models.TextField[str, str]):
    """Plain text in Python, ciphertext in the database; the newest key encrypts, every key decrypts."""

    def get_prep_value(self, value: Any) -> Any:
        return encrypt(value) if value else ""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str:
        return decrypt(value) if value else ""
