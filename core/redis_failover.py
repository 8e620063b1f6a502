"""Parsers that read the refusals of a Redis replica as the end of the connection.

A primary that Sentinel demotes may keep its connections, and then refuses on them what the new primary would take. Read
as ConnectionError, such a refusal closes the connection. The next request connects again, to the new primary at the
same address. So all that is done where Redis is away is done for this, too. redis-py does this itself only for
connections that Sentinel manages.
"""

from typing import Any, ClassVar

from redis.asyncio.connection import DefaultParser as AsyncDefaultParser
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as NotConnected


class NotWritable(NotConnected):
    """The Redis is a replica, or has fewer replicas than `min-replicas-to-write`."""


# The first words of the errors: for a write to a replica; for a read that blocked when the server became one; for any
# command to a replica without its primary (replica-serve-stale-data no); for a write that too few replicas would get.
_REFUSALS = dict.fromkeys(("READONLY", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"), NotWritable)


class FailoverParser(DefaultParser):  # type: ignore[misc,valid-type]  # redis-py chooses it when it is loaded
    EXCEPTION_CLASSES: ClassVar[Any] = {**DefaultParser.EXCEPTION_CLASSES, **_REFUSALS}


class AsyncFailoverParser(AsyncDefaultParser):  # type: ignore[misc,valid-type]  # as above
    EXCEPTION_CLASSES: ClassVar[Any] = {**AsyncDefaultParser.EXCEPTION_CLASSES, **_REFUSALS}
