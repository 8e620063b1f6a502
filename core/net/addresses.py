"""Compare web addresses in a canonical form, find addresses in texts, and match hosts against lists."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from socket import inet_aton, inet_ntoa

import httpx2

_END_CHARACTERS = r"\s<>\"`{}|\\^\[\]“”„«»。，、；：！？）」』】》"
_URL = re.compile(rf"https?://(?:\[[0-9a-f:.]+\])?[^{_END_CHARACTERS}]*", re.IGNORECASE)
# An address without a scheme. It begins at the start of a word, so that a long row of labels is scanned once.
_SCHEMELESS_URL = re.compile(
    rf"(?<![\w.@/:%=&?-])(?:[\w-]+\.)+[^\W\d_]{{2,24}}(?::\d{{1,5}})?(?:[/?][^{_END_CHARACTERS}]*)?"
)
_PUNCTUATION = ".,;:!?)'*_~"
_MAX_CLOSING = 8  # characters behind an address that may belong to the sentence around it


def canonical(url: str) -> str:
    """Return host, port, path and query in one canonical form, or an empty text if `url` is not a web address.

    Scheme and fragment are left out: the scheme carries no data to the server, and the fragment is never sent. The
    query is kept exactly, since it can carry data away.
    """
    try:
        parsed = httpx2.URL(url.strip())
        host = _normalize_host(parsed.raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError):
        return ""
    if parsed.scheme not in ("http", "https") or not host:
        return ""
    port = f":{parsed.port}" if parsed.port else ""
    return f"{host}{port}{parsed.raw_path.decode('ascii')}"


def host_of(url: str) -> str:
    """Return the host in lower case and in DNS form (IDNA), or an empty text if `url` is not an address."""
    try:
        return _normalize_host(httpx2.URL(url.strip()).raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError):
        return ""


def find_addresses(text: str) -> set[str]:
    """Return the canonical addresses that occur in a text, including addresses without a scheme (example.org/help).

    If an address ends in punctuation that may belong to the sentence, it is returned both with and without it.
    """
    candidates = [match[0] for match in _URL.finditer(text)] + [
        f"https://{match[0]}" for match in _SCHEMELESS_URL.finditer(text)
    ]
    return {address for each in candidates for ending in _without_punctuation(each) if (address := canonical(ending))}


def host_pattern(line: str) -> str:
    """Return a pattern in canonical form: `example.org`, or `*.example.org` for its subdomains but not itself.

    Raises ValueError for any other line.
    """
    name = line.strip().removeprefix("*.")
    host = host_of(f"https://{name}")
    if "*" in name or not host or canonical(f"https://{name}") != f"{host}/" or any(each in name for each in "/?#@"):
        raise ValueError(line)
    return f"*.{host}" if line.strip().startswith("*.") else host


class HostListing(Enum):
    """The list that a host is on, if any."""

    DENIED = "denied"
    ALLOWED = "allowed"
    UNLISTED = "unlisted"


@dataclass(frozen=True, slots=True)
class HostLists:
    """Lists of patterns, see `host_pattern`. A host on both lists is denied."""

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def listing_of(self, host: str) -> HostListing:
        if _is_listed(host, self.denied):
            return HostListing.DENIED
        return HostListing.ALLOWED if _is_listed(host, self.allowed) else HostListing.UNLISTED


def _is_listed(host: str, patterns: Collection[str]) -> bool:
    return host in patterns or any(each.startswith("*.") and host.endswith(each[1:]) for each in patterns)


def _without_punctuation(url: str) -> Iterator[str]:
    yield url
    for _ in range(_MAX_CLOSING):
        if not url or url[-1] not in _PUNCTUATION:
            return
        url = url[:-1]
        yield url


def _normalize_host(host: str) -> str:
    """Return a name in lower case, or an IP address in its usual form: `8.8.8.8` for 134744072 and 0x08080808."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ip_address(name).compressed
    except ValueError:
        pass
    try:
        return inet_ntoa(inet_aton(name))
    except OSError:
        return name
