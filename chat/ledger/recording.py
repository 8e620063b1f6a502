"""Stores the model calls of an answer and the prompts that it sent, in one statement."""

from collections.abc import Sequence

from chat.ledger.models import ModelCall
from chat.models import LastPrompt
from chat.models.queries import executed, insert_statement

_PROMPT = "prompt = EXCLUDED.prompt, window_cap = EXCLUDED.window_cap"


def record_calls(calls: Sequence[ModelCall], prompts: Sequence[LastPrompt]) -> None:
    """Insert the calls of an answer, and insert or replace the last prompts of its conversation by model."""
    inserts = [insert_statement(rows) for rows in (calls, prompts) if rows]
    if not inserts:
        return
    if prompts:
        statement, parameters = inserts[-1]
        inserts[-1] = f"{statement} ON CONFLICT (conversation_id, model_id) DO UPDATE SET {_PROMPT}", parameters
    first = f"WITH calls AS ({inserts[0][0]}) " if len(inserts) > 1 else ""
    with executed(first + inserts[-1][0], [value for _, parameters in inserts for value in parameters]):
        pass
