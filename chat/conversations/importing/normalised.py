"""A conversation of another product in the terms of this one, whatever its export looked like."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

MAX_MESSAGES = 50_000  # of one conversation
MAX_TEXT = 1_000_000  # characters of one message, as for one that is written here


class Unusable(Exception):
    """A conversation that cannot be imported; its text is the sentence that says why."""


@dataclass(slots=True)
class Said:
    """A message. `parent` is the `id` of the one above it, None for a first one. `files` are names."""

    id: str
    parent: str | None
    question: bool
    text: str
    created: datetime | None
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Foreign:
    """`messages` in an order in which parents come first; `leaf` is the `id` of the end of the branch on show."""

    source: str
    title: str
    created: datetime | None
    updated: datetime | None
    archived: bool
    messages: list[Said]
    leaf: str | None


def text_of(value: Any) -> str:
    """What PostgreSQL can store of a string, empty for anything else: neither NUL nor half a character."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Seconds since 1970, or ISO 8601; None for what is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def names(files: Any, key: str) -> list[str]:
    rows: Iterable[Any] = files if isinstance(files, list) else ()
    found = [text_of(row.get(key)).strip()[:255] for row in rows if isinstance(row, dict)]
    return [name for name in found if name][:50]


def checked(found: Foreign) -> Foreign:
    """Raises `Unusable` for a conversation that is empty or too large."""
    if not found.messages:
        raise Unusable("It holds no message with text.")
    if len(found.messages) > MAX_MESSAGES:
        raise Unusable(f"It has more than {MAX_MESSAGES:,} messages.")
    if any(len(said.text) > MAX_TEXT for said in found.messages):
        raise Unusable(f"One of its messages has more than {MAX_TEXT:,} characters.")
    return found


def in_pairs(messages: list[Said], leaf: str | None) -> tuple[list[Said], str | None]:
    """Answers that follow an answer become one with it: elsewhere each use of a tool makes a message of its own.

    Where several follow one answer, the first joins it, and the others stand beside it with its text repeated.
    """
    kept: dict[str, Said] = {}
    place: dict[str, str] = {}  # the id under which a message is kept
    joined: dict[str, Said] = {}  # the answer's own text, before another joined it
    for said in messages:
        above = kept.get(place.get(said.parent or "", ""))
        said.parent = above.id if above else None
        if above is None or said.question or above.question:
            kept[said.id], place[said.id] = said, said.id
        elif above.id not in joined:
            joined[above.id] = Said(above.id, above.parent, False, above.text, above.created, [*above.files])
            _join(above, said)
            place[said.id] = above.id
        else:
            before = joined[above.id]
            said.parent, said.text = before.parent, f"{before.text}\n\n{said.text}"
            said.files = [*before.files, *said.files]
            kept[said.id], place[said.id] = said, said.id
    return list(kept.values()), place.get(leaf or "")


def _join(above: Said, said: Said) -> None:
    above.text = f"{above.text}\n\n{said.text}"
    above.files = [*above.files, *said.files]
