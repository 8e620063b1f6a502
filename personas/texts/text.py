"""What is known of one text that the product sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.sentences import Sentence


@dataclass(frozen=True, slots=True)
class Text:
    """`group`: where it stands. `needs` and `may_have`: placeholders, and what stands in their place. `most`: how many
    characters it may have. `may_be_empty`: then nothing is sent in its place, and no placeholder is missed."""

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
