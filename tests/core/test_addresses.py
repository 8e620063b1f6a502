"""Equality of addresses, addresses in a text, and lists of hosts."""

import pytest

from core.net.addresses import HostListing, HostLists, canonical, find_addresses, host_of, host_pattern


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://Example.ORG", "http://example.org/"),
        ("https://example.org:443/a", "https://example.org/a#part"),
        ("http://example.org:80/a", "https://example.org./a"),
        ("https://de.example.org/Köln?q=ä", "https://de.example.org/K%C3%B6ln?q=%C3%A4"),
        ("https://bücher.example/", "https://xn--bcher-kva.example"),
    ],
)
def test_one_address_in_two_forms(one: str, other: str) -> None:
    assert canonical(one) == canonical(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.org/a", "https://example.org/a?d=SECRET"),
        ("https://example.org/a?d=1", "https://example.org/a?d=2"),
        ("https://example.org/a", "https://example.org/a/SECRET"),
        ("https://example.org/a", "https://secret.example.org/a"),
        ("https://example.org/a", "https://example.org:8443/a"),
        ("https://example.org/a", "https://example.org/A"),
    ],
)
def test_what_could_carry_data_makes_another_address(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "file:///etc/passwd", "https://", "javascript:alert(1)", "http://[::"]
)
def test_what_is_no_address(text: str) -> None:
    assert canonical(text) == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Read https://example.org/a?b=c, please.", "https://example.org/a?b=c"),
        ("See (https://example.org/a_(b)).", "https://example.org/a_(b)"),
        ("[here](https://example.org/a)", "https://example.org/a"),
        ("<https://example.org/a>", "https://example.org/a"),
        ("What does example.org/help say?", "https://example.org/help"),
        ("What does www.example.org say?", "http://www.example.org/"),
        ("请看https://example.org/a。谢谢", "https://example.org/a"),
        ("HTTPS://EXAMPLE.ORG/a", "https://example.org/a"),
    ],
)
def test_a_text_names_an_address(text: str, named: str) -> None:
    assert canonical(named) in find_addresses(text)


@pytest.mark.parametrize("text", ["Write to me@example.org.", "3.14", "e.g. this", "no address", "https://"])
def test_a_text_that_names_none(text: str) -> None:
    assert find_addresses(text) == set()


@pytest.mark.parametrize("host", ["134744072", "8.8.2056", "0x08080808", "8.8.8.8."])
def test_an_address_has_one_form(host: str) -> None:
    assert host_of(f"http://{host}/") == "8.8.8.8"


def test_a_long_text_is_read_once() -> None:
    assert find_addresses("a." * 200_000) == find_addresses("https://" * 50_000) - find_addresses("https://" * 50_000)


LISTS = HostLists(
    allowed=frozenset({"*.example.org", "plain.org"}), denied=frozenset({"bad.example.org", "*.evil.example"})
)


@pytest.mark.parametrize(
    ("host", "listing"),
    [
        ("example.org", HostListing.UNLISTED),
        ("www.example.org", HostListing.ALLOWED),
        ("a.b.example.org", HostListing.ALLOWED),
        ("badexample.org", HostListing.UNLISTED),
        ("plain.org", HostListing.ALLOWED),
        ("www.plain.org", HostListing.UNLISTED),
        ("bad.example.org", HostListing.DENIED),
        ("www.bad.example.org", HostListing.ALLOWED),
        ("a.evil.example", HostListing.DENIED),
        ("evil.example", HostListing.UNLISTED),
    ],
)
def test_where_a_host_stands(host: str, listing: HostListing) -> None:
    assert LISTS.listing_of(host) is listing


@pytest.mark.parametrize(
    ("line", "pattern"),
    [("Example.ORG.", "example.org"), ("*.Bücher.example", "*.xn--bcher-kva.example"), ("127.0.0.1", "127.0.0.1")],
)
def test_a_line_of_a_list(line: str, pattern: str) -> None:
    assert host_pattern(line) == pattern


@pytest.mark.parametrize(
    "line", ["", "*", "*.", "a.*.org", "*example.org", "https://example.org", "example.org/a", "a@b.org", "a.org:8080"]
)
def test_what_is_no_line_of_a_list(line: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        host_pattern(line or " ")


def test_the_host_of_an_address() -> None:
    assert host_of("https://WWW.Example.org.:8443/a") == "www.example.org"
    assert host_of("https://good.example@evil.example/") == "evil.example"
    assert host_of("nonsense") == ""
