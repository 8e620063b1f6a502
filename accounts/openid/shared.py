"""State of providers that the requests of one process share: their documents and their outages."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from core.json_types import JsonObject
from core.outside import wait_outside

MAX_DOCUMENTS = 100  # a provider has two; the oldest are dropped first


class WaitTooLong(Exception):
    """Another request has been reading the document for too long."""


class DocumentKey(NamedTuple):
    """The key of a document. It includes the issuer, which decides which addresses may be read."""

    issuer: str
    address: str


@dataclass(frozen=True, slots=True)
class StoredDocument:
    content: JsonObject
    read_at: float  # on the monotonic clock


class SharedDocuments:
    """Documents by issuer and address. Requests that need the same document at the same time share one reading."""

    def __init__(self, *, kept_seconds: float, waiting_seconds: float) -> None:
        self._kept_seconds = kept_seconds
        self._waiting_seconds = waiting_seconds
        self._lock = threading.Lock()
        self._stored: dict[DocumentKey, StoredDocument] = {}
        self._readings: dict[DocumentKey, Future[JsonObject]] = {}

    def get(self, issuer: str, address: str, read: Callable[[], JsonObject], *, fresh: bool = False) -> JsonObject:
        """Return the stored document, or the result of `read`, which may be running for another request.

        `fresh`: ignore a stored document. Raises the errors of `read`, and `WaitTooLong`.
        """
        key = DocumentKey(issuer, address)
        with self._lock:
            stored = self._stored.get(key)
            if stored is not None and not fresh and time.monotonic() - stored.read_at < self._kept_seconds:
                return dict(stored.content)
            running = self._readings.get(key)
            reading = self._readings[key] = running or Future()
        return self._read(key, reading, read) if running is None else self._wait(running)

    def forget(self, issuer: str) -> None:
        """Drop the issuer's documents, so that they are read again."""
        with self._lock:
            self._stored = {key: stored for key, stored in self._stored.items() if key.issuer != issuer}

    def _wait(self, reading: "Future[JsonObject]") -> JsonObject:
        try:
            with wait_outside():
                return dict(reading.result(self._waiting_seconds))
        except TimeoutError as error:
            raise WaitTooLong from error

    def _read(self, key: DocumentKey, reading: "Future[JsonObject]", read: Callable[[], JsonObject]) -> JsonObject:
        try:
            content = read()
        except BaseException as error:
            with self._lock:
                del self._readings[key]
            reading.set_exception(error)
            raise
        with self._lock:
            del self._readings[key]
            self._stored.pop(key, None)  # re-insert at the end: the oldest are dropped first
            self._stored[key] = StoredDocument(content, time.monotonic())
            while len(self._stored) > MAX_DOCUMENTS:
                del self._stored[next(iter(self._stored))]
        reading.set_result(content)
        return dict(content)


class Outages:
    """Issuers that recently did not answer in time. Each stays for `seconds`.

    Only issuers of configured providers are added, so the number is bounded.
    """

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[str, float] = {}

    def begin(self, issuer: str) -> None:
        self._ends[issuer] = time.monotonic() + self._seconds

    def end(self, issuer: str) -> None:
        self._ends.pop(issuer, None)

    def seconds_left(self, issuer: str) -> int:
        """Return the seconds until a request to the issuer is allowed again; 0 if it is allowed now."""
        left = self._ends.get(issuer, 0.0) - time.monotonic()
        if left > 0:
            return math.ceil(left)
        self._ends.pop(issuer, None)
        return 0
