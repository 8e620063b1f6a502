"""Limit the memory of responses that wait for clients to read them.

A body stays in memory until its client has read it. The body of a client that never reads stays for `UNREAD_SECONDS`.
So a client with many connections could fill the memory of the process.
"""

from collections import Counter
from typing import NamedTuple, Protocol

# A page has at most about 4 MB of HTML, nearly always less than 100 kB, and browsers ask for compressed pages. So a
# household or an office with a slow line stays far below the first limit. A process itself needs 350 MB, and can spare
# the second limit.
MAX_UNREAD_PER_ADDRESS = 32_000_000  # bytes
MAX_UNREAD = 128_000_000  # bytes
UNREAD_GRACE = 5.0  # seconds that a client may read nothing, before its connection may be ended for a limit


class WaitingConnection(Protocol):
    def abort(self) -> None:
        """End the connection, and drop its body."""


class _WaitingBody(NamedTuple):
    address: str
    size: int
    since: float  # seconds of the event loop's clock


class UnreadBytes:
    """The waiting bodies by connection. The body whose client has not read for the longest time comes first."""

    def __init__(self) -> None:
        self._waiting: dict[WaitingConnection, _WaitingBody] = {}
        self._of_address: Counter[str] = Counter()
        self.total = 0

    def add(self, connection: WaitingConnection, *, address: str, size: int, now: float) -> None:
        """Add a body of `size` bytes that waits for the connection's client. An empty `address` means unknown."""
        self._waiting[connection] = _WaitingBody(address, size, now)
        self._of_address[address] += size
        self.total += size

    def remove(self, connection: WaitingConnection) -> None:
        """Remove the body of a connection whose client has read on, or has left."""
        waiting = self._waiting.pop(connection, None)
        if waiting is None:
            return
        self.total -= waiting.size
        self._of_address[waiting.address] -= waiting.size
        if not self._of_address[waiting.address]:
            del self._of_address[waiting.address]

    @property
    def over(self) -> bool:
        """Return whether a limit is exceeded."""
        if self.total <= MAX_UNREAD_PER_ADDRESS:
            return False
        return self.total > MAX_UNREAD or any(self._over(address) for address in self._of_address)

    def end_some(self, now: float) -> int:
        """End connections that read nothing for `UNREAD_GRACE`, until no limit is exceeded. Return their number."""
        ended = 0
        for connection, waiting in list(self._waiting.items()):
            if now - waiting.since < UNREAD_GRACE:
                break  # the later connections have read more recently
            if self.total > MAX_UNREAD or self._over(waiting.address):
                self.remove(connection)
                connection.abort()
                ended += 1
        return ended

    def _over(self, address: str) -> bool:
        return address != "" and self._of_address[address] > MAX_UNREAD_PER_ADDRESS
