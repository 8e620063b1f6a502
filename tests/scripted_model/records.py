"""Records of the requests to the scripted model, with their times and how they ended."""

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from .script import TITLE_PROMPT

MAX_RECORDS = 20_000
MAX_BYTES = 256 * 1024 * 1024  # of bodies; older records are forgotten beyond it

Ending = Literal["complete", "client_closed", "cut"]
_SECRET_HEADERS = {"authorization", "x-api-key"}


@dataclass
class Record:
    """One request. Times are seconds since the epoch. `pieces` counts the sent pieces. `ended` is None while it runs.

    `connection` numbers the connections of one server.
    """

    method: str
    path: str
    headers: dict[str, str]
    raw_body: bytes
    connection: int
    arrived: float = field(default_factory=time.time)
    first_byte: float | None = None
    ended_at: float | None = None
    ended: Ending | None = None
    status: int | None = None
    pieces: int = 0

    @property
    def body(self) -> Any:
        """The parsed JSON, or None."""
        try:
            return json.loads(self.raw_body)
        except ValueError:
            return None

    @cached_property
    def text(self) -> str:
        """The body as sent, and with JSON's escapes undone. Kept: every look goes through all requests of the run."""
        sent = self.raw_body.decode(errors="replace")
        return f"{sent}\n{json.dumps(self.body, ensure_ascii=False)}" if "\\" in sent else sent

    def as_json(self) -> dict[str, Any]:
        names = {each.name for each in fields(self)} - {"raw_body"} | {"body"}
        return {name: getattr(self, name) for name in sorted(names)}


def without_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: "present" if name in _SECRET_HEADERS else value for name, value in headers.items()}


class Records:
    """Bounded, and safe to read from another thread than the server's."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def add(self, record: Record) -> None:
        with self._changed:
            self._records.append(record)
            self._bytes += len(record.raw_body)
            self._changed.notify_all()
            while len(self._records) > MAX_RECORDS or self._bytes > MAX_BYTES:
                self._bytes -= len(self._records.popleft().raw_body)

    def end(self, record: Record, ending: Ending) -> None:
        """The first ending stands."""
        with self._changed:
            if record.ended is None:
                record.ended, record.ended_at = ending, time.time()
                self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._records.clear()
            self._bytes = 0

    def find(self, contains: str = "") -> list[Record]:
        """Return the records whose body contains the text, as sent or with JSON's escapes undone, oldest first."""
        with self._changed:
            return self._matching(contains)

    def arrived(self, contains: str = "", count: int = 1, timeout: float = 10.0) -> list[Record]:
        """Waits until at least `count` matching requests have come. Raises `TimeoutError`."""

        def enough() -> list[Record] | None:
            matching = self._matching(contains)
            return matching if len(matching) >= count else None

        with self._changed:
            if (matching := self._changed.wait_for(enough, timeout)) is None:
                raise TimeoutError(f"fewer than {count} requests came")
            return matching

    def finished(self, contains: str = "", count: int = 1, timeout: float = 10.0) -> list[Record]:
        """Wait until at least `count` matching requests have come and all matching ones have ended.

        Raises `TimeoutError` with the open requests.
        """

        def settled() -> list[Record] | None:
            matching = self._matching(contains)
            return matching if len(matching) >= count and all(record.ended for record in matching) else None

        with self._changed:
            if (matching := self._changed.wait_for(settled, timeout)) is None:
                matching = self._matching(contains)
                raise TimeoutError(f"{len(matching)} requests, ended: {[record.ended for record in matching]}")
            return matching

    def _matching(self, contains: str) -> list[Record]:
        return [record for record in self._records if _holds(record, contains)]


def _holds(record: Record, text: str) -> bool:
    """Requests for a title, which the product makes on its own account, are found only by their own words."""
    return text in record.text and (TITLE_PROMPT in text or TITLE_PROMPT not in record.text)
