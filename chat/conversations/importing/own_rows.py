"""Read values of an own export. Everything in it may be wrong, since anybody can write such a file."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from chat.conversations.importing.reading import moment, text_of
from core.json_types import JsonObject

MAX_SIZE = 2_000_000_000  # of numbers; a column of integers holds a little more


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """An object of an own export. Each method returns a member as a valid value, or an empty one."""

    values: JsonObject

    def text(self, name: str, most: int) -> str:
        return text_of(self.values.get(name))[:most]

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
        """Return an object, None if the member is none."""
        value = self.values.get(name)
        return ExportedRow(value) if isinstance(value, dict) else None

    def moment(self, name: str) -> datetime | None:
        return moment(self.values.get(name))

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

    def texts(self, name: str, most: int, longest: int) -> list[str]:
        """Return the first `most` texts of a list, each with up to `longest` characters."""
        value = self.values.get(name)
        texts = value[:most] if isinstance(value, list) else []
        return [text[:longest] for each in texts if (text := text_of(each))]

    def rows(self, name: str, most: int) -> Iterator["ExportedRow"]:
        """Yield the first `most` objects of a list."""
        yield from rows_of(self.values.get(name), most)

    def counts(self, name: str, most: int = 50) -> dict[str, int]:
        """Return the first `most` whole numbers of an object, by name."""
        value = self.values.get(name)
        items = list(value.items())[:most] if isinstance(value, dict) else []
        return {
            text_of(key)[:2_000]: each
            for key, each in items
            if isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAX_SIZE
        }


def rows_of(value: Any, most: int) -> Iterator[ExportedRow]:
    """Yield the first `most` objects of a list."""
    for each in value[:most] if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield ExportedRow(each)


def is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
