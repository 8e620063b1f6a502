"""Decide when to summarise, which messages to summarise, and how long the summary may be.

See docs/develop/context.md, “Summaries”.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from chat.context.types import floored

SHORTEST_SUMMARY = 256
CEILING_SHARE = Decimal("0.65")
FLOOR_SHARE = Decimal("0.25")
# Shares of a summary's budget, oldest part first.
SECTION_SHARES = {
    "Earlier": Decimal("0.10"),
    "This month": Decimal("0.15"),
    "Today": Decimal("0.30"),
    "Now": Decimal("0.45"),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the next prompt, in tokens.

    Above `ceiling` a summary is due. It brings the prompt down to about `floor`. The newest `keep_recent` user messages
    and final answers stay verbatim.
    """

    ceiling: int
    floor: int
    keep_recent: int = 8


def bounds_by_share(
    limit: int,
    fixed: int,
    ceiling_share: Decimal = CEILING_SHARE,
    floor_share: Decimal = FLOOR_SHARE,
    keep_recent: int = 8,
) -> Bounds:
    """Return bounds that are `fixed` plus a share of the rest (`limit` minus `fixed`).

    `limit` is the input limit before the tools; `fixed` includes the tools. Shares of the whole limit would cause a
    summary after every turn of a large project.
    """
    left = max(0, limit - fixed)
    return Bounds(fixed + floored(left, ceiling_share), fixed + floored(left, floor_share), keep_recent)


@dataclass(frozen=True, slots=True)
class SummaryMessage:
    """A message after the last one that a summary covers. `tokens` is its final size in the prompt."""

    id: str
    role: str
    tokens: int
    has_tool_calls: bool = False

    @property
    def counts(self) -> bool:
        """Return whether `keep_recent` counts this message: a user message or a final answer."""
        return self.role == "user" or (self.role == "assistant" and not self.has_tool_calls)


@dataclass(frozen=True, slots=True)
class SummaryPlan:
    """The messages to summarise and to keep, as ids, oldest first.

    `summary_tokens` is the budget of the summary. `after` is the size of the next prompt, in tokens.
    """

    summarise: list[str]
    keep: list[str]
    summary_tokens: int
    after: int
    floor_reached: bool


def plan_summary(messages: Sequence[SummaryMessage], bounds: Bounds, *, used: int, fixed: int) -> SummaryPlan | None:
    """Return the plan of a summary, or None if none is due or no message is older than the tail that stays.

    `used` are the tokens of the next prompt without a new question. `fixed` are the tokens of S, K, CA, P, L, R, the
    tools and the pinned turns, which are not among `messages`. `is_due` distinguishes the two cases of None.
    """
    if not is_due(bounds, used):
        return None
    starts = _tail_turns(messages, bounds.keep_recent)
    first = starts[0] if starts else 0
    tail = sum(message.tokens for message in messages[first:])
    for later in starts[1:]:
        # A prompt above the midpoint of floor and ceiling would soon need the next summary.
        if 2 * (_summary_tokens(bounds, fixed, tail) + tail + fixed) <= bounds.floor + bounds.ceiling:
            break
        tail -= sum(message.tokens for message in messages[first:later])
        first = later
    if first == 0:
        return None
    summary = _summary_tokens(bounds, fixed, tail)
    return SummaryPlan(
        summarise=[message.id for message in messages[:first]],
        keep=[message.id for message in messages[first:]],
        summary_tokens=summary,
        after=summary + tail + fixed,
        floor_reached=summary + tail + fixed <= bounds.floor,
    )


def is_due(bounds: Bounds, used: int) -> bool:
    """Return whether a prompt of `used` tokens is above the ceiling."""
    return used > bounds.ceiling


def _summary_tokens(bounds: Bounds, fixed: int, tail: int) -> int:
    return max(SHORTEST_SUMMARY, bounds.floor - fixed - tail)


def _tail_turns(messages: Sequence[SummaryMessage], keep_recent: int) -> list[int]:
    """Return the indexes at which the turns of the tail start.

    The tail consists of the turns with the newest `keep_recent` messages, at least the last turn. Turns are not split,
    so the tail starts with a question. Messages before the first user message form a turn of their own.
    """
    starts = [index for index, message in enumerate(messages) if index == 0 or message.role == "user"]
    counting = [index for index, message in enumerate(messages) if message.counts]
    if not keep_recent:
        return starts[-1:]
    oldest = counting[-keep_recent] if keep_recent <= len(counting) else 0
    first = max((start for start in starts if start <= oldest), default=0)
    return [start for start in starts if start >= first]
