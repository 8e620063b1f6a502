"""What providers say of their models, kept beside the rows, which follow it where no admin has set something else."""

import asyncio
import logging
import secrets
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import count as count_from
from typing import Any

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
from llm.discovery.shapes import Facts
from llm.models import Model, Provider
from llm.providers import DEFAULT_BASE_URLS
from llm.services import (
    FOLLOWED,
    LEARNT_IMAGES,
    LEARNT_WINDOW,
    LearntFact,
    clear_learnt_images,
    clear_learnt_window,
    found_of,
    known_of,
    learn_fact,
    new_client,
)
from llm.step_filters.written_calls import parse_calls
from llm.types.model_call import (
    STREAM,
    Message,
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
TRY_TOKENS = 1_024  # a model that reasons does so before it calls
LONGEST_TEST = 30_000  # tokens of a prompt by which an admin tests whether a server reads all of it
TEST_SECONDS = 120.0  # a long prompt takes a small machine a while
TRIED_ON = "tools_tried_on"
TRIED = ToolDefinition("ready", "Says that you are ready.", {"type": "object", "properties": {}})
logger = logging.getLogger(__name__)


def ask(provider: Provider, names: Sequence[str] = ()) -> Discovery:
    """What the provider says of its models and of those with these names. Stores nothing; logs what cannot be."""
    if is_lost(provider.api_key):
        logger.warning("provider %s is not asked about its models: its stored API key cannot be read", provider)
        return Discovery()
    url = provider.base_url.strip() or DEFAULT_BASE_URLS[provider.kind]
    with wait_outside():
        discovery = asyncio.run(discover(provider.kind, url, provider.api_key, names))
    for strange in discovery.strange:
        _log_strange(provider.name, strange)
    return discovery


@lru_cache(maxsize=1_000)
def _log_strange(provider: str, strange: str) -> None:
    logger.warning("provider %s: %s, which cannot be and is not taken", provider, strange)


def read(provider: Provider, *, names: Collection[str] | None = None, trying: bool = False) -> list[Model]:
    """Asks what the provider says of its rows (or of those named) and lets them follow; returns those it spoke of.

    `trying`: models of which nobody knows whether they call tools are asked for one tiny call, which may cost.
    """
    models = list(provider.models.all() if names is None else provider.models.filter(name__in=names))
    discovery = ask(provider, [model.name for model in models]) if models else Discovery()
    spoken_of = []
    for model in models:
        said = dict(discovery.facts.get(model.name, {}))
        if trying and discovery.answered and _untold(model, said) and (tried := try_out(model)) is not None:
            said |= {**tried.facts, TRIED_ON: timezone.localdate().isoformat()}
            for fact in tried.proven:
                learn_fact(model, fact, value=True)
        if said:
            spoken_of.append(_follow(model, said, discovery.source or "one call of a tool"))
    return spoken_of


def _untold(model: Model, said: Facts) -> bool:
    """Whether nobody but an earlier trial says that the model calls tools, or does not; or in which form."""
    if "tools" in model.set_by_hand:
        return model.tools and "written_calls" not in model.set_by_hand
    return not ("tools" in said or ("tools" in known_of(model) and TRIED_ON not in model.found))


@transaction.atomic
def _follow(model: Model, said: Facts, source: str) -> Model:
    """Keeps what was said beside what was said before, and gives the row what no admin has set."""
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    before = row.found
    row.found = before | said | {"source": source}
    row.found_at = timezone.now()
    if before.get("context_window", row.found.get("context_window")) != row.found.get("context_window"):
        clear_learnt_window(row)  # it was learnt from a server that was set up otherwise
    if row.found.get("retires_on") not in (None, before.get("retires_on")):
        logger.warning("model %s of %s retires on %s", row, row.provider, row.found["retires_on"])
    _take(row, [name for name in FOLLOWED if name not in row.set_by_hand])
    return row


def _take(row: Model, names: Collection[str]) -> None:
    values = known_of(row) | found_of(row)
    for name in names:
        if name in values:
            setattr(row, name, values[name])
    changed = [*FOLLOWED, "found", "found_at", *LEARNT_WINDOW, *LEARNT_IMAGES, "set_by_hand"]
    row.save(update_fields=changed)


@transaction.atomic
def take_found(*, user: AbstractUser, model: Model) -> None:
    """What the provider said takes the place of what an admin set or was learnt, and is followed from now on."""
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    found = found_of(row)
    row.set_by_hand = [name for name in row.set_by_hand if name not in found]
    clear_learnt_window(row)
    clear_learnt_images(row)
    _take(row, found)


@dataclass(frozen=True, slots=True)
class Trial:
    """What one small call shows of a model: `facts` of the row, and deviations of its server that it has `proven`."""

    facts: Facts
    proven: tuple[LearntFact, ...] = ()


def try_out(model: Model) -> Trial | None:
    """Whether it calls a tool when it is asked to, in which form, and if it reasons then; None where its server gave no
    answer."""
    words = Message("user", "Call the tool `ready` now, without any arguments. Write nothing else.")
    request = ModelRequest(
        model.name,
        (words,),
        TRY_TOKENS,
        tools=(TRIED,),
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
        # It refuses tools, or does not answer at all.
        return Trial({"tools": False}) if error.code == "bad_model_request" else None
    return _shown(events)


def _shown(events: Sequence[StepEvent]) -> Trial:
    text, proven, kinds = "", list[LearntFact](), {type(event) for event in events}
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, TextBecameReasoning):
            text = ""
            proven.append("untagged_reasoning")
        elif isinstance(event, ParametersLeftOut) and STREAM in event.names:
            proven.append("whole_answers")
    written = ToolCallStarted not in kinds and bool(parse_calls(text, {TRIED.name})[1])
    reasons: Facts = {"reasoning": True} if kinds & {ReasoningDelta, TextBecameReasoning} else {}
    facts = {"tools": written or ToolCallStarted in kinds, "written_calls": written, **reasons}
    return Trial(facts, tuple(proven))


@dataclass(frozen=True, slots=True)
class ReadingTest:
    """What a test of reading has shown, as a sentence; `passed` is None where it could not tell."""

    words: str
    passed: bool | None

    @property
    def level(self) -> int:
        return {True: messages.SUCCESS, False: messages.ERROR, None: messages.WARNING}[self.passed]


def test_reading(model: Model) -> ReadingTest:
    """Ask the model for a word that stands at the beginning of a long prompt; stores nothing.

    A short prompt with another word comes first: a model that does not repeat that proves nothing by the long one.
    Raises `ModelError`.
    """
    count = tokens.tokenizer(model.tokenizer or tokens.CATCH_ALL).count
    room = min(LONGEST_TEST, model.window * 4 // 5 - TRY_TOKENS // 4)
    repeats, _none = _repeats(model, ())
    if not repeats:
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
    repeats, reported = _repeats(model, filler)
    numbers = {"sent": grouped(sent), "reported": grouped(reported)}
    if repeats:
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
    """Return whether the model repeats a word that stood before the filler, and the tokens that it reports."""
    word = "".join(secrets.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(8))
    said = [Message("user", f"The word to remember is {word}. Keep it in mind."), Message("assistant", "I will.")]
    for text in filler:  # as messages of their own, since servers drop whole messages
        said += [Message("user", text), Message("assistant", "Go on.")]
    question = "What is the word that you were told to remember at the very beginning? Answer with that word alone."
    request = ModelRequest(
        model.name,
        (*said, Message("user", question)),
        min(TRY_TOKENS, model.max_output or TRY_TOKENS),
        window=model.window,
        left=TRY_TOKENS,
    )

    provider = model.provider

    async def call() -> tuple[str, int]:
        client, text, reported = new_client(provider), "", 0
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
    """Every day: what all providers that are switched on say now. Costs nothing."""
    for provider in Provider.objects.filter(enabled=True):
        read(provider)


def served_window(model: Model) -> int | None:
    """The window that its server was found to have, in tokens."""
    window: int | None = found_of(model).get("context_window")
    return window


def retirement(model: Model) -> date | None:
    """The day on which its provider takes it away, as last said."""
    day: date | None = found_of(model).get("retires_on")
    return day


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


ABILITIES = {  # whether a model lacks it or has it
    "vision": (gettext_lazy("no vision"), gettext_lazy("vision")),
    "tools": (gettext_lazy("no tools"), gettext_lazy("tools")),
    "reasoning": (gettext_lazy("no reasoning"), gettext_lazy("reasoning")),
    "written_calls": ("", gettext_lazy("tool calls written as text")),
}


def in_words(known: dict[str, Any]) -> str:
    """What is known of a model, by the names of the fields, as a list in a sentence."""
    words = [text.format(known[name]) for name, text in IN_WORDS.items() if known.get(name) is not None]
    if known.get("efforts"):
        words.append(_("efforts of reasoning: %(names)s") % {"names": ", ".join(known["efforts"])})
    abilities = [str(ABILITIES[name][known[name]]) for name in ABILITIES if known.get(name) is not None]
    words += [ability for ability in abilities if ability]
    if known.get("retires_on") is not None:
        words.append(_("to be retired on %(day)s") % {"day": date_format(known["retires_on"])})
    return ", ".join(words)
