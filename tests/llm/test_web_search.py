import asyncio
import gzip
import json
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from core.net.addresses import HostLists
from llm.tools.web_search import BRAVE_URL, SearchService, WebSearchTool
from llm.types.tools import Tool, ToolOutput, run_tool
from tests.llm.raw_server import Play, RawServer, always, answer

KEY = "key-never-to-be-seen-123"


def target_of(head: str) -> tuple[str, dict[str, list[str]]]:
    """The path and the parameters of a request."""
    parts = urlsplit(head.split(" ")[1])
    return parts.path, parse_qs(parts.query)


def page(*entries: Any) -> bytes:
    return answer(json.dumps({"results": entries}), media_type="application/json")


def by_query(**answers: bytes) -> Play:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        [query] = target_of(head)[1]["q"]
        writer.write(answers[query])

    return play


def searxng(server: RawServer, **changes: Any) -> Tool:
    return WebSearchTool(SearchService("searxng", f"http://127.0.0.2:{server.port}/", **changes))


async def searched(play: Play, *queries: str, **changes: Any) -> ToolOutput:
    with RawServer(play) as server:
        return await run_tool(searxng(server, **changes), {"queries": list(queries)})


def documents_of(output: ToolOutput) -> list[dict[str, str]]:
    assert not output.error, output.text
    assert output.data is not None
    return list(output.data["documents"])


async def test_searxng_is_asked_for_json_and_its_results_become_documents() -> None:
    entry = {"url": "https://a.example/x", "title": "A &lt; <b>B</b>\n", "content": "About\x00 \ud800it", "score": 1.5}
    with RawServer(always(page(entry))) as server:
        output = await run_tool(searxng(server), {"queries": ["größe & more"]})
    path, parameters = target_of(server.heads[0])
    assert (path, parameters) == ("/search", {"q": ["größe & more"], "format": ["json"]})
    assert "authorization" not in server.heads[0].lower()
    url = "https://a.example/x"
    assert documents_of(output) == [{"id": url, "title": "A &lt; <b>B</b>", "metadata": url, "text": "About it"}]
    assert url in output.text and "About it" in output.text


async def test_brave_is_asked_with_its_key_and_its_results_become_documents() -> None:
    web = {"results": [{"url": "https://a.example/", "title": "It&#x27;s", "description": "Q&amp;A"}]}
    with RawServer(always(answer(json.dumps({"type": "search", "web": web})))) as server:
        service = SearchService("brave", f"http://127.0.0.2:{server.port}/res/v1", KEY)
        output = await run_tool(WebSearchTool(service), {"queries": ["x"]})
    path, parameters = target_of(server.heads[0])
    assert (path, parameters["q"], parameters["count"]) == ("/res/v1/web/search", ["x"], ["10"])
    assert f"x-subscription-token: {KEY}" in server.heads[0].lower()
    assert [(d["title"], d["text"]) for d in documents_of(output)] == [("It's", "Q&A")]
    assert SearchService("brave").base_url == "" and BRAVE_URL.startswith("https://")


RESULT = """<div class="result results_links"><div class="links_main result__body">
<h2 class="result__title"><a class="result__a" href="{href}">{title}</a></h2>
<a class="result__snippet" href="{href}">{text}</a></div></div>"""


def duckduckgo(server: RawServer, **changes: Any) -> Tool:
    return WebSearchTool(SearchService("duckduckgo", f"http://127.0.0.2:{server.port}/html/", **changes))


async def test_duckduckgo_needs_no_key_and_its_page_becomes_documents() -> None:
    """The page is the one of html.duckduckgo.com, whose elements the package names."""
    target = "https://a.example/x?y=1&z=2"
    by_way = f"//duckduckgo.com/l/?uddg={quote(target, safe='')}&rut=abc"
    advert = RESULT.format(href="https://duckduckgo.com/y.js?ad=1", title="Buy", text="Now")
    entries = [
        RESULT.format(href="https://b.example/", title="It&#x27;s  B", text="Q&amp;A"),
        RESULT.format(href=by_way.replace("&", "&amp;"), title="A", text="About it"),
        RESULT.format(href="javascript:alert(1)", title="C", text="No"),
    ]
    body = f"<html><body><div id='links'>{advert}{''.join(entries)}</div></body></html>"
    with RawServer(always(answer(body, media_type="text/html"))) as server:
        output = await run_tool(duckduckgo(server), {"queries": ["größe & more"]})
    assert server.heads[0].startswith("POST /html/")
    shown = [(each["id"], each["title"], each["text"]) for each in documents_of(output)]
    assert shown == [("https://b.example/", "It's B", "Q&A"), (target, "A", "About it")]


async def test_duckduckgo_that_takes_us_for_a_robot_or_is_away_is_said() -> None:
    with RawServer(always(answer("<html>anomaly</html>", status="202 Accepted"))) as server:
        robot = await run_tool(duckduckgo(server), {"queries": ["x"]})
    assert robot.error and "DuckDuckGo refuses more queries" in robot.text
    away = await run_tool(duckduckgo(server), {"queries": ["x"]})
    assert away.error and "DuckDuckGo cannot be reached" in away.text


async def test_a_key_of_a_searxng_server_is_sent_as_a_bearer() -> None:
    with RawServer(always(page())) as server:
        await run_tool(searxng(server, api_key=KEY), {"queries": ["x"]})
    assert f"authorization: bearer {KEY}" in server.heads[0].lower()


async def test_nothing_found_is_no_error_and_says_so() -> None:
    for nothing in (page(), page({"title": "no url"}, "no object", {"url": "javascript:alert(1)"}, {"url": 1})):
        output = await searched(always(nothing), "x")
        assert documents_of(output) == []
        assert "Nothing was found" in output.text
    with RawServer(always(answer('{"type": "search", "query": {}}'))) as server:
        service = SearchService("brave", f"http://127.0.0.2:{server.port}", KEY)
        assert documents_of(await run_tool(WebSearchTool(service), {"queries": ["x"]})) == []


async def test_results_of_denied_hosts_are_left_out_and_it_says_so() -> None:
    bad, worse = {"url": "https://Bad.example/a", "title": "No"}, {"url": "http://x.evil.example:8080/", "title": "No"}
    lists = HostLists(frozenset({"bad.example"}), frozenset({"bad.example", "*.evil.example"}))
    play = by_query(one=page(bad, {"url": "https://good.example/"}), two=page(worse, bad), three=page(bad))
    with RawServer(play) as server:
        tool = WebSearchTool(SearchService("searxng", f"http://127.0.0.2:{server.port}/"), hosts=lists)
        output = await run_tool(tool, {"queries": ["one", "two"]})
        nothing = await run_tool(tool, {"queries": ["three"]})
    assert [document["id"] for document in documents_of(output)] == ["https://good.example/"]
    sentence = "2 results are from hosts that this workspace denies. They were left out."
    assert output.data["notes"] == [sentence] and sentence in output.text and "ad.example" not in output.text
    assert documents_of(nothing) == [] and nothing.text == (
        "One result is from a host that this workspace denies. It was left out.\n\n"
        "Nothing else was found. Try other words."
    )


async def test_several_queries_run_side_by_side() -> None:
    """Each is answered only when all have arrived."""
    waiting: list[asyncio.StreamWriter] = []
    all_here = asyncio.Event()

    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)
        if len(waiting) == 5:
            all_here.set()
        await all_here.wait()
        writer.write(page())

    output = await searched(play, "a", "b", "c", "d", "e")
    assert not output.error and output.data is not None
    assert output.data["notes"] == ["Nothing was found. Try other words."]


async def test_results_are_merged_by_rank_and_each_url_comes_once() -> None:
    def entries(*names: str) -> bytes:
        return page(*({"url": f"https://{name}", "title": name} for name in names))

    play = by_query(one=entries("a.example/", "b.example/", "c.example/"), two=entries("b.example/#part", "d.example/"))
    documents = documents_of(await searched(play, "one", "two", "one"))
    assert [document["title"] for document in documents] == [
        "a.example/",
        "b.example/#part",
        "d.example/",
        "c.example/",
    ]


async def test_many_and_long_results_are_cut() -> None:
    def entries(site: str) -> bytes:
        long = {"title": "t" * 9000, "content": "c" * 9000}
        return page(*({"url": f"https://{site}.example/{number}"} | long for number in range(99)))

    documents = documents_of(await searched(by_query(a=entries("a"), b=entries("b"), c=entries("c")), "a", "b", "c"))
    assert len(documents) == 20
    assert all(len(document["title"]) == 300 and len(document["text"]) == 1000 for document in documents)


async def test_a_query_that_fails_leaves_the_others() -> None:
    play = by_query(good=page({"url": "https://a.example/"}), bad=answer("", status="500 Oops"))
    output = await searched(play, "good", "bad")
    assert [document["title"] for document in documents_of(output)] == ["https://a.example/"]
    assert output.data is not None
    [note] = output.data["notes"]
    assert note.startswith("“bad”: ") and note in output.text


@pytest.mark.parametrize(
    ("whole", "sentence"),
    [
        (answer("<html>not JSON"), "in another protocol"),
        (answer("[" * 100_000), "in another protocol"),
        (answer('"text"'), "in another protocol"),
        (answer('{"results": {"a": 1}}'), "in another protocol"),
        (answer("{}"), "in another protocol"),
        (answer(json.dumps({"results": [], "pad": "x" * 2_000_000})), "in another protocol"),
        (answer(gzip.compress(b" " * 50_000_000), "Content-Encoding: gzip"), "in another protocol"),
        (answer("", status="403 Forbidden"), "allow its JSON format"),
        (answer("", status="429 Too Many Requests"), "gets too many queries"),
        (answer("", status="502 Bad Gateway"), "failed with status 502"),
        (answer("", "Location: http://127.0.0.1/", status="302 Found"), "failed with status 302"),
        (answer("x", "X-Long: " + "y" * 300_000), "cannot be reached"),
        (b"", "cannot be reached"),
    ],
    ids=range(13),
)
async def test_a_service_that_fails_is_told_without_its_key(whole: bytes, sentence: str) -> None:
    output = await searched(always(whole), "x", api_key=KEY)
    assert output.error and sentence in output.text
    assert KEY not in output.text


async def test_a_service_that_never_ends_is_given_up() -> None:
    async def play(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    output = await searched(play, "x", timeout=0.5)
    assert output.error and "did not answer within 0.5 seconds" in output.text


@pytest.mark.parametrize("queries", [None, "x", [], ["a"] * 6, [1], [""], [" \x01 "], ["a" * 401], ["good", None]])
async def test_queries_that_are_none_are_explained_to_the_model(queries: Any) -> None:
    output = await run_tool(WebSearchTool(SearchService("searxng", "http://127.0.0.2:9")), {"queries": queries})
    assert output.error
    assert "one to 5 of them" in output.text or "at most 400 characters" in output.text


def test_its_label_names_what_is_searched() -> None:
    tool = WebSearchTool(SearchService("searxng", "http://127.0.0.2:9"))
    assert tool.label({"queries": ["cats", "dogs"]}).english == "Searching the web for “cats” and 1 more"


def test_the_key_is_in_no_description_of_the_service() -> None:
    assert KEY not in repr(SearchService("brave", api_key=KEY))
