"""Store the calls of an answer in the ledger, and the prompts that it has sent."""

from collections.abc import Sequence

from chat.ledger.models import ModelCall
from chat.models import LastPrompt


def record_calls(calls: Sequence[ModelCall], prompts: Sequence[LastPrompt]) -> None:
    """Insert the calls of an answer, and insert or replace its last prompt to each model."""
    ModelCall.objects.bulk_create(calls)
    LastPrompt.objects.bulk_create(
        prompts,
        update_conflicts=True,
        unique_fields=["conversation", "model"],
        update_fields=["prompt", "window_cap"],
    )
