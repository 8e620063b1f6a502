"""Sessions with MCP servers.

A module of its own: the package of the protocol takes a quarter of the time in which a process starts, and only what
asks a tool server needs it.
"""

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, Tool

from core.crypto import LOST, is_lost
from core.net.addresses import host_of
from core.net.outgoing import note
from core.text import clean
from llm.tools.servers import Server, ServerFailed
from llm.types.tools import ToolOutput

MAX_BYTES = 2_000_000  # of one answer over HTTP

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
_closing: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks only weakly


async def call(server: Server, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Raises `ServerFailed`."""

    async def ask(client: Client) -> CallToolResult:
        if server.reaches_out:
            note(host_of(server.url) or server.name, json.dumps(dict(arguments), ensure_ascii=False))
        return await client.call_tool(tool, dict(arguments))

    return _output(await _ask(server, ask))


async def listed(server: Server, most: int) -> list[Tool]:
    """Its first tools. Raises `ServerFailed`."""

    async def ask(client: Client) -> list[Tool]:
        found: list[Tool] = []
        cursor = None
        while len(found) < most:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or not page.tools:
                break
        return found[:most]

    return await _ask(server, ask)


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
