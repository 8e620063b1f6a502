"""Parts of addresses that are no strings."""

from datetime import date


class DayConverter:
    """A calendar day as `2026-11-21`; an address with another is not found."""

    regex = r"\d{4}-\d{2}-\d{2}"

    def to_python(self, value: str) -> date:
        return date.fromisoformat(value)

    def to_url(self, value: date) -> str:
        return value.isoformat()
