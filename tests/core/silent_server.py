"""A server that accepts connections and never answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SilentServer:
    """On all addresses of the loopback network, so that one server can stand for many. `connections` counts them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    @property
    def connections(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self._connections.append(self._listener.accept()[0])


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    server = SilentServer()
    try:
        yield server
    finally:
        server.close()
