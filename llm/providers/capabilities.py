"""What can be asked in OpenAI's protocol and not in Anthropic's.

Apart from the module that speaks it: its client takes long to import, and the web processes only want to know this.
"""

from collections.abc import Mapping
from typing import Any

from llm.types.messages import ReasoningState, Sampling

EFFORTS = ("low", "medium", "high", "xhigh", "max")  # of `output_config` in Anthropic's Messages protocol


def lacking(kind: str, sampling: Sampling, response_format: Mapping[str, Any] | None) -> str | None:
    """The first parameter, by its name in OpenAI's protocol, that a kind of provider cannot be given; None for all."""
    if kind != "anthropic":
        return None
    for name, value in sampling.given().items():
        if name != "reasoning_effort" or value not in EFFORTS:
            return name
    return "response_format" if response_format and "json_schema" not in response_format else None


def wanted_in_later_turns(state: ReasoningState) -> bool:
    """Whether the provider wants this back in every later turn too, as DeepSeek does.

    Servers that send this field take it back; the others want theirs within the turn, or are better off without it.
    """
    return any("reasoning_content" in item.get("message", {}) for item in state.items)
