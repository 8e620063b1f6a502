"""Admit a question: check the user's limits, and reserve the tokens and money that its answers may use."""

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from chat.ledger.limits import PlannedPrompt, max_live_turns, require_prompt_within, require_within_limits
from chat.models import Conversation
from chat.models.conversation_state import ConversationStatus, require_persona, require_room, scope_of
from core.audit.origin import current_origin
from files.models import File
from files.services import get_token_count
from llm.models import Model
from llm.types.model_call import Usage
from personas.models import Persona
from personas.services import Rules, rules_at

CHARACTERS_PER_TOKEN = 3  # for an estimate that tends to be too high
MAX_CHARACTERS_PER_TOKEN = 5  # for an estimate that tends to be too low, so that no question is refused wrongly
OVERHEAD = 4  # tokens of a message in addition to its text


class AdmittedModel(NamedTuple):
    """A model that may answer.

    `waits`: its turn first waits in the user's own queue (`chat.turns.line`). `token`: the API token of the program
    that asks. `tokens` and `cost` (US dollars) are reserved until it has answered; None if no limit applies, or no
    price is known. `prompt_cap`: the most tokens that its prompt may take, if the user asked to send less.
    """

    model: Model
    waits: bool = False
    token: UUID | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    prompt_cap: int | None = None


def admit(
    conversation: Conversation,
    status: ConversationStatus,
    models: Sequence[Model],
    question: "QuestionTokens",
    token: UUID | None = None,
) -> list[AdmittedModel]:
    """Return the models that may answer a question, for `begin_answers`.

    Call it in the transaction of `begin_answers`, with a `status` that was read after the lock. `token` is the
    API token of the question, if it was asked in an earlier request. Raises `persona_lost` (403), `too_many_answers`
    and `limit_reached` (429). The last is also raised if the prompt alone exceeds the rest of a limit.
    """
    require_persona(conversation, status)
    most = max_live_turns(conversation.owner_id, status.version)
    require_room(status, len(models), most)
    room = len(models) if most is None else max(0, most - status.live)
    token = token or current_origin().token_id
    limits = require_within_limits(conversation.owner_id, token, status.version, len(models))
    if not limits:
        return [AdmittedModel(model, place >= room, token) for place, model in enumerate(models)]
    persona = conversation.persona or scope_of(conversation).persona
    rules = rules_at(status.version)
    answer = rules.profile_for(persona).reserved_output
    least = question.at_least + (status.sent_before or _instruction_tokens(rules, persona))
    for model in models:
        require_prompt_within(limits, _planned_prompt(model, least))
    most = question.at_most + status.sent_before
    return [
        AdmittedModel(model, place >= room, token, *_reservation(model, most, min(answer, model.max_output or answer)))
        for place, model in enumerate(models)
    ]


class QuestionTokens(NamedTuple):
    """Estimates of the tokens of a question with its files, by the length of its text."""

    at_least: int = 0
    at_most: int = 0


def estimate_question(text: str, files: Sequence[File] = ()) -> QuestionTokens:
    attached = sum(get_token_count(file=file) or 0 for file in files)
    least = -(-len(text) // MAX_CHARACTERS_PER_TOKEN)
    return QuestionTokens(least + attached, len(text) // CHARACTERS_PER_TOKEN + attached)


def _instruction_tokens(rules: Rules, persona: Persona | None) -> int:
    """Return the least tokens of the first prompt of a conversation, without its question."""
    texts = [rules.system_prompt.text if rules.system_prompt else "", persona.instructions if persona else ""]
    return sum(len(text) // MAX_CHARACTERS_PER_TOKEN for text in texts) + OVERHEAD


def _planned_prompt(model: Model, tokens: int) -> PlannedPrompt:
    tokens = min(tokens, model.window)
    return PlannedPrompt(tokens, model.prices.cost(Usage(tokens, 0)) if model.prices is not None else None)


def _reservation(model: Model, prompt: int, answer: int) -> tuple[int, Decimal | None]:
    """Return the tokens and US dollars to reserve."""
    prompt = min(prompt, model.window)
    return prompt + answer, model.prices.cost(Usage(prompt, answer)) if model.prices is not None else None
