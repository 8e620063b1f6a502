"""Tools whose every call a person has to allow: such a call waits for its decision before anything runs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from chat.events import Approval
from llm.tools import Tool, ToolOutput, run_tool

NOT_ALLOWED = "The user did not allow this call."

# Given a tool's name and the arguments of a call of it, what has been decided.
Decide = Callable[[str, Mapping[str, Any]], Awaitable[Approval]]


class Approved:
    """A tool that runs only when a person has allowed the call. Its own caps hold from then on: waiting is no running.

    `waits`: seconds after which `decide` gives up.
    """

    def __init__(self, tool: Tool, decide: Decide, *, waits: float) -> None:
        self._tool, self._decide = tool, decide
        self.definition = tool.definition
        self.timeout = waits + tool.timeout + 60.0  # never the first to end: both have time limits of their own
        self.max_characters = 2 * tool.max_characters  # as the tool's own cap adds a line

    def label(self, arguments: Mapping[str, Any]) -> str:
        return self._tool.label(arguments)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        if await self._decide(self.definition.name, arguments) != Approval.ALLOWED:
            return ToolOutput(NOT_ALLOWED, error=True)
        return await run_tool(self._tool, arguments)
