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
from core.net.addresses import host_of
from core.net.outgoing import note
from core.sentences import Sentence
from core.text import clean
from llm.tools import mcp_failures
from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_messages import mended
from llm.tools.mcp_process import process_streams
from llm.tools.servers import Server, ServerFailed
from llm.types.tools import ToolOutput

MAX_BYTES = 16_000_000  # of one answer
MAX_PAGES = 100  # of one list of tools
MAX_ADDRESS = 2_000  # characters of a resource's address or name

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
_DATA = b"data:"
_closing: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks only weakly


async def call(server: Server, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
    """Raises `ServerFailed`."""

    async def ask(client: Client, raw: "_Raw") -> Any:
        if server.reaches_out:
            note(host_of(server.url) or server.name, json.dumps(dict(arguments), ensure_ascii=False))
        await client.call_tool(tool, dict(arguments))
        return raw.newest

    return _output(await _ask(server, ask, Exchange()))


@dataclass(frozen=True, slots=True)
class RawListing:
    """Tools as a server writes them. `endless`: its pages led on and on, or back to an earlier one."""

    tools: Sequence[Any]
    endless: bool = False


async def listed(server: Server, most: int, timeout: float) -> RawListing:
    """Return its first tools as the server writes them, one more than `most` if there are more.

    Raises `ServerFailed`, also when it takes more than `timeout` seconds.
    """
    exchange = Exchange()

    async def ask(client: Client, raw: "_Raw") -> RawListing:
        tools: list[Any] = []
        cursors: list[str] = []
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursors[-1] if cursors else None)
            named = raw.newest.get("tools")
            if not isinstance(named, list):
                raise ValueError("what should be a list of tools is none")
            tools += named
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
        lost = Sentence(LOST)
        raise ServerFailed(Sentence("{name} was not asked. {lost}", name=server.name, lost=lost), "secret_lost", lost)
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
            leads_on = isinstance(cursor, str | int) and not isinstance(cursor, bool)
            instead = {**known, "tools": [], **({"nextCursor": str(cursor)} if leads_on else {})}
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
        media_type = response.headers.get("content-type", "").lower()
        if response.status_code == 200 and media_type.startswith("application/json"):
            response.stream = _MendedAnswer(response.stream, exchange)
        elif response.status_code == 200 and media_type.startswith("text/event-stream"):
            response.stream = _MendedEvents(response.stream)


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


class _MendedAnswer(httpx2.AsyncByteStream):
    """An answer of one message, as `mended` makes it."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([piece async for piece in self._inner])
        message = mended(body)
        if message is None:
            self._exchange.note_strange(body)
        yield body if message is None else message

    async def aclose(self) -> None:
        await self._inner.aclose()


class _MendedEvents(httpx2.AsyncByteStream):
    """A stream of events, in which each message that stands on one line is as `mended` makes it."""

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


def _output(result: Mapping[str, Any]) -> ToolOutput:
    """The text of an answer; what is not text is named, as a model cannot see it here."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    text = "\n".join(map(_block, blocks))
    structured = result.get("structuredContent")
    if not text.strip() and structured is not None:
        text = clean(json.dumps(structured, ensure_ascii=False))
    text = text or "The tool gave no text."
    return ToolOutput(text, error=result.get("isError") is True, whole=text)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return clean(block) if isinstance(block, str) else "[not text, not shown]"
    kind = clean(str(block.get("type", "part")))[:50]
    resource = block.get("resource")
    address = _text(resource if isinstance(resource, Mapping) else block, "uri")
    if kind == "text" and isinstance(block.get("text"), str):
        return clean(block["text"])
    if kind == "resource" and isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return "\n".join(filter(None, (f"[{address}]" if address else "", clean(resource["text"]))))
    if kind == "resource_link" and address:
        return " ".join(filter(None, ("[resource_link:", _text(block, "name"), address + "]")))
    return f"[{kind}: not text, not shown]"


def _text(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return clean(value)[:MAX_ADDRESS] if isinstance(value, str) else ""
