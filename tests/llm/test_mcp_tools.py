import asyncio
import gzip
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer

from llm.tools.mcp import MAX_TOOLS, tools_of
from llm.tools.servers import Server, ServerFailed
from llm.types.tools import Tool, run_tool
from tests.llm.raw_server import RawServer, always, answer

SECRET = "secret-never-to-be-seen"


def served() -> MCPServer:
    server: MCPServer = MCPServer("served")

    @server.tool(description="Adds two numbers.")
    def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool(name="much.text")
    def much() -> str:
        return "much " * 100_000

    @server.tool()
    def huge() -> str:
        return "x" * 3_000_000

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


async def tool_named(server: Server, name: str) -> Tool:
    return {tool.definition.name: tool for tool in await tools_of(server)}[name]


async def test_the_tools_of_a_server_over_http_are_offered_and_run(url: str) -> None:
    server = Server("calc", url=url)
    tools = {tool.definition.name: tool for tool in await tools_of(server)}
    assert set(tools) == {"calc__add", "calc__much_text", "calc__huge", "calc__fail", "calc__wait"}
    tool = tools["calc__add"]
    assert tool.definition.description == "Adds two numbers."
    assert tool.definition.parameters["type"] == "object"
    assert set(tool.definition.parameters["properties"]) == {"a", "b"}
    assert tool.label({"a": 1}) == "Asking calc: add"
    assert (await run_tool(tool, {"a": 2, "b": 40})).text == "42"


async def test_what_a_tool_gives_is_capped(url: str) -> None:
    tool = await tool_named(Server("calc", url=url), "calc__much_text")
    output = await run_tool(tool, {})
    assert output.text.startswith("much much") and "characters left out" in output.text
    assert len(output.text) < 41_000


async def test_an_answer_too_large_to_receive_is_told(url: str) -> None:
    output = await run_tool(await tool_named(Server("calc", url=url, timeout=10.0), "calc__huge"), {})
    assert output.error and len(output.text) < 1000


@pytest.mark.parametrize(("name", "arguments"), [("fail", {}), ("add", {"a": "x"})])
async def test_a_tool_that_fails_tells_the_model(url: str, name: str, arguments: dict[str, Any]) -> None:
    output = await run_tool(await tool_named(Server("calc", url=url), f"calc__{name}"), arguments)
    assert output.error and output.text


async def test_a_tool_that_takes_too_long_is_given_up(url: str) -> None:
    tool = await tool_named(Server("calc", url=url, timeout=0.5), "calc__wait")
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
def process(tmp_path: Path) -> Server:
    script = tmp_path / "a server.py"
    script.write_text(PROCESS)
    command = f"{sys.executable} '{script}' {tmp_path}/pid"
    return Server("process", command=command, secrets={"TOKEN": SECRET})


async def test_a_process_is_started_with_its_secret_only_and_ended(process: Server, tmp_path: Path) -> None:
    output = await run_tool(await tool_named(process, "process__secret"), {})
    assert output.text == f"{SECRET}False"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_process_that_dies_during_a_call_is_told(process: Server) -> None:
    output = await run_tool(await tool_named(process, "process__die"), {})
    assert output.error and "process" in output.text
    assert SECRET not in output.text


async def test_stopping_a_call_ends_the_process(process: Server, tmp_path: Path) -> None:
    tool = await tool_named(process, "process__wait")
    running = asyncio.create_task(run_tool(tool, {}))
    await asyncio.to_thread(appears, tmp_path / "pid.waiting")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pid = int((tmp_path / "pid").read_text())
    await asyncio.to_thread(ends, pid)


async def test_too_many_tools_too_long_schemas_and_names_that_collide_are_left_out(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text("""
from mcp.server import MCPServer
from pydantic import Field
server = MCPServer("many")

def plain() -> str:
    return "plain"

def long(a: int = Field(description="x" * 30_000)) -> str:
    return "long"

server.add_tool(long, name="long")
for name in ["a.b", "a_b", "n" * 100, *(f"tool{number}" for number in range(100))]:
    server.add_tool(plain, name=name, description="d" * 5000)
server.run()
""")
    tools = await tools_of(Server("many", command=f"{sys.executable} {script}"))
    names = [tool.definition.name for tool in tools]
    assert names[:3] == ["many__a_b", "many__" + "n" * 58, "many__tool0"]
    assert len(names) == MAX_TOOLS - 2
    assert all(len(tool.definition.description) == 2000 for tool in tools)
    assert (await run_tool(tools[1], {})).text == "plain"


@pytest.mark.parametrize("command", ["/no/such/program", "true", "cat"])
async def test_a_process_that_is_no_tool_server_is_told(command: str) -> None:
    with pytest.raises(ServerFailed, match="nobody"):
        await tools_of(Server("nobody", command=command))


@pytest.mark.parametrize(
    "whole",
    [
        answer("not JSON", media_type="application/json"),
        answer("x", media_type="text/html"),
        answer(" " * 3_000_000, media_type="application/json"),
        answer(gzip.compress(b" " * 3_000_000), "Content-Encoding: gzip", media_type="application/json"),
        answer("", status="500 Oops"),
        answer("", "Location: http://127.0.0.1/", status="307 Elsewhere"),
        b"",
    ],
    ids=range(7),
)
async def test_an_address_that_is_no_tool_server_is_told(whole: bytes) -> None:
    with RawServer(always(whole)) as server, pytest.raises(ServerFailed) as failure:
        await tools_of(Server("nobody", url=f"http://127.0.0.2:{server.port}/", secrets={"Authorization": SECRET}))
    assert f"authorization: {SECRET}" in server.heads[0].lower()
    assert SECRET not in str(failure.value)
