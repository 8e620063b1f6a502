"""What a policy gives back: the part of the older turns that is sent."""

from dataclasses import dataclass, field

from chat.context.types import PromptMessage, Reason


@dataclass(slots=True)
class History:
    """`messages` oldest first, of `tokens` in total; `left_out` says whether there was no room for some older message.

    `gap` is the index of the turn that ended the walk because it did not fit, None if none did. `orphans`: messages
    that are left out for another reason than room, by id.
    """

    messages: list[PromptMessage] = field(default_factory=list)
    tokens: int = 0
    left_out: bool = False
    gap: int | None = None
    orphans: dict[str, Reason] = field(default_factory=dict)
