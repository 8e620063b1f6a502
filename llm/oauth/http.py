"""Send the requests of a sign-in, within limits of time and size.

The administrator names the host of the tool server and, with an issuer, the host of the authorization server. These
hosts may be in a private network. Other addresses come from documents of servers, so they must be public and use https.
Redirects are not followed.
"""

import asyncio
from collections.abc import Collection
from ipaddress import ip_address, ip_network

import httpx2

from core.errors import ProductError
from core.net.fetch import CheckedTransport, read_body
from core.net.url_safety import FetchRefused, Guard, is_public
from core.sentences import Sentence
from llm.oauth.errors import sign_in_error

REQUEST_TIMEOUT = 10.0  # seconds for one request
MAX_BYTES = 1_000_000  # of a response
_READ_HEADERS = ("content-type", "www-authenticate")  # headers that the returned response has
_ALL_NETWORKS = (ip_network("0.0.0.0/0"), ip_network("::/0"))
UNREACHABLE = "tool_sign_in_unreachable"


async def send(request: httpx2.Request, named_hosts: Collection[str], *, body: bool = True) -> httpx2.Response:
    """Send a request, and return the response with its body. `body`: False does not read the body.

    `named_hosts`: the hosts that an administrator has named. Raises `tool_sign_in_unreachable` (502).
    """
    host = request.url.host
    client = httpx2.AsyncClient(
        transport=_NamedOrPublic(named_hosts),
        timeout=httpx2.Timeout(REQUEST_TIMEOUT),
        trust_env=False,
        follow_redirects=False,
    )
    request.headers["Accept-Encoding"] = "identity"
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT), client:
            response = await client.send(request, stream=True)
            try:
                content, is_cut = await read_body(response, MAX_BYTES) if body else (b"", False)
            finally:
                await response.aclose()
    except FetchRefused as error:
        raise sign_in_error(error.sentence, code=UNREACHABLE) from error
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise _unreachable_error(Sentence("{host} did not answer in time.", host=host)) from error
    except httpx2.ConnectError as error:
        raise _unreachable_error(
            Sentence("{host} cannot be reached, or its certificate is not valid.", host=host)
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable_error(Sentence("{host} sent an unreadable answer.", host=host)) from error
    if is_cut:
        raise _unreachable_error(Sentence("{host} sent an answer that is too large.", host=host))
    headers = {name: response.headers[name] for name in _READ_HEADERS if name in response.headers}
    return httpx2.Response(response.status_code, headers=headers, content=content, request=request)


def _unreachable_error(reason: Sentence) -> ProductError:
    sentence = Sentence("{why} Try again, or tell an administrator.", why=reason)
    return sign_in_error(sentence, code=UNREACHABLE)


class _NamedOrPublic(httpx2.AsyncBaseTransport):
    """Transport that connects to named hosts in any network, and to other hosts only in the public internet."""

    def __init__(self, named_hosts: Collection[str]) -> None:
        self._named_hosts = frozenset(named_hosts)
        self._any_address = Guard(ports=frozenset(range(1, 65_536)), allowed_networks=_ALL_NETWORKS)
        self._unrestricted = CheckedTransport(self._any_address)
        self._public = CheckedTransport(Guard())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        is_named = request.url.host in self._named_hosts
        if request.url.scheme != "https" and (not is_named or await self._is_public(request.url)):
            raise FetchRefused(
                Sentence(
                    "The address {url} must begin with https://, since codes and tokens are sent there.",
                    url=str(request.url.copy_with(query=None))[:300],
                )
            )
        return await (self._unrestricted if is_named else self._public).handle_async_request(request)

    async def _is_public(self, url: httpx2.URL) -> bool:
        return any(is_public(ip_address(address)) for address in await self._any_address.addresses_of(url))

    async def aclose(self) -> None:
        await self._unrestricted.aclose()
        await self._public.aclose()
