"""The tools' protocol: what a tool is, and the caps every tool runs under."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from core.sentences import Sentence
from core.sound import sound
from llm.types.model_call import StoredResult, ToolCall, ToolDefinition

MAX_ARGUMENTS = 65_536  # characters of JSON; more is a model gone wrong, not a request


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """`text` is what the model sees; `data` is richer and for the page: ids, links, pages, offsets.

    `arguments`: what was really used, when that is more than the model wrote, as with expanded queries. The history
    then keeps these.

    `whole`: what a model may read on in, where `text` has to be shortened; empty where it can call the tool again for
    that. `partial`: the source has more than was received. `result`: how `text` was shortened, if it was.
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    error: bool = False
    arguments: Mapping[str, Any] | None = None
    whole: str = ""
    partial: bool = False
    result: StoredResult | None = None


class Tool(Protocol):
    """`timeout` in seconds."""

    definition: ToolDefinition
    timeout: float

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        """What it is doing, for a person: "Searching 2 files"."""
        ...

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput: ...


class BadArguments(ValueError):
    """The sentence is for the model, which may then call again, corrected."""


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The call's arguments as an object; raises `BadArguments`."""
    if len(call.arguments) > MAX_ARGUMENTS:
        raise BadArguments(f"The arguments are longer than {MAX_ARGUMENTS} characters.")
    try:
        arguments = json.loads(call.arguments or "{}", parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadArguments("The arguments are not valid JSON.") from error
    if not isinstance(arguments, dict):
        raise BadArguments("The arguments must be a JSON object.")
    sounded: dict[str, Any] = sound(arguments)
    return sounded


def refuse_constant(constant: str) -> NoReturn:
    """Raise `ValueError`: NaN and Infinity are Python's, not JSON's, and can be neither stored nor sent."""
    raise ValueError(constant)


async def run_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolOutput:
    """Run one tool under its time limit. A failure becomes an output that tells the model what went wrong.

    A result is as long as the tool makes it: what of it a model is sent is for the caller to plan.
    """
    try:
        async with asyncio.timeout(tool.timeout):
            return await tool.run(arguments)
    except TimeoutError:
        return ToolOutput(f"The tool gave no result within {tool.timeout:g} seconds.", error=True)
    except BadArguments as error:
        return ToolOutput(str(error), error=True)
