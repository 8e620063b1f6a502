"""The room for a prompt (context.md, section 3)."""

import math
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
