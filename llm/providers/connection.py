"""HTTP/1.1 to the server of a model: a request and its answer, whole or as it arrives. Every failure is a `ModelError`.

An answer is thousands of small pieces, so what reads them is aiohttp, whose parsers are compiled, with nothing above
it: docs/decisions/0018-model-streams-are-read-by-aiohttp.md.
"""

import asyncio
import json
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies

import aiohttp
from aiohttp import ClientResponse
from yarl import URL

from core.errors import ModelError
from core.logs import tracing
from core.net.fetch import system_tls
from core.sentences import Sentence
from llm.providers import errors

CONNECT_TIMEOUT = 10.0  # seconds, of which are name, address, proxy and TLS
SLOWEST = 32 * 1024  # bytes of a request that a server takes in a second; one that takes less is silent
KEPT = 60.0  # seconds that a connection waits for its next call
MAX_REDIRECTS = 5
MAX_HEADER = 64 * 1024  # bytes of one
MAX_ANSWER, MAX_TIME = 8 * 1024 * 1024, 60.0  # bytes, and seconds since it began, of an answer that is read whole

# What aiohttp raises: errors of its own, and those of the operating system, time-outs among them.
FAILURES = (aiohttp.ClientError, OSError)

_WITH_BODY, _AS_GET = (307, 308), (301, 302, 303, 307, 308)  # redirects that are followed


class Connection:
    """To the server at one base URL, on one event loop; as many calls at once as are made. `host` with its port.

    `silence`: seconds that the server may say nothing. `headers` are secret, as the key is. Proxies are those of the
    environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), authorities those that the machine trusts, or
    SSL_CERT_FILE or SSL_CERT_DIR name.
    """

    def __init__(self, base_url: str, api_key: str, silence: float, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(base_url)
        self._query = parts.query
        self.host = host = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        self._root = urlunsplit(parts._replace(netloc=host, path=path, query="", fragment=""))
        self._api_key, self._silence = api_key, silence
        self._secrets = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._secrets |= headers or {}
        if parts.username is not None:
            account = unquote(parts.username), unquote(parts.password or "")
            self._secrets["Authorization"] = aiohttp.encode_basic_auth(*account)
        self._proxies = getproxies()
        self._opened: aiohttp.ClientSession | None = None

    async def answer(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON that the server answers to a POST with `body`, or to a GET. Raises `ModelError`."""
        response = await self.send(path, body)
        try:
            return json.loads(await whole(response))
        except (ValueError, RecursionError) as error:
            raise errors.wrong_endpoint() from error

    async def send(self, path: str, body: Mapping[str, Any] | None = None) -> ClientResponse:
        """The answer as soon as it begins; its status is good. Whoever gets it has to release it.

        What has not been read by then closes the connection. Raises `ModelError`.
        """
        sent = None
        if body is not None:
            sent = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT + self._silence + len(sent or b"") / SLOWEST):
                response = await self._followed(path, sent)
        except (*FAILURES, ValueError) as error:  # ValueError: a redirect to what is no URL
            raise failure(error, begun=False) from error
        if response.status < 300:
            return response
        if response.status < 400:
            response.release()
            raise errors.wrong_endpoint()
        try:
            said = await whole(response)
        except ModelError:
            said = b""  # the status says enough
        raise errors.from_answer(response.status, response.headers, said, self._api_key)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _followed(self, path: str, body: bytes | None) -> ClientResponse:
        """A redirect that would make a GET of a POST is left to be told: no model answers to that."""
        url, secrets = URL(self._root + path).extend_query(self._query), self._secrets
        for _ in range(MAX_REDIRECTS):
            response = await self._sent(url, body, secrets)
            place = response.headers.get("Location", "")
            if not place or response.status not in (_AS_GET if body is None else _WITH_BODY):
                return response
            response.release()
            there = url.join(URL(place))
            if there.origin() not in (url.origin(), _with_tls(url).origin()):
                secrets = {}
            url = there
        raise errors.wrong_endpoint()

    async def _sent(self, url: URL, body: bytes | None, secrets: Mapping[str, str]) -> ClientResponse:
        """Servers close connections that wait: a call that finds its one closed is sent again, by another."""
        proxy = self._proxy(url)
        headers = {"Accept": "application/json", "User-Agent": "Glasshouse", **tracing.headers(), **secrets}
        if body is not None:
            headers["Content-Type"] = "application/json"
        while True:
            connection = SimpleNamespace(reused=False)
            try:
                return await self._session().request(
                    "GET" if body is None else "POST",
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=proxy,
                    ssl=system_tls() if url.scheme == "https" or (proxy or "").startswith("https:") else True,
                    trace_request_ctx=connection,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.reused:
                    raise

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_reuse)
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=self._silence),
                max_line_size=MAX_HEADER,
                max_field_size=MAX_HEADER,
                trace_configs=[trace],
            )
            weakref.finalize(self, _let_go, self._opened, asyncio.get_running_loop())
        return self._opened

    def _proxy(self, url: URL) -> str | None:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not proxy or _exempt(url, self._proxies.get("no", "")):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if not proxy.startswith(("http://", "https://")):
            scheme = proxy.partition(":")[0]
            sentence = Sentence(
                "The environment names a proxy of the kind {scheme}, which cannot be used. Name one for HTTP.",
                scheme=scheme,
            )
            raise ModelError("provider_unreachable", sentence, retryable=False)
        return proxy


def _let_go(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Closes what nobody has closed: a client that serves its process to the end, or that was given up for another."""
    if session.closed or not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(session.close(), loop)
    if asyncio._get_running_loop() is not loop:
        with suppress(TimeoutError):
            closing.result(1)


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.reused = True


def _exempt(url: URL, hosts: str) -> bool:
    """Whether NO_PROXY has this host, or one above it; with or without its port."""
    known = [each.strip().removeprefix("*.").removeprefix(".").lower() for each in hosts.split(",")]
    asked = (url.host_subcomponent or "", url.host_port_subcomponent or "", url.host or "")
    return any(each == "*" or each in asked or (each and asked[0].endswith(f".{each}")) for each in known)


def _with_tls(url: URL) -> URL:
    return url.with_scheme("https").with_port(443) if url.scheme == "http" and url.port == 80 else url


async def whole(response: ClientResponse) -> bytes:
    """The rest of the body; released then. Raises `ModelError` where it breaks off, or has no end."""
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_TIME):
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER:
                    raise errors.malformed()
    except FAILURES as error:
        raise failure(error, begun=True) from error
    finally:
        response.release()
    return bytes(body)


def failure(error: Exception, *, begun: bool) -> ModelError:
    """`begun`: the answer had started to arrive."""
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return errors.timed_out()
    return errors.cut() if begun else errors.unreachable()


def said(answer: Any, *path: str) -> int:
    """The number that stands at this path of an answer; 0 for what is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer if type(answer) is int and answer > 0 else 0
