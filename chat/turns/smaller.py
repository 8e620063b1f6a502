"""Send a shorter prompt after the provider has refused one (“Send less”).

A refusal with an unknown reason may mean that the prompt is too long. So that a conversation is never stuck, the second
such refusal offers to send less.
"""

from chat.models import Message, Turn
from core.errors import ProductError

UNKNOWN_REFUSALS = 2  # in one conversation, until sending less is offered
PROMPT_DIVISOR = 2  # the divisor: the next prompt has at most half the tokens of the refused one
MIN_TOKENS = 256  # tokens


def offers_send_less(turn: Turn, answer: Message) -> bool:
    """Return whether the prompt was refused and the model might answer a shorter one."""
    if turn.status != Turn.Status.FAILED or not turn.context_used or turn.context_used <= MIN_TOKENS:
        return False
    if answer.error_code == "context_too_long":
        return True  # the provider also refused the shorter prompts of this turn
    if answer.error_code != "bad_model_request":
        return False
    earlier = Turn.objects.filter(
        conversation_id=turn.conversation_id,
        status=Turn.Status.FAILED,
        answer__error_code="bad_model_request",
        pk__lte=turn.pk,
    )
    return earlier[:UNKNOWN_REFUSALS].count() >= UNKNOWN_REFUSALS


def smaller_prompt_limit(question: Message) -> int:
    """Return the limit in tokens for the next prompt of a question, after its person chose to send less."""
    turns = Turn.objects.filter(user_message=question, context_used__gt=0).order_by("-id")
    used = turns.values_list("context_used", flat=True).first()
    if not used:
        raise ProductError(
            "nothing_to_shorten", "No prompt was sent for this question yet, so none can be shortened. Try again."
        )
    return max(MIN_TOKENS, used // PROMPT_DIVISOR)
