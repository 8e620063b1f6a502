"""Redis parsers that treat the refusals of a replica as a lost connection.

A primary that Sentinel demotes may keep its connections, and refuses commands on them that the new primary would
accept. These parsers turn such a refusal into a ConnectionError, which closes the connection. The next request connects
again, to the new primary at the same address. So the code that handles an unavailable Redis also handles a failover.
redis-py does this itself only for connections that Sentinel manages.
"""

from typing import Any, ClassVar

from redis.asyncio.connection import DefaultParser as AsyncDefaultParser
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as NotConnected


class NotWritable(NotConnected):
    """The Redis is a replica, or has fewer replicas than `min-replicas-to-write`."""


# The first words of the errors, in order: a write to a replica; a blocking read on a server that became a replica; any
# command to a replica without its primary (replica-serve-stale-data no); a write that too few replicas would receive.
_REFUSALS = dict.fromkeys(("READONLY", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"), NotWritable)


class FailoverParser(DefaultParser):  # type: ignore[misc,valid-type]  # redis-py chooses it when it is loaded
    EXCEPTION_CLASSES: ClassVar[Any] = {**DefaultParser.EXCEPTION_CLASSES, **_REFUSALS}


class AsyncFailoverParser(AsyncDefaultParser):  # type: ignore[misc,valid-type]  # as above
    EXCEPTION_CLASSES: ClassVar[Any] = {**AsyncDefaultParser.EXCEPTION_CLASSES, **_REFUSALS}
