"""Tools of MCP servers, over streamable HTTP or over the standard streams of a process.

Each call makes a session of its own: nothing has to be kept alive between the steps of a turn, and a server that has
failed once is simply asked again.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

from core.text import clean
from llm.tools.servers import Server, ServerFailed
from llm.types.model_call import ToolDefinition
from llm.types.tools import ToolOutput

MAX_TOOLS = 64  # of one server
MAX_NAME = 64  # characters, what every provider takes
MAX_DESCRIPTION = 2_000
MAX_SCHEMA = 20_000  # characters of JSON
LIST_TIMEOUT = 15.0
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")

logger = logging.getLogger(__name__)


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
        await _read_protocol()
        from llm.tools import mcp_client  # noqa: PLC0415 - read by `_read_protocol`, not at the start

        try:
            return await mcp_client.call(self._server, self.served_as, arguments)
        except ServerFailed as failure:
            return ToolOutput(str(failure), error=True)


async def tools_of(server: Server) -> list[ServerTool]:
    """The server's tools, named `server__tool`. Raises `ServerFailed`."""

    await _read_protocol()
    from llm.tools import mcp_client  # noqa: PLC0415 - read by `_read_protocol`, not at the start

    try:
        async with asyncio.timeout(LIST_TIMEOUT):
            found = await mcp_client.listed(server, MAX_TOOLS)
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


async def _read_protocol() -> None:
    """The package takes half a second to read: beside the event loop, and in a process that asks a server alone."""
    await asyncio.to_thread(import_module, "llm.tools.mcp_client")
