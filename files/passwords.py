"""Passwords of protected files, between the person who enters one and the process that reads the file with it.

They are in the cache, encrypted, until the file is read, at most a quarter of an hour. They get into no row and no log.
"""

from django.core.cache import cache

from core import crypto
from files.models import File

KEPT = 900  # seconds
MOST = 1_000  # characters


def keep(file: File, password: str) -> None:
    cache.set(_key(file), crypto.encrypt(password), KEPT)


def take(file: File) -> str:
    """The password, which is forgotten here; empty if there is none."""
    kept = cache.get(_key(file))
    cache.delete(_key(file))
    return crypto.decrypt(kept) if kept else ""


def _key(file: File) -> str:
    return f"file-password:{file.pk}"
