import asyncio
import datetime
import gzip
import ssl
import threading
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from llm.tools import Tool, ToolOutput, run_tool
from llm.web.addresses import Guard, is_public
from llm.web.fetch import Fetcher
from llm.web.open_url import CUT, OpenUrlTool
from tests.llm.raw_server import Play, RawServer, always, answer

OPEN = ip_network("127.0.0.2/32")  # stands for the public internet; all other loopback addresses stay closed
STORY = "It was a dark and stormy night. " * 20


class Names:
    """A name server: what a name has each time it is asked, the last for ever after."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


def tool_for(*servers: RawServer, names: Names | None = None, max_characters: int = 40_000, **changes: Any) -> Tool:
    """`changes` are fields of the fetcher."""
    ports = frozenset(server.port for server in servers)
    guard = Guard(ports=ports, allowed_networks=(OPEN,), resolve=names or Names(["127.0.0.2"]))
    return OpenUrlTool(Fetcher(guard, **changes), max_characters=max_characters)


async def opened(play: Play, path: str = "/", **changes: Any) -> ToolOutput:
    with RawServer(play) as server:
        return await run_tool(tool_for(server, **changes), {"url": f"http://site.example:{server.port}{path}"})


def document_of(output: ToolOutput) -> dict[str, str]:
    assert not output.error, output.text
    assert output.data is not None
    [document] = output.data["documents"]
    return dict(document)


async def test_a_page_becomes_one_document_with_its_title_and_main_text() -> None:
    page = f"""<!doctype html><html><head><title>The &amp; Story</title><style>p {{}}</style></head><body>
    <nav>Menu</nav><header>Banner</header><main><h1>Night</h1><p>{STORY}</p><script>alert("no")</script>
    <ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr></table><pre>x\n  y</pre></main>
    <footer>Imprint</footer></body></html>"""
    with RawServer(always(answer(page))) as server:
        url = f"http://site.example:{server.port}/story?q=1"
        document = document_of(await run_tool(tool_for(server), {"url": url}))
    assert document["id"] == document["metadata"] == url
    assert document["title"] == "The & Story"
    text = document["text"]
    assert text.startswith("# Night\n") and STORY.strip() in text
    assert "- one\n- two" in text and "a | b" in text and "x\n  y" in text
    assert not any(word in text for word in ("Menu", "Banner", "Imprint", "alert", "stormy&"))


async def test_a_page_without_a_main_part_is_read_whole() -> None:
    page = "<title>T</title><main>Loading</main><div>Everything <b>else</b></div>"
    assert document_of(await opened(always(answer(page))))["text"] == "Loading\nEverything else"


@pytest.mark.parametrize(
    ("media_type", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", "<b>caf\xe9</b>".encode("latin-1"), "<b>café</b>"),
        ("text/plain", "caf\xe9 \x92".encode("latin-1"), "café ’"),
        ("text/plain; charset=punycode", b"plain", "plain"),
        ("text/plain", b"\xff\xfea\x00b\x00", "ab"),
        ("application/json", b'{"a": "\\u00e9"}', '{"a": "\\u00e9"}'),
        ("text/markdown", b"# One\x00\x1b", "# One"),
        ("text/html", b"<meta charset=windows-1251>\xe4\xe0", "да"),
        ("text/html", b"<p>a&#0;b&#xD800;c&amp;" + b"<p " + b"x=1 " * 1000 + b">d", "a\ufffdb\ufffdc&\nd"),
        ("text/html", b"<p>&#" + b"9" * 5000 + b";", "&#" + "9" * 5000 + ";"),
        ("application/xhtml+xml", b'<?xml version="1.0"?><svg><title/></svg><p title="a > b">x</p>', "x"),
        ("text/html", b"before<!-- hidden --><script>if (a < b) </script>after<p unfinished='", "beforeafter"),
    ],
)
async def test_text_is_read_in_whatever_way_it_is_written(media_type: str, body: bytes, text: str) -> None:
    assert document_of(await opened(always(answer(body, media_type=media_type))))["text"] == text


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///etc/passwd", "Only URLs that begin with"),
        ("ftp://site.example/", "Only URLs that begin with"),
        ("site.example", "Only URLs that begin with"),
        ("http://", "Only URLs that begin with"),
        ("http://me:secret@site.example/", "user name or password"),
        ("http://site.example:22/", "Port 22 is not opened, only 80, 443, 8080, 8443."),
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
        ("http://site.example:99999/", "Port 99999 is not opened"),
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
        assert names.asked == ["site.example"]
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


async def test_a_redirect_is_followed_and_the_page_has_its_last_url() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        moved = answer("", "Location: /there", status="308 Moved")
        writer.write(answer(STORY) if "GET /there" in head else moved)

    assert document_of(await opened(play, "/here"))["id"].endswith("/there")


async def test_redirects_without_end_are_given_up() -> None:
    with RawServer(always(answer("", "Location: /", status="302 Found"))) as server:
        output = await run_tool(tool_for(server), {"url": f"http://site.example:{server.port}/"})
    assert output.error and "redirects more than 5 times" in output.text
    assert len(server.heads) == 6


async def endless(head: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"again and " * 1000)
        await writer.drain()


async def test_an_endless_page_is_cut_and_says_so() -> None:
    text = document_of(await opened(endless, max_bytes=50_000))["text"]
    assert text.startswith("again and again") and text.endswith(CUT)
    assert len(text) <= 40_000


async def test_an_endless_body_of_a_redirect_is_not_received() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        if "GET /there" in head:
            writer.write(answer(STORY))
            return
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    assert document_of(await opened(play))["text"] == STORY.strip()


@pytest.mark.parametrize("layers", [1, 2])
async def test_a_gzip_bomb_is_cut_or_refused(layers: int) -> None:
    bomb = b"boom " * 10_000_000
    for _ in range(layers):
        bomb = gzip.compress(bomb)
    encoding = ", ".join(["gzip"] * layers)
    output = await opened(always(answer(bomb, f"Content-Encoding: {encoding}", media_type="text/plain")))
    if layers == 1:
        text = document_of(output)["text"]
        assert text.startswith("boom boom") and text.endswith(CUT) and len(text) <= 40_000
    else:
        assert output.error and "packed in a way" in output.text


async def test_a_page_sent_byte_by_byte_is_given_up() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    output = await opened(play, timeout=0.5)
    assert output.error and "no complete answer within 0.5 seconds" in output.text


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (answer("x", "X-Long: " + "y" * 300_000), "too much in its headers"),
        (answer("x", *(f"X-{number}: y" for number in range(30_000))), "too much in its headers"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "broken"),
        (b"", "broken"),
        (answer("not packed at all", "Content-Encoding: gzip"), "broken"),
        (answer("x", "Location: http://site.example:port/", status="302 Found"), "status 302"),
        (answer("x", media_type="application/pdf"), "This is application/pdf; only text and web pages"),
        (answer("x", media_type=""), "of an unknown type"),
        (answer("x", "Content-Encoding: br"), "not asked for"),
        (answer("x", status="404 Not Found"), "status 404"),
        (answer("x", status="304 Not Modified"), "status 304"),
        (answer("<body><script>render()</script></body>"), "holds no text"),
    ],
    ids=range(12),
)
async def test_an_answer_that_cannot_be_read_is_told(whole: bytes, sentence: str) -> None:
    output = await opened(always(whole))
    assert output.error and sentence in output.text


async def test_a_long_text_is_cut_at_the_tools_cap_with_a_note() -> None:
    with RawServer(always(answer(f"<title>Long</title><p>{STORY}"))) as server:
        url = f"http://site.example:{server.port}/"
        output = await run_tool(tool_for(server, max_characters=300), {"url": url})
    assert document_of(output)["text"].endswith(CUT)
    assert len(output.text) == 300


async def test_a_server_that_cannot_be_reached_is_told() -> None:
    with RawServer(always(b"")) as server:
        tool = tool_for(server)
    output = await run_tool(tool, {"url": f"http://site.example:{server.port}/"})
    assert output.error and "cannot be reached" in output.text


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


async def test_stopping_closes_the_connection() -> None:
    begun = threading.Event()

    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await endless(head, writer)

    with RawServer(play) as server:
        tool = tool_for(server, max_bytes=10**12)
        running = asyncio.create_task(run_tool(tool, {"url": f"http://site.example:{server.port}/"}))
        assert await asyncio.to_thread(begun.wait, 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(server.hung_up.wait, 10)


def certificate(folder: Path, name: str) -> Path:
    """A file with a key and a certificate, signed by itself, for a name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(pem, *plain) + signed.public_bytes(pem))
    return path


@pytest.mark.parametrize("name", ["site.example", "other.example"])
async def test_the_certificate_must_be_for_the_name_though_the_address_is_pinned(tmp_path: Path, name: str) -> None:
    path = certificate(tmp_path, name)
    asked: list[str] = []
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(path)
    server_tls.sni_callback = lambda connection, host, context: asked.append(host)
    with RawServer(always(answer(STORY)), tls=server_tls) as server:
        tool = tool_for(server, tls=ssl.create_default_context(cafile=str(path)))
        output = await run_tool(tool, {"url": f"https://site.example:{server.port}/"})
    assert asked == ["site.example"]
    if name == "site.example":
        assert document_of(output)["text"] == STORY.strip()
    else:
        assert output.error and "certificate is not valid" in output.text
        assert server.heads == []


def test_its_label_names_the_host() -> None:
    assert OpenUrlTool().label({"url": "https://Site.example/a?b"}) == "Opening site.example"
