"""Write the audit. Services call `record` in the transaction of the act, so that both are stored or neither is."""

from collections.abc import Collection, Mapping
from copy import copy
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import FieldDoesNotExist
from django.db import connection, models, transaction
from django.utils import timezone

from core.audit import chain
from core.audit.actions import ACTIONS, ERASED
from core.audit.models import Entry
from core.audit.origin import How, current_origin

Row = TypeVar("Row", bound=models.Model)

MAX_DELETED_ROWS = 50_000  # rows
# The audit records the values of these fields. For all others, such as texts and keys, it records only the change.
_VALUE_FIELDS = (
    models.BooleanField,
    models.IntegerField,
    models.FloatField,
    models.DecimalField,
    models.DateField,
    models.UUIDField,
)


def record(
    *,
    user: AbstractUser | None,
    action: str,
    row: models.Model | None = None,
    name: str = "",
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Add an act to the audit. `user` is the actor; None is the product itself or a visitor who is not signed in.

    `name`: the name of the row; empty if it is text that a user wrote. `changes`: see `Entry`. Raises
    `TransactionManagementError` outside a transaction, and `ValueError` for an act that is not in `core.audit.actions`.
    """
    if action not in ACTIONS:
        raise ValueError(f"“{action}” is no act of core.audit.actions")
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("an act is recorded in the transaction that carries it out")
    source = current_origin()
    # The actor of a command is the system user who runs it, even if the command acts on behalf of a person.
    person = user if source.how != How.COMMAND else None
    kind, pk = ("", "") if row is None else (row._meta.label_lower, str(row.pk))
    entry = Entry(
        how=source.how.value,
        actor_id=None if person is None else person.pk,
        actor_name=source.name[:150] if person is None else person.get_username(),
        token_id=source.token_id,
        token_name=source.token_name[:100],
        address=source.address[:50],
        request_id=source.request_id[:64],
        action=action,
        object_type=kind,
        object_id=pk,
        object_name=name.replace("\0", "")[:200],
        changes=dict(changes or {}),
    )
    chain.sign(entry)
    entry.save(force_insert=True)
    if source.recorded is not None:
        source.recorded.add((kind, pk))


def record_saved(
    *, user: AbstractUser | None, kind: str, row: models.Model, before: models.Model | None, name: str = ""
) -> None:
    """Record that a row was added (`before` is None) or changed. Records nothing if no field changed."""
    changes = field_changes(before if before is not None else type(row)(), row)
    if before is None or changes:
        verb = "added" if before is None else "changed"
        record(user=user, action=f"{kind}.{verb}", row=row, name=name, changes=changes)


def load_stored(row: Row) -> Row | None:
    """Return the version of the row in the database, for `record_saved`; None for a new row."""
    return type(row)._base_manager.filter(pk=row.pk).first() if row.pk is not None else None


def field_changes(before: models.Model, after: models.Model) -> dict[str, list[Any] | None]:
    """Return the changed fields: [before, after] for flags, numbers, choices, dates and ids, None for other values."""
    changes: dict[str, list[Any] | None] = {}
    for field in after._meta.concrete_fields:
        old = getattr(before, field.attname)
        new = getattr(after, field.attname)
        if field.primary_key or not field.editable or getattr(field, "auto_now", False) or old == new:
            continue
        changes[field.name] = [to_json_value(old), to_json_value(new)] if _is_recorded(field) else None
    return changes


def changes_by_name(row: models.Model, fields: Mapping[str, Any]) -> dict[str, list[Any] | None]:
    """Return the changes as `field_changes` does, for values that are about to be set. Skips names without a field."""
    after = copy(row)
    for name, value in fields.items():
        try:
            field = row._meta.get_field(name)
        except FieldDoesNotExist:
            continue
        if isinstance(field, models.Field):
            field.save_form_data(after, value)
    return field_changes(row, after)


def _is_recorded(field: "models.Field[Any, Any]") -> bool:
    return isinstance(field, (*_VALUE_FIELDS, models.ForeignKey)) or bool(field.choices)


def to_json_value(value: Any) -> Any:
    """Return the value as JSON can store it without loss."""
    return value if value is None or isinstance(value, bool | int | str) else str(value)


@transaction.atomic
def record_erasure(
    *, user: AbstractUser | None, person: AbstractUser, tokens: Collection[UUID], changes: Mapping[str, Any]
) -> None:
    """Record by id that a person is erased. Remove their names, addresses and token names from earlier rows.

    The earlier rows keep the acts, with times and ids. The hash chain stays valid, since it includes only an HMAC of
    the removed fields.
    """
    ids = [str(pk) for pk in (person.pk, *tokens)]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL glasshouse.audit_erasure = 'on'")  # the trigger of the table checks it
        Entry.objects.filter(actor_id=person.pk).update(actor_name="", token_name="", address="")
        about_person = Entry.objects.filter(object_id__in=ids)
        about_person.update(object_name="")
        # The address of a failed sign-in may be the person's, too.
        about_person.filter(actor_id=None).update(address="")
        cursor.execute("SET LOCAL glasshouse.audit_erasure = 'off'")
    record(user=user, action=ERASED, row=person, changes={**changes, "tokens": ids[1:]})


@transaction.atomic
def delete_expired() -> int:
    """Delete rows older than `settings.AUDIT_DAYS` from the start of the chain, at most `MAX_DELETED_ROWS` per call.

    Returns the number of deleted rows. 0 days keep all rows. The newest row is never deleted. The deletion is recorded
    as an act, with the sequence number and hash of the last deleted row.
    """
    if not settings.AUDIT_DAYS:
        return 0
    limit = timezone.now() - timedelta(days=settings.AUDIT_DAYS)
    rows = Entry.objects.exclude(sequence=None).order_by("sequence")
    keep = rows.filter(at__gte=limit).first() or rows.last()
    first = rows.first()
    if keep is None or first is None or first.sequence == keep.sequence:
        return 0
    last = min((keep.sequence or 0) - 1, (first.sequence or 0) + MAX_DELETED_ROWS - 1)
    end = rows.get(sequence=last)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL glasshouse.audit_retention = 'on'")  # the trigger of the table checks it
        number, _ = rows.filter(sequence__lte=last).delete()
        cursor.execute("SET LOCAL glasshouse.audit_retention = 'off'")
    record(user=None, action="audit.forgotten", changes={"rows": number, "through": last, "hash": end.hash})
    return number
