"""The time inside the ids of rows: of a UUIDv7 the first 48 bits are Unix time in milliseconds."""

from datetime import datetime
from uuid import UUID


def id_at(moment: datetime) -> UUID:
    """The smallest id of a moment; rows from then on are found by their primary key."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80)
