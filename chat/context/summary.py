"""When to summarise, what, and how long the summary may be (docs/develop/context.md, “Summaries”)."""

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
    """Tokens of the next prompt: above `ceiling` a summary is due, which brings it down to about `floor`.

    The newest `keep_recent` user messages and final answers stay verbatim.
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
    """Shares of what `fixed` leaves of `limit` (the input limit before the tools, which `fixed` holds), on top of it.

    Shares of the limit itself would have a large project followed by a summary after every turn.
    """
    left = max(0, limit - fixed)
    return Bounds(fixed + floored(left, ceiling_share), fixed + floored(left, floor_share), keep_recent)


@dataclass(frozen=True, slots=True)
class SummaryMessage:
    """A message after the last one a summary covers. `tokens` is final: nothing is added and nothing stubbed."""

    id: str
    role: str
    tokens: int
    has_tool_calls: bool = False

    @property
    def counts(self) -> bool:
        """Whether it is one of the messages that stay verbatim: a user message or a final answer."""
        return self.role == "user" or (self.role == "assistant" and not self.has_tool_calls)


@dataclass(frozen=True, slots=True)
class SummaryPlan:
    """`summarise` and `keep` are message ids, oldest first; `after` is the size of the next prompt, in tokens."""

    summarise: list[str]
    keep: list[str]
    summary_tokens: int
    after: int
    floor_reached: bool


def plan_summary(messages: Sequence[SummaryMessage], bounds: Bounds, *, used: int, fixed: int) -> SummaryPlan | None:
    """The plan where the next prompt would have `used` tokens, without a new question; `fixed` are those of S, K, CA,
    P, L, R, the tools and the pinned turns, which are not among `messages`.

    None when nothing is due or there is nothing older than what stays (`is_due` tells which).
    """
    if not is_due(bounds, used):
        return None
    starts = _tail_turns(messages, bounds.keep_recent)
    first = starts[0] if starts else 0
    tail = sum(message.tokens for message in messages[first:])
    for later in starts[1:]:
        # Above the midpoint of floor and ceiling the next summary would be due at once.
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
    return used > bounds.ceiling


def _summary_tokens(bounds: Bounds, fixed: int, tail: int) -> int:
    return max(SHORTEST_SUMMARY, bounds.floor - fixed - tail)


def _tail_turns(messages: Sequence[SummaryMessage], keep_recent: int) -> list[int]:
    """Where the turns of the tail start: those that hold the newest `keep_recent` messages, at least the last one.

    Whole turns, so the tail starts with a question. What precedes the first user message is a turn of its own.
    """
    starts = [index for index, message in enumerate(messages) if index == 0 or message.role == "user"]
    counting = [index for index, message in enumerate(messages) if message.counts]
    if not keep_recent:
        return starts[-1:]
    oldest = counting[-keep_recent] if keep_recent <= len(counting) else 0
    first = max((start for start in starts if start <= oldest), default=0)
    return [start for start in starts if start >= first]
