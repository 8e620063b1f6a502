"""What the product itself asks a model, as for a title or a summary: one call, written down in the ledger."""

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from accounts.access.rights import counted_to
from chat.models import Conversation, ModelCall
from chat.models.conversation_state import scope_of
from core.background import completed, on_database, persistently
from core.errors import ModelError
from llm import tokens
from llm.models import Model
from llm.models.provider import UNSAID
from llm.services import Sent, held_against, learn_fact, shared_client
from llm.types.model_call import (
    STREAM,
    ModelRequest,
    ParametersLeftOut,
    StepFinished,
    TextBecameReasoning,
    TextDelta,
    Usage,
)

NOTHING = Usage(0, 0)
LONGEST_REASONING = 20_000  # characters of reasoning that stands in the text without an opening tag


@dataclass(slots=True)
class Said:
    """What a model has answered; `usage` as the provider reports it, zeros where it does not.

    `ended`: it came to its end by itself. `unread`: its server did not read the whole prompt, so what it has written
    stands for nothing.
    """

    text: str = ""
    cut_off: bool = False
    ended: bool = False
    usage: Usage = NOTHING
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Charge:
    """As what a call is written down, and whose it is: `person` is an id, None where a command makes it; `conversation`
    is None where it is for none. `reading` is the id of the one that it is a part of; `token` that of the API token
    with which a program began what the call is made for."""

    conversation: Conversation | None
    purpose: ModelCall.Purpose
    person: UUID | None
    reading: UUID | None = None
    token: UUID | None = None


async def ask(
    model: Model, request: ModelRequest, charge: Charge, *, longest: int, patience: float | None = None
) -> Said:
    """Asks the model; an answer of more than `longest` characters is cut off.

    It reasons as little as it can be told to: what is asked here is not worth more. A model that refuses the least
    effort is asked with the next one, then without any; what it takes is remembered.
    `patience` as in `llm.services.shared_client`. Raises `core.errors.ModelError`.
    """
    efforts = model.own_efforts
    request = replace(
        request,
        streaming=not model.whole_answers,
        written_calls=False,
        untagged_reasoning=model.untagged_reasoning,
    )
    for number, effort in enumerate(efforts):
        asked = replace(request, sampling=replace(request.sampling, reasoning_effort=effort))
        try:
            said = await _ask_once(model, asked, charge, longest=longest, patience=patience)
        except ModelError as error:
            if error.code != "bad_model_request" or number == len(efforts) - 1:
                raise
            continue
        if number:
            await on_database(partial(learn_fact, model, "own_effort", value=effort or UNSAID))
        return said
    raise AssertionError("there is always an effort to ask with")


async def _ask_once(
    model: Model, request: ModelRequest, charge: Charge, *, longest: int, patience: float | None
) -> Said:
    said, refused = Said(), False
    counted = await on_database(_counted, model, request)
    row = await on_database(_begun, model, counted, charge)
    try:
        async with aclosing(shared_client(model.provider, patience).stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    said.text += event.text
                elif isinstance(event, TextBecameReasoning):
                    said.text = ""
                    await on_database(partial(learn_fact, model, "untagged_reasoning", value=True))
                elif isinstance(event, ParametersLeftOut) and STREAM in event.names:
                    await on_database(partial(learn_fact, model, "whole_answers", value=True))
                elif isinstance(event, StepFinished):
                    said.ended = event.reason == "stop"
                    said.cut_off = not said.ended
                    said.usage = event.usage or said.usage
                # Text may turn out to be reasoning, which is longer than what is asked for.
                if len(said.text) > longest + LONGEST_REASONING:
                    said.cut_off = True
                    break
    except ModelError:
        refused = not said.text
        raise
    finally:
        settle = partial(row.delete) if refused else partial(_settle, row, model, counted, said)
        await completed(persistently(settle))  # also when time is up: the provider has read the prompt
    sent = Sent(counted, plain=not any(each.images for each in request.messages))
    said.unread = await held_against(model, sent, said.usage.input) is not None
    if len(said.text) > longest:
        said.text, said.cut_off = said.text[:longest], True
    return said


def _counted(model: Model, request: ModelRequest) -> int:
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    return sum(count(message.text) for message in request.messages)


def _begun(model: Model, counted: int, charge: Charge) -> ModelCall:
    """The row of a call that is about to be made, as far as it is known: a worker that is killed has asked all the
    same."""
    scope = scope_of(charge.conversation) if charge.conversation is not None else None
    row = ModelCall.of(
        model,
        NOTHING,
        Usage(counted, 0),
        purpose=charge.purpose,
        person_id=charge.person,
        group_id=counted_to(charge.person) if charge.person is not None else None,
        reading_id=charge.reading,
        token_id=charge.token,
        conversation=charge.conversation,
        project=scope.project if scope else None,
        persona=scope.persona if scope else None,
    )
    row.save(force_insert=True)
    return row


def _settle(row: ModelCall, model: Model, counted: int, said: Said) -> None:
    """What the call has come to takes the place of what was known before it."""
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    row.used(model, said.usage, Usage(counted, count(said.text)))
    row.save(force_update=True, update_fields=ModelCall.USED)
