"""What waits in memory for clients to read it: counted, and ended where it becomes too much."""

from config.http.unread import MOST_OF_ADDRESS, MOST_OF_ALL, PATIENCE, UnreadBytes

PAGE = 2_000_000


class Connection:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def waiting(unread: UnreadBytes, count: int, *, address: str = "", now: float = 0.0) -> list[Connection]:
    """`count` connections that wait, each from an address of its own unless one is named."""
    connections = [Connection() for _ in range(count)]
    for number, connection in enumerate(connections):
        unread.add(connection, address=address or f"192.0.2.{number}", size=PAGE, now=now)
    return connections


def test_below_the_limits_nothing_is_ended() -> None:
    unread = UnreadBytes()
    connections = waiting(unread, MOST_OF_ALL // PAGE)
    assert not unread.over and unread.end_some(now=1_000) == 0
    assert not any(each.aborted for each in connections)


def test_of_one_address_those_that_have_waited_longest_are_ended() -> None:
    unread = UnreadBytes()
    first = waiting(unread, 3, address="192.0.2.1", now=0)
    other = waiting(unread, 3, address="192.0.2.2", now=0)
    later = waiting(unread, MOST_OF_ADDRESS // PAGE - 1, address="192.0.2.1", now=1)
    assert unread.over
    assert unread.end_some(now=PATIENCE) == 2
    assert [each.aborted for each in first] == [True, True, False]
    assert not any(each.aborted for each in (*other, *later)) and not unread.over


def test_whoever_has_just_read_something_is_not_ended() -> None:
    unread = UnreadBytes()
    reading, *stuck = waiting(unread, MOST_OF_ADDRESS // PAGE + 1, address="192.0.2.1", now=0)
    unread.remove(reading)
    unread.add(reading, address="192.0.2.1", size=PAGE, now=PATIENCE - 1)
    assert unread.end_some(now=PATIENCE) == 1
    assert stuck[0].aborted and not reading.aborted


def test_of_all_addresses_together_those_that_have_waited_longest_are_ended() -> None:
    unread = UnreadBytes()
    connections = waiting(unread, MOST_OF_ALL // PAGE + 5)
    assert unread.over
    assert unread.end_some(now=PATIENCE - 0.1) == 0
    assert unread.end_some(now=PATIENCE) == 5
    assert [each.aborted for each in connections[:6]] == [True] * 5 + [False]
    assert unread.total == MOST_OF_ALL


def test_what_was_read_is_no_longer_counted() -> None:
    unread = UnreadBytes()
    for connection in waiting(unread, 100, address="192.0.2.1"):
        unread.remove(connection)
        unread.remove(connection)  # a connection may be ended while it waits
    assert unread.total == 0 and not unread.over
