"""What ends a HAProxy that hangs leaves one alone that is slow, or not there."""

import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.product import ROOT, free_port

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
