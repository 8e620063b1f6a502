"""Tools of MCP servers, over streamable HTTP or over the standard streams of a process.

Each call makes a session of its own: nothing has to be kept alive between the steps of a turn, and a server that has
failed once is simply asked again.
"""

import asyncio
import json
import logging
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as ServedTool

from core.crypto import LOST, is_lost
from core.net.addresses import host_of
from core.net.outgoing import note
from core.text import clean
from llm.types.model_call import ToolDefinition
from llm.types.tools import ToolOutput

MAX_TOOLS = 64  # of one server
MAX_NAME = 64  # characters, what every provider takes
MAX_DESCRIPTION = 2_000
MAX_SCHEMA = 20_000  # characters of JSON
MAX_BYTES = 2_000_000  # of one answer over HTTP
LIST_TIMEOUT = 15.0
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
_closing: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks only weakly


class ServerFailed(Exception):
    """The sentence is for the model and for people; the cause is in the log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A tool server: with `url` over HTTP, otherwise `command` is started, split as a shell would but without one.

    `secrets` are HTTP headers or environment variables. `approval_required`: a person has to allow each call; whoever
    runs the tools sees to it. `reaches_out`: its tools send what they are called with out of the workspace.
    """

    name: str
    url: str = ""
    command: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0  # seconds for a call
    approval_required: bool = False
    reaches_out: bool = True


class ServerTool:
    """One tool of a server."""

    def __init__(self, server: Server, name: str, definition: ToolDefinition, *, max_characters: int = 40_000) -> None:
        self._server, self.served_as = server, name
        self.definition = definition
        self.timeout = server.timeout
        self.max_characters = max_characters

    def label(self, arguments: Mapping[str, Any]) -> str:
        return f"Asking {self._server.name}: {self.served_as[:100]}"

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        async def call(client: Client) -> CallToolResult:
            if self._server.reaches_out:
                note(host_of(self._server.url) or self._server.name, json.dumps(dict(arguments), ensure_ascii=False))
            return await client.call_tool(self.served_as, dict(arguments))

        try:
            return _output(await _ask(self._server, call))
        except ServerFailed as failure:
            return ToolOutput(str(failure), error=True)


async def tools_of(server: Server) -> list[ServerTool]:
    """The server's tools, named `server__tool`. Raises `ServerFailed`."""

    async def served(client: Client) -> list[ServedTool]:
        found: list[ServedTool] = []
        cursor = None
        while len(found) < MAX_TOOLS:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or not page.tools:
                break
        return found[:MAX_TOOLS]

    try:
        async with asyncio.timeout(LIST_TIMEOUT):
            found = await _ask(server, served)
    except TimeoutError as error:
        raise ServerFailed(f"{server.name} did not list its tools within {LIST_TIMEOUT:g} seconds.") from error
    tools: dict[str, ServerTool] = {}
    for tool in found:
        name = _FORBIDDEN.sub("_", f"{server.name}__{tool.name}")[:MAX_NAME]
        if len(json.dumps(tool.input_schema)) > MAX_SCHEMA or name in tools:
            logger.warning("tool %r of server %s left out: its schema is too long or its name taken", name, server.name)
            continue
        schema = {"properties": {}, **tool.input_schema, "type": "object"}
        definition = ToolDefinition(name, clean(tool.description or tool.title or tool.name)[:MAX_DESCRIPTION], schema)
        tools[name] = ServerTool(server, tool.name, definition)
    return list(tools.values())


def as_stored(tools: Iterable[ServerTool]) -> list[dict[str, Any]]:
    """JSON of a listing, which `stored_tools` takes back."""
    return [{"tool": tool.served_as, **asdict(tool.definition)} for tool in tools]


def stored_tools(server: Server, listing: Iterable[Mapping[str, Any]]) -> list[ServerTool]:
    return [
        ServerTool(server, each["tool"], ToolDefinition(each["name"], each["description"], each["parameters"]))
        for each in listing
    ]


async def _ask(server: Server, question: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
    """One question in a session of its own. Raises `ServerFailed`.

    In a task of its own, not waited for when this one is cancelled: taking leave of a server may take seconds, and a
    turn that is stopped must not wait for them.
    """
    task = asyncio.create_task(_converse(server, question))
    _closing.add(task)
    task.add_done_callback(_forget)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def _forget(task: asyncio.Task[Any]) -> None:
    _closing.discard(task)
    if not task.cancelled():
        task.exception()  # has been looked at: a failure after a stop is nobody's


async def _converse(server: Server, question: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
    if any(map(is_lost, server.secrets.values())):
        raise ServerFailed(f"{server.name} was not asked. {LOST}")
    try:
        async with _connected(server) as client:
            try:
                return await question(client)
            except MCPError as error:
                # Inside of the session, which would wrap it in groups.
                refusal = ServerFailed(f"{server.name} refused: {clean(error.message)[:1000]}")
    except Exception as error:
        logger.warning("tool server %s failed", server.name, exc_info=error)
        raise ServerFailed(f"The tool server {server.name} cannot be reached or broke off. Go on without.") from error
    raise refusal


@asynccontextmanager
async def _connected(server: Server) -> AsyncGenerator[Client, None]:
    async with AsyncExitStack() as stack:
        if server.url:
            http = httpx2.AsyncClient(
                headers={**server.secrets, "Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(server.timeout, connect=10.0),
                event_hooks={"response": [_cap]},
            )
            await stack.enter_async_context(http)
            yield await stack.enter_async_context(Client(streamable_http_client(server.url, http_client=http)))
        else:
            program, *arguments = shlex.split(server.command)
            started = StdioServerParameters(command=program, args=arguments, env=dict(server.secrets))
            yield await stack.enter_async_context(Client(started))


async def _cap(response: httpx2.Response) -> None:
    """The client reads a JSON answer whole, whatever its size."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("packed though not asked for", request=response.request)
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        return
    response.stream = _CappedStream(response.stream)


class _CappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for piece in self._inner:
            received += len(piece)
            if received > MAX_BYTES:
                raise httpx2.ReadError(f"more than {MAX_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _output(result: CallToolResult) -> ToolOutput:
    """The text of an answer; what is not text is named, as a model cannot see it here."""
    parts = [
        clean(block.text) if isinstance(block, TextContent) else f"[{block.type}: not text, not shown]"
        for block in result.content
    ]
    if not parts and result.structured_content is not None:
        parts = [clean(json.dumps(result.structured_content, ensure_ascii=False))]
    text = "\n".join(parts) or "The tool gave no text."
    return ToolOutput(text, error=bool(result.is_error))
