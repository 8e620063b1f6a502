"""How much room a tool's result gets when it comes, by what the newest prompt has left."""

from dataclasses import dataclass

SHORTEST = 256  # tokens of a result that is shortened
LARGEST_SHARE = 2  # a result may take this part of the limit, though older messages have to go for it


@dataclass(slots=True)
class ResultRoom:
    """The room for the results of one step, in tokens: what the prompt before has left, or half of its limit.

    `limit` and `left` are those of the report of the call that the step answered.
    """

    limit: int
    left: int
    taken: int = 0

    def of_next(self, waiting: int) -> int:
        """Return the most that the next of `waiting` results may take; what one leaves is for those after it."""
        room = max(self.left, self.limit // LARGEST_SHARE) - self.taken
        return max(room // max(waiting, 1), SHORTEST)

    def may_be_cut(self, tokens: int) -> bool:
        """Whether a result is so long that a later prompt may have to shorten it."""
        return tokens * 8 > self.limit
