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
    """Tools that the models of one client have refused: single definitions, or more than a number of tools.

    A refusal is remembered only after a call succeeded without these tools. A definition is identified by its whole
    text, so that a corrected definition is sent again.
    """

    def __init__(self) -> None:
        self._definitions: dict[str, dict[bytes, None]] = defaultdict(dict)
        self._most: dict[str, int] = {}

    def removed(self, request: ModelRequest) -> ModelRequest:
        """Return the request without the tools that its model has refused before."""
        refused = self._definitions.get(request.model)
        most = self._most.get(request.model)
        if refused:
            accepted = (each for each in request.tools if _is_needed(each, request) or _digest_of(each) not in refused)
            request = replace(request, tools=tuple(accepted))
        return _first_tools(request, most) if most is not None else request

    def without(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        """Return the request without the tools that the error names. Unchanged if none of these can be left out."""
        most = error.most_tools
        if most is not None and most < len(request.tools):
            return _first_tools(request, most)
        named = {each.name for each in request.tools} & error.refused_tools
        accepted = (
            tool
            for number, tool in enumerate(request.tools)
            if _is_needed(tool, request) or (tool.name if named else number) not in (named or error.refused_tools)
        )
        return replace(request, tools=tuple(accepted))

    def remember(self, request: ModelRequest, refusals: Sequence[ModelError], answered: ModelRequest) -> None:
        """Remember the tools of `request` that are missing in `answered`, which succeeded after these refusals."""
        numbers = [error.most_tools for error in refusals if error.most_tools is not None]
        if numbers:
            self._most[request.model] = min(numbers)
            return
        digests = self._definitions[request.model]
        for tool in request.tools:
            if tool not in answered.tools:
                digests[_digest_of(tool)] = None
        while len(digests) > MAX_REFUSED_TOOLS:
            del digests[next(iter(digests))]


def _is_needed(tool: ToolDefinition, request: ModelRequest) -> bool:
    return tool.name in request.needed_tools or tool.name == request.required_tool


def _first_tools(request: ModelRequest, most: int) -> ModelRequest:
    """Return the request with `most` tools, including all needed ones."""
    others = [each.name for each in request.tools if not _is_needed(each, request)]
    spare = max(0, most - (len(request.tools) - len(others)))
    accepted = (each for each in request.tools if _is_needed(each, request) or each.name in others[:spare])
    return replace(request, tools=tuple(accepted))


def _digest_of(tool: ToolDefinition) -> bytes:
    text = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
