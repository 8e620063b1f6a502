"""The time inside the ids of rows: the first 48 bits of a UUIDv7 are Unix time in milliseconds."""

from datetime import datetime
from uuid import UUID


def id_at(moment: datetime) -> UUID:
    """Return the smallest id of a moment, for a filter by primary key that selects the rows made since then."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80)
