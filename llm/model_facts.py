"""Read the facts that providers report about their models, store them, and test models by small calls.

1. `ask_provider` discovers the facts that a provider reports (`llm.discovery`).
2. `update_models` stores them in `Model.found`. The row's fields follow them, except those that an admin has set.
3. `try_model` makes one small call if it is unknown whether a model calls tools.
"""

import asyncio
import logging
import secrets
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import count as count_from

from django.contrib import messages
from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from core.crypto import is_lost
from core.errors import ModelError
from core.i18n import grouped
from core.outside import wait_outside
from core.permissions import require_right
from core.sentences import Sentence
from llm import tokens
from llm.discovery.servers import Discovery, discover
from llm.models import Model, Provider
from llm.providers import DEFAULT_BASE_URLS
from llm.services import (
    LEARNT_IMAGES,
    LEARNT_WINDOW,
    REPORTABLE_FIELDS,
    LearntFact,
    assign_values,
    clear_learnt_images,
    clear_learnt_window,
    known_values,
    learn_fact,
    new_client,
    reported_values,
    select_values,
)
from llm.step_filters.written_calls import parse_calls
from llm.types.facts import ModelFacts, ModelValues
from llm.types.model_call import (
    STREAM,
    ModelMessage,
    ModelRequest,
    ParametersLeftOut,
    ReasoningDelta,
    StepEvent,
    StepFinished,
    TextBecameReasoning,
    TextDelta,
    ToolCallStarted,
    ToolDefinition,
)

RETIRES_SOON = timedelta(days=30)
TRIAL_TIMEOUT = 60.0  # seconds; the model may have to be loaded first
TRIAL_TOKENS = 1_024  # for the answer, with reasoning before the call
MAX_TEST_TOKENS = 30_000  # tokens of the prompt of a reading test
TEST_TIMEOUT = 120.0  # seconds; a small machine is slow with a long prompt
TRIED_ON = "tools_tried_on"
TRIAL_TOOL = ToolDefinition("ready", "Says that you are ready.", {"type": "object", "properties": {}})
logger = logging.getLogger(__name__)


def ask_provider(provider: Provider, names: Sequence[str] = ()) -> Discovery:
    """Return the provider's facts about its models and these names. Store nothing, and log impossible values."""
    if is_lost(provider.api_key):
        logger.warning("provider %s gets no request about its models: its stored API key cannot be read", provider)
        return Discovery()
    url = provider.base_url.strip() or DEFAULT_BASE_URLS[provider.kind]
    with wait_outside():
        discovery = asyncio.run(discover(provider.kind, url, provider.api_key, names))
    for problem in discovery.impossible_values:
        _log_impossible_value(provider.name, problem)
    return discovery


@lru_cache(maxsize=1_000)
def _log_impossible_value(provider: str, problem: str) -> None:
    logger.warning("provider %s: %s, which is impossible and ignored", provider, problem)


def update_models(provider: Provider, *, names: Collection[str] | None = None, try_tools: bool = False) -> list[Model]:
    """Ask the provider about its models, or those with these names, and update their rows. Return the updated rows.

    `try_tools`: if it is unknown whether a model calls tools, it gets one tiny call, which may cost money.
    """
    models = list(provider.models.all() if names is None else provider.models.filter(name__in=names))
    discovery = ask_provider(provider, [model.name for model in models]) if models else Discovery()
    updated = []
    for model in models:
        facts = discovery.facts.get(model.name, ModelFacts()).copy()
        if try_tools and discovery.answered and _needs_trial(model, facts) and (trial := try_model(model)) is not None:
            facts |= trial.facts
            facts["tools_tried_on"] = timezone.localdate().isoformat()
            for fact in trial.proven:
                learn_fact(model, fact, value=True)
        if facts:
            updated.append(_store_facts(model, facts, discovery.source or "one call of a tool"))
    return updated


def _needs_trial(model: Model, facts: ModelFacts) -> bool:
    """Return whether only a trial can show that the model calls tools, or in which form."""
    if "tools" in model.set_by_hand:
        return model.tools and "written_calls" not in model.set_by_hand
    return not ("tools" in facts or ("tools" in known_values(model) and TRIED_ON not in model.found))


@transaction.atomic
def _store_facts(model: Model, facts: ModelFacts, source: str) -> Model:
    """Add these facts to the stored ones, and update the fields that no admin has set."""
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    before = row.found
    row.found = before | facts | {"source": source}
    row.found_at = timezone.now()
    if before.get("context_window", row.found.get("context_window")) != row.found.get("context_window"):
        clear_learnt_window(row)  # it was learnt from the server's earlier configuration
    if row.found.get("retires_on") not in (None, before.get("retires_on")):
        logger.warning("model %s of %s retires on %s", row, row.provider, row.found["retires_on"])
    _apply_known(row, [name for name in REPORTABLE_FIELDS if name not in row.set_by_hand])
    return row


def _apply_known(row: Model, names: Collection[str]) -> None:
    """Set the named fields to their known values, and save the row."""
    assign_values(row, select_values(known_values(row) | reported_values(row), names))
    changed = [*REPORTABLE_FIELDS, "found", "found_at", *LEARNT_WINDOW, *LEARNT_IMAGES, "set_by_hand"]
    row.save(update_fields=changed)


@transaction.atomic
def use_reported_values(*, user: AbstractUser, model: Model) -> None:
    """Replace the values that an admin set, and learnt limits, by the reported ones.

    Later reports update them again.
    """
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    values = reported_values(row)
    row.set_by_hand = [name for name in row.set_by_hand if name not in values]
    clear_learnt_window(row)
    clear_learnt_images(row)
    _apply_known(row, values)


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """Outcome of one small call. `facts`: about the model. `proven`: deviations of its server."""

    facts: ModelFacts
    proven: tuple[LearntFact, ...] = ()


def try_model(model: Model) -> ToolTrial | None:
    """Ask the model to call a tool. Return whether and in which form it does, and whether it reasons.

    None if the model does not answer within `TRIAL_TIMEOUT`.
    """
    message = ModelMessage("user", "Call the tool `ready` now, without any arguments. Write nothing else.")
    request = ModelRequest(
        model.name,
        (message,),
        TRIAL_TOKENS,
        tools=(TRIAL_TOOL,),
        window=model.window,
        remaining=max(1, model.window - TRIAL_TOKENS),
        streaming=not model.whole_answers,
        untagged_reasoning=model.untagged_reasoning,
    )

    async def call() -> list[StepEvent]:
        client = new_client(model.provider)
        try:
            async with asyncio.timeout(TRIAL_TIMEOUT):
                return [event async for event in client.stream(request)]
        finally:
            await client.close()

    try:
        with wait_outside():
            events = asyncio.run(call())
    except TimeoutError:
        return None
    except ModelError as error:
        # Either the model refuses tools, or its server does not answer.
        return ToolTrial({"tools": False}) if error.code == "bad_model_request" else None
    return _evaluate(events)


def _evaluate(events: Sequence[StepEvent]) -> ToolTrial:
    """Return the facts and deviations that the events of a trial show."""
    text = ""
    proven: list[LearntFact] = []
    kinds = {type(event) for event in events}
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, TextBecameReasoning):
            text = ""
            proven.append("untagged_reasoning")
        elif isinstance(event, ParametersLeftOut) and STREAM in event.names:
            proven.append("whole_answers")
    written = ToolCallStarted not in kinds and bool(parse_calls(text, {TRIAL_TOOL.name})[1])
    facts: ModelFacts = {"tools": written or ToolCallStarted in kinds, "written_calls": written}
    if kinds & {ReasoningDelta, TextBecameReasoning}:
        facts["reasoning"] = True
    return ToolTrial(facts, tuple(proven))


@dataclass(frozen=True, slots=True)
class ReadingTest:
    """Outcome of a reading test, with a sentence for people. `passed`: None if the test was inconclusive."""

    sentence: str
    passed: bool | None

    @property
    def level(self) -> int:
        return {True: messages.SUCCESS, False: messages.ERROR, None: messages.WARNING}[self.passed]


def test_reading(model: Model) -> ReadingTest:
    """Ask the model for a word at the beginning of a long prompt. Store nothing. Raises `ModelError`.

    A short prompt with another word comes first. If the model cannot repeat that word, the test is inconclusive.
    """
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    max_tokens = min(MAX_TEST_TOKENS, model.window * 4 // 5 - TRIAL_TOKENS // 4)
    repeated, _none = _ask_for_word(model, ())
    if not repeated:
        sentence = _("It did not repeat a word even from a short prompt, so the test shows nothing about long prompts.")
        return ReadingTest(sentence, None)
    line = "Line {number}: nothing of importance happened on this day at the station, and nobody wrote a word of it."
    filler: list[str] = []
    for block in count_from(1):
        text = "\n".join(line.format(number=block * 40 + number) for number in range(40))
        if sum(map(count, [*filler, text])) > max_tokens:
            break
        filler.append(text)
    sent = sum(map(count, filler))
    repeated, reported = _ask_for_word(model, filler)
    numbers = {"sent": grouped(sent), "reported": grouped(reported)}
    if repeated:
        sentence = _(
            "It repeated a word from the beginning of a prompt of about %(sent)s tokens, so it reads whole prompts up "
            "to that length. It reported %(reported)s tokens."
        )
        return ReadingTest(sentence % numbers, True)
    sentence = _(
        "It did not repeat a word from the beginning of a prompt of about %(sent)s tokens, but it did from a short "
        "prompt. Its server probably cut the beginning. It reported %(reported)s tokens. Give the server a larger "
        "window, or set this model's window to the server's."
    )
    return ReadingTest(sentence % numbers, False)


def _ask_for_word(model: Model, filler: Sequence[str]) -> tuple[bool, int]:
    """Return whether the model repeats a word that stands before the filler, and the tokens that it reports."""
    word = "".join(secrets.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(8))
    history = [
        ModelMessage("user", f"The word to remember is {word}. Keep it in mind."),
        ModelMessage("assistant", "I will."),
    ]
    for text in filler:  # in separate messages, since servers drop whole messages
        history += [ModelMessage("user", text), ModelMessage("assistant", "Go on.")]
    question = "What is the word that you were told to remember at the very beginning? Answer with that word alone."
    request = ModelRequest(
        model.name,
        (*history, ModelMessage("user", question)),
        min(TRIAL_TOKENS, model.max_output or TRIAL_TOKENS),
        window=model.window,
        remaining=TRIAL_TOKENS,
    )

    provider = model.provider

    async def call() -> tuple[str, int]:
        client = new_client(provider)
        text = ""
        reported = 0
        try:
            async with asyncio.timeout(TEST_TIMEOUT), aclosing(client.stream(request)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        text += event.text
                    elif isinstance(event, StepFinished) and event.usage is not None:
                        reported = event.usage.input
        finally:
            await client.close()
        return text, reported

    try:
        with wait_outside():
            text, reported = asyncio.run(call())
    except TimeoutError as error:
        sentence = Sentence(
            "The model did not answer within {test_seconds} seconds.", test_seconds=f"{TEST_TIMEOUT:.0f}"
        )
        raise ModelError("provider_timeout", sentence, retryable=True) from error
    return word in text.upper(), reported


def update_all_models() -> None:
    """Update the models of all enabled providers. Runs daily, and costs nothing."""
    for provider in Provider.objects.filter(enabled=True):
        update_models(provider)


def reported_window(model: Model) -> int | None:
    """Return the window that the model's provider reports, in tokens. None if it reports none."""
    return reported_values(model).get("context_window")


def reported_retirement(model: Model) -> date | None:
    """Return the last reported day on which the provider retires the model. None if it reports none."""
    return reported_values(model).get("retires_on")


def is_retiring_soon(model: Model) -> bool:
    day = reported_retirement(model)
    return day is not None and day <= timezone.localdate() + RETIRES_SOON


VALUE_TEXTS = {
    "context_window": gettext_lazy("a window of {:,} tokens"),
    "max_output": gettext_lazy("at most {:,} tokens per answer"),
    "max_images": gettext_lazy("at most {:,} images per prompt"),
    "input_price": gettext_lazy("${:f} per million prompt tokens"),
    "output_price": gettext_lazy("${:f} per million answer tokens"),
    "cached_input_price": gettext_lazy("${:f} per million cached tokens"),
    "cache_write_price": gettext_lazy("${:f} per million tokens written to the cache"),
}


ABILITY_TEXTS = {  # texts for a model without the ability, and for one with it
    "vision": (gettext_lazy("no vision"), gettext_lazy("vision")),
    "tools": (gettext_lazy("no tools"), gettext_lazy("tools")),
    "reasoning": (gettext_lazy("no reasoning"), gettext_lazy("reasoning")),
    "written_calls": ("", gettext_lazy("tool calls written as text")),
}


def describe_values(values: ModelValues) -> str:
    """Return these values as a list within a sentence."""
    texts = [text.format(values.get(name)) for name, text in VALUE_TEXTS.items() if values.get(name) is not None]
    if efforts := values.get("efforts"):
        texts.append(_("efforts of reasoning: %(names)s") % {"names": ", ".join(efforts)})
    abilities = [
        str(pair[bool(values.get(name))]) for name, pair in ABILITY_TEXTS.items() if values.get(name) is not None
    ]
    texts += [ability for ability in abilities if ability]
    if (day := values.get("retires_on")) is not None:
        texts.append(_("to be retired on %(day)s") % {"day": date_format(day)})
    return ", ".join(texts)
