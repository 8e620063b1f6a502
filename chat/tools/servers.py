"""Tools of MCP servers, for personas that name them: `server__tool`, or `server__*` for all of a server's."""

import asyncio
import logging
from collections.abc import Sequence

from chat.context.rendering import ToolGuidance
from chat.tools.toolbox import Toolbox
from core.event_loop import on_database
from llm.models import Model
from llm.tools.mcp import Server, ServerFailed, ServerTool, tools_of
from llm.tools.services import known_tools, remember_tools, tool_servers
from personas.models import Persona

SEPARATOR = "__"

logger = logging.getLogger(__name__)


def with_known_tools(box: Toolbox, persona: Persona | None, model: Model) -> Toolbox:
    """For a plan: no server is asked. Its tools are those it listed last; a note names a server that never did."""
    allowed = _allowed(persona, model)
    if not allowed:
        return box
    found = [(server, _unknown(server.name) if tools is None else tools) for server, tools in known_tools()]
    return _with(box, allowed, found)


async def with_server_tools(box: Toolbox, persona: Persona | None, model: Model) -> Toolbox:
    """With the persona's server tools. A server that fails is noted, and the turn goes on without it."""
    allowed = _allowed(persona, model)
    if not allowed:
        return box
    wanted = _servers(allowed)
    servers = [server for server in await on_database(tool_servers) if server.name in wanted]
    found = list(zip(servers, await asyncio.gather(*(_listed(server) for server in servers)), strict=True))
    return _with(box, allowed, found)


def _allowed(persona: Persona | None, model: Model) -> list[str]:
    """The server tools that the persona names; none for a model that cannot call tools."""
    if persona is None or not model.tools:
        return []
    return [name for name in persona.tools if SEPARATOR in name]


def _servers(allowed: Sequence[str]) -> set[str]:
    return {name.partition(SEPARATOR)[0] for name in allowed}


def _unknown(name: str) -> str:
    return f"The tools of the server {name} are not known yet; they come on top."


async def _listed(server: Server) -> list[ServerTool] | str:
    """What it offers now; or the sentence that says why there is nothing."""
    try:
        offered = await tools_of(server)
    except ServerFailed as failure:
        logger.warning("no tools from server %s: %s", server.name, failure)
        return str(failure)
    await on_database(remember_tools, server, offered)
    return offered


def _with(box: Toolbox, allowed: Sequence[str], found: Sequence[tuple[Server, Sequence[ServerTool] | str]]) -> Toolbox:
    """With those of the servers' tools that the persona may call, by server and name; a sentence becomes a note."""
    wanted = _servers(allowed)
    missing = sorted(wanted - {server.name for server, _ in found})
    notes = [*box.notes, *(f"The tool server {name} is not set up or switched off." for name in missing)]
    tools, guidance, approval = dict(box.tools), list(box.guidance), set(box.approval)
    for server, offered in found:
        if server.name not in wanted:
            continue
        if isinstance(offered, str):
            notes.append(offered)
            continue
        every = f"{server.name}{SEPARATOR}*" in allowed
        for tool in sorted(offered, key=lambda tool: tool.definition.name):
            name = tool.definition.name
            if not every and name not in allowed:
                continue
            tools[name] = tool
            approval |= {name} if server.approval_required else set()
            guidance.append(ToolGuidance(name, tool.definition.description.partition("\n")[0]))
    return Toolbox(tools, tuple(guidance), tuple(notes), frozenset(approval), box.external)
