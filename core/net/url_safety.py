"""Check the addresses that a tool may connect to: the public internet, and networks that an operator allows."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import httpx2

from core.sentences import Sentence

Network = IPv4Network | IPv6Network
# Returns the addresses of a host and port as text. Raises OSError if the name has none.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

PORTS = frozenset({80, 443, 8080, 8443})
_DEFAULT_PORTS = {"http": 80, "https": 443}

# The IANA special-purpose registry, multicast, class E, and Azure's host service, whose address looks public.
_CLOSED_IPV4 = [
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",
    )
]
# Only this part of IPv6 is public. Addresses that translate to IPv4 (mapped, NAT64) are outside of it, so closed.
_OPEN_IPV6 = ip_network("2000::/3")
# Teredo and other protocol assignments, documentation, 6to4.
_CLOSED_IPV6 = [ip_network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]

# A separate pool, since a name server that never answers must not block the other threads of the process.
_lookups = ThreadPoolExecutor(max_workers=8, thread_name_prefix="lookup")


class FetchRefused(Exception):
    """Raised if a tool refuses a fetch, or a fetch failed. The sentence is for the model and for people."""

    def __init__(self, sentence: Sentence | str) -> None:
        self.sentence = Sentence.of(sentence)
        super().__init__(self.sentence.english)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_IPV4)
    return address in _OPEN_IPV6 and not any(address in network for network in _CLOSED_IPV6)


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host by the system's resolver, each once. Raises OSError."""
    loop = asyncio.get_running_loop()
    entries = await loop.run_in_executor(_lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks addresses. `allowed_networks` are open in addition to the public internet. `resolve` looks up names."""

    ports: frozenset[int] = PORTS
    allowed_networks: tuple[Network, ...] = ()
    resolve: Resolver = look_up

    async def addresses_of(self, url: httpx2.URL) -> list[str]:
        """Return the addresses behind a URL, each safe to connect to. Raises `FetchRefused`.

        One closed address refuses the whole name: no honest site has one, and a mix of both is an attack.
        """
        if url.scheme not in _DEFAULT_PORTS or not url.host:
            raise FetchRefused("Only URLs that begin with http:// or https:// and a host can be opened.")
        if url.userinfo:
            raise FetchRefused("A URL with a user name or password in it is not opened. Leave them out.")
        port = url.port or _DEFAULT_PORTS[url.scheme]
        if port not in self.ports:
            allowed = ", ".join(str(number) for number in sorted(self.ports))
            raise FetchRefused(f"Port {port} is not allowed. The allowed ports are {allowed}.")
        try:
            texts = await self.resolve(url.raw_host.decode("ascii").strip("[]"), port)
            addresses = [ip_address(text) for text in texts]
        except (OSError, ValueError) as error:  # ValueError: a label that is too long for DNS
            raise FetchRefused(f"There is no address for {url.host}. Check the URL.") from error
        if not addresses or not all(self._is_open(address) for address in addresses):
            raise FetchRefused(f"{url.host} is not on the public internet, so it is not opened.")
        return [str(address) for address in addresses]

    def _is_open(self, address: IPv4Address | IPv6Address) -> bool:
        return is_public(address) or any(address in network for network in self.allowed_networks)


def is_http(url: str) -> bool:
    """Return whether this is an HTTP URL with a host. The host may lack dots, as in names of containers."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # malformed brackets or port
        return False


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. They identify the receiver of a secret in a request."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
