"""Encrypt stored secrets anew, so that old keys can be removed from `ENCRYPTION_KEYS`.

1. Each row with an `EncryptedTextField` is locked, read and written. The first key of the settings encrypts.
2. Secrets of second factors, which django-allauth stores in JSON, are encrypted anew in the same way.
3. A secret that no key can decrypt stays as it is, and is counted.

Rows of the audit stay signed with the key of their time (`core.audit.chain`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.db import models, transaction

from core.crypto import EncryptedTextField, decrypt, encrypt, is_lost

BATCH_ROWS = 500  # ids in memory
# Members of django-allauth's stored second factors that hold encrypted text: of an app for codes, of recovery codes,
# and of recovery codes that were taken over from another product.
SECRET_MEMBERS = ("secret", "seed", "migrated_codes")


@dataclass(frozen=True, slots=True)
class RotatedSecrets:
    """The numbers of a model's secrets: `rotated` ones, and `lost` ones, which no key can decrypt."""

    name: str
    rotated: int
    lost: int


def rotate_secrets() -> Iterator[RotatedSecrets]:
    """Encrypt every stored secret with the first key of the settings. Yields the numbers of each model.

    Locks one row at a time. It can be repeated, also after an interruption.
    """
    for model in apps.get_models():
        fields = [field.attname for field in model._meta.concrete_fields if isinstance(field, EncryptedTextField)]
        if fields:
            yield _rotate_rows(model, fields)
    yield _rotate_second_factors()


def _rotate_rows(model: type[models.Model], fields: list[str]) -> RotatedSecrets:
    rotated = lost = 0
    for pk in model._base_manager.values_list("pk", flat=True).iterator(BATCH_ROWS):
        with transaction.atomic():
            row = model._base_manager.select_for_update().filter(pk=pk).first()
            secrets = {name: getattr(row, name) for name in fields} if row is not None else {}
            readable = {name: secret for name, secret in secrets.items() if secret and not is_lost(secret)}
            if readable:
                model._base_manager.filter(pk=pk).update(**readable)
        rotated += len(readable)
        lost += sum(map(is_lost, secrets.values()))
    return RotatedSecrets(str(model._meta.verbose_name), rotated, lost)


def _rotate_second_factors() -> RotatedSecrets:
    rotated = lost = 0
    for pk in Authenticator.objects.values_list("pk", flat=True).iterator(BATCH_ROWS):
        with transaction.atomic():
            row = Authenticator.objects.select_for_update().filter(pk=pk).first()
            members = {name: row.data[name] for name in SECRET_MEMBERS if name in row.data} if row is not None else {}
            texts = [text for each in members.values() for text in (each if isinstance(each, list) else [each])]
            readable = [text for text in texts if not is_lost(decrypt(text))]
            if row is not None and readable:
                row.data = {**row.data, **{name: _encrypt_anew(value) for name, value in members.items()}}
                row.save(update_fields=["data"])
        rotated += len(readable)
        lost += len(texts) - len(readable)
    return RotatedSecrets("second factor", rotated, lost)


def _encrypt_anew(value: Any) -> Any:
    """Return one stored secret or a list of them, encrypted anew."""
    if isinstance(value, list):
        return [_encrypt_anew(each) for each in value]
    secret = decrypt(value)
    return value if is_lost(secret) else encrypt(secret)
