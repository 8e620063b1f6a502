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
from llm.tool_services import tool_servers

SEPARATOR = "__"

logger = logging.getLogger(__name__)


def server_names(setting: Setting) -> list[str]:
    """The servers whose tools the persona names, in order; none for a model that cannot call tools."""
    return sorted({name.partition(SEPARATOR)[0] for name in _allowed(setting)})


def _allowed(setting: Setting) -> list[str]:
    if setting.persona is None or not setting.model.tools:
        return []
    return [name for name in setting.persona.tools if SEPARATOR in name]


async def with_server_tools(setting: Setting) -> Setting:
    """The setting with the persona's server tools. A server that fails is noted, and the turn goes on without it."""
    allowed, wanted = _allowed(setting), set(server_names(setting))
    if not wanted:
        return setting
    servers = [server for server in await on_database(tool_servers) if server.name in wanted]
    found = await asyncio.gather(*(_tools(server, allowed) for server in servers))
    missing = sorted(wanted - {server.name for server in servers})
    notes = [f"The tool server {name} is not set up or switched off." for name in missing]
    box = setting.toolbox
    tools, guidance = dict(box.tools), list(box.guidance)
    approval: set[str] = set()
    for server, offered in zip(servers, found, strict=True):
        if isinstance(offered, str):
            notes.append(offered)
            continue
        for tool in offered:
            tools[tool.definition.name] = tool
            approval |= {tool.definition.name} if server.approval_required else set()
            guidance.append(ToolGuidance(tool.definition.name, tool.definition.description.partition("\n")[0]))
    return replace(setting, toolbox=Toolbox(tools, tuple(guidance), tuple(notes), frozenset(approval)))


async def _tools(server: Server, allowed: Sequence[str]) -> list[ServerTool] | str:
    """Those of its tools that are allowed, by name; or the sentence that says why there are none."""
    try:
        offered = await tools_of(server)
    except ServerFailed as failure:
        logger.warning("no tools from server %s: %s", server.name, failure)
        return str(failure)
    every = f"{server.name}{SEPARATOR}*" in allowed
    chosen = [tool for tool in offered if every or tool.definition.name in allowed]
    return sorted(chosen, key=lambda tool: tool.definition.name)
