"""The tools of a turn: which there are, and what the model is told of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chat.context.rendering import ToolGuidance
from llm.tokens import Tokenizer
from llm.types.messages import ToolDefinition
from llm.types.tools import Tool

LAST_STEP = "This is the last step of this turn. Answer now with what you have; no tool can be called any more."


@dataclass(frozen=True, slots=True)
class Toolbox:
    """`tools` by name and `guidance`, both in the fixed order in which the model gets them.

    `approval`: names of those whose every call a person has to allow. `notes`: sentences for people about tools that
    should be there and are not. `external`: tools that the calling program runs itself; a call of one ends the turn.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    guidance: Sequence[ToolGuidance] = ()
    notes: Sequence[str] = ()
    approval: frozenset[str] = frozenset()
    external: tuple[ToolDefinition, ...] = ()

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        return (*(tool.definition for tool in self.tools.values()), *self.external)

    @property
    def searching(self) -> frozenset[str]:
        """The names of those whose results can be cited."""
        return frozenset(each.name for each in self.guidance if each.is_search)

    def tokens(self, tokenizer: Tokenizer) -> int:
        """What the definitions cost; providers send them to the model as JSON."""
        if not self.definitions:
            return 0
        described = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in self.definitions
        ]
        return tokenizer.count(json.dumps(described, ensure_ascii=False, sort_keys=True))


NO_TOOLS = Toolbox()
