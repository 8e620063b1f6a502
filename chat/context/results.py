"""Divide the room that the newest prompt left free among the tool results of a step.

A result that fits is sent whole. A longer one gets half of its share. The other half stays free, so that the model can
read more of the result and make its next calls. The rule: docs/develop/context.md, “The room”.
"""

from dataclasses import dataclass

from core.sentences import gettext_noop

SHORTEST = 256  # tokens; no result is shortened further
LIMIT_DIVISOR = 2  # the results of a step may take half of the limit, even if older messages must go for them
SHORTENED_DIVISOR = 2  # a shortened result takes half of its share
LONG_DIVISOR = 8  # a later prompt may have to shorten a result of more than an eighth of the limit

# Sentences for users.
CUT_OFF = gettext_noop(
    "The result of {tool} has {characters} characters. The first {kept} are stored, and the model can read "
    "them in parts. The rest is not stored."
)
PARTIAL = gettext_noop("{tool} received only the beginning of what it opened; the rest is not in its result.")
NOT_KEPT = gettext_noop(
    "The whole result of {tool} could not be stored, so the model cannot read more of it. It has {characters}"
    " characters."
)
NOT_TAKEN = gettext_noop("The database did not store the result of a tool. Try again later.")


@dataclass(slots=True)
class ResultRoom:
    """The room for the results of one step, in tokens: what the previous prompt left, at least half of its limit.

    `limit` and `left` come from the report of the model call that requested the tools. `used` counts the tokens of the
    step's earlier results.
    """

    limit: int
    left: int
    used: int = 0

    def share_of_next(self, waiting: int) -> int:
        """Return the most tokens that the next of `waiting` results may take. Later results share what it leaves."""
        room = max(self.left, self.limit // LIMIT_DIVISOR) - self.used
        return max(room // max(waiting, 1), SHORTEST)

    @staticmethod
    def limit_of_shortened(share: int) -> int:
        """Return the number of tokens to which a result with this share is shortened."""
        return max(share // SHORTENED_DIVISOR, SHORTEST)

    def may_be_cut(self, tokens: int) -> bool:
        """Return whether a result is so long that a later prompt may have to shorten it."""
        return tokens * LONG_DIVISOR > self.limit
