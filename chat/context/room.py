"""The room for a prompt (docs/context.md, “The room”)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Room:
    """A model's window and what is kept free of it, in tokens; `safety_margin` is a share of the window."""

    window: int
    reserved_output: int = 1_024
    buffer: int = 40
    safety_margin: Decimal = Decimal(0)
    tools_tokens: int = 0

    @property
    def input_limit(self) -> int:
        """May be zero or less, when the reserves are larger than the window."""
        usable = floored(self.window, 1 - Fraction(self.safety_margin)) if self.safety_margin else self.window
        return usable - self.reserved_output - self.buffer - self.tools_tokens


def floored(tokens: int, share: Decimal | Fraction) -> int:
    """A share of a number of tokens, rounded down. Exact: 0.7 is seven tenths, which no binary fraction is."""
    return math.floor(tokens * Fraction(share))


@dataclass(frozen=True, slots=True)
class DocumentBudget:
    """Tokens: `available` for documents, `offered` to the person, and `selectable_up_to`, the line for a selection."""

    available: int
    offered: int
    selectable_up_to: int

    def accepts(self, candidate: int | None, selected: Sequence[int | None] = ()) -> bool:
        """Whether a file of `candidate` tokens may be added to those selected. An unknown count (None) blocks."""
        if candidate is None or None in selected:
            return False
        return sum(tokens for tokens in selected if tokens is not None) + candidate <= self.selectable_up_to


@dataclass(frozen=True, slots=True)
class Reserves:
    """What the document budget keeps free, in tokens, and the share of the rest that is offered."""

    reserved_output: int = 1_024
    expected_user: int = 512
    buffer: int = 40
    tools_tokens: int = 0
    ui_share: Decimal = Decimal("0.5")
    select_margin: int = 75


def document_budget(window: int, prompts: Sequence[int], reserves: Reserves) -> DocumentBudget:
    """`prompts`: the tokens of the system prompt and of the persona's prompt."""
    kept_free = reserves.reserved_output + reserves.expected_user + reserves.buffer + reserves.tools_tokens
    available = max(0, window - sum(prompts) - kept_free)
    offered = floored(available, reserves.ui_share)
    return DocumentBudget(available, offered, max(0, offered - reserves.select_margin))
