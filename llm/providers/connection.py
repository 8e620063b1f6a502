"""Send HTTP/1.1 requests to the server of a model. Every failure is a `ModelError`.

An answer arrives in thousands of small pieces. aiohttp reads them with compiled parsers, and no layer is above it
(docs/decisions/0018-model-streams-are-read-by-aiohttp.md).
"""

import asyncio
import json
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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

CONNECT_TIMEOUT = 10.0  # seconds for name resolution, connection, proxy and TLS
MIN_UPLOAD_SPEED = 32 * 1024  # bytes of a request per second; a slower server times out
IDLE_TIMEOUT = 60.0  # seconds for which an idle connection stays open
MAX_REDIRECTS = 5
MAX_HEADER_BYTES = 64 * 1024  # bytes of one header
MAX_ANSWER_BYTES = 8 * 1024 * 1024  # bytes of the largest answer that is read whole
READ_TIMEOUT = 60.0  # seconds to read such an answer

# Errors that aiohttp raises: its own, and errors of the operating system, which include time-outs.
NETWORK_ERRORS = (aiohttp.ClientError, OSError)

# Statuses of redirects that are followed, by the method of the request.
_POST_REDIRECTS = (307, 308)
_GET_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body of a POST. `accept`: the media types that may be answered."""

    content: bytes
    media_type: str = "application/json"
    accept: str = "application/json"


class Connection:
    """Connections to the server at one base URL, on one event loop, for any number of concurrent calls.

    `host` includes the port. `silence_timeout`: seconds for which the server may send nothing. `headers` are secret,
    like the key.
    Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY). Certificate authorities are those
    of the machine, or those of SSL_CERT_FILE or SSL_CERT_DIR.
    """

    def __init__(
        self, base_url: str, api_key: str, silence_timeout: float, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(base_url)
        self._query = parts.query
        self.host = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        self._root = urlunsplit(parts._replace(netloc=self.host, path=path, query="", fragment=""))
        self._api_key = api_key
        self._silence_timeout = silence_timeout
        self._secret_headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._secret_headers |= headers or {}
        if parts.username is not None:
            account = unquote(parts.username), unquote(parts.password or "")
            self._secret_headers["Authorization"] = aiohttp.encode_basic_auth(*account)
        self._proxies = getproxies()
        self._client_session: aiohttp.ClientSession | None = None

    async def request_json(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST with `body`, or a GET without one, and return the JSON of the answer. Raises `ModelError`."""
        response = await self.send(path, body)
        try:
            return json.loads(await read_body(response))
        except (ValueError, RecursionError) as error:
            raise errors.wrong_endpoint_error() from error

    async def send(self, path: str, body: Mapping[str, Any] | None = None) -> ClientResponse:
        """Send a request, and return the response as soon as its headers arrive. The caller must release the response.

        A release before the end of its body closes the connection. Raises `ModelError`, also for a status of 300 or
        more.
        """
        response = await self.exchange(path, None if body is None else json_body(body))
        if response.status < 300:
            return response
        if response.status < 400:
            response.release()
            raise errors.wrong_endpoint_error()
        try:
            error_body = await read_body(response)
        except ModelError:
            error_body = b""  # the status is enough
        raise self.refusal(response, error_body)

    async def exchange(self, path: str, body: RequestBody | None) -> ClientResponse:
        """Send a POST with `body`, or a GET without one, and return the answer with any status.

        The caller must release the answer. Raises `ModelError` if there is none.
        """
        size = 0 if body is None else len(body.content)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT + self._silence_timeout + size / MIN_UPLOAD_SPEED):
                return await self._follow_redirects(path, body)
        except (*NETWORK_ERRORS, ValueError) as error:  # ValueError: a redirect to an invalid URL
            raise to_model_error(error, started=False) from error

    def refusal(self, response: ClientResponse, body: bytes) -> ModelError:
        """Return the error of an answer with an error status."""
        return errors.from_answer(response.status, response.headers, body, self._api_key)

    async def close(self) -> None:
        if self._client_session is not None:
            await self._client_session.close()

    async def _follow_redirects(self, path: str, body: RequestBody | None) -> ClientResponse:
        """Send a request, follow its redirects, and return the last response.

        A redirect that would turn a POST into a GET is not followed, since no model answers a GET. Another origin gets
        no secrets.
        """
        url = URL(self._root + path).extend_query(self._query)
        secrets = self._secret_headers
        for _ in range(MAX_REDIRECTS):
            response = await self._request(url, body, secrets)
            location = response.headers.get("Location", "")
            if not location or response.status not in (_GET_REDIRECTS if body is None else _POST_REDIRECTS):
                return response
            response.release()
            target = url.join(URL(location))
            if target.origin() not in (url.origin(), _with_tls(url).origin()):
                secrets = {}
            url = target
        raise errors.wrong_endpoint_error()

    async def _request(self, url: URL, body: RequestBody | None, secrets: Mapping[str, str]) -> ClientResponse:
        """Send one request. If it reused a connection that the server had closed, send it again on another one."""
        proxy = self._proxy(url)
        headers = {"Accept": "application/json", "User-Agent": "Glasshouse", **tracing.headers(), **secrets}
        if body is not None:
            headers |= {"Content-Type": body.media_type, "Accept": body.accept}
        while True:
            connection = SimpleNamespace(reused=False)
            try:
                return await self._session().request(
                    "GET" if body is None else "POST",
                    url,
                    data=None if body is None else body.content,
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
        if self._client_session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_reuse)
            self._client_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_TIMEOUT),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=self._silence_timeout),
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                trace_configs=[trace],
            )
            weakref.finalize(self, _close_session, self._client_session, asyncio.get_running_loop())
        return self._client_session

    def _proxy(self, url: URL) -> str | None:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not proxy or _is_exempt(url, self._proxies.get("no", "")):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if not proxy.startswith(("http://", "https://")):
            scheme = proxy.partition(":")[0]
            sentence = Sentence(
                "The environment sets a proxy of the kind {scheme}, which is not supported. Set an HTTP proxy.",
                scheme=scheme,
            )
            raise ModelError("provider_unreachable", sentence, retryable=False)
        return proxy


def json_body(body: Mapping[str, Any], accept: str = "application/json") -> RequestBody:
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return RequestBody(content, accept=accept)


def _close_session(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    """Close the session of a client that was not closed: its process ends, or it was replaced."""
    if session.closed or not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(session.close(), loop)
    if asyncio._get_running_loop() is not loop:
        with suppress(TimeoutError):
            closing.result(1)


async def _note_reuse(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    context.trace_request_ctx.reused = True


def _is_exempt(url: URL, hosts: str) -> bool:
    """Return whether NO_PROXY lists this host, with or without its port, or a parent domain of it."""
    exempt = [each.strip().removeprefix("*.").removeprefix(".").lower() for each in hosts.split(",")]
    names = (url.host_subcomponent or "", url.host_port_subcomponent or "", url.host or "")
    return any(each == "*" or each in names or (each and names[0].endswith(f".{each}")) for each in exempt)


def _with_tls(url: URL) -> URL:
    return url.with_scheme("https").with_port(443) if url.scheme == "http" and url.port == 80 else url


async def read_body(response: ClientResponse) -> bytes:
    """Return the unread part of the body, and release the response.

    Raises `ModelError` for a body that breaks off, or that is larger than `MAX_ANSWER_BYTES`.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise errors.malformed_error()
    except NETWORK_ERRORS as error:
        raise to_model_error(error, started=True) from error
    finally:
        response.release()
    return bytes(body)


def to_model_error(error: Exception, *, started: bool) -> ModelError:
    """Return the `ModelError` for one of `NETWORK_ERRORS`. `started`: a part of the answer has arrived."""
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return errors.timeout_error()
    return errors.stream_cut_error() if started else errors.unreachable_error()


def number_at(answer: Any, *path: str) -> int:
    """Return the positive number at this path of an answer, or 0 if there is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer if type(answer) is int and answer > 0 else 0
