"""MCP servers over the older transport, HTTP with SSE: the server of the protocol's package."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
import uvicorn

from llm.tools import mcp_sessions
from llm.tools.mcp import close_sessions, list_tools
from llm.tools.servers import ServerFailed, SessionScope, ToolServerConfig
from llm.types.tools import run_tool
from tests.llm.test_mcp_tools import served


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server over SSE, without its path."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # who comes before the server has started waits
        config = uvicorn.Config(served().sse_app(), log_level="error", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        running.should_exit = True
        thread.join(10)


@pytest.fixture
async def server(address: str) -> AsyncIterator[ToolServerConfig]:
    yield ToolServerConfig("calc", url=f"{address}/sse", sse=True)
    await close_sessions()


async def test_the_tools_of_a_server_over_sse_are_offered_and_run(server: ToolServerConfig) -> None:
    tools = {each.definition.name: each for each in (await list_tools(server)).tools}
    assert {"calc__add", "calc__fail"} <= set(tools)
    assert (await run_tool(tools["calc__add"], {"a": 2, "b": 40})).text == "42"
    assert (await run_tool(tools["calc__fail"], {})).error


async def test_a_session_over_sse_stays_open_and_answers_at_the_same_time(server: ToolServerConfig) -> None:
    place = SessionScope(uuid4(), uuid4())
    calls = (mcp_sessions.call_tool(server, "add", {"a": number, "b": 1}, place) for number in range(5))
    assert [output.text for output in await asyncio.gather(*calls)] == ["1", "2", "3", "4", "5"]
    session = mcp_sessions._pool().open_session(server, place)
    assert session is not None and session.answered == 5 and session.stateful


async def test_an_answer_over_sse_that_is_too_large_is_told_and_the_next_call_works(server: ToolServerConfig) -> None:
    place = SessionScope(uuid4(), uuid4())
    output = await mcp_sessions.call_tool(server, "much.text", {}, place)
    assert output.error and output.text == "calc sent more than can be received. Ask it for less."
    assert (await mcp_sessions.call_tool(server, "add", {"a": 1, "b": 1}, place)).text == "2"


@pytest.mark.parametrize(
    ("path", "kind", "advice"),
    [("/sse", "http", "Then choose that kind, or enter the address"), ("/mcp", "sse", "mostly ends in /sse")],
)
async def test_the_wrong_transport_is_told_to_the_administrator(
    address: str, path: str, kind: str, advice: str
) -> None:
    with pytest.raises(ServerFailed) as failure:
        await list_tools(ToolServerConfig("calc", url=f"{address}{path}", sse=kind == "sse"))
    assert failure.value.code == "tool_server_wrong_transport" and advice in failure.value.advice.english
