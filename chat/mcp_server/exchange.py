"""Pass one request of an MCP client to the protocol's package, and its response back to Django.

The package is an ASGI application. It runs as a task, and the view reads its messages. The head tells whether the
response is complete or a stream of events. If the client disconnects, the task ends, but an answer that it asked for
continues.

Import this module only for a request (`chat.mcp_server.api`): it loads the protocol's package.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from chat.mcp_server.tools import TOOLS, TOOLS_BY_NAME, McpCaller
from core.api.views import missing_scope
from core.errors import ProductError
from llm.types.tools import BadArguments

SERVER_NAME = "Glasshouse"
VERSION = "1"  # of the tools
INSTRUCTIONS = (
    "A workspace for AI chats. Search the files of your projects, ask a persona, and read the report of an answer: "
    "what the model saw, what was left out and why."
)
MAX_WAITING_MESSAGES = 64  # messages of a response that wait for the client


async def respond(request: HttpRequest, body: bytes, caller: McpCaller) -> HttpResponseBase:
    """Return the response to a request. The database is only used within the tools."""
    exchange = _Exchange(body)
    task = asyncio.create_task(exchange.run(_make_server(caller), _asgi_scope(request)))
    try:
        head = await exchange.messages.get()
        if head is None:
            await task  # raises the task's error
            raise RuntimeError("the protocol's package gave no response")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head["headers"]}
        rest = exchange.rest(task)
        if headers.get("content-type", "").startswith("text/event-stream"):
            return StreamingHttpResponse(rest, status=head["status"], headers=_response_headers(headers))
        content = b"".join([piece async for piece in rest])
    except BaseException:
        task.cancel()
        raise
    return HttpResponse(content, status=head["status"], headers=_response_headers(headers))


def _response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the response, without headers of the connection, which the server sets."""
    return {
        "content-type": "text/plain",  # if the package sets none
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",  # without it nginx buffers events
        **{name: value for name, value in headers.items() if name.startswith("mcp-") or name == "content-type"},
    }


def _asgi_scope(request: HttpRequest) -> dict[str, Any]:
    headers = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in request.headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "server": None,
        "client": None,
        "state": {},
    }


class _Exchange:
    """One request and its response. `messages` has the application's messages, and None at the end."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.messages: asyncio.Queue[Any] = asyncio.Queue(MAX_WAITING_MESSAGES)

    async def run(self, server: Server[Any], scope: dict[str, Any]) -> None:
        manager = StreamableHTTPSessionManager(app=server, stateless=True)
        try:
            async with manager.run():
                await manager.handle_request(scope, self._receive, self.messages.put)
        finally:
            with suppress(asyncio.QueueFull):
                self.messages.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        never: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        return await never  # the task is cancelled when the client leaves

    async def rest(self, task: "asyncio.Task[None]") -> AsyncIterator[bytes]:
        """Yield the body of the response. Ends the task at the end, or if the client disconnects."""
        try:
            while (message := await self.messages.get()) is not None:
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    break
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _make_server(caller: McpCaller) -> Server[Any]:
    """Return the server of one request. It offers the tools that the token has the scope for."""

    async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.arguments.model_json_schema(),
                    annotations=ToolAnnotations(read_only_hint=tool.reads, open_world_hint=not tool.reads),
                )
                for tool in TOOLS
                if tool.scope in caller.scopes
            ]
        )

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = TOOLS_BY_NAME.get(params.name)
        if tool is None:
            return _error_result(f"There is no tool of this name. The tools are: {', '.join(TOOLS_BY_NAME)}.")
        if tool.scope not in caller.scopes:
            return _error_result(missing_scope(tool.scope).english)
        try:
            answer = await tool.call(caller, params.arguments or {})
        except BadArguments as error:
            return _error_result(str(error))
        except ProductError as error:
            return _error_result(error.sentence.english)
        return CallToolResult(content=[TextContent(text=answer.text)], structured_content=answer.data)

    return Server(
        SERVER_NAME, version=VERSION, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _error_result(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
