"""Types of JSON that other programs send or read.

Use `JsonObject` only for JSON whose members another program decides: a provider's answer, a tool's arguments.
A shape that this product decides has a `TypedDict` or a dataclass of its own.
"""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object that is not checked yet. Its values are `Any`, since mypy cannot know another program's members."""
