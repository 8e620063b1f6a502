"""Pass the passwords of protected files from the user to the process that reads the file.

A password is in the cache, encrypted, until the file is read, but for at most 15 minutes. It is never written to a row
or a log.
"""

from django.core.cache import cache

from core import crypto
from files.models import File

LIFETIME_SECONDS = 900  # seconds
MAX_PASSWORD_LENGTH = 1_000  # characters


def store(file: File, password: str) -> None:
    cache.set(_key(file), crypto.encrypt(password), LIFETIME_SECONDS)


def take(file: File) -> str:
    """Return the password and delete it from the cache; empty if there is none."""
    encrypted = cache.get(_key(file))
    cache.delete(_key(file))
    return crypto.decrypt(encrypted) if encrypted else ""


def _key(file: File) -> str:
    return f"file-password:{file.pk}"
