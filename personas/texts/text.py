"""Definition of a text that the product sends to a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.sentences import Sentence


@dataclass(frozen=True, slots=True)
class TextDefinition:
    """Built-in text with its place, its purpose and its rules.

    `group`: its place in a prompt. `needs` and `may_have`: required and optional placeholders, each with its meaning.
    `most`: the maximum number of characters. `may_be_empty`: an empty version without placeholders is allowed, and then
    nothing is sent.
    """

    group: Sentence
    title: Sentence
    purpose: Sentence
    built_in: str
    needs: Mapping[str, Sentence] = field(default_factory=dict)
    may_have: Mapping[str, Sentence] = field(default_factory=dict)
    may_be_empty: bool = False
    most: int = 4_000

    @property
    def placeholders(self) -> dict[str, Sentence]:
        return {**self.needs, **self.may_have}
