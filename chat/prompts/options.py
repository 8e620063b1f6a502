"""What a program asks of one turn beside its messages; kept with the turn as JSON."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from llm.tokens import Tokenizer
from llm.types.model_call import NO_SAMPLING, Sampling, ToolChoice, ToolDefinition

MAX_TOOLS = 128  # of a program's own
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Options:
    """`instructions` is the text of the program's system messages, `max_output` in tokens of each model call.

    `tools` are the program's own, which it runs itself; `tool_choice` and `required_tool` hold for the first call.
    `response_format` as in `llm.types.model_call.ModelRequest`.
    """

    instructions: str = ""
    temperature: float | None = None
    max_output: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = "auto"
    required_tool: str | None = None
    parallel_tool_calls: bool = True
    sampling: Sampling = NO_SAMPLING
    response_format: Mapping[str, Any] | None = None

    def format_tokens(self, tokenizer: Tokenizer) -> int:
        """What the schema of the answer costs; providers send it to the model like the definition of a tool."""
        described = (self.response_format or {}).get("json_schema")
        return tokenizer.count(json.dumps(described, ensure_ascii=False, sort_keys=True)) if described else 0

    def as_json(self) -> dict[str, Any]:
        # A schema is kept as text: PostgreSQL would put its properties into another order, and models read them.
        tools = [{**asdict(tool), "parameters": json.dumps(tool.parameters)} for tool in self.tools]
        return {**asdict(self), "tools": tools, "response_format": json.dumps(self.response_format)}


def options_of(stored: Mapping[str, Any]) -> Options:
    """From what `as_json` gave; without anything stored those of a person's turn."""
    if not stored:
        return NO_OPTIONS
    tools = (ToolDefinition(**{**each, "parameters": json.loads(each["parameters"])}) for each in stored["tools"])
    read = {
        "stop": tuple(stored["stop"]),
        "tools": tuple(tools),
        "sampling": Sampling(**stored.get("sampling", {})),  # turns of earlier versions have neither of these two
        "response_format": json.loads(stored.get("response_format", "null")),
    }
    return Options(**{**stored, **read})


NO_OPTIONS = Options()
