"""What ends a HAProxy that hangs leaves one alone that is slow, full, or not there."""

import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest

from scripts.cluster.proxy import HAPROXY, PROXIES, Ports, Proxy, site
from tests.product import ROOT, free_port, until

PROGRAM = str(ROOT / "deploy" / "haproxy" / "haproxy_watch.py")
WELL = b"HTTP/1.0 200 OK\r\n\r\n"


class Scripted:
    """Answers each question as the script says, or says nothing until the other side has gone."""

    def __init__(self, script: str) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/alive"
        self.left = list(script)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self.left:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(1000)
                if self.left.pop(0) == "+":
                    connection.sendall(WELL)
                else:
                    connection.recv(1)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def watching() -> "Iterator[list[subprocess.Popen[str]]]":
    begun: list[subprocess.Popen[str]] = []
    yield begun
    for each in begun:
        each.kill()
        each.communicate()


def test_three_questions_in_a_row_without_an_answer_end_it(watching: "list[subprocess.Popen[str]]") -> None:
    with closing(Scripted("+--+---")) as proxy:
        command = [sys.executable, PROGRAM, proxy.url, "echo", "ended"]
        watching.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert watching[0].stdout is not None
        assert watching[0].stdout.readline() == "ended\n"
        assert proxy.left == []  # two in a row had not


def test_one_that_refuses_is_not_there_and_is_not_ended(watching: "list[subprocess.Popen[str]]") -> None:
    hangs = runpy.run_path(PROGRAM)["hangs"]
    with closing(Scripted("-+")) as proxy:
        assert [hangs(url) for url in (f"http://127.0.0.1:{free_port()}/", proxy.url, proxy.url)] == [
            False,
            True,
            False,
        ]


@pytest.mark.parametrize(("file", "part"), [("haproxy.cfg", "frontend glasshouse"), ("redis.cfg", "listen redis")])
def test_what_is_passed_on_takes_fewer_connections_than_haproxy(file: str, part: str) -> None:
    text = (HAPROXY / file).read_text()
    of_all, of_part = (
        int(re.findall(rf"^{begin}\n(?: .+\n)*? +maxconn (\d+)", text, re.M)[0]) for begin in ("global", part)
    )
    assert of_part + 90 <= of_all


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs HAProxy")
def test_a_full_haproxy_says_that_it_lives(tmp_path: Path) -> None:
    kind, ports = PROXIES["haproxy"], Ports(free_port(), free_port(), free_port(), (free_port(), free_port()))
    proxy = Proxy(kind, tmp_path, ports)
    small = (
        site(kind, ports, tmp_path / "proxy")
        .replace("maxconn 8192", "maxconn 20")
        .replace("maxconn 8000", "maxconn 10")
    )
    (tmp_path / "proxy" / "haproxy.cfg").write_text(small)
    alive = f"http://127.0.0.1:{ports.alive}/alive"
    proxy.process.start()
    try:
        until(lambda: _answers(alive), "HAProxy listens")
        with ExitStack() as held:
            for _ in range(20):  # those that it does not take wait in the system's queue
                held.enter_context(socket.create_connection(("127.0.0.1", ports.http), 10))
            with pytest.raises(httpx.TimeoutException):
                httpx.get(f"http://127.0.0.1:{ports.http}/", timeout=1)
            assert _answers(alive)
    finally:
        proxy.process.kill()


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=5).is_success
    return False
