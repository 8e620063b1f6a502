"""By the file of `deploy/`, nginx passes nothing on to a web process that hangs."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from contrib.cluster.proxy import PROXIES, Ports, Proxy, site
from tests.product import free_port, until

pytestmark = [pytest.mark.process, pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")]

SOONER = {"proxy_read_timeout 3s": "proxy_read_timeout 1s", "504 5s": "504 1s"}  # so that the test does not take long


class _Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"well")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Hanging:
    """A server that reads requests and never answers. `paths` are their addresses."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.paths: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connections = []
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self._socket.accept()
                connections.append(connection)
                self.paths.append(connection.recv(1000).split()[1].decode())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def well() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Well) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory that nginx's unprivileged workers can enter. They cannot enter pytest's own directories."""
    with tempfile.TemporaryDirectory(prefix="glasshouse-nginx-") as name:
        home = Path(name)
        home.chmod(0o711)
        yield home


def test_one_that_hangs_is_asked_nothing_but_whether_it_lives(home: Path, well: int) -> None:
    kind = PROXIES["nginx"]
    with closing(Hanging()) as hanging:
        ports = Ports(free_port(), free_port(), free_port(), (hanging.port, well))
        proxy = Proxy(kind, home, ports)
        text = site(kind, ports, home / "proxy")
        for default, sooner in SOONER.items():
            text = text.replace(default, sooner)
        (home / "proxy" / kind.file.name).write_text(text)
        url = f"https://127.0.0.1:{ports.https}/"
        proxy.process.start()
        try:
            with httpx.Client(verify=False, timeout=5) as client:  # noqa: S501 - it signs its certificate itself

                def answered() -> bool:
                    with suppress(httpx.ConnectError):
                        return client.get(url).text == "well"
                    return False

                until(answered, "nginx listens")
                until(lambda: answered() and len(hanging.paths) >= 3, "it is asked again and again")
        finally:
            proxy.process.kill()
        assert set(hanging.paths) == {"/livez"}
