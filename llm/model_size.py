"""Estimate the size of a model by its name, for choices that depend on it."""

import re
from decimal import Decimal

SMALL_MODEL = Decimal(3)  # billions of parameters; smaller models tend to copy the end of the prompt
MIN_MILLIONS = 10  # "1m" in a name means a window of a million tokens
_SIZE = re.compile(r"(?<![a-z0-9.])([0-9]{1,4}(?:\.[0-9]{1,3})?)\s?([bm])(?![a-z0-9])")


def billions_of_parameters(name: str) -> Decimal | None:
    """Return the largest size in a model's name, such as 0.5 for `qwen2.5:0.5b`; None if it has none."""
    sizes = [
        Decimal(number) / (1 if unit == "b" else 1_000)
        for number, unit in _SIZE.findall(name[:300].lower().replace("_", "-"))
        if unit == "b" or Decimal(number) >= MIN_MILLIONS
    ]
    return max(sizes, default=None)


def is_small(name: str) -> bool:
    """Return whether the name has a size below `SMALL_MODEL`."""
    size = billions_of_parameters(name)
    return size is not None and size < SMALL_MODEL
