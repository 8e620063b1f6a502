"""The time inside the ids of rows: the first 48 bits of a UUIDv7 are Unix time in milliseconds."""

from datetime import datetime
from uuid import UUID


def id_at(moment: datetime) -> UUID:
    """Return the smallest id of a moment: a filter by primary key finds the rows from then on."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80)
