"""What providers say of their models, kept beside the rows, which follow it where no admin has set something else."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from core.crypto import is_lost
from core.errors import ModelError
from core.permissions import require_right
from llm.discovery.servers import Discovery, discover
from llm.discovery.shapes import Facts
from llm.models import Model, Provider
from llm.providers import DEFAULT_BASE_URLS
from llm.services import FOLLOWED, LearntFact, found_of, known_of, learn_fact, new_client
from llm.step_filters.written_calls import parse_calls
from llm.types.model_call import (
    STREAM,
    Message,
    ModelRequest,
    ParametersLeftOut,
    ReasoningDelta,
    StepEvent,
    TextBecameReasoning,
    TextDelta,
    ToolCallStarted,
    ToolDefinition,
)

RETIRES_SOON = timedelta(days=30)
TRY_SECONDS = 60.0  # a model may have to be loaded first
TRY_TOKENS = 1_024  # a model that reasons does so before it calls
TRIED_ON = "tools_tried_on"
TRIED = ToolDefinition("ready", "Says that you are ready.", {"type": "object", "properties": {}})
logger = logging.getLogger(__name__)


def ask(provider: Provider, names: Sequence[str] = ()) -> Discovery:
    """What the provider says of its models and of those with these names. Stores nothing; logs what cannot be."""
    if is_lost(provider.api_key):
        logger.warning("provider %s is not asked about its models: its stored API key cannot be read", provider)
        return Discovery()
    url = provider.base_url.strip() or DEFAULT_BASE_URLS[provider.kind]
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
        row.learnt_window = None  # it was learnt from a server that was set up otherwise
    if row.found.get("retires_on") not in (None, before.get("retires_on")):
        logger.warning("model %s of %s retires on %s", row, row.provider, row.found["retires_on"])
    _take(row, [name for name in FOLLOWED if name not in row.set_by_hand])
    return row


def _take(row: Model, names: Collection[str]) -> None:
    values = known_of(row) | found_of(row)
    for name in names:
        if name in values:
            setattr(row, name, values[name])
    changed = [*FOLLOWED, "found", "found_at", "learnt_window", "set_by_hand"]
    row.save(update_fields=changed)


@transaction.atomic
def take_found(*, user: AbstractUser, model: Model) -> None:
    """What the provider said takes the place of what an admin set, and is followed from now on."""
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).select_related("provider").get(pk=model.pk)
    found = found_of(row)
    row.set_by_hand = [name for name in row.set_by_hand if name not in found]
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
        return _shown(asyncio.run(call()))
    except TimeoutError:
        return None
    except ModelError as error:
        # It refuses tools, or does not answer at all.
        return Trial({"tools": False}) if error.code == "bad_model_request" else None


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
