"""The watchdog kills a HAProxy that hangs, and leaves one alone that is slow, full, or not running."""

import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from contrib.cluster.proxy import HAPROXY, PROXIES, Ports, Proxy, site
from tests.product import ROOT, WAIT, free_port, until

pytestmark = pytest.mark.process

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
def program() -> Any:
    spec = importlib.util.spec_from_file_location("haproxy_watch", PROGRAM)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_one_that_never_answers_is_ended() -> None:
    with closing(Scripted("---")) as proxy:
        command = [sys.executable, PROGRAM, proxy.url, "echo", "ended"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            try:
                assert watching.stdout is not None
                assert watching.stdout.readline() == "ended\n"
            finally:
                watching.kill()


@pytest.mark.parametrize(
    ("answers", "ended"), [("+--+--+", 0), ("+--+---", 1), ("--+---+--", 1), ("-----", 1), ("------", 2)]
)
def test_three_questions_in_a_row_without_an_answer_end_it(program: Any, answers: str, ended: int) -> None:
    missed = list(program.missed_in_a_row(each == "-" for each in answers))
    assert (program.TIMES, missed.count(program.TIMES)) == (3, ended)


def test_one_that_says_nothing_hangs_and_one_that_answers_or_refuses_does_not(program: Any) -> None:
    with closing(Scripted("-+")) as proxy:
        assert program.hangs(proxy.url, 0.2)
        assert not program.hangs(proxy.url, WAIT)  # whatever else the machine does
        assert not program.hangs(f"http://127.0.0.1:{free_port()}/")


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
        with ExitStack() as stack:
            for _ in range(20):  # those that it does not take wait in the system's queue
                stack.enter_context(socket.create_connection(("127.0.0.1", ports.http), 10))
            with pytest.raises(httpx.TimeoutException):
                httpx.get(f"http://127.0.0.1:{ports.http}/", timeout=1)
            assert _answers(alive)
    finally:
        proxy.process.kill()


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=WAIT).is_success
    return False
