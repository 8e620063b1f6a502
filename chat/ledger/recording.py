"""What an answer has cost, and the prompts that it has sent, in one statement."""

from collections.abc import Sequence

from chat.ledger.models import ModelCall
from chat.models import LastPrompt
from chat.models.queries import executed, insert_statement

_PROMPT = "prompt = EXCLUDED.prompt, window_cap = EXCLUDED.window_cap"


def record_calls(calls: Sequence[ModelCall], prompts: Sequence[LastPrompt]) -> None:
    """Stores what an answer has cost, and what was asked last in its conversation in the place of what was before."""
    given = [insert_statement(rows) for rows in (calls, prompts) if rows]
    if not given:
        return
    if prompts:
        statement, bound = given[-1]
        given[-1] = f"{statement} ON CONFLICT (conversation_id, model_id) DO UPDATE SET {_PROMPT}", bound
    first = f"WITH calls AS ({given[0][0]}) " if len(given) > 1 else ""
    with executed(first + given[-1][0], [value for _, values in given for value in values]):
        pass
