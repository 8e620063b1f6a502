"""List and call the tools of tool servers: of MCP servers, and of servers that an OpenAPI document describes.

Calls of a conversation share a session (`llm.tools.mcp_sessions`). A list is requested in the open session, else in a
session of its own. The tools of a list are checked one by one: a tool that cannot be offered is left out and reported,
and the others are offered.
"""

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, TypedDict

from core.sentences import Sentence
from core.text import clean
from llm.tools import openapi_calls
from llm.tools.mcp_schemas import BadSchema, repair_schema
from llm.tools.openapi import Operation, StoredOperation
from llm.tools.servers import SessionScope, StoredServerTool, ToolProblem, ToolServerConfig
from llm.types.model_call import ToolDefinition
from llm.types.tools import ToolOutput

# Bounds against abuse; no real server comes near them.
MAX_TOOLS = 1_000  # per server
MAX_DESCRIPTION = 20_000  # characters
MAX_LISTING = 4_000_000  # characters of all definitions per server
MAX_NAME = 64  # characters; every provider accepts names of this length
LIST_TIMEOUT = 15.0  # seconds
MAX_FORMS = 5  # forms with which one call may ask the person; more are declined
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
SESSIONS_MODULE = "llm.tools.mcp_sessions"
_DIGEST_LENGTH = 8  # characters of a digest that distinguishes equal names


class ServerTool:
    """One tool of a server. `asks`: a person must allow each call.

    `scope`: calls of the same scope share a session. None: each call has a session of its own.
    """

    def __init__(
        self, server: ToolServerConfig, name: str, definition: ToolDefinition, scope: SessionScope | None = None
    ) -> None:
        self._server = server
        self._scope = scope
        self.name_at_server = name
        self.definition = definition
        self.timeout = server.timeout
        self.asks = server.approval_required

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Asking {name}: {served_as}", name=self._server.name, served_as=self.name_at_server[:100])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        await _load_sessions_module()
        from llm.tools import mcp_sessions  # noqa: PLC0415 - loaded by `_load_sessions_module`, not at the start

        return await mcp_sessions.call_tool(self._server, self.name_at_server, arguments, self._scope)

    def as_json(self) -> StoredServerTool:
        """Return the tool as it is stored."""
        return {
            "tool": self.name_at_server,
            "name": self.definition.name,
            "description": self.definition.description,
            "parameters": dict(self.definition.parameters),
        }


class OperationTool(ServerTool):
    """A tool that is an operation of an OpenAPI document."""

    def __init__(
        self, server: ToolServerConfig, name: str, definition: ToolDefinition, operation: StoredOperation
    ) -> None:
        super().__init__(server, name, definition)
        self._operation = operation
        self.asks = server.approval_required or operation["asks"]

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return await openapi_calls.call_operation(self._server, self.name_at_server, self._operation, arguments)

    def as_json(self) -> StoredServerTool:
        return {**super().as_json(), "operation": self._operation}


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, named `server__tool`, and the problems of tools that are left out or changed."""

    tools: Sequence[ServerTool] = ()
    problems: Sequence[ToolProblem] = ()


async def list_tools(server: ToolServerConfig, scope: SessionScope | None = None) -> Listing:
    """Ask a server for its tools, in the open session of the scope if there is one. Raises `ServerFailed`.

    The tools of a server with an OpenAPI document are known without a request.
    """
    if server.operations is not None:
        return Listing(tools_from_json(server, server.operations))
    await _load_sessions_module()
    from llm.tools import mcp_sessions  # noqa: PLC0415 - loaded by `_load_sessions_module`, not at the start

    raw = await mcp_sessions.list_raw_tools_in_scope(server, MAX_TOOLS, LIST_TIMEOUT, scope)
    # In a thread: a long list takes a fraction of a second, which would block the other answers of this loop.
    return await asyncio.to_thread(build_listing, server, raw.tools, scope, endless=raw.endless)


def tools_changed(scope: SessionScope) -> bool:
    """Return whether a server has notified a session of the scope that its tools changed since the last listing."""
    sessions = _loaded_sessions_module()
    return sessions is not None and sessions.tools_changed(scope)


async def close_sessions() -> None:
    """Close all sessions of this event loop."""
    sessions = _loaded_sessions_module()
    if sessions is not None:
        await sessions.close_sessions()


def build_listing(
    server: ToolServerConfig, raw: Sequence[Any], scope: SessionScope | None = None, *, endless: bool = False
) -> Listing:
    """Return the tools of a server's raw list. A bad tool does not affect the others.

    `endless`: the pages of the server's list do not end.
    """
    tools: dict[str, ServerTool] = {}
    problems: list[ToolProblem] = []
    seen_names: set[str] = set()
    characters = 0
    for number, raw_tool in enumerate(raw[:MAX_TOOLS], 1):
        name_at_server = raw_tool.get("name") if isinstance(raw_tool, Mapping) else None
        if not isinstance(name_at_server, str) or not name_at_server.strip():
            problems.append(ToolProblem(f"tool {number}", Sentence("It has no name.")))
            continue
        name = tool_name(server.name, name_at_server, tools)
        if name_at_server in seen_names:
            reason = Sentence("The server lists two tools with this name. Only the first is offered.")
            problems.append(ToolProblem(name, reason))
            continue
        seen_names.add(name_at_server)
        try:
            schema = repair_schema(raw_tool.get("inputSchema"))
        except BadSchema as error:
            problems.append(ToolProblem(name, error.sentence))
            continue
        description = _choose_description(raw_tool, name_at_server)
        characters += len(description) + len(json.dumps(schema))
        if characters > MAX_LISTING:
            reason = Sentence(
                "The list of this server is longer than {max_listing} characters. This tool is after the limit.",
                max_listing=MAX_LISTING,
            )
            problems.append(ToolProblem(name, reason))
            continue
        if len(description) > MAX_DESCRIPTION:
            reason = Sentence(
                "Its description has {description} characters. Only the first {max_description} are sent.",
                description=len(description),
                max_description=MAX_DESCRIPTION,
            )
            problems.append(ToolProblem(name, reason, offered=True))
        definition = ToolDefinition(name, description[:MAX_DESCRIPTION], schema)
        tools[name] = ServerTool(server, name_at_server, definition, scope)
    if len(raw) > MAX_TOOLS:
        reason = Sentence(
            "The server lists more than {max_tools} tools. Only the first {max_tools} are read.", max_tools=MAX_TOOLS
        )
        problems.append(ToolProblem(f"{server.name}: more tools", reason))
    elif endless:
        reason = Sentence("The pages of the server's list do not end. Only the first pages are read.")
        problems.append(ToolProblem(f"{server.name}: more tools", reason))
    return Listing(list(tools.values()), problems)


def tool_name(server: str, name_at_server: str, others: Mapping[str, ServerTool]) -> str:
    """Return the tool's name for models. A digest is added if another tool already has that name."""
    name = _NOT_IN_NAMES.sub("_", f"{server}__{name_at_server}")[:MAX_NAME]
    if name in others and others[name].name_at_server != name_at_server:
        digest = hashlib.sha256(name_at_server.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]
        name = f"{name[: MAX_NAME - _DIGEST_LENGTH - 1]}_{digest}"
    return name


def _choose_description(tool: Mapping[str, Any], name_at_server: str) -> str:
    texts = (tool.get("description"), tool.get("title"), name_at_server)
    return next(clean(text) for text in texts if isinstance(text, str) and text)


def build_operation_tools(
    server: ToolServerConfig, operations: Iterable[Operation], unasked: Collection[str]
) -> list[OperationTool]:
    """Return the tools for operations.

    Operations that may change something ask, except those with keys in `unasked`.
    """
    tools: dict[str, OperationTool] = {}
    for operation in operations:
        name = tool_name(server.name, operation.name, tools)
        definition = ToolDefinition(name, operation.description[:MAX_DESCRIPTION], operation.parameters or {})
        asks = not operation.safe and operation.key not in unasked
        tools[name] = OperationTool(server, operation.name, definition, operation.as_json(asks=asks))
    return list(tools.values())


class StoredProblem(TypedDict):
    """A `ToolProblem` as stored in `ToolServer.problems`."""

    name: str
    reason: str
    offered: bool


def tools_to_json(tools: Iterable[ServerTool]) -> list[StoredServerTool]:
    """Return the stored form of tools, which `tools_from_json` reads."""
    return [tool.as_json() for tool in tools]


def tools_from_json(server: ToolServerConfig, listing: Iterable[StoredServerTool]) -> list[ServerTool]:
    """Return the tools from their stored form."""
    return [_tool_from_json(server, each) for each in listing]


def _tool_from_json(server: ToolServerConfig, stored: StoredServerTool) -> ServerTool:
    definition = ToolDefinition(stored["name"], stored["description"], stored["parameters"])
    if "operation" in stored:
        return OperationTool(server, stored["tool"], definition, stored["operation"])
    return ServerTool(server, stored["tool"], definition)


def problems_to_json(problems: Iterable[ToolProblem]) -> list[StoredProblem]:
    """Return the stored form of problems, which `problems_from_json` reads."""
    return [{"name": problem.name, "reason": problem.reason.dump(), "offered": problem.offered} for problem in problems]


def problems_from_json(problems: Iterable[StoredProblem]) -> list[ToolProblem]:
    """Return the problems from their stored form."""
    return [ToolProblem(problem["name"], Sentence.load(problem["reason"]), problem["offered"]) for problem in problems]


async def _load_sessions_module() -> None:
    """Import the client in a thread at its first use: the protocol's package takes half a second to load."""
    await asyncio.to_thread(import_module, SESSIONS_MODULE)


def _loaded_sessions_module() -> ModuleType | None:
    """Return the module of sessions, or None if it is not loaded. Then there is no session."""
    return sys.modules.get(SESSIONS_MODULE)
