"""What a policy gives back: the part of the older turns that is sent."""

from dataclasses import dataclass, field

from chat.context.types import PromptMessage, Reason


@dataclass(slots=True)
class History:
    """`messages` oldest first; `left_out` says whether any older message is not among them for want of room.

    `gap` is the index of the turn that ended the walk because it did not fit, None if none did. `orphans`: messages
    that are left out for another reason than room, by id.
    """

    messages: list[PromptMessage] = field(default_factory=list)
    left_out: bool = False
    gap: int | None = None
    orphans: dict[str, Reason] = field(default_factory=dict)
