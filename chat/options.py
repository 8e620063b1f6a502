"""What a program asks of one turn beside its messages; kept with the turn as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from llm.messages import ToolChoice, ToolDefinition


@dataclass(frozen=True, slots=True)
class Options:
    """`instructions` is the text of the program's system messages, `max_output` in tokens of each model call.

    `tools` are the program's own, which it runs itself; `tool_choice` and `required_tool` hold for the first call.
    """

    instructions: str = ""
    temperature: float | None = None
    max_output: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    required_tool: str | None = None

    def as_json(self) -> dict[str, Any]:
        # A schema is kept as text: PostgreSQL would put its properties into another order, and models read them.
        tools = [{**asdict(tool), "parameters": json.dumps(tool.parameters)} for tool in self.tools]
        return {**asdict(self), "tools": tools}


def options_of(stored: Mapping[str, Any]) -> Options:
    """From what `as_json` gave; without anything stored those of a person's turn."""
    if not stored:
        return NO_OPTIONS
    tools = (ToolDefinition(**{**each, "parameters": json.loads(each["parameters"])}) for each in stored["tools"])
    return Options(**{**stored, "stop": tuple(stored["stop"]), "tools": tuple(tools)})


NO_OPTIONS = Options()
