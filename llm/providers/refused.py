"""Parameters that a model refuses: they are left out of its requests, and whoever reads the answer is told.

Which model takes which parameter changes from month to month, and servers name the one they refuse; so there is no
table here of who takes what, but a memory of what was refused.
"""

from collections import defaultdict
from dataclasses import replace

from core.errors import ModelError
from llm.types.model_call import NO_SAMPLING, ModelRequest

MAX_REFUSALS = 8  # of one call, each of another parameter

REASONING = "reasoning of earlier steps"

# Names under which servers refuse a parameter: its name in OpenAI's Chat Completions protocol.
_NAMES = {
    "reasoning": "reasoning_effort",
    "reasoning.effort": "reasoning_effort",
    "output_config": "reasoning_effort",
    "output_config.effort": "reasoning_effort",
    "think": "reasoning_effort",
    "thinking": "reasoning_effort",
    "text.verbosity": "verbosity",
    "text.format": "response_format",
    "output_config.format": "response_format",
    "stop_sequences": "stop",
    "prompt_cache_key": "cache_key",
    "reasoning_content": REASONING,
    "reasoning_details": REASONING,
    "messages.reasoning": REASONING,
}
_UNTOLD = {"cache_key"}  # nobody asked for it, so nobody misses it


class Refused:
    """What the models of one client have refused so far. `unknown`: what their protocol has no word for."""

    def __init__(self, unknown: tuple[str, ...] = ()) -> None:
        self._unknown = unknown
        self._names: dict[str, list[str]] = defaultdict(list)

    def learn(self, request: ModelRequest, error: ModelError) -> bool:
        """Whether the request can be sent again without what was refused in it."""
        name = _NAMES.get(error.parameter, error.parameter)
        names = self._names[request.model]
        if not name or name in names or len(names) >= MAX_REFUSALS or without(request, name) == request:
            return False
        names.append(name)
        return True

    def removed(self, request: ModelRequest) -> tuple[ModelRequest, tuple[str, ...]]:
        """The request without what its model refuses, and what of it the person or program had asked for."""
        names = (*self._unknown, *self._names.get(request.model, ()))
        told = []
        for name in names:
            kept = without(request, name)
            if kept != request and name not in _UNTOLD:
                told.append(name)
            request = kept
        return request, tuple(told)


def without(request: ModelRequest, name: str) -> ModelRequest:
    """The request without the named parameter; as it was when it has no such one, or cannot do without."""
    match name:
        case "temperature":
            return replace(request, temperature=None)
        case "stop":
            return replace(request, stop=())
        case "tool_choice" if request.tool_choice == "required":
            return replace(request, tool_choice="auto", required_tool=None)
        case "parallel_tool_calls":
            return replace(request, parallel_tool_calls=True)
        case "response_format":
            return replace(request, response_format=None)
        case "cache_key":
            return replace(request, cache_key="")
        case _ if name == REASONING:
            return replace(request, messages=tuple(replace(each, reasoning=None) for each in request.messages))
    if name in request.sampling.given():
        return replace(request, sampling=replace(request.sampling, **{name: getattr(NO_SAMPLING, name)}))
    return request
