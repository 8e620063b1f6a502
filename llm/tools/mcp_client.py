"""Sessions with MCP servers.

A module of its own: the package of the protocol takes a quarter of the time in which a process starts, and only what
asks a tool server needs it.

The package validates a list of tools or a result as a whole, so that one bad tool takes all others with it. Here both
are read as they came (`_Raw`), part by part.
"""

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from core.crypto import LOST, is_lost
from core.net.addresses import host_of
from core.net.outgoing import note
from core.text import clean
from llm.tools import mcp_failures
from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_process import process_streams
from llm.tools.servers import Server, ServerFailed
from llm.types.tools import ToolOutput

MAX_BYTES = 16_000_000  # of one answer
MAX_PAGES = 100  # of one list of tools

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
RawTool = Mapping[str, Any]
_closing: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks only weakly


async def call(server: Server, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Raises `ServerFailed`."""

    async def ask(client: Client, raw: "_Raw") -> Any:
        if server.reaches_out:
            note(host_of(server.url) or server.name, json.dumps(dict(arguments), ensure_ascii=False))
        await client.call_tool(tool, dict(arguments))
        return raw.newest

    return _output(await _ask(server, ask, Exchange()))


async def listed(server: Server, most: int, timeout: float) -> list[RawTool | Any]:
    """Return its first tools as the server writes them, one more than `most` if there are more.

    Raises `ServerFailed`, also when it takes more than `timeout` seconds.
    """
    exchange = Exchange()

    async def ask(client: Client, raw: "_Raw") -> list[Any]:
        tools: list[Any] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            named = raw.newest.get("tools")
            if not isinstance(named, list):
                raise ValueError("what should be a list of tools is none")
            tools += named
            cursor = page.next_cursor
            if not cursor or not named or len(tools) > most:
                break
        return tools[: most + 1]

    try:
        async with asyncio.timeout(timeout):
            return await _ask(server, ask, exchange)
    except TimeoutError as error:
        raise mcp_failures.timed_out(server, timeout, exchange) from error


async def _ask(
    server: Server, question: Callable[[Client, "_Raw"], Coroutine[Any, Any, Result]], exchange: Exchange
) -> Result:
    """One question in a session of its own. Raises `ServerFailed`.

    In a task of its own, not waited for when this one is cancelled: taking leave of a server may take seconds, and a
    turn that is stopped must not wait for them.
    """
    task = asyncio.create_task(_converse(server, question, exchange))
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


async def _converse(
    server: Server, question: Callable[[Client, "_Raw"], Coroutine[Any, Any, Result]], exchange: Exchange
) -> Result:
    if any(map(is_lost, server.secrets.values())):
        raise ServerFailed(f"{server.name} was not asked. {LOST}", "secret_lost", LOST)
    refusal = ""
    cause: Exception | None = None
    try:
        async with _connected(server, exchange) as (client, raw):
            try:
                return await question(client, raw)
            except MCPError as error:
                # Inside of the session, which would wrap it in groups.
                refusal, cause = clean(error.message), error
    except MCPError as error:  # of the handshake
        refusal, cause = clean(error.message), error
    except Exception as error:
        refusal, cause = _words_of(error), error
    failure = mcp_failures.failed(server, exchange, cause, refusal)
    logger.warning("tool server %s failed: %s", server.name, failure.code, exc_info=cause)
    raise failure from cause


def _words_of(error: BaseException) -> str:
    """The server's own words, where the package has wrapped them in groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return clean(error.message) if isinstance(error, MCPError) else ""


@asynccontextmanager
async def _connected(server: Server, exchange: Exchange) -> AsyncGenerator[tuple[Client, "_Raw"], None]:
    async with AsyncExitStack() as stack:
        transport: AbstractAsyncContextManager[Any]
        if server.url:

            async def watch(response: httpx2.Response) -> None:
                await _watch(response, exchange)

            http = httpx2.AsyncClient(
                headers={**server.secrets, "Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(server.timeout, connect=10.0),
                event_hooks={"response": [watch]},
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_BYTES)
        else:
            program, *arguments = shlex.split(server.command)
            transport = process_streams(program, arguments, server.secrets, most=MAX_BYTES, exchange=exchange)
        raw = _Raw()
        client = await stack.enter_async_context(Client(_watched(transport, raw), cache=None))
        yield client, raw


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], raw: "_Raw"
) -> AsyncGenerator[tuple["_Reading", "_Writing"], None]:
    async with transport as (incoming, outgoing):
        yield _Reading(incoming, raw), _Writing(outgoing, raw)


class _Raw:
    """What a server answered to the newest request for its tools or for a call, as it came.

    The package gets an empty answer in its place: it would refuse the whole for a part that it does not know.
    """

    _KEPT = ("resultType", "ttlMs", "cacheScope")

    def __init__(self) -> None:
        self.newest: dict[str, Any] = {}
        self._asked: dict[Any, str] = {}

    def sent(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest) and item.message.method in ("tools/list", "tools/call"):
            self._asked[item.message.id] = item.message.method

    def received(self, item: Any) -> Any:
        if not (isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse)):
            return item
        method, result = self._asked.pop(item.message.id, ""), item.message.result
        if not method or result.get("resultType", "complete") != "complete":
            return item
        self.newest = result
        known = {name: result[name] for name in self._KEPT if name in result}
        if method == "tools/list":
            cursor = result.get("nextCursor")
            instead = {**known, "tools": [], **({"nextCursor": cursor} if isinstance(cursor, str) else {})}
        else:
            instead = {**known, "content": [], "isError": True}  # as an error it is not held against an output schema
        message = JSONRPCResponse(jsonrpc="2.0", id=item.message.id, result=instead)
        return SessionMessage(message, item.metadata)


class _Reading:
    """A read stream of the package's protocol that gives `raw` what comes."""

    def __init__(self, inner: Any, raw: _Raw) -> None:
        self._inner, self._raw = inner, raw

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return self._raw.received(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._raw.received(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = await self._inner.__aexit__(kind, error, trace)
        return left


class _Writing:
    """A write stream of the package's protocol that tells `raw` what is asked."""

    def __init__(self, inner: Any, raw: _Raw) -> None:
        self._inner, self._raw = inner, raw

    async def send(self, item: SessionMessage, /) -> None:
        self._raw.sent(item)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = await self._inner.__aexit__(kind, error, trace)
        return left


async def _watch(response: httpx2.Response, exchange: Exchange) -> None:
    """Notes how a request was answered, and caps what is read: the client reads a JSON answer whole."""
    if response.request.method == "POST":
        exchange.status = response.status_code
        exchange.media_type = response.headers.get("content-type", "").lower()
        exchange.location = response.headers.get("location", "") if 300 <= response.status_code < 400 else ""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("packed though not asked for", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _CappedStream(response.stream, exchange)


class _CappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for piece in self._inner:
            received += len(piece)
            if received > MAX_BYTES:
                self._exchange.too_large = True
                raise httpx2.ReadError(f"more than {MAX_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


def _output(result: Mapping[str, Any]) -> ToolOutput:
    """The text of an answer; what is not text is named, as a model cannot see it here."""
    content = result.get("content")
    parts = [_block(each) for each in content] if isinstance(content, list) else []
    structured = result.get("structuredContent")
    if not parts and structured is not None:
        parts = [clean(json.dumps(structured, ensure_ascii=False))]
    text = "\n".join(parts) or "The tool gave no text."
    return ToolOutput(text, error=bool(result.get("isError")), whole=text)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return clean(block) if isinstance(block, str) else "[not text, not shown]"
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return clean(block["text"])
    return f"[{clean(str(block.get('type', 'part')))[:50]}: not text, not shown]"
