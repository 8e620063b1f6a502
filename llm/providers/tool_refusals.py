"""Tools that a provider refuses: which of a request are left out when it is sent again, and what is remembered of it.

What an error says of tools is read in `llm.providers.errors`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from core.errors import ModelError
from llm.types.model_call import ModelRequest, ToolDefinition

MAX_REFUSED_TOOLS = 256  # of one model


class RefusedTools:
    """What the models of one client have refused of tools: certain definitions, and more than a number of them.

    Only what a call went through without is remembered. A definition is known by all of it, so that one that was
    mended is sent again.
    """

    def __init__(self) -> None:
        self._definitions: dict[str, dict[bytes, None]] = defaultdict(dict)
        self._most: dict[str, int] = {}

    def known_of(self, request: ModelRequest) -> ModelRequest:
        """The request without what its model has refused before."""
        refused, most = self._definitions.get(request.model), self._most.get(request.model)
        if refused:
            kept = (each for each in request.tools if _is_needed(each, request) or _digest_of(each) not in refused)
            request = replace(request, tools=tuple(kept))
        return _first_tools(request, most) if most is not None else request

    def without(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        """The request without the tools that the error names; as it was where it names none that may be left out."""
        most = error.most_tools
        if most is not None and most < len(request.tools):
            return _first_tools(request, most)
        named = {each.name for each in request.tools} & error.refused_tools
        kept = (
            tool
            for number, tool in enumerate(request.tools)
            if _is_needed(tool, request) or (tool.name if named else number) not in (named or error.refused_tools)
        )
        return replace(request, tools=tuple(kept))

    def remember(self, request: ModelRequest, met: Sequence[ModelError], left: ModelRequest) -> None:
        """That the request was answered once it had only the tools that are `left`, after these errors."""
        numbers = [error.most_tools for error in met if error.most_tools is not None]
        if numbers:
            self._most[request.model] = min(numbers)
            return
        known = self._definitions[request.model]
        for tool in request.tools:
            if tool not in left.tools:
                known[_digest_of(tool)] = None
        while len(known) > MAX_REFUSED_TOOLS:
            del known[next(iter(known))]


def _is_needed(tool: ToolDefinition, request: ModelRequest) -> bool:
    return tool.name in request.needed_tools or tool.name == request.required_tool


def _first_tools(request: ModelRequest, most: int) -> ModelRequest:
    """With so many tools, those that are needed among them."""
    others = [each.name for each in request.tools if not _is_needed(each, request)]
    spare = max(0, most - (len(request.tools) - len(others)))
    kept = (each for each in request.tools if _is_needed(each, request) or each.name in others[:spare])
    return replace(request, tools=tuple(kept))


def _digest_of(tool: ToolDefinition) -> bytes:
    text = json.dumps([tool.name, tool.description, tool.parameters], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
