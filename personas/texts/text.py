"""What is known of one text that the product sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """`group`: where it stands. `needs` and `may_have`: placeholders, and what stands in their place. `most`: how many
    characters it may have. `may_be_empty`: then nothing is sent in its place, and no placeholder is missed."""

    group: str
    title: str
    purpose: str
    built_in: str
    needs: Mapping[str, str] = field(default_factory=dict)
    may_have: Mapping[str, str] = field(default_factory=dict)
    may_be_empty: bool = False
    most: int = 4_000

    @property
    def placeholders(self) -> dict[str, str]:
        return {**self.needs, **self.may_have}
