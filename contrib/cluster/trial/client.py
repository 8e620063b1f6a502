"""A client of the API through the proxy. It records how long each request took."""

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

REQUEST_TIMEOUT = 90.0  # seconds; longer than any limit, so that late answers are measured, too
AGAIN_AFTER = 1.0  # seconds; the page also waits so long before it reconnects
LAST = {"RUN_FINISHED", "RUN_STOPPED", "RUN_ERROR"}
LIVE = {"queued", "running"}
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True)
class TimedRequest:
    """A request and its duration. `at`: its start by the monotonic clock. `status` 0: the connection broke."""

    what: str
    at: float
    seconds: float
    status: int
    code: str = ""


class Client:
    def __init__(self, company: Company, session: aiohttp.ClientSession) -> None:
        self._session, self._url = session, f"{company.url}/api/v1/"
        self.requests: list[TimedRequest] = []

    async def call(
        self, method: str, path: str, body: Any = None, *, what: str = "", data: Any = None, sent: Sequence[float] = ()
    ) -> Any:
        """Return the JSON of a 2xx response, else None.

        `data` is a form instead of a JSON `body`. `sent` has the send times of its pieces. The duration counts from
        the last of these.
        """
        began, status, answer_json, code = time.monotonic(), 0, None, ""
        content: dict[str, Any] = {"data": data} if data is not None else {"json": body} if method != "GET" else {}
        try:
            async with self._session.request(method, self._url + path, **content) as answer:
                status, text = answer.status, await answer.read()
                with suppress(ValueError):
                    answer_json = json.loads(text)
                if status >= 300:
                    code, answer_json = (
                        str((answer_json or {}).get("code", "")) if isinstance(answer_json, dict) else "",
                        None,
                    )
        except BROKEN:
            status = 0
        began = sent[-1] if sent else began
        self.requests.append(TimedRequest(what or f"{method} {path}", began, time.monotonic() - began, status, code))
        return answer_json

    async def insistent(self, method: str, path: str, body: Any = None, seconds: float = 120.0) -> Any:
        """Repeat a request until the status is 2xx. Raises ClusterError on 400, on 404 and after `seconds`."""
        deadline = time.monotonic() + seconds
        while (answer := await self.call(method, path, body)) is None:
            if time.monotonic() > deadline or self.requests[-1].status in (400, 404):
                raise ClusterError(f"{method} {path} is answered with {self.requests[-1]}.")
            await asyncio.sleep(AGAIN_AFTER)
        return answer

    async def events(self, turn: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all events of a turn, each with `arrived` in Unix time. Reconnects after a broken connection."""
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
    for line in list[bytes]():  # an error has no lines
        yield line


def session_of(company: Company) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=company.trust(), limit=0, force_close=False)
    timeouts = aiohttp.ClientTimeout(total=None, sock_read=REQUEST_TIMEOUT, sock_connect=10.0)
    headers = {"Authorization": f"Bearer {company.token}"}
    return aiohttp.ClientSession(connector=connector, timeout=timeouts, headers=headers)


def slowest(requests: Iterable[TimedRequest]) -> float:
    return max((each.seconds for each in requests), default=0.0)
