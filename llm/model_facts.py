"""Read the facts that providers report about their models, store them, and test models by small calls.

1. `ask` discovers the facts that a provider reports (`llm.discovery`).
2. `read` stores them in `Model.found`. The row's fields follow them, except fields that an admin has set.
3. `try_out` makes one small call if no source reports whether a model calls tools.
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
TRY_SECONDS = 60.0  # a model may have to be loaded first
TRY_TOKENS = 1_024  # room for reasoning before the call
MAX_TEST = 30_000  # tokens of the prompt of a reading test
TEST_SECONDS = 120.0  # a small machine needs a while for a long prompt
TRIED_ON = "tools_tried_on"
TRIAL_TOOL = ToolDefinition("ready", "Says that you are ready.", {"type": "object", "properties": {}})
logger = logging.getLogger(__name__)


def ask(provider: Provider, names: Sequence[str] = ()) -> Discovery:
    """Return the provider's facts about its models and these names. Stores nothing, and logs impossible values."""
    if is_lost(provider.api_key):
        logger.warning("provider %s is not asked about its models: its stored API key cannot be read", provider)
        return Discovery()
    url = provider.base_url.strip() or DEFAULT_BASE_URLS[provider.kind]
    with wait_outside():
        discovery = asyncio.run(discover(provider.kind, url, provider.api_key, names))
    for problem in discovery.strange:
        _log_strange(provider.name, problem)
    return discovery


@lru_cache(maxsize=1_000)
def _log_strange(provider: str, strange: str) -> None:
    logger.warning("provider %s: %s, which cannot be and is not taken", provider, strange)


def read(provider: Provider, *, names: Collection[str] | None = None, trying: bool = False) -> list[Model]:
    """Ask the provider about all its rows, or the named ones, and update them. Return the updated rows.

    `trying`: if it is unknown whether a model calls tools, it gets one tiny call, which may cost money.
    """
    models = list(provider.models.all() if names is None else provider.models.filter(name__in=names))
    discovery = ask(provider, [model.name for model in models]) if models else Discovery()
    updated = []
    for model in models:
        facts = discovery.facts.get(model.name, ModelFacts()).copy()
        if trying and discovery.answered and _needs_trial(model, facts) and (tried := try_out(model)) is not None:
            facts |= tried.facts
            facts["tools_tried_on"] = timezone.localdate().isoformat()
            for fact in tried.proven:
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
    _use_known(row, [name for name in REPORTABLE_FIELDS if name not in row.set_by_hand])
    return row


def _use_known(row: Model, names: Collection[str]) -> None:
    """Set the named fields to their known values, and save the row."""
    assign_values(row, select_values(known_values(row) | reported_values(row), names))
    changed = [*REPORTABLE_FIELDS, "found", "found_at", *LEARNT_WINDOW, *LEARNT_IMAGES, "set_by_hand"]
    row.save(update_fields=changed)


@transaction.atomic
def take_found(*, user: AbstractUser, model: Model) -> None:
    """Replace values that an admin set or answers taught by the provider's values, and follow these from now on."""
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    values = reported_values(row)
    row.set_by_hand = [name for name in row.set_by_hand if name not in values]
    clear_learnt_window(row)
    clear_learnt_images(row)
    _use_known(row, values)


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """Outcome of one small call: `facts` about the model, and the `proven` deviations of its server."""

    facts: ModelFacts
    proven: tuple[LearntFact, ...] = ()


def try_out(model: Model) -> ToolTrial | None:
    """Ask the model to call a tool.

    Returns whether it does, in which form, and whether it reasons. Returns None without an answer.
    """
    words = ModelMessage("user", "Call the tool `ready` now, without any arguments. Write nothing else.")
    request = ModelRequest(
        model.name,
        (words,),
        TRY_TOKENS,
        tools=(TRIAL_TOOL,),
        window=model.window,
        left=max(1, model.window - TRY_TOKENS),
        streaming=not model.whole_answers,
        untagged_reasoning=model.untagged_reasoning,
    )

    async def call() -> list[StepEvent]:
        client = new_client(model.provider)
        try:
            async with asyncio.timeout(TRY_SECONDS):
                return [event async for event in client.stream(request)]
        finally:
            await client.close()

    try:
        with wait_outside():
            events = asyncio.run(call())
    except TimeoutError:
        return None
    except ModelError as error:
        # The model refuses tools, or its server does not answer at all.
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
    """Outcome of a reading test, as a sentence. `passed` is None if the test was inconclusive."""

    words: str
    passed: bool | None

    @property
    def level(self) -> int:
        return {True: messages.SUCCESS, False: messages.ERROR, None: messages.WARNING}[self.passed]


def test_reading(model: Model) -> ReadingTest:
    """Ask the model for a word at the beginning of a long prompt. Store nothing. Raises `ModelError`.

    A short prompt with another word comes first. If the model cannot repeat that word, the test is inconclusive.
    """
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    room = min(MAX_TEST, model.window * 4 // 5 - TRY_TOKENS // 4)
    repeated, _none = _repeats(model, ())
    if not repeated:
        words = _("It did not repeat a word even from a short prompt, so the test says nothing about what it reads.")
        return ReadingTest(words, None)
    line = "Line {number}: nothing of importance happened on this day at the station, and nobody wrote a word of it."
    filler: list[str] = []
    for block in count_from(1):
        text = "\n".join(line.format(number=block * 40 + number) for number in range(40))
        if sum(map(count, [*filler, text])) > room:
            break
        filler.append(text)
    sent = sum(map(count, filler))
    repeated, reported = _repeats(model, filler)
    numbers = {"sent": grouped(sent), "reported": grouped(reported)}
    if repeated:
        words = _(
            "It repeated a word from the beginning of a prompt of about %(sent)s tokens, so prompts up to that length "
            "are not cut. It reported %(reported)s tokens."
        )
        return ReadingTest(words % numbers, True)
    words = _(
        "It did not repeat a word from the beginning of a prompt of about %(sent)s tokens, though it did from a short "
        "one: its server probably cut the beginning. It reported %(reported)s tokens. Give the server a larger window, "
        "or set this model's window to the server's."
    )
    return ReadingTest(words % numbers, False)


def _repeats(model: Model, filler: Sequence[str]) -> tuple[bool, int]:
    """Return whether the model repeats a word from before the filler, and the tokens that it reports."""
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
        min(TRY_TOKENS, model.max_output or TRY_TOKENS),
        window=model.window,
        left=TRY_TOKENS,
    )

    provider = model.provider

    async def call() -> tuple[str, int]:
        client = new_client(provider)
        text = ""
        reported = 0
        try:
            async with asyncio.timeout(TEST_SECONDS), aclosing(client.stream(request)) as events:
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
            "The model did not answer within {test_seconds} seconds.", test_seconds=f"{TEST_SECONDS:.0f}"
        )
        raise ModelError("provider_timeout", sentence, retryable=True) from error
    return word in text.upper(), reported


def read_all() -> None:
    """Read the current reports of all enabled providers. Runs daily, and costs nothing."""
    for provider in Provider.objects.filter(enabled=True):
        read(provider)


def served_window(model: Model) -> int | None:
    """Return the window that the model's provider reports, in tokens. None if it reports none."""
    return reported_values(model).get("context_window")


def retirement(model: Model) -> date | None:
    """Return the last reported day on which the provider retires the model. None if it reports none."""
    return reported_values(model).get("retires_on")


def retires_soon(model: Model) -> bool:
    day = retirement(model)
    return day is not None and day <= timezone.localdate() + RETIRES_SOON


IN_WORDS = {
    "context_window": gettext_lazy("a window of {:,} tokens"),
    "max_output": gettext_lazy("at most {:,} tokens an answer"),
    "max_images": gettext_lazy("at most {:,} images a prompt"),
    "input_price": gettext_lazy("${:f} a million prompt tokens"),
    "output_price": gettext_lazy("${:f} a million answer tokens"),
    "cached_input_price": gettext_lazy("${:f} a million cached tokens"),
    "cache_write_price": gettext_lazy("${:f} a million tokens written to the cache"),
}


ABILITIES = {  # words for a model that lacks the ability, and for one that has it
    "vision": (gettext_lazy("no vision"), gettext_lazy("vision")),
    "tools": (gettext_lazy("no tools"), gettext_lazy("tools")),
    "reasoning": (gettext_lazy("no reasoning"), gettext_lazy("reasoning")),
    "written_calls": ("", gettext_lazy("tool calls written as text")),
}


def in_words(values: ModelValues) -> str:
    """Return the known values of a model as a list within a sentence."""
    words = [text.format(values.get(name)) for name, text in IN_WORDS.items() if values.get(name) is not None]
    if efforts := values.get("efforts"):
        words.append(_("efforts of reasoning: %(names)s") % {"names": ", ".join(efforts)})
    abilities = [str(pair[bool(values.get(name))]) for name, pair in ABILITIES.items() if values.get(name) is not None]
    words += [ability for ability in abilities if ability]
    if (day := values.get("retires_on")) is not None:
        words.append(_("to be retired on %(day)s") % {"day": date_format(day)})
    return ", ".join(words)
