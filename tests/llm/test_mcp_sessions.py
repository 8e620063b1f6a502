"""Sessions with MCP servers that stay open: servers of the protocol's package, as processes and over HTTP."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from llm.tools import mcp_sessions
from llm.tools.mcp import close_sessions, list_tools, tools_changed
from llm.tools.mcp_client import describe_progress
from llm.tools.mcp_sessions import MAX_SESSIONS_OF_PERSON
from llm.tools.servers import SessionScope, ToolServerConfig
from llm.types.forms import FormAnswer, ToolQuestion
from llm.types.tools import ToolOutput, asking_person, reporting_progress, run_tool
from tests.llm.misbehaving_server import Misbehaving, tool
from tests.llm.test_mcp_tools import appears, ends

SERVER = """
import asyncio, os, pathlib, sys
from typing import Annotated
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, Resolve
from pydantic import BaseModel

class Person(BaseModel):
    name: str

server = MCPServer("counter")
folder = pathlib.Path(sys.argv[1])
counted = 0

@server.tool(structured_output=False)
def count() -> str:
    global counted
    counted += 1
    return str(counted)

@server.tool(structured_output=False)
def pid() -> str:
    return str(os.getpid())

@server.tool(structured_output=False)
async def echo(text: str, others: int) -> str:
    (folder / text).touch()
    while len(list(folder.glob("echo*"))) < others:
        await asyncio.sleep(0.01)
    return text

@server.tool(structured_output=False)
async def wait() -> str:
    (folder / "waiting").touch()
    await asyncio.sleep(600)
    return "never"

@server.tool(structured_output=False)
def fail() -> str:
    raise RuntimeError("the tool's own trouble")

@server.tool(structured_output=False)
def die() -> str:
    os._exit(3)

@server.tool(structured_output=False)
async def work(ctx: Context) -> str:
    await ctx.report_progress(1, 4, "Reading")
    return "Done."

def who() -> Elicit[Person]:
    return Elicit("Who are you?", Person)

@server.tool(structured_output=False)
async def greet(person: Annotated[ElicitationResult[Person], Resolve(who)]) -> str:
    return f"Hello {person.data.name}." if person.action == "accept" else person.action

@server.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    def grown() -> str:
        return "I am new."
    server.add_tool(grown, structured_output=False)
    await ctx.notify_tools_changed()
    return "Grown."

server.run()
"""


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncIterator[ToolServerConfig]:
    program = tmp_path / "counter.py"
    program.write_text(SERVER)
    yield ToolServerConfig("counter", command=shlex.join([sys.executable, str(program), str(tmp_path)]))
    await close_sessions()


def scope() -> SessionScope:
    return SessionScope(uuid4(), uuid4())


async def call(server: ToolServerConfig, name: str, place: SessionScope | None, **arguments: object) -> ToolOutput:
    return await mcp_sessions.call_tool(server, name, arguments, place)


async def test_calls_of_a_conversation_share_a_session_and_others_do_not(counter: ToolServerConfig) -> None:
    place = scope()
    assert [(await call(counter, "count", place)).text for _ in range(3)] == ["1", "2", "3"]
    for other in (replace(place, conversation=uuid4()), replace(place, slot=1), replace(place, person=uuid4()), None):
        assert (await call(counter, "count", other)).text == "1"
    assert (await call(replace(counter, secrets={"TOKEN": "another"}), "count", place)).text == "1"
    assert (await call(counter, "count", place)).text == "4"


async def test_calls_at_the_same_time_get_their_own_answers(counter: ToolServerConfig) -> None:
    place = scope()
    names = [f"echo{number}" for number in range(5)]
    outputs = await asyncio.gather(*(call(counter, "echo", place, text=name, others=5) for name in names))
    assert [output.text for output in outputs] == names


async def test_a_tools_own_error_leaves_the_session_open(counter: ToolServerConfig) -> None:
    place = scope()
    await call(counter, "count", place)
    assert (await call(counter, "fail", place)).error
    assert (await call(counter, "count", place)).text == "2"


async def test_a_server_that_ends_is_started_again_and_the_person_reads_that_its_state_is_lost(
    counter: ToolServerConfig,
) -> None:
    place = scope()
    await call(counter, "count", place)
    failed = await call(counter, "die", place)
    assert failed.error and "cannot be reached or broke the connection" in failed.text
    output = await call(counter, "count", place)
    assert output.text == "1"
    assert [note.english.partition(",")[0] for note in output.notes] == [
        "The session with the tool server counter had ended"
    ]
    assert not (await call(counter, "count", place)).notes


async def test_a_call_that_is_stopped_ends_its_session(counter: ToolServerConfig, tmp_path: Path) -> None:
    place = scope()
    pid = int((await call(counter, "pid", place)).text)
    running = asyncio.create_task(call(counter, "wait", place))
    await asyncio.to_thread(appears, tmp_path / "waiting")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await call(counter, "count", place)).text == "1"
    await asyncio.to_thread(ends, pid)


async def test_progress_is_reported_to_the_caller(counter: ToolServerConfig) -> None:
    texts: list[str] = []
    with reporting_progress(texts.append):
        await call(counter, "work", scope())
    assert texts == ["25 % · Reading"]


@pytest.mark.parametrize(
    ("done", "total", "message", "text"),
    [
        (1, 4, "Reading", "25 % · Reading"),
        (9, 4, None, "100 %"),
        (3, None, None, "3"),
        (3, 0, " Reading\n", "Reading"),
        (1, None, "x" * 1_000, "x" * 200),
    ],
)
def test_progress_in_words(done: float, total: float | None, message: str | None, text: str) -> None:
    assert describe_progress(done, total, message) == text


async def test_new_tools_of_a_session_are_listed_in_it(counter: ToolServerConfig) -> None:
    place = scope()
    await call(counter, "count", place)
    assert not tools_changed(place)
    await call(counter, "grow", place)
    async with asyncio.timeout(20):
        while not tools_changed(place):  # the notification may come after the answer
            await call(counter, "count", place)
    names = {each.name_at_server for each in (await list_tools(counter, place)).tools}
    assert "grown" in names and not tools_changed(place)
    assert "grown" not in {each.name_at_server for each in (await list_tools(counter)).tools}
    assert (await call(counter, "grown", place)).text == "I am new."


async def test_a_person_has_a_bounded_number_of_sessions(tmp_path: Path) -> None:
    server = ToolServerConfig("plain", command=Misbehaving([tool("note")]).as_process(tmp_path))
    places = [SessionScope(scope().person, uuid4())]
    places += [replace(places[0], conversation=uuid4()) for _ in range(MAX_SESSIONS_OF_PERSON)]
    for place in places:
        assert (await call(server, "note", place)).text == "Done."
    pool = mcp_sessions._pool()
    is_open = [pool.open_session(server, place) is not None for place in places]
    assert is_open == [False, *[True] * MAX_SESSIONS_OF_PERSON]
    await close_sessions()


async def test_a_request_for_a_models_answer_is_refused_by_name(tmp_path: Path) -> None:
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    server = ToolServerConfig("asking", command=shlex.join([sys.executable, str(program)]))
    place = scope()
    output = await call(server, "think", place)
    assert output.text == "Sampling not supported"
    assert [note.english for note in output.notes] == [
        "The tool server asking asked for an answer of a model (sampling). Glasshouse does not give that to tools."
    ]
    assert not (await call(server, "think", place)).notes
    await close_sessions()


# A server of an older protocol, which asks while a call runs.
ASKING = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if method == "initialize":
        about = {"name": "asking", "version": "1"}
        send(id=id_, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about})
        can_ask = "elicitation" in message["params"]["capabilities"]
    elif method == "tools/call" and message["params"]["name"] == "think":
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}], "maxTokens": 5}
        send(id="ask", method="sampling/createMessage", params=params)
        reply = json.loads(sys.stdin.readline())
        send(id=id_, result={"content": [{"type": "text", "text": reply["error"]["message"]}]})
    elif method == "tools/call":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        send(id="ask", method="elicitation/create", params={"message": "Who are you?", "requestedSchema": schema})
        reply = json.loads(sys.stdin.readline())
        send(id=id_, result={"content": [{"type": "text", "text": json.dumps([can_ask, reply.get("result")])}]})
    elif id_ is not None:
        send(id=id_, error={"code": -32601, "message": "Method not found"})
"""


async def test_a_server_asks_the_person_of_the_call(counter: ToolServerConfig) -> None:
    forms: list[ToolQuestion] = []

    async def answer(form: ToolQuestion) -> FormAnswer:
        forms.append(form)
        return FormAnswer({"name": "Ada"})

    place = scope()
    with asking_person(answer):
        tools = {each.name_at_server: each for each in (await list_tools(counter, place)).tools}
        output = await run_tool(tools["greet"], {})
    assert (output.text, output.error) == ("Hello Ada.", False)
    assert [(form["number"], form["message"]) for form in forms] == [(1, "Who are you?")]


async def test_without_a_person_a_server_knows_that_it_cannot_ask(counter: ToolServerConfig) -> None:
    output = await call(counter, "greet", scope())
    assert output.error


async def test_a_server_of_an_older_protocol_asks_the_person(tmp_path: Path) -> None:
    program = tmp_path / "asking.py"
    program.write_text(ASKING)
    server = ToolServerConfig("asking", command=shlex.join([sys.executable, str(program)]))

    async def answer(form: ToolQuestion) -> FormAnswer:
        return FormAnswer({"name": "Ada"})

    with asking_person(answer):
        output = await call(server, "greet", scope())
    can_ask, result = json.loads(output.text)
    assert can_ask and (result["action"], result["content"]) == ("accept", {"name": "Ada"})
    output = await call(server, "greet", scope())
    assert json.loads(output.text) == [False, None]
    assert "asked for an answer of the person (elicitation)" in output.notes[0].english
    await close_sessions()


async def test_a_person_may_decline(counter: ToolServerConfig) -> None:
    async def decline(form: ToolQuestion) -> FormAnswer:
        return FormAnswer(None)

    with asking_person(decline):
        assert (await call(counter, "greet", scope())).text == "decline"
