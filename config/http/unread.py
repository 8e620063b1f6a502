"""How much of what was answered may wait in memory for clients to read it.

A body is in memory until its client has read it. A client that never reads would keep it for `UNREAD_SECONDS`, so one
that opens many connections could fill the memory of the process.
"""

from collections import Counter
from typing import NamedTuple, Protocol

# A page has about 4 MB of HTML at most, nearly always below 100 kB, and browsers ask for compressed pages. So a
# household or an office that reads slowly stays far below the first; the second is what a process can spare besides
# its own 350 MB.
MOST_OF_ADDRESS = 32_000_000  # bytes
MOST_OF_ALL = 128_000_000  # bytes
PATIENCE = 5.0  # seconds without reading anything, after which a connection may be ended when a limit is passed


class WaitingConnection(Protocol):
    def abort(self) -> None:
        """End the connection, and forget what waits."""


class _Waiting(NamedTuple):
    address: str
    size: int
    since: float  # seconds of the event loop's clock


class UnreadBytes:
    """The bodies that wait, by connection; the one whose client has read nothing for longest comes first."""

    def __init__(self) -> None:
        self._waiting: dict[WaitingConnection, _Waiting] = {}
        self._of_address: Counter[str] = Counter()
        self.total = 0

    def add(self, connection: WaitingConnection, *, address: str, size: int, now: float) -> None:
        """`size` bytes wait for this connection's client from now on. An empty `address` is not known."""
        self._waiting[connection] = _Waiting(address, size, now)
        self._of_address[address] += size
        self.total += size

    def remove(self, connection: WaitingConnection) -> None:
        """The client has read on, or is gone."""
        waiting = self._waiting.pop(connection, None)
        if waiting is None:
            return
        self.total -= waiting.size
        self._of_address[waiting.address] -= waiting.size
        if not self._of_address[waiting.address]:
            del self._of_address[waiting.address]

    @property
    def over(self) -> bool:
        """Whether a limit is passed."""
        if self.total <= MOST_OF_ADDRESS:
            return False
        return self.total > MOST_OF_ALL or any(self._over(address) for address in self._of_address)

    def end_some(self, now: float) -> int:
        """End connections that have read nothing for `PATIENCE`, until no limit is passed; return how many."""
        ended = 0
        for connection, waiting in list(self._waiting.items()):
            if now - waiting.since < PATIENCE:
                break  # those behind it have read later
            if self.total > MOST_OF_ALL or self._over(waiting.address):
                self.remove(connection)
                connection.abort()
                ended += 1
        return ended

    def _over(self, address: str) -> bool:
        return address != "" and self._of_address[address] > MOST_OF_ADDRESS
