"""Test the bytes to and from models: odd servers, proxies, redirects, TLS."""

import asyncio
import base64
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.errors import ModelError
from core.net.fetch import system_tls
from llm.providers import connection, create_client
from llm.providers.streaming import EventDecoder
from llm.types.model_call import ProviderClient
from tests.llm.conftest import asking, events_of, failure_after, text_of
from tests.llm.raw_server import Play, RawServer, always, answer, certificate

Client = Callable[..., ProviderClient]
KEY = "sk-secret"


def reply_with(text: str) -> str:
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


END = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
PART = f"{reply_with('Hello')}\n\n{reply_with(' world')}\n\n"
STREAM = PART + END
TYPE = "text/event-stream"
WHOLE = answer(STREAM, media_type=TYPE)


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x;odd=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + chunks + b"0\r\nTrailer: x\r\n\r\n"


def in_pieces(whole: bytes, size: int) -> Play:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        for at in range(0, len(whole), size):
            writer.write(whole[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)

    return play


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """Makes a client of a server; `account` stands before its host."""
    clients: list[ProviderClient] = []

    def make(
        server: RawServer | str, *, kind: str = "openai", silence: float = 20.0, account: str = ""
    ) -> ProviderClient:
        url = server if isinstance(server, str) else f"http://{account}127.0.0.2:{server.port}/v1"
        clients.append(create_client(kind, base_url=url, api_key=KEY, silence_timeout=silence))
        return clients[-1]

    yield make
    for each in clients:
        await each.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    "whole",
    [
        WHOLE,
        chunked(STREAM.encode(), 1),
        chunked(STREAM.encode(), 50),
        f"HTTP/1.0 200 OK\nContent-Type: {TYPE}\n\n{STREAM}".encode(),
        f"HTTP/1.1 200 OK\r\nContent-Type: {TYPE}\r\n\r\n{STREAM}".encode(),
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        answer(gzip.compress(STREAM.encode()), "Content-Encoding: gzip", media_type=TYPE),
        answer(STREAM, f"Content-Security-Policy: {'x' * 60_000}", media_type=TYPE),
    ],
    ids=["length", "chunks of one", "chunks", "1.0", "until it closes", "continue", "gzip", "long header"],
)
async def test_an_answer_is_read_however_it_is_framed(client: Client, whole: bytes, size: int) -> None:
    with RawServer(in_pieces(whole, size if len(whole) < 10_000 else 4_096)) as server:
        assert text_of(await events_of(client(server), asking())) == "Hello world"


@pytest.mark.parametrize(
    ("whole", "code"),
    [
        (answer(b"no gzip at all", "Content-Encoding: gzip", media_type=TYPE), "stream_cut"),
        (chunked(PART.encode(), 50).removesuffix(b"0\r\nTrailer: x\r\n\r\n"), "stream_cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "provider_unreachable"),
        (answer(PART, media_type=TYPE).replace(b"Length: ", b"Length: 9"), "stream_cut"),
        (answer(STREAM, f"X: {'x' * 100_000}", media_type=TYPE), "provider_unreachable"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "provider_unreachable"),
        (b"", "provider_unreachable"),
        (answer("", status="204 No Content", media_type=""), "stream_cut"),
    ],
    ids=["gzip", "cut", "chunk", "length", "header", "ssh", "nothing", "no content"],
)
async def test_a_broken_answer_is_an_error_that_can_be_tried_again(client: Client, whole: bytes, code: str) -> None:
    with RawServer(always(whole)) as server:
        failure = (await failure_after(client(server), asking()))[1]
        assert (failure.code, failure.retryable, len(server.heads)) == (code, True, 1)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_the_same_wherever_their_bytes_are_cut(end: str) -> None:
    lines = [": a comment", "", "event: message", "data: one", "id: 7", "", "", "data:two", "data:  three", "retry", ""]
    stream = end.join([*lines, "data: é", "", "data: left open"]).encode()
    expected = [b"one", b"two\n three", "é".encode(), b"left open"]
    for first in range(len(stream)):
        for second in (first, first + 1, len(stream)):
            decoder = EventDecoder()
            pieces = stream[:first], stream[first:second], stream[second:]
            assert [each for piece in pieces if piece for each in decoder.feed(piece)] + decoder.finish() == expected


def test_an_event_is_told_as_soon_as_it_has_ended_whatever_ends_lines() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        assert EventDecoder().feed(b"data: one" + end + end) == [b"one"]


async def test_a_connection_that_was_closed_while_it_waited_fails_no_call(client: Client) -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        if len(server.heads) % 2:
            writer.write(WHOLE)
        else:  # the second call of a connection finds it closed
            writer.close()

    with RawServer(play, keeps=True) as server:
        model = client(server)
        for _ in range(3):
            assert text_of(await events_of(model, asking())) == "Hello world"
        assert len(server.heads) == 5


async def test_an_answer_that_is_left_closes_its_connection_at_once(client: Client) -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {TYPE}\r\n\r\n".encode())
        while True:
            writer.write(f"{reply_with('more ')}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(0)

    with RawServer(play) as server:
        async with aclosing(client(server).stream(asking())) as events:
            await anext(events)
        assert await asyncio.to_thread(server.hung_up.wait, 10)


async def test_a_server_that_takes_no_request_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.1)
    monkeypatch.setattr(connection, "MIN_UPLOAD_SPEED", 10**9)
    listening = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.2", 0, limit=1)
    port = listening.sockets[0].getsockname()[1]
    model = client(f"http://127.0.0.2:{port}/v1", silence=0.1)
    failure = (await failure_after(model, asking(text="x" * 20_000_000)))[1]
    assert (failure.code, failure.retryable) == ("provider_timeout", True)
    listening.close()


@pytest.mark.parametrize("status", ["503 Service Unavailable", "200 OK"])
async def test_a_page_without_end_is_not_read_to_its_end(client: Client, status: str) -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n\r\n".encode())
        while True:
            writer.write(b"x" * 1_000_000)
            await writer.drain()

    with RawServer(play) as server:
        failure = (await failure_after(client(server), asking()))[1]
        assert failure.code == ("provider_overloaded" if "503" in status else "malformed_stream")
        assert await asyncio.to_thread(server.hung_up.wait, 10)


def location(url: str, status: str) -> bytes:
    return answer("moved", f"Location: {url}", status=status)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_request_follows_a_redirect_but_its_key_stays_with_the_server(client: Client, kind: str) -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        inside = head.startswith("POST /v1/")
        writer.write(location("/v2" if inside else f"http://127.0.0.2:{other.port}/v3", "307 Temporary Redirect"))

    with RawServer(always(WHOLE)) as other, RawServer(play) as server:
        stream = client(server, kind=kind).stream(asking())
        await asyncio.gather(anext(stream), return_exceptions=True)  # the other server speaks one protocol only
        await stream.aclose()
    heads = [*server.heads, *other.heads]
    assert [head.split()[1][:3] for head in heads] == ["/v1", "/v2", "/v3"]
    assert [KEY in head for head in heads] == [True, True, False]
    assert server.bodies == [server.bodies[0]] * 2 and other.bodies == server.bodies[:1]


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/v1/chat/completions", "307 Temporary Redirect"),
        ("/login", "302 Found"),
        ("ftp://x/", "308 Permanent Redirect"),
    ],
)
async def test_a_redirect_that_leads_to_no_model_is_told(client: Client, url: str, status: str) -> None:
    with RawServer(always(location(url, status))) as server:
        failure = (await failure_after(client(server), asking()))[1]
    assert "base URL" in failure.detail


async def test_an_account_in_the_base_url_and_its_query_are_sent(client: Client) -> None:
    with RawServer(always(WHOLE)) as server:
        await events_of(client(server, account="me:p%40ss@"), asking())
        await events_of(client(f"http://127.0.0.2:{server.port}/v1/?version=1"), asking())
    with_account, with_query = server.heads
    assert f"Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in with_account and KEY not in with_account
    assert with_query.startswith("POST /v1/chat/completions?version=1 ")
    assert f"Authorization: Bearer {KEY}" in with_query


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_is_used(client: Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with RawServer(always(WHOLE)) as proxy:
        monkeypatch.setenv(name, f"http://me:p%40ss@127.0.0.2:{proxy.port}")
        assert text_of(await events_of(client("http://models.example/v1"), asking())) == "Hello world"
    [head] = proxy.heads
    assert head.startswith("POST http://models.example/v1/chat/completions ")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in head


async def test_a_proxy_that_refuses_to_connect_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(always(answer("", status="407 Proxy Authentication Required"))) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.2:{proxy.port}")
        failure = (await failure_after(client("https://models.example/v1"), asking()))[1]
    assert failure.code == "provider_unreachable"
    [head] = proxy.heads
    assert head.startswith("CONNECT models.example:443 ") and KEY not in head


@pytest.mark.parametrize("exempt", ["*", "127.0.0.2", " .example , 127.0.0.2"])
async def test_hosts_without_a_proxy_are_asked_themselves(
    client: Client, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.2:1")
    monkeypatch.setenv("NO_PROXY", exempt)
    with RawServer(always(WHOLE)) as server:
        assert text_of(await events_of(client(server), asking())) == "Hello world"


async def test_a_proxy_of_a_kind_that_cannot_be_used_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.2:1")
    failure = (await failure_after(client("http://models.example/v1"), asking()))[1]
    assert (failure.code, failure.retryable) == ("provider_unreachable", False)
    assert "socks5" in failure.detail


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Makes the process trust an authority that the environment names."""

    def trust(path: Path) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        system_tls.cache_clear()

    yield trust
    system_tls.cache_clear()


@pytest.mark.parametrize("name", ["localhost", "other.example", "nobody"])
async def test_a_certificate_must_be_of_the_host_and_of_a_trusted_authority(
    client: Client, trusting: Callable[[Path], None], tmp_path: Path, name: str
) -> None:
    path = certificate(tmp_path, name)
    if name != "nobody":
        trusting(path)
    tls: Any = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(path)
    with RawServer(always(WHOLE), host="127.0.0.1", tls=tls) as server:
        model = client(f"https://localhost:{server.port}/v1")
        if name == "localhost":
            assert text_of(await events_of(model, asking())) == "Hello world"
        else:
            assert (await failure_after(model, asking()))[1].code == "provider_unreachable"
            assert server.heads == []


async def test_lists_of_models_that_are_none_point_to_the_base_url(client: Client) -> None:
    for body in ("[]", "{", '{"data": 7}', '{"data": [{"name": "x"}]}', "<html>"):
        with RawServer(always(answer(body))) as server, pytest.raises(ModelError, match="base URL"):
            await client(server).list_models()
