"""Chain the audit log by hashes, to detect rows that somebody changed, removed or inserted in the database.

1. `sign` gives a new row its `digest`, an HMAC over its contents with a key that the database does not have. The
   personal fields (names, the address) have an HMAC of their own, so they can be erased without breaking the chain.
2. When the transaction is committed, a database trigger appends the row: `sequence` is the next number, `previous` is
   the `hash` of the row before, and `hash` = SHA-256(previous + digest + sequence).
3. `verify` checks the whole chain.

The lock of the chain is held only for an instant: docs/decisions/0023-the-audit-is-chained-at-commit.md says why.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC

from django.conf import settings

from core.audit.actions import ERASED
from core.audit.models import Entry

PERSONAL = ("actor_name", "token_name", "object_name", "address")
SIGNED = (
    *("how", "actor_id", "token_id", "request_id", "action", "object_type", "object_id", "changes"),
    "personal_digest",
)
BATCH_ROWS = 2_000  # rows in memory


@dataclass(frozen=True, slots=True)
class ChainFault:
    """A fault of a row. `sequence` is its position in the chain, or None for a row without a position."""

    sequence: int | None
    sentence: str


@dataclass(slots=True)
class ChainCheck:
    """The progress of a check: the number of checked `rows`, and the `sequence` and `hash` of the last one."""

    rows: int = 0
    sequence: int = 0
    hash: str = ""


def sign(entry: Entry) -> None:
    """Set the digests of a row that is about to be stored."""
    key = _keys()[0]
    entry.personal_digest = _hmac(key, _personal_contents(entry))
    entry.digest = _hmac(key, _signed_contents(entry))


def verify(check: ChainCheck) -> Iterator[ChainFault]:
    """Yield the faults of the chain, from its beginning on, and keep the progress in `check`."""
    keys = _keys()
    erased = _erased()
    first = True
    for entry in Entry.objects.exclude(sequence=None).order_by("sequence").iterator(BATCH_ROWS):
        if first:
            yield from _faults_of_start(entry)
            check.sequence = (entry.sequence or 1) - 1
            check.hash = entry.previous
            first = False
        yield from _faults(entry, check, keys, erased)
        check.rows += 1
        check.sequence = entry.sequence or 0
        check.hash = entry.hash
    for entry in Entry.objects.filter(sequence=None).iterator(BATCH_ROWS):
        yield ChainFault(
            None, f"The row {entry.pk} has no place in the chain. The database's trigger must have been switched off."
        )


def _faults_of_start(entry: Entry) -> Iterator[ChainFault]:
    """Yield a fault unless the row is the first ever, or follows the last row that the retention removed."""
    if entry.sequence == 1 and not entry.previous:
        return
    deletion = Entry.objects.filter(action="audit.forgotten").order_by("-sequence").first()
    through = deletion.changes if deletion is not None else {}
    if (through.get("through"), through.get("hash")) != ((entry.sequence or 1) - 1, entry.previous):
        yield ChainFault(entry.sequence, "The rows before this one are missing. The retention did not delete them.")


def _erased() -> set[str]:
    """Return the ids of erased users and of their tokens. A row about an erasure cannot be forged without a key."""
    rows = Entry.objects.filter(action=ERASED).values_list("object_id", "changes__tokens")
    return {pk for person, tokens in rows for pk in (person, *(tokens or ()))}


def _is_erased(entry: Entry, erased: set[str]) -> bool:
    """Return whether the row lost its personal fields because a user was erased. These cannot be verified then."""
    acted = str(entry.actor_id) in erased and not (entry.actor_name or entry.token_name or entry.address)
    return acted or (entry.object_id in erased and not entry.object_name)


def _faults(entry: Entry, before: ChainCheck, keys: list[bytes], erased: set[str]) -> Iterator[ChainFault]:
    number = entry.sequence or 0
    if number != before.sequence + 1:
        yield ChainFault(number, f"The {number - before.sequence - 1} rows before this one are missing.")
    if entry.previous != before.hash:
        yield ChainFault(number, "It does not follow the row before it.")
    if entry.hash != _expected_hash(entry):
        yield ChainFault(number, "Its hash does not match its contents.")
    if not any(hmac.compare_digest(entry.digest, _hmac(key, _signed_contents(entry))) for key in keys):
        yield ChainFault(number, "It was changed, or signed with a key that is no longer in ENCRYPTION_KEYS.")
    elif not _is_erased(entry, erased) and not any(
        hmac.compare_digest(entry.personal_digest, _hmac(key, _personal_contents(entry))) for key in keys
    ):
        yield ChainFault(number, "A name or the address of this row was changed.")


def _keys() -> list[bytes]:
    """Return the keys. The first key signs, and all keys verify."""
    return [hashlib.sha256(b"audit\0" + key.encode()).digest() for key in settings.ENCRYPTION_KEYS]


def _hmac(key: bytes, contents: Mapping[str, object]) -> str:
    text = json.dumps(contents, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _signed_contents(entry: Entry) -> Mapping[str, object]:
    """Return the contents that `digest` covers, as JSON values."""
    values = {name: getattr(entry, name) for name in SIGNED}
    ids = {name: str(values[name] or "") for name in ("actor_id", "token_id")}
    return {**values, **ids, "id": str(entry.pk), "at": entry.at.astimezone(UTC).isoformat()}


def _personal_contents(entry: Entry) -> Mapping[str, str]:
    """Return the contents that `personal_digest` covers."""
    return {"id": str(entry.pk), **{name: getattr(entry, name) for name in PERSONAL}}


def _expected_hash(entry: Entry) -> str:
    return hashlib.sha256(f"{entry.previous}{entry.digest}{entry.sequence}".encode()).hexdigest()
