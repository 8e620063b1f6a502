"""Read values of an own export. Everything in it may be wrong, since anybody can write such a file."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from chat.conversations.importing.reading import as_text, parse_time
from core.json_types import JsonObject

MAX_SIZE = 2_000_000_000  # largest number; an integer column can hold 2,147,483,647


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """An object of an own export. Each method returns a member as a valid value, or an empty one."""

    values: JsonObject

    def text(self, name: str, limit: int) -> str:
        return as_text(self.values.get(name))[:limit]

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name)
        return value if isinstance(value, bool) else default

    def number(self, name: str) -> int:
        """Return a number from 0 to `MAX_SIZE`."""
        value = self.values.get(name)
        return min(max(int(value), 0), MAX_SIZE) if isinstance(value, int) else 0

    def share(self, name: str) -> float:
        """Return a number from 0 to 1."""
        value = self.values.get(name)
        return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else 0.0

    def one(self, name: str) -> "ExportedRow | None":
        """Return an object; None if the member is not an object."""
        value = self.values.get(name)
        return ExportedRow(value) if isinstance(value, dict) else None

    def moment(self, name: str) -> datetime | None:
        return parse_time(self.values.get(name))

    def choice(self, name: str, choices: Collection[str], default: str = "") -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) and value in choices else default

    def amount(self, name: str) -> Decimal | None:
        """Return an amount of money below a million."""
        value = self.values.get(name)
        try:
            amount = Decimal(value) if isinstance(value, str) and len(value) < 40 else None
        except InvalidOperation:
            return None
        return amount if amount is not None and amount.is_finite() and 0 <= amount < 1_000_000 else None

    def texts(self, name: str, limit: int, max_length: int) -> list[str]:
        """Return the first `limit` texts of a list, each with up to `max_length` characters."""
        value = self.values.get(name)
        texts = value[:limit] if isinstance(value, list) else []
        return [text[:max_length] for each in texts if (text := as_text(each))]

    def rows(self, name: str, limit: int) -> Iterator["ExportedRow"]:
        """Yield the first `limit` objects of a list."""
        yield from iterate_rows(self.values.get(name), limit)

    def counts(self, name: str, limit: int = 50) -> dict[str, int]:
        """Return the first `limit` whole numbers of an object, by name."""
        value = self.values.get(name)
        items = list(value.items())[:limit] if isinstance(value, dict) else []
        return {
            as_text(key)[:2_000]: each
            for key, each in items
            if isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAX_SIZE
        }


def iterate_rows(value: Any, limit: int) -> Iterator[ExportedRow]:
    """Yield the first `limit` objects of a list."""
    for each in value[:limit] if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield ExportedRow(each)


def is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
