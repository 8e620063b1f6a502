import ssl
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest

from core.net.fetch import Fetcher
from core.net.url_safety import FetchRefused, Guard, is_public
from llm.tools.open_url import OpenUrlTool
from llm.types.tools import run_tool
from tests.llm.opening import STORY, Names, document_of, opened, tool_for
from tests.llm.raw_server import RawServer, always, answer, certificate


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///etc/passwd", "Only URLs that begin with"),
        ("ftp://site.example/", "Only URLs that begin with"),
        ("site.example", "Only URLs that begin with"),
        ("http://", "Only URLs that begin with"),
        ("http://me:secret@site.example/", "user name or password"),
        ("http://site.example:22/", "Port 22 is not allowed. The allowed ports are 80, 443, 8080, 8443."),
        ("http://127.0.0.1/", "not on the public internet"),
        ("http://127.1/", "not on the public internet"),
        ("http://2130706433/", "not on the public internet"),
        ("http://0x7f.0.0.1:8080/", "not on the public internet"),
        ("http://localhost/", "not on the public internet"),
        ("http://[::1]/", "not on the public internet"),
        ("http://[::ffff:127.0.0.1]/", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        (f"http://{'a' * 64}.example/", "There is no address"),
        ("http://[", "There is no address"),
        ("http://site.example:99999/", "Port 99999 is not allowed"),
        ("http://site.example:port/", "This is not a URL"),
        ("", "Call it with"),
        ("http://site.example/" + "a" * 5000, "Call it with"),
        (["http://site.example/"], "Call it with"),
        (None, "Call it with"),
    ],
)
async def test_what_may_not_be_opened_is_refused_with_a_sentence(url: Any, sentence: str) -> None:
    output = await run_tool(OpenUrlTool(), {"url": url})
    assert output.error and sentence in output.text


CLOSED = """
    0.1.2.3 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.255.0.1 168.63.129.16 169.254.169.254 172.16.0.1
    172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
    240.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 ::ffff:10.0.0.1 ::8.8.8.8 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1
    2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1
"""


@pytest.mark.parametrize("address", CLOSED.split())
def test_an_address_that_is_not_public_is_closed(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"])
def test_a_public_address_is_open(address: str) -> None:
    assert is_public(ip_address(address))


async def test_a_name_with_one_closed_address_among_open_ones_is_refused() -> None:
    with RawServer(always(answer(STORY))) as server:
        tool = tool_for(server, names=Names(["127.0.0.2", "10.0.0.1"]))
        output = await run_tool(tool, {"url": f"http://site.example:{server.port}/"})
    assert output.error and "not on the public internet" in output.text
    assert server.heads == []


async def test_a_redirect_to_a_closed_address_is_refused_and_nothing_is_sent_there() -> None:
    with RawServer(always(answer("inside")), host="127.0.0.1") as inside:
        target = f"http://127.0.0.1:{inside.port}/admin"
        with RawServer(always(answer("", f"Location: {target}", status="302 Found"))) as site:
            tool = tool_for(site, inside, names=Names(["127.0.0.2"], ["127.0.0.1"]))
            output = await run_tool(tool, {"url": f"http://site.example:{site.port}/"})
        assert output.error and "127.0.0.1 is not on the public internet" in output.text
        assert len(site.heads) == 1 and inside.heads == []


async def test_a_redirect_that_is_not_to_be_followed_is_not() -> None:
    async def follow(source: httpx2.URL, target: httpx2.URL) -> None:
        raise FetchRefused(f"{source.host} leads to {target.host}.")

    with RawServer(always(answer("", "Location: http://other.example/?d=SECRET", status="302 Found"))) as site:
        names = Names(["127.0.0.2"])
        tool = tool_for(site, names=names, follow=follow)
        output = await run_tool(tool, {"url": f"http://site.example:{site.port}/"})
    assert output.error and output.text == "site.example leads to other.example."
    assert len(site.heads) == 1 and names.hosts == ["site.example"]  # not even its address was asked for


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://a:b@site.example/", "http://site.example:22/"])
async def test_each_redirect_is_checked_like_the_first_url(target: str) -> None:
    output = await opened(always(answer("", f"Location: {target}", status="301 Moved")))
    assert output.error
    assert any(part in output.text for part in ("Only URLs", "password", "Port 22", "broken"))


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name has an open address when it is checked and a closed one whenever it is looked up again."""
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    with RawServer(always(answer(STORY))) as site:
        url = f"http://site.example:{site.port}/"
        document = document_of(await run_tool(tool_for(site, names=names), {"url": url}))
        assert document["text"] == STORY.strip()
        assert names.hosts == ["site.example"]
        assert f"Host: site.example:{site.port}" in site.heads[0]
        again = await run_tool(tool_for(site, names=names), {"url": url})
        assert again.error and "not on the public internet" in again.text
        assert len(site.heads) == 1


async def test_a_name_that_turns_closed_on_a_redirect_to_itself_is_refused() -> None:
    with RawServer(always(answer("", "Location: /again", status="302 Found"))) as site:
        tool = tool_for(site, names=Names(["127.0.0.2"], ["127.0.0.1"]))
        output = await run_tool(tool, {"url": f"http://site.example:{site.port}/"})
    assert output.error and "not on the public internet" in output.text
    assert len(site.heads) == 1


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with RawServer(always(answer(STORY))) as server:
        guard = Guard(
            ports=frozenset({server.port}),
            allowed_networks=(ip_network("127.0.0.0/8"),),
            resolve=Names(["127.0.0.9", "127.0.0.2"]),
        )
        output = await run_tool(OpenUrlTool(Fetcher(guard)), {"url": f"http://site.example:{server.port}/"})
    assert document_of(output)["text"] == STORY.strip()


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(always(answer("from the proxy"))) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.2:{proxy.port}")
        assert document_of(await opened(always(answer(STORY))))["text"] == STORY.strip()
    assert proxy.heads == []


@pytest.mark.parametrize("name", ["site.example", "other.example"])
async def test_the_certificate_must_be_for_the_name_though_the_address_is_pinned(tmp_path: Path, name: str) -> None:
    path = certificate(tmp_path, name)
    requests: list[str] = []
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(path)
    server_tls.sni_callback = lambda connection, host, context: requests.append(host)
    with RawServer(always(answer(STORY)), tls=server_tls) as server:
        tool = tool_for(server, tls=ssl.create_default_context(cafile=str(path)))
        output = await run_tool(tool, {"url": f"https://site.example:{server.port}/"})
    assert requests == ["site.example"]
    if name == "site.example":
        assert document_of(output)["text"] == STORY.strip()
    else:
        assert output.error and "certificate is not valid" in output.text
        assert server.heads == []
