"""Make the product's own model calls, such as for a title or a summary, and store them in the ledger.

`ask` makes one call:

1. It tries the model's reasoning efforts, the lowest first, until the model accepts one.
2. It counts the prompt and stores a row of the ledger with this count, before anything is sent.
3. It streams the answer, at most `longest` characters of it.
4. It replaces the count in the row by the provider's figures. A refused call is removed from the ledger.
5. It checks whether the server has truncated the prompt. If that is only suspected and the call was cheap, it calls the
   model once more.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from accounts.access.rights import billing_group
from chat.ledger.models import ModelCall
from chat.models import Conversation
from chat.models.conversation_state import scope_of
from core.background import on_database, run_to_completion, with_retries
from core.errors import ModelError
from llm import tokens
from llm.learning import check_truncation, learn_refused_window, names_window
from llm.models import Model
from llm.models.provider import UNSPECIFIED
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

NO_USAGE = Usage(0, 0)
MAX_REASONING_LENGTH = 20_000  # characters of reasoning that comes as text, without an opening tag
CHEAP_TOKENS = 1_000  # tokens; a call below this is repeated if truncation is only suspected


@dataclass(slots=True)
class OwnAnswer:
    """Answer of a model to one of the product's own calls.

    `usage` is the provider's report, or zeros without a report. `ended`: the model ended the answer by itself.
    `unread`: the server has proven that it did not read the whole prompt, so the answer must not be used.
    """

    text: str = ""
    cut_off: bool = False
    ended: bool = False
    usage: Usage = NO_USAGE
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Billing:
    """Attribution of a model call: the user, the purpose and the work that it is billed to.

    `person`: id of the user; None for a call by a command. `reading`: id of the reading of a whole file that the call
    belongs to. `token`: id of the API token with which a program started the work.
    """

    conversation: Conversation | None
    purpose: ModelCall.Purpose
    person: UUID | None
    reading: UUID | None = None
    token: UUID | None = None


async def ask(
    model: Model, request: ModelRequest, billing: Billing, *, longest: int, patience: float | None = None
) -> OwnAnswer:
    """Ask the model, and cut its answer off after `longest` characters.

    The model reasons with the lowest effort that it accepts, since these calls are not worth more. The accepted effort
    is remembered. If the server reports too few tokens for a cheap call, the model is asked once more, and the second
    answer counts. `patience` as in `llm.services.shared_client`. Raises `core.errors.ModelError`.
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
            answer = await _ask_and_check(model, with_effort, billing, longest=longest, patience=patience)
        except ModelError as error:
            if error.code != "bad_model_request" or number == len(efforts) - 1:
                raise
            continue
        if number:
            await on_database(partial(learn_fact, model, "own_effort", value=effort or UNSPECIFIED))
        return answer
    raise AssertionError("the last effort returns or raises")


async def _ask_and_check(
    model: Model, request: ModelRequest, billing: Billing, *, longest: int, patience: float | None
) -> OwnAnswer:
    """Ask the model, and once more if the server reports too few tokens for a cheap call."""
    counted = await on_database(_count_prompt, model, request)
    request = replace(request, counted=counted)
    answer = await _ask_once(model, request, billing, longest, patience)
    truncation = await _check_truncation(model, request, counted, answer)
    if isinstance(truncation, TruncationSuspicion) and _count_call(model, counted, answer) < CHEAP_TOKENS:
        answer = await _ask_once(model, request, billing, longest, patience)
        truncation = await _check_truncation(model, request, counted, answer)
    answer.unread = isinstance(truncation, Truncation)
    return answer


async def _ask_once(
    model: Model, request: ModelRequest, billing: Billing, longest: int, patience: float | None
) -> OwnAnswer:
    answer = OwnAnswer()
    refused = False
    counted = request.counted or 0
    row = await on_database(_store_call, model, counted, billing)
    try:
        async with aclosing(shared_client(model.provider, patience).stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    answer.text += event.text
                elif isinstance(event, TextBecameReasoning):
                    answer.text = ""
                    await on_database(partial(learn_fact, model, "untagged_reasoning", value=True))
                elif isinstance(event, ParametersLeftOut) and STREAM in event.names:
                    await on_database(partial(learn_fact, model, "whole_answers", value=True))
                elif isinstance(event, StepFinished):
                    answer.ended = event.reason == "stop"
                    answer.cut_off = not answer.ended
                    answer.usage = event.usage or answer.usage
                # The text may turn out to be reasoning, which is longer than an answer.
                if len(answer.text) > longest + MAX_REASONING_LENGTH:
                    answer.cut_off = True
                    break
    except ModelError as error:
        refused = not answer.text
        if error.code == "context_too_long" and names_window(error, counted, request.max_output or 0):
            await on_database(learn_refused_window, model, error, counted)  # later prompts are planned for this window
        raise
    finally:
        settle = partial(row.delete) if refused else partial(_settle, row, model, counted, answer)
        await run_to_completion(with_retries(settle))  # also after a time-out, since the provider has read the prompt
    if len(answer.text) > longest:
        answer.text = answer.text[:longest]
        answer.cut_off = True
    return answer


async def _check_truncation(
    model: Model, request: ModelRequest, counted: int, answer: OwnAnswer
) -> Truncation | TruncationSuspicion | None:
    texts = [message.text for message in request.messages]
    is_plain = not any(message.images for message in request.messages)
    sent = SentTokens(counted, plain=is_plain, scripts=script_shares(texts))
    return (await check_truncation(model, sent, answer.usage))[0]


def _count_call(model: Model, counted: int, answer: OwnAnswer) -> int:
    """Return the tokens of the prompt and the answer together, by our count."""
    return counted + (answer.usage.output or tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count(answer.text))


def _count_prompt(model: Model, request: ModelRequest) -> int:
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    return sum(count(message.text) for message in request.messages)


def _store_call(model: Model, counted: int, billing: Billing) -> ModelCall:
    """Store the row of a call before the call is made, so that the ledger has it even if the worker is killed."""
    scope = scope_of(billing.conversation) if billing.conversation is not None else None
    row = ModelCall.of(
        model,
        NO_USAGE,
        Usage(counted, 0),
        purpose=billing.purpose,
        person_id=billing.person,
        group_id=billing_group(billing.person) if billing.person is not None else None,
        reading_id=billing.reading,
        token_id=billing.token,
        conversation_id=billing.conversation.pk if billing.conversation is not None else None,
        project=scope.project if scope else None,
        persona=scope.persona if scope else None,
    )
    row.save(force_insert=True)
    return row


def _settle(row: ModelCall, model: Model, counted: int, answer: OwnAnswer) -> None:
    """Replace our count in the row by the provider's figures."""
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    row.set_usage(model, answer.usage, Usage(counted, count(answer.text)))
    row.save(force_update=True, update_fields=ModelCall.USED)
