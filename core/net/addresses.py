"""Addresses of the web as text: the same one however it is written, those that a text names, and lists of hosts."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from socket import inet_aton, inet_ntoa

import httpx2

_END = r"\s<>\"`{}|\\^\[\]“”„«»。，、；：！？）」』】》"
_WHOLE = re.compile(rf"https?://(?:\[[0-9a-f:.]+\])?[^{_END}]*", re.IGNORECASE)
# As people type it. It begins where a word does, so that a long row of labels is walked through once.
_BARE = re.compile(rf"(?<![\w.@/:%=&?-])(?:[\w-]+\.)+[^\W\d_]{{2,24}}(?::\d{{1,5}})?(?:[/?][^{_END}]*)?")
_CLOSING = ".,;:!?)'*_~"
_MOST_CLOSING = 8  # characters behind an address that may belong to the sentence around it


def canonical(url: str) -> str:
    """Host, port, path and query in one form; empty for what is no address.

    Scheme and fragment do not count: the one says nothing to a server, the other never reaches it. The query does, to
    the letter, as it is what carries data away.
    """
    try:
        parsed = httpx2.URL(url.strip())
        host = _plain(parsed.raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError):
        return ""
    if parsed.scheme not in ("http", "https") or not host:
        return ""
    port = f":{parsed.port}" if parsed.port else ""
    return f"{host}{port}{parsed.raw_path.decode('ascii')}"


def host_of(url: str) -> str:
    """In the form of DNS, lower case; empty for what is no address."""
    try:
        return _plain(httpx2.URL(url.strip()).raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError):
        return ""


def named_in(text: str) -> set[str]:
    """The addresses that a text names, each as `canonical` has it, also those without a scheme (example.org/help).

    Where an address may end in punctuation of its sentence, it is taken both with and without it.
    """
    written = [match[0] for match in _WHOLE.finditer(text)] + [f"https://{match[0]}" for match in _BARE.finditer(text)]
    return {known for each in written for ending in _endings(each) if (known := canonical(ending))}


def host_pattern(line: str) -> str:
    """A line of a list of hosts: `example.org`, or `*.example.org` for all below example.org but not itself.

    Raises ValueError for what is neither.
    """
    name = line.strip().removeprefix("*.")
    host = host_of(f"https://{name}")
    if "*" in name or not host or canonical(f"https://{name}") != f"{host}/" or any(each in name for each in "/?#@"):
        raise ValueError(line)
    return f"*.{host}" if line.strip().startswith("*.") else host


class Standing(Enum):
    DENIED, ALLOWED, UNLISTED = "denied", "allowed", "unlisted"


@dataclass(frozen=True, slots=True)
class HostLists:
    """Patterns, see `host_pattern`. A host on both lists is denied."""

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    def standing(self, host: str) -> Standing:
        if _is_listed(host, self.denied):
            return Standing.DENIED
        return Standing.ALLOWED if _is_listed(host, self.allowed) else Standing.UNLISTED


def _is_listed(host: str, patterns: Collection[str]) -> bool:
    return host in patterns or any(each.startswith("*.") and host.endswith(each[1:]) for each in patterns)


def _endings(url: str) -> Iterator[str]:
    yield url
    for _ in range(_MOST_CLOSING):
        if not url or url[-1] not in _CLOSING:
            return
        url = url[:-1]
        yield url


def _plain(host: str) -> str:
    """A name in lower case; an address in its usual form, as `8.8.8.8` for 134744072 and 0x08080808."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ip_address(name).compressed
    except ValueError:
        pass
    try:
        return inet_ntoa(inet_aton(name))
    except OSError:
        return name
