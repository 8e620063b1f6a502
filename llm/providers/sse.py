"""Server-sent events as model providers send them, straight from bytes to parsed JSON.

The official clients build a validated object from every chunk; reading the response they opened costs an eighth of
that. Format: https://html.spec.whatwg.org/multipage/server-sent-events.html, without bare CR as a line end, which no
provider sends.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from llm.providers import errors

MAX_EVENT = 8 * 1024 * 1024  # bytes of one event; more is a broken or hostile server
DRAIN_TIMEOUT = 0.1  # seconds to wait for the end of the body after the protocol's last event

# Escapes that parse but cannot be stored or sent: NUL (PostgreSQL refuses it) and surrogates, which may be unpaired.
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNSOUND = re.compile("[\x00\ud800-\udfff]")


class Decoder:
    """Feeds on bytes, gives the payload (`data`) of every complete event. Event names are not used by any provider."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises `ModelError` (malformed_stream) for an event without end."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        payloads = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                payloads.append(self._take())
        if len(self._rest) + self._size > MAX_EVENT:
            raise errors.malformed()
        return payloads

    def finish(self) -> list[bytes]:
        """An event that the end of the stream left open: some servers omit the last empty line."""
        return (self.feed(b"\n\n") if self._rest else []) + ([self._take()] if self._data else [])

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)

    def _take(self) -> bytes:
        payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data, self._size = [], 0
        return payload


def parse(payload: bytes) -> dict[str, Any]:
    """The JSON object of an event, its texts safe to store. Raises `ModelError` (malformed_stream)."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise errors.malformed() from error
    if not isinstance(value, dict):
        raise errors.malformed()
    if _SUSPECT.search(payload):
        return {key: _sound(item) for key, item in value.items()}
    return value


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSOUND.sub("\ufffd", value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {key: _sound(item) for key, item in value.items()}
    return value


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Reads what follows the last event, so that the connection can serve the next call, but does not wait for it."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT):
            async for _ in chunks:
                pass
    except TimeoutError:
        pass
