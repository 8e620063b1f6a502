"""What a Redis says that cannot be written to, taken for the end of the connection.

A first that Sentinel demotes may keep its connections, and then refuses on them for good what the new first would take.
Read as ConnectionError, such a refusal closes the connection, and whoever asks again connects anew, to whatever answers
at the address by then: all that is done where Redis is away is done for this, too. redis-py does so itself only for
connections that Sentinel manages.
"""

from typing import Any, ClassVar

from redis.asyncio.connection import DefaultParser as AsyncDefaultParser
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as NotConnected


class NotWritable(NotConnected):
    """It is a replica, or has fewer replicas than `min-replicas-to-write`."""


# The first words of its errors: of a write to a replica; of a read that blocked when it became one; of anything that is
# asked of one without its first (replica-serve-stale-data no); of a write that too few replicas would get.
_REFUSALS = dict.fromkeys(("READONLY", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"), NotWritable)


class Parser(DefaultParser):  # type: ignore[misc,valid-type]  # redis-py chooses it when it is loaded
    EXCEPTION_CLASSES: ClassVar[dict[str, Any]] = {**DefaultParser.EXCEPTION_CLASSES, **_REFUSALS}


class AsyncParser(AsyncDefaultParser):  # type: ignore[misc,valid-type]  # as above
    EXCEPTION_CLASSES: ClassVar[dict[str, Any]] = {**AsyncDefaultParser.EXCEPTION_CLASSES, **_REFUSALS}
