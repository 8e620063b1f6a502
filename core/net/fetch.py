"""Fetch URLs within limits of time and size, from addresses that the guard has checked."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache

import httpx2

from core.net.outgoing import note
from core.net.url_safety import FetchRefused, Guard

MAX_REDIRECTS = 5
MAX_ADDRESSES = 3  # addresses of one host name that are tried
CONNECT_TIMEOUT = 5.0  # seconds per address
ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})  # of bodies that are unpacked
# Called with the requested URL and the URL of the redirect. Raises `FetchRefused` to stop there.
Follow = Callable[[httpx2.URL, httpx2.URL], Awaitable[None]]
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Glasshouse; opens pages that people ask for)",
    # Other encodings can be nested, and each layer can be a decompression bomb.
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A fetched body. `url`: the URL after redirects. `cut`: whether `body` was cut off at the limit."""

    url: str
    media_type: str
    charset: str | None
    body: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches URLs. `timeout`: seconds for a whole fetch. `tls`: None trusts the machine's certificate authorities."""

    guard: Guard = field(default_factory=Guard)
    timeout: float = 15.0
    tls: ssl.SSLContext | None = None

    async def fetch(self, url: httpx2.URL, accepted: Mapping[str, int], follow: Follow | None = None) -> FetchedPage:
        """Fetch a URL. `accepted`: for each accepted media type, the most bytes to read of the unpacked body.

        Follows at most five redirects. Each is checked like the first URL, and by `follow`. Raises `FetchRefused`.
        """
        transport = CheckedTransport(self.guard, self.tls)
        client = httpx2.AsyncClient(
            transport=transport,
            headers={**_HEADERS, "Accept": ", ".join(accepted)},
            timeout=httpx2.Timeout(self.timeout, connect=CONNECT_TIMEOUT),
            trust_env=False,  # a proxy would choose the address itself
        )
        try:
            async with asyncio.timeout(self.timeout), client:
                return await self._follow(client, client.build_request("GET", url), accepted, follow)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise FetchRefused(f"{url.host} did not answer completely within {self.timeout:g} seconds.") from error
        except httpx2.ConnectError as error:
            raise FetchRefused(f"{url.host} cannot be reached, or its certificate is not valid.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise FetchRefused(f"{url.host} sent an answer that is malformed or has too large headers.") from error

    async def _follow(
        self,
        client: httpx2.AsyncClient,
        request: httpx2.Request,
        accepted: Mapping[str, int],
        follow: Follow | None,
    ) -> FetchedPage:
        requested = request.url
        for _ in range(MAX_REDIRECTS + 1):
            response = await client.send(request, stream=True)
            try:
                # The body of a redirect is never read: its size has no bound.
                if response.next_request is None:
                    return await self._read(response, accepted)
                request = response.next_request
                if follow is not None:
                    await follow(requested, request.url)
            finally:
                await response.aclose()
        raise FetchRefused(f"{request.url.host} redirects more than {MAX_REDIRECTS} times.")

    async def _read(self, response: httpx2.Response, accepted: Mapping[str, int]) -> FetchedPage:
        host = response.url.host
        if not response.is_success:
            raise FetchRefused(f"{host} answered with status {response.status_code}, so there is nothing to read.")
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in accepted:
            raise FetchRefused(f"This is {media_type[:100] or 'of an unknown type'}, which cannot be read.")
        if response.headers.get("content-encoding", "").strip().lower() not in ENCODINGS:
            raise FetchRefused(f"{host} sent the page packed in a way that was not asked for.")
        body, cut = await read_body(response, accepted[media_type])
        return FetchedPage(str(response.url), media_type, response.charset_encoding, body, cut)


async def read_body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """Return the unpacked body up to `max_bytes`, and whether it is longer. The rest is not received."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > max_bytes:
                break
    return bytes(body[:max_bytes]), len(body) > max_bytes


@lru_cache(maxsize=1)
def system_tls() -> ssl.SSLContext:
    """Return a context that trusts the certificate authorities of SSL_CERT_FILE or SSL_CERT_DIR, else the machine's."""
    context = httpx2.create_ssl_context()  # reading the authorities takes tens of milliseconds
    context.set_alpn_protocols(["http/1.1"])
    return context


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Resolve the host name once, and connect to exactly the address that was checked.

    A second look-up could return another address. The Host header and TLS (SNI and the certificate check) still use the
    host name.
    """

    def __init__(self, guard: Guard, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        # Connections are not reused, since a connection to the same address may have been opened for another name.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(verify=tls or system_tls(), trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        addresses = await self._guard.addresses_of(request.url)
        note(request.url.host, f"{request.method} {request.url}")
        failure: httpx2.TransportError | None = None
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or httpx2.ConnectError("no address", request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx2.Request, address: str) -> httpx2.Request:
    name = request.url.raw_host.decode("ascii").strip("[]")
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,  # their Host header is the name
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": name},
    )
