"""What the product itself asks a model, as for a title or a summary: one call, written down in the ledger."""

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from accounts.access.rights import counted_to
from chat.ledger.models import ModelCall
from chat.models import Conversation
from chat.models.conversation_state import scope_of
from core.background import completed, on_database, persistently
from core.errors import ModelError
from llm import tokens
from llm.learning import check_truncation, learn_refused_window, names_the_window
from llm.models import Model
from llm.models.provider import UNSAID
from llm.services import learn_fact, shared_client
from llm.truncation import SentTokens, Truncation, TruncationSuspicion, script_shares
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
CHEAP = 1_000  # tokens; a call that costs less is made again on a mere suspicion


@dataclass(slots=True)
class Said:
    """What a model has answered; `usage` as the provider reports it, zeros where it does not.

    `ended`: it came to its end by itself. `unread`: its server has proven not to have read the whole prompt, so what it
    has written stands for nothing.
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
    effort is asked with the next one, then without any; what it takes is remembered. Where the server reports oddly few
    tokens of a small prompt, it is asked once more, and the second answer counts.
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
        with_effort = replace(request, sampling=replace(request.sampling, reasoning_effort=effort))
        try:
            said = await _ask_and_check(model, with_effort, charge, longest=longest, patience=patience)
        except ModelError as error:
            if error.code != "bad_model_request" or number == len(efforts) - 1:
                raise
            continue
        if number:
            await on_database(partial(learn_fact, model, "own_effort", value=effort or UNSAID))
        return said
    raise AssertionError("there is always an effort to ask with")


async def _ask_and_check(
    model: Model, request: ModelRequest, charge: Charge, *, longest: int, patience: float | None
) -> Said:
    """Ask, and once more where the server reports oddly few tokens of a cheap prompt."""
    counted = await on_database(_counted, model, request)
    request = replace(request, counted=counted)
    said = await _ask_once(model, request, charge, longest, patience)
    seen = await _compare(model, request, counted, said)
    if isinstance(seen, TruncationSuspicion) and _cost(model, counted, said) < CHEAP:
        said = await _ask_once(model, request, charge, longest, patience)
        seen = await _compare(model, request, counted, said)
    said.unread = isinstance(seen, Truncation)
    return said


async def _ask_once(model: Model, request: ModelRequest, charge: Charge, longest: int, patience: float | None) -> Said:
    said, refused, counted = Said(), False, request.counted or 0
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
    except ModelError as error:
        refused = not said.text
        answer = request.max_output or 0
        if error.code == "context_too_long" and names_the_window(error, counted, answer):
            await on_database(learn_refused_window, model, error, counted)  # the next prompt is planned for it
        raise
    finally:
        settle = partial(row.delete) if refused else partial(_settle, row, model, counted, said)
        await completed(persistently(settle))  # also when time is up: the provider has read the prompt
    if len(said.text) > longest:
        said.text, said.cut_off = said.text[:longest], True
    return said


async def _compare(
    model: Model, request: ModelRequest, counted: int, said: Said
) -> Truncation | TruncationSuspicion | None:
    texts = [message.text for message in request.messages]
    plain = not any(message.images for message in request.messages)
    sent = SentTokens(counted, plain=plain, scripts=script_shares(texts))
    return (await check_truncation(model, sent, said.usage))[0]


def _cost(model: Model, counted: int, said: Said) -> int:
    """Return the tokens of a call by our count, prompt and answer."""
    return counted + (said.usage.output or tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count(said.text))


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
