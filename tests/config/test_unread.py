"""Data that waits in memory for slow clients is counted, and the connection ends if it is too much."""

import select
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.test import Client

from accounts.models import User
from chat.conversations.sharing import create_share
from chat.models import Message
from config.http.unread import MAX_UNREAD, MAX_UNREAD_PER_ADDRESS, UNREAD_GRACE, UnreadBytes
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import WAIT, Product, until

PAGE = 2_000_000
CONNECTIONS = 25
AT_ONCE = 12  # of which all are below the limit of an address
WRITTEN = 400_000  # bytes of an answer that may be in buffers of the connection; they do not count


class Connection:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def waiting(unread: UnreadBytes, count: int, *, address: str = "", now: float = 0.0) -> list[Connection]:
    """Return `count` waiting connections, each from an address of its own unless one is named."""
    connections = [Connection() for _ in range(count)]
    for number, connection in enumerate(connections):
        unread.add(connection, address=address or f"192.0.2.{number}", size=PAGE, now=now)
    return connections


def test_below_the_limits_nothing_is_ended() -> None:
    unread = UnreadBytes()
    connections = waiting(unread, MAX_UNREAD // PAGE)
    assert not unread.over and unread.end_some(now=1_000) == 0
    assert not any(each.aborted for each in connections)


def test_of_one_address_those_that_have_waited_longest_are_ended() -> None:
    unread = UnreadBytes()
    first = waiting(unread, 3, address="192.0.2.1", now=0)
    other = waiting(unread, 3, address="192.0.2.2", now=0)
    later = waiting(unread, MAX_UNREAD_PER_ADDRESS // PAGE - 1, address="192.0.2.1", now=1)
    assert unread.over
    assert unread.end_some(now=UNREAD_GRACE) == 2
    assert [each.aborted for each in first] == [True, True, False]
    assert not any(each.aborted for each in (*other, *later)) and not unread.over


def test_whoever_has_just_read_something_is_not_ended() -> None:
    unread = UnreadBytes()
    reading, *stuck = waiting(unread, MAX_UNREAD_PER_ADDRESS // PAGE + 1, address="192.0.2.1", now=0)
    unread.remove(reading)
    unread.add(reading, address="192.0.2.1", size=PAGE, now=UNREAD_GRACE - 1)
    assert unread.end_some(now=UNREAD_GRACE) == 1
    assert stuck[0].aborted and not reading.aborted


def test_of_all_addresses_together_those_that_have_waited_longest_are_ended() -> None:
    unread = UnreadBytes()
    connections = waiting(unread, MAX_UNREAD // PAGE + 5)
    assert unread.over
    assert unread.end_some(now=UNREAD_GRACE - 0.1) == 0
    assert unread.end_some(now=UNREAD_GRACE) == 5
    assert [each.aborted for each in connections[:6]] == [True] * 5 + [False]
    assert unread.total == MAX_UNREAD


def test_what_was_read_is_no_longer_counted() -> None:
    unread = UnreadBytes()
    for connection in waiting(unread, 100, address="192.0.2.1"):
        unread.remove(connection)
        unread.remove(connection)  # a connection may be ended while it waits
    assert unread.total == 0 and not unread.over


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError(f"process {pid} is gone")


def unread(product: Product, path: str, cookie: str) -> socket.socket:
    """Return a connection whose client reads nothing of the answer."""
    address = urlsplit(product.url)
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # before it connects, so the window stays small
    opened.settimeout(WAIT)
    opened.connect((address.hostname, address.port))
    opened.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    return opened


def is_ended(opened: socket.socket) -> bool:
    """Return whether the server has ended a connection of which nothing was read."""
    waiting = select.poll()
    waiting.register(opened, 0)  # errors and the end are always told
    return bool(waiting.poll(0))


def shared_page(person: Person) -> tuple[str, str]:
    conversation = past(person.user, 1)
    answer = Message.objects.filter(conversation=conversation, role=Message.Role.ASSISTANT)
    answer.update(parts=[{"type": "text", "text": "&" * 399_000}])  # five times as long in HTML
    return f"/s/{create_share(user=person.user, conversation=conversation).token}/", ""


def export(person: Person) -> tuple[str, str]:
    conversation = past(person.user, 6)
    answers = Message.objects.filter(conversation=conversation, role=Message.Role.ASSISTANT)
    answers.update(parts=[{"type": "text", "text": "word " * 80_000}])
    client = Client()
    client.force_login(User.objects.get(pk=person.user.pk))
    return f"/c/{conversation.pk}/export.md", f"sessionid={client.cookies['sessionid'].value}"


@pytest.mark.product
@pytest.mark.parametrize("large", [shared_page, export])
def test_clients_that_do_not_read_take_little_memory_and_are_ended(
    product: Product, person: Person, large: Callable[[Person], tuple[str, str]]
) -> None:
    path, cookie = large(person)
    pid = product.processes["web"].pid
    with product.http(headers={"Accept-Encoding": "identity", "Cookie": cookie}) as http:
        # Threads that make such answers at a time keep some memory for the next ones, whoever reads them.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            size = min(pool.map(lambda number: len(http.get(path).content), range(CONNECTIONS)))
        assert size > 1_950_000
        before = resident(pid)
        with ExitStack() as stack:
            opened = []
            for _ in range(CONNECTIONS):
                opened.append(stack.enter_context(unread(product, path, cookie)))
                assert opened[-1].recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
            assert resident(pid) - before < 150_000_000
            assert http.get(path).status_code == 200  # others are served all the while, of this address too
            most = MAX_UNREAD_PER_ADDRESS // (size - WRITTEN)
            until(lambda: sum(map(is_ended, opened)) >= CONNECTIONS - most, "what is too much has been ended")
            assert any(not is_ended(each) for each in opened)
            assert "connections were ended, since their clients" in product.log("web")
            assert http.get(path).status_code == 200
