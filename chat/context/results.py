"""How much room a tool's result gets when it comes, by what the newest prompt has left.

A result that fits goes along whole. One that does not gets half of the room that it would have, so that there is some
to read on in it, and for what the model does next.
"""

from dataclasses import dataclass

from core.sentences import gettext_noop

SHORTEST = 256  # tokens of a result that is shortened
OF_LIMIT = 2  # the results of a step may take this part of the limit, though older messages have to go for them
OF_SHARE = 2  # a result that is shortened takes this part of the room that it would have
OF_NOTE = 8  # a result that takes more than this part of the limit may have to be shortened later

# Sentences for people.
CUT_OFF = gettext_noop(
    "The result of {tool} has {characters} characters. Its first {kept} are kept for the model to read on in; the "
    "others are not."
)
PARTIAL = gettext_noop("{tool} received only the beginning of what it opened; the rest is not in its result.")
NOT_KEPT = gettext_noop(
    "The whole result of {tool} could not be kept, so that the model cannot read on in it. It has {characters} "
    "characters."
)
NOT_TAKEN = gettext_noop("The database did not take the result of a tool. Try again later.")


@dataclass(slots=True)
class ResultRoom:
    """The room for the results of one step, in tokens: what the prompt before has left, or half of its limit.

    `limit` and `left` are those of the report of the call that asked for them.
    """

    limit: int
    left: int
    taken: int = 0

    def of_next(self, waiting: int) -> int:
        """Return the most that the next of `waiting` results may take; what one leaves is for those after it."""
        room = max(self.left, self.limit // OF_LIMIT) - self.taken
        return max(room // max(waiting, 1), SHORTEST)

    @staticmethod
    def of_shortened(share: int) -> int:
        """Return what a result gets that is longer than its share."""
        return max(share // OF_SHARE, SHORTEST)

    def may_be_cut(self, tokens: int) -> bool:
        """Whether a result is so long that a later prompt may have to shorten it."""
        return tokens * OF_NOTE > self.limit
