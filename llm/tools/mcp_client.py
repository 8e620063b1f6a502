"""Call MCP servers: list tools, and call a tool.

Import this module only to call a tool server: importing the protocol's package takes a quarter of a process's start.

The package validates a list of tools, or a result, as a whole, so one bad tool would make it refuse all others. So this
module reads the raw answers itself, part by part:

1. `_ask` runs one request in a task, with its own session.
2. `_connected` opens the session. `_watch` limits the size of HTTP answers and repairs them. For a server that is a
   local process, `llm.tools.mcp_process` does the same.
3. `_RawAnswers` stores the server's raw answer, and gives the package an empty one.
4. A failure becomes a `ServerFailed` (`llm.tools.mcp_failures`).
"""

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from core.crypto import LOST, is_lost
from core.json_types import JsonObject
from core.net.addresses import host_of
from core.net.outgoing import note
from core.sentences import Sentence
from core.text import clean
from llm.tools import mcp_failures
from llm.tools.mcp_content import output_of
from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_messages import mended
from llm.tools.mcp_process import process_streams
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.types.tools import ToolOutput

MAX_BYTES = 16_000_000  # per answer
MAX_PAGES = 100  # per list of tools

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_DATA = b"data:"
_closing: set[asyncio.Task[Any]] = set()  # strong references, since the event loop holds tasks only weakly


async def call(server: ToolServerConfig, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Call a tool. Raises `ServerFailed`."""

    async def ask(client: Client, raw: "_RawAnswers") -> Any:
        if server.reaches_out:
            note(host_of(server.url) or server.name, json.dumps(dict(arguments), ensure_ascii=False))
        await client.call_tool(tool, dict(arguments))
        return raw.newest

    result = await _ask(server, ask, Exchange())
    # In a thread: decoding the largest result takes a tenth of a second, which would block other answers of this loop.
    return await asyncio.to_thread(output_of, result, tool)


@dataclass(frozen=True, slots=True)
class RawListing:
    """The raw tools of a server. `endless`: there were more than `MAX_PAGES` pages, or a page repeated a cursor."""

    tools: Sequence[Any]
    endless: bool = False


async def list_tools(server: ToolServerConfig, most: int, timeout: float) -> RawListing:
    """Return the server's first tools, unparsed. Returns `most` + 1 tools if there are more than `most`.

    Raises `ServerFailed`, also after `timeout` seconds.
    """
    exchange = Exchange()

    async def ask(client: Client, raw: "_RawAnswers") -> RawListing:
        tools: list[Any] = []
        cursors: list[str] = []
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursors[-1] if cursors else None)
            listed = raw.newest.get("tools")
            if not isinstance(listed, list):
                raise ValueError("what should be a list of tools is none")
            tools += listed
            cursor = page.next_cursor
            if not cursor or len(tools) > most:
                return RawListing(tools[: most + 1])
            if cursor in cursors:
                break
            cursors.append(cursor)
        return RawListing(tools[: most + 1], endless=True)

    try:
        async with asyncio.timeout(timeout):
            return await _ask(server, ask, exchange)
    except TimeoutError as error:
        raise mcp_failures.timed_out(server, timeout, exchange) from error


async def _ask(
    server: ToolServerConfig,
    question: Callable[[Client, "_RawAnswers"], Coroutine[Any, Any, Answer]],
    exchange: Exchange,
) -> Answer:
    """Send one request in its own session. Raises `ServerFailed`.

    The session runs in a separate task. A cancelled caller does not wait for it: closing a session may take seconds,
    and a stopped turn must not wait for that.
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
        task.exception()  # retrieved, so that asyncio does not log a failure after a stop


async def _converse(
    server: ToolServerConfig,
    question: Callable[[Client, "_RawAnswers"], Coroutine[Any, Any, Answer]],
    exchange: Exchange,
) -> Answer:
    if any(map(is_lost, server.secrets.values())):
        lost = Sentence(LOST)
        raise ServerFailed(Sentence("{name} was not asked. {lost}", name=server.name, lost=lost), "secret_lost", lost)
    refusal = ""
    cause: Exception | None = None
    try:
        async with _connected(server, exchange) as (client, raw):
            try:
                return await question(client, raw)
            except MCPError as error:
                # Caught here, since the session would wrap the error in exception groups.
                refusal = clean(error.message)
                cause = error
    except MCPError as error:  # in the handshake
        refusal = clean(error.message)
        cause = error
    except Exception as error:
        refusal = _words_of(error)
        cause = error
    failure = mcp_failures.failed(server, exchange, cause, refusal)
    logger.warning("tool server %s failed: %s", server.name, failure.code, exc_info=cause)
    raise failure from cause


def _words_of(error: BaseException) -> str:
    """Return the server's error message, even if the package wrapped the error in exception groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return clean(error.message) if isinstance(error, MCPError) else ""


@asynccontextmanager
async def _connected(
    server: ToolServerConfig, exchange: Exchange
) -> AsyncGenerator[tuple[Client, "_RawAnswers"], None]:
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
        raw = _RawAnswers()
        client = await stack.enter_async_context(Client(_watched(transport, raw), cache=None))
        yield client, raw


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], raw: "_RawAnswers"
) -> AsyncGenerator[tuple["_WatchedReadStream", "_WatchedWriteStream"], None]:
    async with transport as (incoming, outgoing):
        yield _WatchedReadStream(incoming, raw), _WatchedWriteStream(outgoing, raw)


class _RawAnswers:
    """The raw answer to the newest `tools/list` or `tools/call` request.

    The package gets an empty answer instead, since it would refuse the whole answer because of one unknown part.
    """

    _PASSED_ON = ("resultType", "ttlMs", "cacheScope")

    def __init__(self) -> None:
        self.newest: JsonObject = {}
        self._methods: dict[Any, str] = {}  # methods of unanswered requests, by id

    def sent(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest) and item.message.method in ("tools/list", "tools/call"):
            self._methods[item.message.id] = item.message.method

    def received(self, item: Any) -> Any:
        if not (isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse)):
            return item
        method = self._methods.pop(item.message.id, "")
        result = item.message.result
        if not method or result.get("resultType", "complete") != "complete":
            return item
        self.newest = result
        passed_on = {name: result[name] for name in self._PASSED_ON if name in result}
        if method == "tools/list":
            cursor = result.get("nextCursor")
            empty = {**passed_on, "tools": []}
            if isinstance(cursor, str | int) and not isinstance(cursor, bool):
                empty["nextCursor"] = str(cursor)
        else:
            empty = {**passed_on, "content": [], "isError": True}  # an error is not checked against an output schema
        message = JSONRPCResponse(jsonrpc="2.0", id=item.message.id, result=empty)
        return SessionMessage(message, item.metadata)


class _WatchedReadStream:
    """A read stream of the package that passes messages through `raw`."""

    def __init__(self, inner: Any, raw: _RawAnswers) -> None:
        self._inner = inner
        self._raw = raw

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
        suppressed: bool | None = await self._inner.__aexit__(kind, error, trace)
        return suppressed


class _WatchedWriteStream:
    """A write stream of the package that shows requests to `raw`."""

    def __init__(self, inner: Any, raw: _RawAnswers) -> None:
        self._inner = inner
        self._raw = raw

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
        suppressed: bool | None = await self._inner.__aexit__(kind, error, trace)
        return suppressed


async def _watch(response: httpx2.Response, exchange: Exchange) -> None:
    """Record the status of a response, and wrap its body to limit its size: the client reads a JSON body as a whole."""
    if response.request.method == "POST":
        exchange.status = response.status_code
        exchange.media_type = response.headers.get("content-type", "").lower()
        exchange.location = response.headers.get("location", "") if 300 <= response.status_code < 400 else ""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("packed though not asked for", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _CappedStream(response.stream, exchange)
        media_type = response.headers.get("content-type", "").lower()
        if response.status_code == 200 and media_type.startswith("application/json"):
            response.stream = _MendedAnswer(response.stream, exchange)
        elif response.status_code == 200 and media_type.startswith("text/event-stream"):
            response.stream = _MendedEvents(response.stream)


class _CappedStream(httpx2.AsyncByteStream):
    """A body that raises after `MAX_BYTES`."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

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


class _MendedAnswer(httpx2.AsyncByteStream):
    """A response body with one JSON message, which is repaired."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([piece async for piece in self._inner])
        message = mended(body)
        if message is None:
            self._exchange.note_strange(body)
        yield body if message is None else message

    async def aclose(self) -> None:
        await self._inner.aclose()


class _MendedEvents(httpx2.AsyncByteStream):
    """A response body with server-sent events. Messages on a single line are repaired."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = bytearray()
        async for piece in self._inner:
            searched = len(rest)
            rest += piece
            end = max(rest.rfind(b"\n", searched), rest.rfind(b"\r", searched)) + 1
            if end:
                yield b"".join(map(_mended_line, bytes(rest[:end]).splitlines(keepends=True)))
                del rest[:end]
        if rest:
            yield _mended_line(bytes(rest))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _mended_line(line: bytes) -> bytes:
    if not line.startswith(_DATA):
        return line
    message = mended(line[len(_DATA) :].strip())
    end = line[len(line.rstrip(b"\r\n")) :]
    return line if message is None else _DATA + b" " + message + end
