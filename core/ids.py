"""The time inside the ids of rows: the first 48 bits of a UUIDv7 are Unix time in milliseconds."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

_START = datetime(1970, 1, 1, tzinfo=UTC)


def id_at(moment: datetime) -> UUID:
    """Return the smallest id of a moment, for a filter by primary key that selects the rows made since then."""
    return UUID(int=int(moment.timestamp() * 1_000) << 80)


def new_id_at(moment: datetime) -> UUID:
    """Return a new id of a moment. Ids of two moments that differ by a millisecond are in their order.

    The time is not computed with floating point, which could be off by a millisecond.
    """
    return uuid7(nanoseconds=(moment - _START) // timedelta(microseconds=1) * 1_000)
