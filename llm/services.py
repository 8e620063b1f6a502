"""Every change to providers and models, and the shared provider clients."""

import asyncio
import copy
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from audit.services import record, record_saved, stored
from core.background import on_database
from core.errors import ModelError, ProductError, invalid_setting
from core.locks import lock
from core.outside import wait_outside
from core.permissions import require_right, require_store
from llm.known_models import efforts_of, images_of, suggest
from llm.models import UNKNOWN_WINDOW, Model, Provider
from llm.providers import DEFAULT_BASE_URLS, create
from llm.types.model_call import CacheRule
from llm.types.model_call import Provider as ProviderClient
from workspace.models.version import Kept

DEFAULT_LOCK = "default model"  # two admins choosing a default at once choose one after the other
# What `fill_from_known` can fill, and what stands there when nothing is known.
UNKNOWN: dict[str, Any] = {
    "context_window": UNKNOWN_WINDOW,
    "max_output": None,
    "max_images": None,
    "input_price": None,
    "output_price": None,
    "cached_input_price": None,
    "cache_write_price": None,
    "vision": False,
    "tools": False,
    "reasoning": False,
    "efforts": [],
    "written_calls": False,
}
FOLLOWED = (*UNKNOWN, "retires_on")  # what a provider can say of a model
RATIO_BOUNDS = (0.5, 2.0)
RATIO_TRUSTED = 5  # answers from which a learnt ratio replaces what is assumed of unknown tokenizers
RATIO_MEMORY = 20  # samples; later ones move the ratio by at least a twentieth, so that it follows a change

logger = logging.getLogger(__name__)

Said = TypeVar("Said")


def new_client(provider: Provider, silence: float | None = None) -> ProviderClient:
    """`silence`: seconds after which a call without a byte is given up, where that is not the provider's own."""
    return create(
        provider.protocol,
        base_url=provider.base_url,
        api_key=provider.api_key,
        silence_timeout=silence or provider.silence_timeout,
    )


# What each provider keeps, by its own pages; sizes in tokens by the names of models, the least where a name is unknown.
OPENAI_POINTS = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)")
ANTHROPIC_LEAST = (
    (re.compile(r"opus-5|sonnet-5[.-]5|haiku-5[.-]5"), 512),
    (re.compile(r"sonnet-[45]|opus-4[.-]8"), 1_024),
)
ANTHROPIC = CacheRule(least=4_096, points="any", reach=20, kept=300, settings=True, told=True)
OF_KIND = {
    Provider.Kind.RESPONSES: CacheRule(step=128, told=True),
    Provider.Kind.OPENAI: CacheRule(step=128),
    Provider.Kind.OLLAMA: CacheRule(step=128),
}


def cache_rule(model: Model) -> CacheRule:
    """What the model's provider serves from its cache. Of a server that nobody knows: what OpenAI's older models do."""
    name, protocol = model.name.lower(), model.provider.protocol
    if protocol == Provider.Kind.ANTHROPIC:
        known = (least for pattern, least in ANTHROPIC_LEAST if pattern.search(name))
        return replace(ANTHROPIC, least=next(known, ANTHROPIC.least))
    if protocol == Provider.Kind.RESPONSES and OPENAI_POINTS.search(name):
        return CacheRule(points="user", kept=1_800, told=True)
    if "deepseek" in name:
        return CacheRule(least=64, step=64)
    return OF_KIND[Provider.Kind(protocol)]


def _all_models() -> dict[UUID, Model]:
    return {row.pk: row for row in Model.objects.select_related("provider").order_by("-default", "created")}


_models = Kept(_all_models)


def usable_models(version: UUID | None = None) -> list[Model]:
    """With their providers, the default first, as administrators had set them at this version of the workspace or
    later.

    Not to be changed, nor planned with: what they have learnt (`workspace.models.version`) may be older.
    """
    return [row for row in _models.at(version).values() if row.usable]


def model_at(version: UUID | None, pk: UUID, learnt: Mapping[str, Any]) -> Model | None:
    """As `usable_models`, usable or not; a row of the caller's own, with what it has `learnt` by now."""
    kept = _models.at(version).get(pk)
    if kept is None:
        return None
    model = copy.copy(kept)
    for name, value in learnt.items():
        setattr(model, name, value)
    return model


_clients: dict[tuple[str, str, str, type[str], float], ProviderClient] = {}


def shared_client(provider: Provider, patience: float | None = None) -> ProviderClient:
    """The process's one client for these connection settings; building one costs about 15 ms.

    `patience`: seconds; a provider that is silent for longer is given up earlier than its row says. To be used on the
    event loop of `core.background` only: its connections belong to that loop.
    """
    silence = min(provider.silence_timeout, patience or provider.silence_timeout)
    # A lost key is empty, and of a type of its own.
    key = (provider.kind, provider.base_url, provider.api_key, type(provider.api_key), silence)
    if key not in _clients:
        _clients[key] = new_client(provider, silence)
    return _clients[key]


# A model whose provider was not available is passed over for a while, so that not every answer waits for it first. Each
# worker finds that out, and forgets it, by itself.
PASSED_OVER = 30.0  # seconds, unless the provider says how long
PATIENCE = 40.0  # seconds of silence; titles and summaries have 60 and 110 in all, of which a fallback needs some
LONGEST_PASSED_OVER = 300.0  # seconds, whatever it says
MAX_FALLBACKS = 3  # models asked in a first one's place, one after the other
_OF_ADMINS = ("bad_credentials", "secret_lost", "quota_exhausted")  # nobody else can mend these
_outages: dict[UUID, tuple[float, ModelError]] = {}  # by model: until when, on the monotonic clock, and why


def note_outage(model: Model, error: ModelError) -> None:
    """The model was asked and could not be had; for a while its fallback is asked at once."""
    seconds = min(LONGEST_PASSED_OVER, max(PASSED_OVER, error.retry_after or 0))
    _outages[model.pk] = (time.monotonic() + seconds, error)
    level = logging.ERROR if error.code in _OF_ADMINS else logging.WARNING
    logger.log(level, "the provider of %s is not available: %s", model, error.code)


def outage_of(model: Model) -> ModelError | None:
    """Why the model was not to be had just now; None when that is over, or never was."""
    until, error = _outages.get(model.pk, (0.0, None))
    if error is not None and until <= time.monotonic():
        del _outages[model.pk]
        return None
    return error


def available(model: Model, after: Model | None = None, allowed: Collection[UUID] | None = None) -> Model | None:
    """The model to ask: the first of this one and its fallbacks that is not known to be out, else the first of all.

    `after`: of those behind this one, which has just failed; None when there is none. Fallbacks that are switched off,
    or not among the ids that are `allowed`, are passed over.
    """
    if after is None and outage_of(model) is None:
        return model
    rows = [model, *(each for each in _fallbacks(model) if allowed is None or each.pk in allowed)]
    if after is not None:
        rows = rows[rows.index(after) + 1 :] if after in rows else []
    return next((row for row in rows if outage_of(row) is None), rows[0] if rows else None)


async def with_fallbacks(
    model: Model, ask: Callable[[Model, float | None], Awaitable[Said]], allowed: Collection[UUID] | None = None
) -> Said:
    """What `ask` returns of the model or, where that is not available, of a fallback, of those that are `allowed` as in
    `available`. Raises the last one's error.

    `ask` also gets the seconds of silence after which the next one is to be asked; None where there is none.
    """
    asked = await on_database(available, model, None, allowed) or model
    while True:
        following = await on_database(available, model, asked, allowed)
        try:
            return await ask(asked, PATIENCE if following is not None else None)
        except ModelError as error:
            if error.unavailable:
                note_outage(asked, error)
            if following is None or not error.unavailable:
                raise
            asked = following


def _fallbacks(model: Model) -> list[Model]:
    found: list[Model] = []
    followed, known = model.fallback_id, {model.pk}
    while followed is not None and followed not in known and len(found) < MAX_FALLBACKS:
        known.add(followed)
        row = Model.objects.select_related("provider").filter(pk=followed).first()
        if row is None:
            break  # deleted in this very moment
        if row.enabled and row.provider.enabled:
            found.append(row)
        followed = row.fallback_id
    return found


def test_connection(*, provider: Provider) -> list[str]:
    """The model names that the endpoint offers. Raises `ModelError`."""

    async def ask() -> list[str]:
        client = new_client(provider)
        try:
            async with asyncio.timeout(15):
                return await client.list_models()
        except TimeoutError as error:
            raise ModelError(
                "provider_timeout", "The provider did not answer within 15 seconds.", retryable=True
            ) from error
        finally:
            await client.close()

    with wait_outside():
        return asyncio.run(ask())


@transaction.atomic
def set_default_model(*, user: AbstractUser | None = None, model: Model) -> None:
    require_right(user, "change", model)
    lock(DEFAULT_LOCK)
    Model.objects.filter(default=True).exclude(pk=model.pk).update(default=False)
    Model.objects.filter(pk=model.pk).update(default=True)
    model.default = True
    record(user=user, action="model.made_default", row=model, name=str(model))


@transaction.atomic
def set_fallback(*, user: AbstractUser | None = None, model: Model, fallback: Model | None) -> None:
    """Raises `invalid_setting` where the model would be its own fallback."""
    require_right(user, "change", model)
    model.fallback = fallback
    _check(model)
    model.save(update_fields=["fallback"])
    said = {"fallback": None if fallback is None else str(fallback.pk)}
    record(user=user, action="model.fallback_chosen", row=model, name=str(model), changes=said)


@transaction.atomic
def store_provider(*, user: AbstractUser, provider: Provider, api_key: str | None) -> None:
    """Stores a row as an administrator's form left it. `api_key` None keeps the stored one, an empty one clears it."""
    require_store(user, provider)
    if api_key is not None:
        provider.api_key = api_key
    before = stored(provider)
    provider.save()
    record_saved(user=user, kind="provider", row=provider, before=before, name=provider.name)


@transaction.atomic
def store_model(
    *, user: AbstractUser, model: Model, typed: Collection[str] = (), left_empty: Collection[str] = ()
) -> dict[str, Any]:
    """Stores a row as an administrator's form left it; returns what `fill_from_known` found for the empty fields.

    What was `typed` stays from now on, whatever the provider says; what was left empty follows it. A limit that is
    typed or emptied takes the place of a learnt one.
    """
    require_store(user, model)
    model.set_by_hand = sorted({*model.set_by_hand, *typed} & UNKNOWN.keys() - {*left_empty})
    model.learnt_on = {name: day for name, day in model.learnt_on.items() if name not in typed}
    if {"provider", "name"} & {*typed}:  # it is another model now
        model.found, model.found_at, model.retires_on = {}, None, None
        clear_learnt_window(model)
        clear_learnt_images(model)
    if "context_window" in {*typed, *left_empty}:
        clear_learnt_window(model)
    if "max_images" in typed:
        clear_learnt_images(model)
    found = fill_from_known(model, left_empty)
    before = stored(model)
    model.save()
    record_saved(user=user, kind="model", row=model, before=before, name=str(model))
    return found


def known_of(model: Model) -> dict[str, Any]:
    """The fields of `UNKNOWN` that are known of a model: what its provider said, else by its name and address."""
    provider = model.provider
    known = suggest(provider.kind, model.name, base_url=provider.base_url)
    values = {name: getattr(known, "window" if name == "context_window" else name, None) for name in UNKNOWN}
    values["efforts"] = efforts_of(model.name) or None
    values["max_images"] = images_of(provider.base_url or DEFAULT_BASE_URLS[provider.kind])
    return {name: value for name, value in (values | found_of(model)).items() if value is not None}


def found_of(model: Model) -> dict[str, Any]:
    """What its provider said of a model, as the fields' values."""
    fields = {field.name: field for field in Model._meta.fields}
    return {name: fields[name].to_python(model.found[name]) for name in FOLLOWED if name in model.found}


def fill_from_known(model: Model, names: Collection[str]) -> dict[str, Any]:
    """Sets the named fields (of `UNKNOWN`) to what is known of the model; returns those that are known."""
    known = known_of(model) if names else {}
    for name in names:
        setattr(model, name, known.get(name, UNKNOWN[name]))
    return {name: known[name] for name in names if name in known}


@transaction.atomic
def save_provider(
    *,
    name: str,
    kind: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    models: Sequence[tuple[str, int | None]] = (),
    default: bool = False,
) -> Provider:
    """Creates or updates a provider and its models by name; `models` are (name, window in tokens or None).

    Idempotent. What is None stays as it is stored; a new provider is OpenAI's, at its own address, and switched on.
    `default` makes the first of `models` the workspace's default. Raises `invalid_setting` for what the rows cannot
    hold.
    """
    if default and not models:
        raise ProductError("no_model", "Name at least one model to make it the default.")
    options = {"kind": kind, "base_url": base_url, "api_key": api_key}
    changes = {option: value for option, value in options.items() if value is not None}
    before = Provider.objects.filter(name=name).first()
    _check(Provider(name=name, **({"kind": before.kind, "base_url": before.base_url} if before else {}) | changes))
    provider, _ = Provider.objects.update_or_create(name=name, defaults=changes)
    record_saved(user=None, kind="provider", row=provider, before=before, name=name)
    for number, (model_name, window) in enumerate(models):
        model = save_model(provider=provider, name=model_name, window=window)
        if default and number == 0:
            set_default_model(model=model)
    return provider


@transaction.atomic
def save_model(
    *,
    user: AbstractUser | None = None,
    provider: Provider,
    name: str,
    window: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Model:
    """Creates a model with what is known of it, or updates its window and these other fields of `UNKNOWN`.

    An unknown window is 4,096 tokens. What is given here stays, whatever the provider says, and takes the place of what
    was learnt.
    """
    model = Model.objects.filter(provider=provider, name=name).first()
    if model is None:
        model = Model(provider=provider, name=name)
        fill_from_known(model, UNKNOWN)
    require_store(user, model)
    typed = dict(settings or {}) | ({} if window is None else {"context_window": window})
    for field, value in typed.items():
        setattr(model, field, value)
    if "context_window" in typed:
        clear_learnt_window(model)
    if "max_images" in typed:
        clear_learnt_images(model)
    model.set_by_hand = sorted({*model.set_by_hand, *typed})
    model.enabled = True
    _check(model)
    before = stored(model)
    model.save()
    record_saved(user=user, kind="model", row=model, before=before, name=str(model))
    return model


def _check(row: Provider | Model) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise invalid_setting(error.message_dict, str(row) or "The name") from error


# What answers prove of how a server deviates from its protocol, and the value of a row for which nothing is proven.
LearntFact = Literal["whole_answers", "untagged_reasoning", "own_effort"]
LEARNT_FACTS = ("whole_answers", "untagged_reasoning", "own_effort", "learnt_on")


@transaction.atomic
def learn_fact(model: Model, fact: LearntFact, value: bool | str) -> None:
    """Stores what an answer has proven of its model, with the day. An administrator sees it, and can take it back."""
    row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
    if row is None:
        return
    learnt_on = {**row.learnt_on, fact: timezone.localdate().isoformat()}
    if learnt_on != row.learnt_on or fact == "own_effort":  # the same again changes nothing
        Model.objects.filter(pk=model.pk).update(**{fact: value, "learnt_on": learnt_on})
    model.refresh_from_db(fields=[fact, "learnt_on"])


@transaction.atomic
def learn_ratio(*, model: Model, counted: int, reported: int) -> None:
    """Move the model's ratio of reported to counted prompt tokens towards this answer's, within bounds.

    The row is locked and read again, so that answers side by side keep each other's samples.
    """
    if counted < 100 or reported <= 0:
        return  # small prompts say more about overhead than about the tokenizer
    row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
    if row is None:
        return
    low, high = RATIO_BOUNDS
    sample = min(high, max(low, reported / counted))
    weight = 1.0 / min(row.ratio_samples + 1, RATIO_MEMORY)
    row.token_ratio += (sample - row.token_ratio) * weight
    row.ratio_samples += 1
    row.save(update_fields=["token_ratio", "ratio_samples"])
    model.token_ratio, model.ratio_samples = row.token_ratio, row.ratio_samples


# Of what is learnt of a model's limits, see `llm.learning`.
LEARNT_WINDOW = ("learnt_window", "window_evidence", "reported_counts")
LEARNT_IMAGES = ("learnt_max_images", "images_evidence")


def clear_learnt_window(model: Model) -> None:
    """Clear the window that was learnt and the counts that it could be learnt from, in memory."""
    model.learnt_window, model.window_evidence, model.reported_counts = None, {}, {}


def clear_learnt_images(model: Model) -> None:
    model.learnt_max_images, model.images_evidence = None, {}


def clear_learnt_facts(model: Model) -> None:
    """Clear what answers have taught of a server's deviations, in memory."""
    if "whole_answers" in model.learnt_on:
        model.whole_answers = False
    if "untagged_reasoning" in model.learnt_on:
        model.untagged_reasoning = False
    if "own_effort" in model.learnt_on:
        model.own_effort = ""
    model.learnt_on = {}
