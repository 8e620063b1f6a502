import asyncio
import gzip
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer

from llm.tools.mcp import MAX_DESCRIPTION, MAX_TOOLS, list_tools
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.types.tools import Tool, run_tool
from tests.llm.misbehaving_server import BAD_SCHEMAS, BROKEN, Misbehaving, tool
from tests.llm.raw_server import RawServer, always, answer

SECRET = "secret-never-to-be-seen"


def served() -> MCPServer:
    server: MCPServer = MCPServer("served")

    @server.tool(description="Adds two numbers.")
    def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool(name="much.text")
    def much() -> str:
        return "much " * 400_000

    @server.tool()
    def huge() -> str:
        return "x" * 17_000_000

    @server.tool()
    def fail() -> str:
        raise RuntimeError("the tool's own trouble")

    @server.tool()
    async def wait() -> str:
        await asyncio.sleep(600)
        return "never"

    return server


@pytest.fixture(scope="module", params=[False, True], ids=["events", "json"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # who comes before the server has started waits
        app = served().streamable_http_app(json_response=request.param)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        running.should_exit = True
        thread.join(10)


def appears(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def ends(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.01)


async def tool_named(server: ToolServerConfig, name: str) -> Tool:
    return {tool.definition.name: tool for tool in (await list_tools(server)).tools}[name]


async def test_the_tools_of_a_server_over_http_are_offered_and_run(url: str) -> None:
    server = ToolServerConfig("calc", url=url)
    tools = {tool.definition.name: tool for tool in (await list_tools(server)).tools}
    assert set(tools) == {"calc__add", "calc__much_text", "calc__huge", "calc__fail", "calc__wait"}
    tool = tools["calc__add"]
    assert tool.definition.description == "Adds two numbers."
    assert tool.definition.parameters["type"] == "object"
    assert set(tool.definition.parameters["properties"]) == {"a", "b"}
    assert tool.label({"a": 1}).english == "Asking calc: add"
    assert (await run_tool(tool, {"a": 2, "b": 40})).text == "42"


async def test_what_a_tool_gives_comes_whole(url: str) -> None:
    tool = await tool_named(ToolServerConfig("calc", url=url), "calc__much_text")
    output = await run_tool(tool, {})
    assert output.text == output.full_text == "much " * 400_000


async def test_an_answer_too_large_to_receive_is_told(url: str) -> None:
    output = await run_tool(await tool_named(ToolServerConfig("calc", url=url, timeout=10.0), "calc__huge"), {})
    assert output.error and "more than can be received" in output.text


@pytest.mark.parametrize(("name", "arguments"), [("fail", {}), ("add", {"a": "x"})])
async def test_a_tool_that_fails_tells_the_model(url: str, name: str, arguments: dict[str, Any]) -> None:
    output = await run_tool(await tool_named(ToolServerConfig("calc", url=url), f"calc__{name}"), arguments)
    assert output.error and output.text


async def test_a_tool_that_takes_too_long_is_given_up(url: str) -> None:
    tool = await tool_named(ToolServerConfig("calc", url=url, timeout=0.5), "calc__wait")
    output = await run_tool(tool, {})
    assert output.error and "within 0.5 seconds" in output.text


PROCESS = """
import asyncio, os, pathlib, sys
from mcp.server import MCPServer
server = MCPServer("process")
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))

@server.tool()
def secret() -> str:
    return os.environ["TOKEN"] + str("SECRET_KEY" in os.environ)

@server.tool()
def die() -> str:
    os._exit(3)

@server.tool()
async def wait() -> str:
    pathlib.Path(sys.argv[1] + ".waiting").touch()
    await asyncio.sleep(600)

server.run()
"""


@pytest.fixture
def process(tmp_path: Path) -> ToolServerConfig:
    script = tmp_path / "a server.py"
    script.write_text(PROCESS)
    command = f"{sys.executable} '{script}' {tmp_path}/pid"
    return ToolServerConfig("process", command=command, secrets={"TOKEN": SECRET})


async def test_a_process_is_started_with_its_secret_only_and_ended(process: ToolServerConfig, tmp_path: Path) -> None:
    output = await run_tool(await tool_named(process, "process__secret"), {})
    assert output.text == f"{SECRET}False"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_process_that_dies_during_a_call_is_told(process: ToolServerConfig) -> None:
    output = await run_tool(await tool_named(process, "process__die"), {})
    assert output.error and "process" in output.text
    assert SECRET not in output.text


async def test_stopping_a_call_ends_the_process(process: ToolServerConfig, tmp_path: Path) -> None:
    tool = await tool_named(process, "process__wait")
    running = asyncio.create_task(run_tool(tool, {}))
    await asyncio.to_thread(appears, tmp_path / "pid.waiting")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pid = int((tmp_path / "pid").read_text())
    await asyncio.to_thread(ends, pid)


@pytest.mark.parametrize("command", ["/no/such/program", "true", "cat"])
async def test_a_process_that_is_no_tool_server_is_told(command: str) -> None:
    with pytest.raises(ServerFailed, match="nobody"):
        await list_tools(ToolServerConfig("nobody", command=command))


@pytest.mark.parametrize(
    "whole",
    [
        answer("not JSON", media_type="application/json"),
        answer("x", media_type="text/html"),
        answer(" " * 17_000_000, media_type="application/json"),
        answer(gzip.compress(b" " * 3_000_000), "Content-Encoding: gzip", media_type="application/json"),
        answer("", status="500 Oops"),
        answer("", "Location: http://127.0.0.1/", status="307 Elsewhere"),
        b"",
    ],
    ids=range(7),
)
async def test_an_address_that_is_no_tool_server_is_told(whole: bytes) -> None:
    with RawServer(always(whole)) as server, pytest.raises(ServerFailed) as failure:
        await list_tools(
            ToolServerConfig("nobody", url=f"http://127.0.0.2:{server.port}/", secrets={"Authorization": SECRET})
        )
    assert f"authorization: {SECRET}" in server.heads[0].lower()
    assert SECRET not in str(failure.value)


@pytest.fixture(params=["stdio", "json", "events"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def reached(behaviour: Misbehaving, wire: str, directory: Path) -> Iterator[ToolServerConfig]:
    if wire == "stdio":
        yield ToolServerConfig("odd", command=behaviour.as_process(directory))
        return
    media_type = "application/json" if wire == "json" else "text/event-stream"
    with behaviour.over_http(media_type=media_type) as url:
        yield ToolServerConfig("odd", url=url)


async def test_one_bad_tool_costs_no_other_and_is_named(wire: str, tmp_path: Path) -> None:
    tools = [tool(name, schema) if schema else {"name": name} for name, schema in (BAD_SCHEMAS | BROKEN).items()]
    with reached(Misbehaving([tool("good"), *tools, "nonsense", {"description": "?"}]), wire, tmp_path) as server:
        listing = await list_tools(server)
        offered = {each.definition.name: each for each in listing.tools}
        assert list(offered) == ["odd__good", *(f"odd__{name}" for name in BAD_SCHEMAS)]
        assert {each.name: each.reason.english for each in listing.problems} == {
            "odd__broken": "Its input has the type array, but the input of a call is an object.",
            "tool 15": "It has no name.",
            "tool 16": "It has no name.",
        }
        assert (await run_tool(offered["odd__any_of"], {"a": 1})).text == "Done."


async def test_a_long_list_comes_whole_page_by_page(wire: str, tmp_path: Path) -> None:
    behaviour = Misbehaving([tool(f"tool{number}") for number in range(192)], page=50)
    with reached(behaviour, wire, tmp_path) as server:
        listing = await list_tools(server)
    assert [each.name_at_server for each in listing.tools] == [f"tool{number}" for number in range(192)]
    assert not listing.problems


@pytest.mark.parametrize(
    ("pages", "names", "reason"),
    [
        ([{"tools": [tool("a")], "nextCursor": "same"}], ["a"], "do not end"),
        ([{"tools": [], "nextCursor": 2}, {"tools": [tool("b")]}], ["b"], ""),
    ],
    ids=["circle", "empty"],
)
async def test_pages_in_a_circle_end_and_an_empty_page_leads_on(
    wire: str, tmp_path: Path, pages: list[dict[str, Any]], names: list[str], reason: str
) -> None:
    with reached(Misbehaving([], pages=pages), wire, tmp_path) as server:
        listing = await list_tools(server)
    assert [each.name_at_server for each in listing.tools] == names
    assert [each.reason.english for each in listing.problems if each.name == "odd: more tools"] == (
        ["The pages of the server's list do not end. Only the first pages are read."] if reason else []
    )


async def test_half_a_character_costs_neither_the_list_nor_a_result(wire: str, tmp_path: Path) -> None:
    # JavaScript cuts a text within an emoji and writes the half that is left.
    behaviour = Misbehaving([tool("good"), tool("cut", description="Looks \ud83d")], results={"cut": "half \ud83d end"})
    with reached(behaviour, wire, tmp_path) as server:
        listing = await list_tools(server)
        assert [each.name_at_server for each in listing.tools] == ["good", "cut"]
        assert (await run_tool(listing.tools[1], {})).text == "half ? end"


async def test_an_answer_that_is_no_message_is_said_in_plain_words() -> None:
    for body, words in (("", "sent an empty answer"), ("oops", "answered “oops”")):
        with (
            RawServer(always(answer(body, media_type="application/json"))) as server,
            pytest.raises(ServerFailed) as failure,
        ):
            await list_tools(ToolServerConfig("nobody", url=f"http://127.0.0.2:{server.port}/"))
        assert failure.value.code == "tool_server_invalid" and words in failure.value.advice.english
        assert "validation error" not in f"{failure.value} {failure.value.advice.english}"


async def test_a_result_of_a_megabyte_comes_whole(wire: str, tmp_path: Path) -> None:
    with reached(Misbehaving([tool("log")], results={"log": {"size": 1_000_000}}), wire, tmp_path) as server:
        output = await run_tool(await tool_named(server, "odd__log"), {})
    assert output.text.startswith("FIRST") and output.text.endswith("LAST") and len(output.text) > 900_000


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "hologram"}]}, "a\n[hologram: not text, not shown]"),
        ({"content": [{"type": "resource_link"}]}, "[resource_link: not text, not shown]"),
        ({"content": None, "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": "plain"}, "plain"),
        ({"content": {"type": "text", "text": "alone"}, "isError": "false"}, "alone"),
        ({"content": [{"type": "text", "text": ""}], "structuredContent": {"a": 1}}, '{"a": 1}'),
        (
            {
                "content": [
                    {"type": "resource", "resource": {"uri": "repo://a.py", "text": "import os"}},
                    {"type": "resource", "resource": {"uri": "repo://a.png", "blob": "aGk="}},
                    {"type": "resource_link", "uri": "repo://b.py", "name": "b.py"},
                ]
            },
            "[repo://a.py]\n[resource: the file a.py]\nimport os\n[repo://a.png]\n[resource: the file a.png]\n"
            "[resource_link: b.py repo://b.py]",
        ),
        ({}, "The tool gave no text."),
    ],
    ids=range(8),
)
async def test_a_result_with_parts_that_nobody_knows_is_read_all_the_same(
    tmp_path: Path, result: dict[str, Any], text: str
) -> None:
    with reached(Misbehaving([tool("odd")], results={"odd": result}), "stdio", tmp_path) as server:
        output = await run_tool(await tool_named(server, "odd__odd"), {})
        assert (output.text, output.error) == (text, False)


async def test_a_result_that_breaks_the_tools_own_schema_for_it_is_read(tmp_path: Path) -> None:
    listed = tool("odd") | {"outputSchema": {"type": "object", "required": ["x"]}}
    with reached(Misbehaving([listed], results={"odd": "text alone"}), "json", tmp_path) as server:
        assert (await run_tool(await tool_named(server, "odd__odd"), {})).text == "text alone"


async def test_names_that_collide_are_told_apart_and_what_is_abusive_is_cut_and_named(tmp_path: Path) -> None:
    tools = [
        tool("a.b"),
        tool("a_b"),
        tool("a.b"),
        tool("n" * 100),
        tool("n" * 99),
        tool("long", description="d" * 30_000),
    ]
    behaviour = Misbehaving([*tools, *(tool(f"tool{number}") for number in range(1_000))])
    with reached(behaviour, "stdio", tmp_path) as server:
        listing = await list_tools(server)
        names = [each.definition.name for each in listing.tools]
        assert len(names) == len(set(names)) == MAX_TOOLS - 1 and all(len(name) <= 64 for name in names)
        assert names[0] == "odd__a_b" and names[1].startswith("odd__a_b_") and names[2] == "odd__" + "n" * 59
        assert len(listing.tools[4].definition.description) == MAX_DESCRIPTION
        assert [(each.name, each.offered) for each in listing.problems] == [
            ("odd__a_b", False), ("odd__long", True), ("odd: more tools", False),
        ]  # fmt: skip
        assert "two tools with this name" in listing.problems[0].reason.english
        assert "30,000 characters. Only the first 20,000" in listing.problems[1].reason.english
        assert "more than 1,000 tools" in listing.problems[2].reason.english
        assert (await run_tool(listing.tools[1], {})).text == "Done."


async def test_a_server_that_hangs_is_given_up_and_its_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm.tools.mcp.LIST_TIMEOUT", 1.0)
    for wire in ("stdio", "json"):
        with (
            reached(Misbehaving([tool("good")], hangs="tools/list"), wire, tmp_path) as server,
            pytest.raises(ServerFailed, match="did not list its tools within 1 seconds") as failure,
        ):
            await list_tools(server)
        assert failure.value.code == "tool_server_timeout"


async def test_what_a_process_wrote_in_place_of_an_answer_is_quoted_when_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llm.tools.mcp.LIST_TIMEOUT", 1.0)
    script = "import sys; print('Listening', flush=True); sys.stdin.read()"
    with pytest.raises(ServerFailed) as failure:
        await list_tools(ToolServerConfig("nobody", command=f'{sys.executable} -c "{script}"'))
    assert failure.value.code == "tool_server_timeout" and "wrote “Listening”" in failure.value.advice.english


TALKING = f"import sys; print('boom: {SECRET} and sk-abcdefghijklmnop', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("command", "code", "advice"),
    [
        ("/no/such/program --flag", "tool_server_no_program", "There is no program “/no/such/program”"),
        ("/etc/passwd", "tool_server_no_program", "The worker may not execute"),
        ("true", "tool_server_ended", "ended with code 0"),
        (f'{sys.executable} -c "{TALKING}"', "tool_server_ended", "ended with code 3"),
        ("echo hello", "tool_server_ended", "ended with code 0"),
    ],
    ids=["missing", "rights", "ends", "talks", "echo"],
)
async def test_the_cause_that_a_process_is_no_tool_server_is_for_the_administrator(
    command: str, code: str, advice: str
) -> None:
    with pytest.raises(ServerFailed) as failure:
        await list_tools(ToolServerConfig("nobody", command=command, secrets={"TOKEN": SECRET}))
    assert failure.value.code == code and advice in failure.value.advice.english
    assert SECRET not in failure.value.advice.english and "sk-abc" not in failure.value.advice.english
    sentence = "The tool server nobody cannot be reached or broke the connection. Continue without it."
    assert str(failure.value) == sentence
    if "boom" in command:
        assert "Its last output: “boom: … and …”" in failure.value.advice.english


async def test_a_process_that_answers_with_an_error_is_quoted() -> None:
    # `cat` sends each request back, which the package then refuses as one that it does not know.
    with pytest.raises(ServerFailed, match="nobody refused: Method not found") as failure:
        await list_tools(ToolServerConfig("nobody", command="cat"))
    assert failure.value.code == "tool_server_error"
    assert failure.value.advice.english == "nobody answers, but with an error: “Method not found”."


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, "tool_server_denied", "it refuses the secret, or requires one"),
        (403, "tool_server_denied", "check the name of the header"),
        (404, "tool_server_wrong_transport", "Is this the address of an SSE server?"),
        (405, "tool_server_wrong_transport", "Is this the address of an SSE server?"),
        (406, "tool_server_wrong_transport", "Is this the address of an SSE server?"),
        (500, "tool_server_http_error", "status 500"),
    ],
)
async def test_the_cause_that_an_address_is_no_tool_server_is_for_the_administrator(
    status: int, code: str, advice: str
) -> None:
    with Misbehaving([]).over_http(status=status) as url, pytest.raises(ServerFailed) as failure:
        await list_tools(ToolServerConfig("nobody", url=url))
    assert failure.value.code == code and advice in failure.value.advice.english
    assert "cannot be reached" in str(failure.value)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://no-such-host.invalid/mcp", "tool_server_unknown_host"),
        ("http://127.0.0.1:1/mcp", "tool_server_refused"),
    ],
)
async def test_an_address_at_which_nobody_is_says_what_is_missing(url: str, code: str) -> None:
    with pytest.raises(ServerFailed) as failure:
        await list_tools(ToolServerConfig("nobody", url=url))
    assert failure.value.code == code


async def test_what_is_no_protocol_or_leads_elsewhere_is_said() -> None:
    page = answer("<html>", media_type="text/html")
    redirect = answer("", "Location: http://127.0.0.1:1/other", status="307 Elsewhere")
    for whole, code in ((page, "tool_server_wrong_address"), (redirect, "tool_server_redirect")):
        with RawServer(always(whole)) as server, pytest.raises(ServerFailed) as failure:
            await list_tools(ToolServerConfig("nobody", url=f"http://127.0.0.2:{server.port}/"))
        assert failure.value.code == code


async def test_a_list_that_is_none_is_said(wire: str, tmp_path: Path) -> None:
    behaviour = Misbehaving([], results={"tools/list": {"tools": {"a": 1}}})
    with reached(behaviour, wire, tmp_path) as server, pytest.raises(ServerFailed) as failure:
        await list_tools(server)
    assert failure.value.code == "tool_server_invalid"
