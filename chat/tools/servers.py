"""Tools of MCP servers, for personas that name them: `server__tool`, or `server__*` for all of a server's."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from chat.context.moving_parts import ToolGuidance
from chat.prompts import Setting
from chat.tools import Toolbox
from chat.turn_rows import on_database
from llm.mcp_tools import Server, ServerFailed, ServerTool, tools_of
from llm.tool_services import known_tools, remember_tools, tool_servers

SEPARATOR = "__"

logger = logging.getLogger(__name__)


def with_known_tools(setting: Setting, box: Toolbox) -> Toolbox:
    """For a plan: no server is asked. Its tools are those it listed last; a note names a server that never did."""
    if not _allowed(setting):
        return box
    found = [(server, _unknown(server.name) if tools is None else tools) for server, tools in known_tools()]
    return _with(box, setting, found)


async def with_server_tools(setting: Setting) -> Setting:
    """The setting with the persona's server tools. A server that fails is noted, and the turn goes on without it."""
    wanted = _wanted(setting)
    if not wanted:
        return setting
    servers = [server for server in await on_database(tool_servers) if server.name in wanted]
    found = list(zip(servers, await asyncio.gather(*(_listed(server) for server in servers)), strict=True))
    return replace(setting, toolbox=_with(setting.toolbox, setting, found))


def _allowed(setting: Setting) -> list[str]:
    if setting.persona is None or not setting.model.tools:
        return []
    return [name for name in setting.persona.tools if SEPARATOR in name]


def _wanted(setting: Setting) -> set[str]:
    """The servers whose tools the persona names; none for a model that cannot call tools."""
    return {name.partition(SEPARATOR)[0] for name in _allowed(setting)}


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


def _with(box: Toolbox, setting: Setting, found: Sequence[tuple[Server, Sequence[ServerTool] | str]]) -> Toolbox:
    """With those of the servers' tools that the persona may call, by server and name; a sentence becomes a note."""
    allowed, wanted = _allowed(setting), _wanted(setting)
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
