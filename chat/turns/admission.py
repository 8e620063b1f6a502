"""Whether a person may have something answered now, and what is set aside of their limits for it."""

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from audit.origin import origin
from chat.models import Conversation
from chat.models.conversation_state import require_persona, require_room
from chat.models.queries import Standing
from chat.usage.limits import require_within, turns_at_once
from files.models import File
from files.services import tokens_of
from llm.models import Model
from llm.types.model_call import Usage
from personas.services import rules_at

CHARACTERS_PER_TOKEN = 3  # of a rough count that rather says too much; what was used is counted when it is


class Admitted(NamedTuple):
    """A model that may answer; whether it waits in its person's own line first (`chat.turns.line`); the API token with
    which a program asks; tokens and US dollars that are set aside until it has answered, None where no limit holds, or
    it has no price."""

    model: Model
    waits: bool = False
    token: UUID | None = None
    tokens: int | None = None
    cost: Decimal | None = None


def admit(
    conversation: Conversation, found: Standing, models: Sequence[Model], given: int, token: UUID | None = None
) -> list[Admitted]:
    """For `begin_answers`, in its transaction, with what `chat.models.queries` locks locked.

    `given`: the tokens of what is asked, see `tokens_given`. `token`: with which it was asked, where that was in
    another request. Raises `persona_lost` (403), `too_many_answers` and `limit_reached` (429).
    """
    require_persona(conversation, found)
    most = turns_at_once(conversation.owner_id, found.version)
    require_room(found, len(models), most)
    room = len(models) if most is None else max(0, most - found.live)
    token = token or origin().token_id
    if not require_within(conversation.owner_id, token, found.version, len(models)):
        return [Admitted(model, place >= room, token) for place, model in enumerate(models)]
    given += found.sent_before
    answer = rules_at(found.version).profile_of(None).reserved_output
    return [
        Admitted(model, place >= room, token, *_taken(model, given, min(answer, model.max_output or answer)))
        for place, model in enumerate(models)
    ]


def tokens_given(text: str, files: Sequence[File] = ()) -> int:
    return len(text) // CHARACTERS_PER_TOKEN + sum(tokens_of(file=file) or 0 for file in files)


def _taken(model: Model, prompt: int, answer: int) -> tuple[int, Decimal | None]:
    """Tokens and US dollars."""
    prompt = min(prompt, model.window)
    return prompt + answer, model.prices.cost(Usage(prompt, answer)) if model.prices is not None else None
