"""Speak with MCP servers: connect, list tools, and call a tool.

Import this module only to call a tool server, since importing the package `mcp` takes half a second.

The package validates a list of tools, or a result, as a whole, so it would refuse all tools for one bad tool. This
module reads the raw answers itself, part by part:

1. `converse` opens a session and asks it a question. `ask_once` does so in a task of its own, for one question;
   `llm.tools.mcp_sessions` keeps sessions open.
2. `_open_session` opens the connection. `_watch_response` limits the size of HTTP answers and repairs them. For a
   server that is a local process, `llm.tools.mcp_process` does the same.
3. `_RawAnswers` gives a question the server's raw answer, and the package an empty one.
4. A failure becomes a `ServerFailed` (`llm.tools.mcp_failures`).
"""

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.session import ElicitationFnT
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from core.crypto import KEY_LOST, is_lost
from core.json_types import JsonObject
from core.net.addresses import host_of
from core.net.outgoing import note
from core.sentences import Sentence
from core.text import clean
from llm.oauth.bearer import BearerAuth, PersonBearer
from llm.oauth.errors import SignInRequired, SignInUnavailable
from llm.tools import mcp_failures
from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_messages import mend_message
from llm.tools.mcp_process import process_streams
from llm.tools.servers import ServerFailed, ToolServerConfig
from llm.types.tools import progress_reporter

MAX_BYTES = 16_000_000  # per answer
MAX_SSE_EVENT = 1_000_000  # bytes per event of a server over SSE, like in the package's own client
SILENCE_TIMEOUT = 900.0  # seconds without an event after which a stream that is often silent counts as broken
MAX_PAGES = 100  # per list of tools
MAX_PROGRESS = 200  # characters of a message about progress

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(slots=True)
class RawAnswer:
    """The server's newest raw answer to a question."""

    result: JsonObject = field(default_factory=dict)


Question = Callable[[Client, RawAnswer], Coroutine[Any, Any, Answer]]
_DATA = b"data:"
_current_answer: ContextVar[RawAnswer | None] = ContextVar("asking", default=None)  # the question of the current task
_detached_tasks: set[asyncio.Task[Any]] = set()  # strong references, since the event loop holds tasks only weakly


def call_question(server: ToolServerConfig, tool: str, arguments: Mapping[str, Any]) -> Question[JsonObject]:
    """Return the question that calls a tool. Its answer is the tool's raw result.

    The question may be asked in another task. Its requests are recorded for the task that calls this function, and its
    progress is reported to that task.
    """
    context = copy_context()
    report = progress_reporter()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        report(describe_progress(progress, total, message))

    async def ask(client: Client, answer: RawAnswer) -> JsonObject:
        if server.reaches_out:
            context.run(note, host_of(server.url) or server.name, json.dumps(dict(arguments), ensure_ascii=False))
        await client.call_tool(tool, dict(arguments), progress_callback=show)
        return answer.result

    return ask


def describe_progress(done: float, total: float | None, message: str | None) -> str:
    """Return a text for a tool's progress: the percentage, if the total is known, and the server's message."""
    percentage = f"{min(100, max(0, round(100 * done / total)))} %" if total else ""
    return " · ".join(filter(None, (percentage, clean(message or "").strip()[:MAX_PROGRESS]))) or f"{done:g}"


@dataclass(frozen=True, slots=True)
class RawListing:
    """The raw tools of a server. `endless`: there were more than `MAX_PAGES` pages, or a page repeated a cursor."""

    tools: Sequence[Any]
    endless: bool = False


async def list_raw_tools(server: ToolServerConfig, max_tools: int, timeout: float) -> RawListing:
    """Return the server's first tools, unparsed. Returns `max_tools` + 1 tools if there are more than `max_tools`.

    Raises `ServerFailed`, also after `timeout` seconds.
    """
    exchange = Exchange()
    try:
        async with asyncio.timeout(timeout):
            return await ask_once(server, list_question(max_tools), exchange)
    except TimeoutError as error:
        raise mcp_failures.timeout_failure(server, timeout, exchange) from error


def list_question(max_tools: int) -> Question[RawListing]:
    """Return the question that lists tools. It stops after `max_tools` + 1 tools."""

    async def ask(client: Client, answer: RawAnswer) -> RawListing:
        tools: list[Any] = []
        cursors: list[str] = []
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursors[-1] if cursors else None)
            listed_tools = answer.result.get("tools")
            if not isinstance(listed_tools, list):
                raise ValueError("the tools are not a list")
            tools += listed_tools
            cursor = page.next_cursor
            if not cursor or len(tools) > max_tools:
                return RawListing(tools[: max_tools + 1])
            if cursor in cursors:
                break
            cursors.append(cursor)
        return RawListing(tools[: max_tools + 1], endless=True)

    return ask


async def ask_once(server: ToolServerConfig, question: Question[Answer], exchange: Exchange) -> Answer:
    """Ask a question in a session of its own. Raises `ServerFailed`.

    The session runs in a separate task, and a cancelled caller does not wait for it: a stopped turn must not wait for
    the seconds that closing a session may take.
    """
    task = start_detached(converse(server, question, exchange))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def start_detached(work: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
    """Start a task that needs no waiting caller, and return it."""
    task = asyncio.create_task(work)
    _detached_tasks.add(task)
    task.add_done_callback(_discard_task)
    return task


def _discard_task(task: asyncio.Task[Any]) -> None:
    _detached_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log a failure after a stop


async def converse(
    server: ToolServerConfig,
    question: Question[Answer],
    exchange: Exchange,
    on_message: Callable[[str], None] = lambda method: None,
    elicit: ElicitationFnT | None = None,
) -> Answer:
    """Open a session, ask the question and close the session. Raises `ServerFailed`.

    `on_message` gets the method of each request and notification of the server. `elicit` answers its questions to
    people. Without it, the server knows that it cannot ask. Run this coroutine in a task of its own, since the task
    that opens a session must close it.
    """
    if any(map(is_lost, server.secrets.values())):
        lost = Sentence(KEY_LOST)
        raise ServerFailed(Sentence("{name} was not asked. {lost}", name=server.name, lost=lost), "secret_lost", lost)
    refusal = ""
    cause: Exception | None = None
    try:
        if server.bearer is not None:
            await server.bearer.token()
        async with _open_session(server, exchange, on_message, elicit) as client:
            try:
                return await ask_in_session(client, question)
            except MCPError as error:
                # Caught here, since the session would wrap the error in exception groups.
                refusal = clean(error.message)
                cause = error
    except MCPError as error:  # in the handshake
        refusal = clean(error.message)
        cause = error
    except Exception as error:
        refusal = _server_message(error)
        cause = error
    failure = mcp_failures.to_failure(server, exchange, cause, refusal)
    logger.warning("tool server %s failed: %s", server.name, failure.code, exc_info=cause)
    raise failure from cause


def _server_message(error: BaseException) -> str:
    """Return the server's error message, even if the package wrapped the error in exception groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return clean(error.message) if isinstance(error, MCPError) else ""


async def ask_in_session(client: Client, question: Question[Answer]) -> Answer:
    """Ask a question in an open session. Several tasks may do so at the same time."""
    answer = RawAnswer()
    token = _current_answer.set(answer)
    try:
        return await question(client, answer)
    finally:
        _current_answer.reset(token)


@asynccontextmanager
async def _open_session(
    server: ToolServerConfig, exchange: Exchange, on_message: Callable[[str], None], elicit: ElicitationFnT | None
) -> AsyncGenerator[Client, None]:
    async with AsyncExitStack() as stack:
        transport: AbstractAsyncContextManager[Any]
        if server.url:
            http = _http_client(server, exchange, asks=elicit is not None)
            if server.sse:
                transport = sse_client(server.url, httpx_client_factory=_ClientFactory(http))
            else:
                await stack.enter_async_context(http)
                transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_BYTES)
        else:
            program, *arguments = shlex.split(server.command)
            transport = process_streams(program, arguments, server.secrets, max_bytes=MAX_BYTES, exchange=exchange)
        watched = _watch_streams(transport, _RawAnswers(on_message))
        yield await stack.enter_async_context(Client(watched, cache=None, elicitation_callback=elicit))


@asynccontextmanager
async def _watch_streams(
    transport: AbstractAsyncContextManager[Any], raw: "_RawAnswers"
) -> AsyncGenerator[tuple["_WatchedReadStream", "_WatchedWriteStream"], None]:
    async with transport as (incoming, outgoing):
        yield _WatchedReadStream(incoming, raw), _WatchedWriteStream(outgoing, raw)


class _RawAnswers:
    """The questions of a session that wait for a raw answer to `tools/list` or `tools/call`.

    The package gets an empty answer instead, since it would refuse the whole answer for one unknown part.
    """

    _PASSED_ON = ("resultType", "ttlMs", "cacheScope")

    def __init__(self, on_message: Callable[[str], None]) -> None:
        self._on_message = on_message
        self._waiting: dict[Any, tuple[str, RawAnswer]] = {}  # the method and the question, by the id of the request

    def note_request(self, item: SessionMessage) -> None:
        """Remember a request with its question. Call this in the task of the question."""
        answer = _current_answer.get()
        if (
            answer is not None
            and isinstance(item.message, JSONRPCRequest)
            and item.message.method in ("tools/list", "tools/call")
        ):
            self._waiting[item.message.id] = item.message.method, answer

    def replace_answer(self, item: Any) -> Any:
        """Return the message for the package. Give a raw answer to its question, and return an empty answer instead."""
        if not isinstance(item, SessionMessage):
            return item
        message = item.message
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            self._on_message(message.method)
            return item
        method, answer = self._waiting.pop(message.id, ("", None))
        if answer is None or not isinstance(message, JSONRPCResponse):
            return item
        result = message.result
        if result.get("resultType", "complete") != "complete":
            self._report_requests(result.get("inputRequests"))
            return item
        answer.result = result
        passed_on = {name: result[name] for name in self._PASSED_ON if name in result}
        if method == "tools/list":
            cursor = result.get("nextCursor")
            empty = {**passed_on, "tools": []}
            if isinstance(cursor, str | int) and not isinstance(cursor, bool):
                empty["nextCursor"] = str(cursor)
        else:
            empty = {**passed_on, "content": [], "isError": True}  # an error is not checked against an output schema
        replaced = JSONRPCResponse(jsonrpc="2.0", id=message.id, result=empty)
        return SessionMessage(replaced, item.metadata)

    def _report_requests(self, requests: Any) -> None:
        """Report the requests in an answer that needs input. Servers ask in this way since 2026-07-28."""
        for request in requests.values() if isinstance(requests, Mapping) else ():
            if isinstance(request, Mapping) and isinstance(request.get("method"), str):
                self._on_message(request["method"])


class _WatchedReadStream:
    """A read stream of the package that passes messages through `raw`."""

    def __init__(self, inner: Any, raw: _RawAnswers) -> None:
        self._inner = inner
        self._raw = raw

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return self._raw.replace_answer(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._raw.replace_answer(await self._inner.__anext__())

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
        self._raw.note_request(item)
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


def _http_client(server: ToolServerConfig, exchange: Exchange, *, asks: bool) -> httpx2.AsyncClient:
    """Return a client that sends the server's secrets and watches its responses.

    `asks`: the server may ask people, and is silent while it waits for their answer.
    """

    async def watch(response: httpx2.Response) -> None:
        await _watch_response(response, exchange, sse=server.sse)

    # The only stream of an SSE server is also silent between two calls.
    read = SILENCE_TIMEOUT if server.sse or asks else server.timeout
    return httpx2.AsyncClient(
        headers={**server.secrets, "Accept-Encoding": "identity"},
        auth=_WatchedAuth(server.bearer, exchange) if server.bearer is not None else None,
        timeout=httpx2.Timeout(server.timeout, connect=10.0, read=read),
        event_hooks={"response": [watch]},
    )


class _WatchedAuth(BearerAuth):
    """Authentication that records why a request has no token, since the package may replace the error."""

    def __init__(self, bearer: PersonBearer, exchange: Exchange) -> None:
        super().__init__(bearer)
        self._exchange = exchange

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self._exchange.sign_in = None
        async with aclosing(super().async_auth_flow(request)) as flow:
            try:
                outgoing = await anext(flow)
                while True:
                    outgoing = await flow.asend((yield outgoing))
            except StopAsyncIteration:
                return
            except (SignInRequired, SignInUnavailable) as error:
                self._exchange.sign_in = error
                raise


@dataclass(frozen=True, slots=True)
class _ClientFactory:
    """A factory of HTTP clients for the package. It always returns the same client."""

    client: httpx2.AsyncClient

    def __call__(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return self.client


async def _watch_response(response: httpx2.Response, exchange: Exchange, *, sse: bool) -> None:
    """Record the status of a response, and wrap its body to limit its size: the client reads a JSON body as a whole.

    `sse`: the status of the request that opens the stream counts, too, since it shows the kind of the server.
    """
    exchange.session = exchange.session or "mcp-session-id" in response.headers
    if response.status_code == 401:
        exchange.challenge = response.headers.get("www-authenticate", "").lower()
    if response.request.method == "POST" or sse:
        exchange.status = response.status_code
        exchange.media_type = response.headers.get("content-type", "").lower()
        exchange.location = response.headers.get("location", "") if 300 <= response.status_code < 400 else ""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("compressed without a request for it", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _CappedStream(response.stream, exchange, events=sse and response.request.method == "GET")
        media_type = response.headers.get("content-type", "").lower()
        if response.status_code == 200 and media_type.startswith("application/json"):
            response.stream = _MendedAnswer(response.stream, exchange)
        elif response.status_code == 200 and media_type.startswith("text/event-stream"):
            response.stream = _MendedEvents(response.stream)


class _CappedStream(httpx2.AsyncByteStream):
    """A body that raises after `MAX_BYTES`.

    With `events`, it is endless, and raises after a line of `MAX_SSE_EVENT` bytes.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange, *, events: bool) -> None:
        self._inner = inner
        self._exchange = exchange
        self._events = events
        self._max_bytes = MAX_SSE_EVENT if events else MAX_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if self._events and (line_end := piece.rfind(b"\n")) >= 0:
                size = len(piece) - line_end
            if size > self._max_bytes:
                self._exchange.too_large = True
                raise httpx2.ReadError(f"more than {self._max_bytes} bytes")
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
        message = mend_message(body)
        if message is None:
            self._exchange.note_invalid_output(body)
        yield body if message is None else message

    async def aclose(self) -> None:
        await self._inner.aclose()


class _MendedEvents(httpx2.AsyncByteStream):
    """A response body with server-sent events. Messages on a single line are repaired."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unread = bytearray()
        async for piece in self._inner:
            searched = len(unread)
            unread += piece
            end = max(unread.rfind(b"\n", searched), unread.rfind(b"\r", searched)) + 1
            if end:
                yield b"".join(map(_mend_line, bytes(unread[:end]).splitlines(keepends=True)))
                del unread[:end]
        if unread:
            yield _mend_line(bytes(unread))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _mend_line(line: bytes) -> bytes:
    if not line.startswith(_DATA):
        return line
    message = mend_message(line[len(_DATA) :].strip())
    end = line[len(line.rstrip(b"\r\n")) :]
    return line if message is None else _DATA + b" " + message + end
