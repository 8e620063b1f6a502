"""Remember the tools that a provider refuses, and leave them out of requests.

`llm.providers.errors` reads from an error which tools a provider refuses.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from core.errors import ModelError
from llm.types.model_call import ModelRequest, ToolDefinition

MAX_REFUSED_TOOLS = 256  # definitions per model


class RefusedTools:
    """Tools that the models of one client have refused: single definitions, and the tools above a number.

    A refusal is remembered only after a call succeeded without these tools. A definition is identified by its whole
    text, so that a corrected definition is sent again.
    """

    def __init__(self) -> None:
        self._definitions: dict[str, dict[bytes, None]] = defaultdict(dict)
        self._max_tools: dict[str, int] = {}

    def remove_refused(self, request: ModelRequest) -> ModelRequest:
        """Return the request without the tools that its model refused before."""
        refused = self._definitions.get(request.model)
        max_tools = self._max_tools.get(request.model)
        if refused:
            accepted_tools = (
                each for each in request.tools if _is_needed(each, request) or _digest(each) not in refused
            )
            request = replace(request, tools=tuple(accepted_tools))
        return _first_tools(request, max_tools) if max_tools is not None else request

    def remove_named(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        """Return the request without the tools that the error names, or unchanged if it needs all of them."""
        max_tools = error.max_tools
        if max_tools is not None and max_tools < len(request.tools):
            return _first_tools(request, max_tools)
        named_tools = {each.name for each in request.tools} & error.refused_tools
        accepted_tools = (
            tool
            for number, tool in enumerate(request.tools)
            if _is_needed(tool, request)
            or (tool.name if named_tools else number) not in (named_tools or error.refused_tools)
        )
        return replace(request, tools=tuple(accepted_tools))

    def remember(self, request: ModelRequest, refusals: Sequence[ModelError], answered: ModelRequest) -> None:
        """Remember the tools of `request` that are missing in `answered`, which succeeded after these refusals."""
        numbers = [error.max_tools for error in refusals if error.max_tools is not None]
        if numbers:
            self._max_tools[request.model] = min(numbers)
            return
        digests = self._definitions[request.model]
        for tool in request.tools:
            if tool not in answered.tools:
                digests[_digest(tool)] = None
        while len(digests) > MAX_REFUSED_TOOLS:
            del digests[next(iter(digests))]


def _is_needed(tool: ToolDefinition, request: ModelRequest) -> bool:
    return tool.name in request.needed_tools or tool.name == request.required_tool


def _first_tools(request: ModelRequest, max_tools: int) -> ModelRequest:
    """Return the request with its needed tools, and with other tools up to `max_tools` in total."""
    other_names = [each.name for each in request.tools if not _is_needed(each, request)]
    other_count = max(0, max_tools - (len(request.tools) - len(other_names)))
    accepted_tools = (
        each for each in request.tools if _is_needed(each, request) or each.name in other_names[:other_count]
    )
    return replace(request, tools=tuple(accepted_tools))


def _digest(tool: ToolDefinition) -> bytes:
    text = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
