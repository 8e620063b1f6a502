"""A program that uses the company's API through its proxy, and notes how long each answer took."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from contrib.cluster.company import Company
from contrib.cluster.process import ClusterError

PATIENCE = 90.0  # seconds; longer than anything may take, so that what takes too long is seen to
AGAIN_AFTER = 1.0  # seconds, as the page waits before it connects anew
LAST = {"RUN_FINISHED", "RUN_STOPPED", "RUN_ERROR"}
LIVE = {"queued", "running"}
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True)
class Asked:
    """`status` 0: no answer, since the connection broke. `at`: seconds of the monotonic clock."""

    what: str
    at: float
    seconds: float
    status: int
    code: str = ""


class Client:
    def __init__(self, company: Company, session: aiohttp.ClientSession) -> None:
        self._session, self._url = session, f"{company.url}/api/v1/"
        self.asked: list[Asked] = []

    async def call(
        self, method: str, path: str, body: Any = None, *, what: str = "", data: Any = None, sent: Sequence[float] = ()
    ) -> Any:
        """The JSON of an answer of 2xx, else None. `data`: a form instead of JSON, whose pieces were `sent` at these
        times; the last begins the wait."""
        begun, status, found, code = time.monotonic(), 0, None, ""
        given: dict[str, Any] = {"data": data} if data is not None else {"json": body} if method != "GET" else {}
        try:
            async with self._session.request(method, self._url + path, **given) as answer:
                status, text = answer.status, await answer.read()
                with suppress(ValueError):
                    found = json.loads(text)
                if status >= 300:
                    code, found = str((found or {}).get("code", "")) if isinstance(found, dict) else "", None
        except BROKEN:
            status = 0
        begun = sent[-1] if sent else begun
        self.asked.append(Asked(what or f"{method} {path}", begun, time.monotonic() - begun, status, code))
        return found

    async def insistent(self, method: str, path: str, body: Any = None, seconds: float = 120.0) -> Any:
        """Asks again until it is answered with 2xx. Raises ClusterError where that is in vain."""
        until = time.monotonic() + seconds
        while (found := await self.call(method, path, body)) is None:
            if time.monotonic() > until or self.asked[-1].status in (400, 404):
                raise ClusterError(f"{method} {path} is answered with {self.asked[-1]}.")
            await asyncio.sleep(AGAIN_AFTER)
        return found

    async def events(self, turn: str) -> AsyncIterator[dict[str, Any]]:
        """Those of a turn to its last, connecting anew wherever it breaks; each with `arrived`, in Unix time."""
        seq = 0
        while True:
            with suppress(*BROKEN):
                headers = {"Last-Event-ID": str(seq), "Accept": "text/event-stream"}
                async with self._session.get(f"{self._url}turns/{turn}/events/", headers=headers) as answer:
                    async for line in answer.content if answer.status == 200 else _none():
                        if not line.startswith(b"data: "):
                            continue
                        event = json.loads(line[6:]) | {"arrived": time.time()}
                        seq = event.get("seq", seq)
                        yield event
                        if event["type"] in LAST or event.get("status", "running") not in LIVE:
                            return
            await asyncio.sleep(AGAIN_AFTER)


async def _none() -> AsyncIterator[bytes]:
    for line in list[bytes]():  # an answer that is no stream has no lines
        yield line


def session_of(company: Company) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=company.trust(), limit=0, force_close=False)
    times = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE, sock_connect=10.0)
    headers = {"Authorization": f"Bearer {company.token}"}
    return aiohttp.ClientSession(connector=connector, timeout=times, headers=headers)


def slowest(asked: Iterable[Asked]) -> float:
    return max((each.seconds for each in asked), default=0.0)
