import asyncio
import gzip
import threading

import pytest

from core.net.outgoing import noting
from llm.tools.open_url import MAX_PAGE, PAGE_CUT_NOTE, OpenUrlTool
from llm.types.tools import run_tool
from tests.llm.opening import STORY, document_of, opened, tool_for
from tests.llm.raw_server import RawServer, always, answer


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


async def test_a_redirect_is_followed_and_the_page_has_its_last_url() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        moved = answer("", "Location: /there", status="308 Moved")
        writer.write(answer(STORY) if "GET /there" in head else moved)

    with noting() as sent:
        assert document_of(await opened(play, "/here?a=b"))["id"].endswith("/there")
    assert [each["host"] for each in sent] == ["site.example"] * 2
    assert [each["what"].partition("site.example")[2].partition("/")[2] for each in sent] == ["here?a=b", "there"]


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
    text = document_of(await opened(endless))["text"]
    assert text.startswith("again and again") and text.endswith(PAGE_CUT_NOTE)
    assert len(text) <= MAX_PAGE + len(PAGE_CUT_NOTE)


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
        assert (
            text.startswith("boom boom") and text.endswith(PAGE_CUT_NOTE) and len(text) <= MAX_PAGE + len(PAGE_CUT_NOTE)
        )
    else:
        assert output.error and "packed in a way that was not asked for" in output.text


async def test_a_page_sent_byte_by_byte_is_given_up() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    output = await opened(play, timeout=0.5)
    assert output.error and "did not answer completely within 0.5 seconds" in output.text


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (answer("x", "X-Long: " + "y" * 300_000), "too large headers"),
        (answer("x", *(f"X-{number}: y" for number in range(30_000))), "too large headers"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed"),
        (b"", "malformed"),
        (answer("not packed at all", "Content-Encoding: gzip"), "malformed"),
        (answer("x", "Location: http://site.example:port/", status="302 Found"), "status 302"),
        (answer("x", media_type="application/pdf"), "This is application/pdf, which cannot be read"),
        (answer("x", media_type=""), "of an unknown type"),
        (answer("x", "Content-Encoding: br"), "packed in a way"),
        (answer("x", status="404 Not Found"), "status 404"),
        (answer("x", status="304 Not Modified"), "status 304"),
        (answer("<body><script>render()</script></body>"), "has no text"),
    ],
    ids=range(12),
)
async def test_an_answer_that_cannot_be_read_is_told(whole: bytes, sentence: str) -> None:
    output = await opened(always(whole))
    assert output.error and sentence in output.text


async def test_a_long_text_comes_whole_and_one_beyond_what_is_fetched_says_so() -> None:
    output = await opened(always(answer(f"<title>Long</title><p>{'word ' * 100_000}")))
    assert output.full_text == document_of(output)["text"] == ("word " * 100_000).strip() and not output.partial
    output = await opened(always(answer(f"<title>Long</title><p>{'word ' * 500_000}")))
    assert (
        output.partial and output.full_text.endswith(PAGE_CUT_NOTE) and document_of(output)["text"] == output.full_text
    )


async def test_a_server_that_cannot_be_reached_is_told() -> None:
    with RawServer(always(b"")) as server:
        tool = tool_for(server)
    output = await run_tool(tool, {"url": f"http://site.example:{server.port}/"})
    assert output.error and "cannot be reached" in output.text


async def test_stopping_closes_the_connection() -> None:
    connected = threading.Event()

    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nagain and ")
        while True:
            writer.write(b"again and ")
            await writer.drain()
            await asyncio.sleep(0.01)

    with RawServer(play) as server:
        tool = tool_for(server)
        running = asyncio.create_task(run_tool(tool, {"url": f"http://site.example:{server.port}/"}))
        assert await asyncio.to_thread(connected.wait, 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(server.hung_up.wait, 10)


def test_its_label_names_the_host() -> None:
    assert OpenUrlTool().label({"url": "https://Site.example/a?b"}).english == "Opening site.example"
