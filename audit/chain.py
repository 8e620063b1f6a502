"""The chain of hashes: it shows whether a row was changed, taken out or put in by whoever can write to the database.

Of each row `digest` is an HMAC over what it says, with a key that the database does not have. Where the row stands is
given by the database as the transaction is committed: `sequence` counts on, `previous` is the `hash` of the row before,
and `hash` = SHA-256(previous + digest + sequence). What is personal in a row (names, the address) is under an HMAC of
its own: the chain itself does not depend on it.

Why the lock of the chain is held only for an instant: docs/decisions/0023-the-audit-is-chained-at-commit.md.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.conf import settings

from audit.actions import ERASED
from audit.models import Entry

PERSONAL = ("actor_name", "token_name", "object_name", "address")
SAID = ("how", "actor_id", "token_id", "request_id", "action", "object_type", "object_id", "changes", "personal_digest")
AT_ONCE = 2_000  # rows in memory


@dataclass(frozen=True, slots=True)
class Broken:
    """Of the row at this place of the chain; `sequence` is None for a row that has none."""

    sequence: int | None
    sentence: str


@dataclass(slots=True)
class Checked:
    """`rows` that were looked at; the last has `sequence` and `hash`."""

    rows: int = 0
    sequence: int = 0
    hash: str = ""


def sign(entry: Entry) -> None:
    """Gives a row that is about to be stored its digests."""
    key = _keys()[0]
    entry.personal_digest = _hmac(key, _personal(entry))
    entry.digest = _hmac(key, _said(entry))


def verify(checked: Checked) -> Iterator[Broken]:
    """Everything that is wrong with the chain, from its beginning on; counts in `checked`."""
    keys, erased = _keys(), _erased()
    first = True
    for entry in Entry.objects.exclude(sequence=None).order_by("sequence").iterator(AT_ONCE):
        if first:
            yield from _begins(entry)
            checked.sequence, checked.hash, first = (entry.sequence or 1) - 1, entry.previous, False
        yield from _wrong(entry, checked, keys, erased)
        checked.rows += 1
        checked.sequence, checked.hash = entry.sequence or 0, entry.hash
    for entry in Entry.objects.filter(sequence=None).iterator(AT_ONCE):
        yield Broken(None, f"The row {entry.pk} has no place in the chain: the database's trigger was switched off.")


def _begins(entry: Entry) -> Iterator[Broken]:
    """The first row there is is the first of all, or follows the last that the retention took away."""
    if entry.sequence == 1 and not entry.previous:
        return
    forgotten = Entry.objects.filter(action="audit.forgotten").order_by("-sequence").first()
    through = forgotten.changes if forgotten is not None else {}
    if (through.get("through"), through.get("hash")) != ((entry.sequence or 1) - 1, entry.previous):
        yield Broken(entry.sequence, "The rows before this one are gone, and no retention took them away.")


def _erased() -> set[str]:
    """The ids of people, and of their tokens, whose names were taken out; a row that says so cannot be written without
    a key."""
    rows = Entry.objects.filter(action=ERASED).values_list("object_id", "changes__tokens")
    return {pk for person, tokens in rows for pk in (person, *(tokens or ()))}


def _blank(entry: Entry, erased: set[str]) -> bool:
    """Whether the row names an erased person no more. Its other names cannot be verified then; ids still are."""
    acted = str(entry.actor_id) in erased and not (entry.actor_name or entry.token_name or entry.address)
    return acted or (entry.object_id in erased and not entry.object_name)


def _wrong(entry: Entry, before: Checked, keys: list[bytes], erased: set[str]) -> Iterator[Broken]:
    number = entry.sequence or 0
    if number != before.sequence + 1:
        yield Broken(number, f"The {number - before.sequence - 1} rows before this one are gone.")
    if entry.previous != before.hash:
        yield Broken(number, "It does not follow the row before it.")
    if entry.hash != _link(entry):
        yield Broken(number, "Its hash is not its own.")
    if not any(hmac.compare_digest(entry.digest, _hmac(key, _said(entry))) for key in keys):
        yield Broken(number, "It was changed, or written under a key that is no longer in ENCRYPTION_KEYS.")
    elif not _blank(entry, erased) and not any(
        hmac.compare_digest(entry.personal_digest, _hmac(key, _personal(entry))) for key in keys
    ):
        yield Broken(number, "A name or the address in it was changed.")


def _keys() -> list[bytes]:
    """The first signs, every one verifies."""
    return [hashlib.sha256(b"audit\0" + key.encode()).digest() for key in settings.ENCRYPTION_KEYS]


def _hmac(key: bytes, said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _said(entry: Entry) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in SAID}
    ids = {name: str(values[name] or "") for name in ("actor_id", "token_id")}
    return {**values, **ids, "id": str(entry.pk), "at": entry.at.astimezone(UTC).isoformat()}


def _personal(entry: Entry) -> dict[str, Any]:
    return {"id": str(entry.pk), **{name: getattr(entry, name) for name in PERSONAL}}


def _link(entry: Entry) -> str:
    return hashlib.sha256(f"{entry.previous}{entry.digest}{entry.sequence}".encode()).hexdigest()
