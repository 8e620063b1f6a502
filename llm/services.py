"""Change providers and models, and share their clients.

* Clients: `new_client`, `shared_client`.
* Models as of a version of the workspace: `usable_models`, `model_at`.
* Fallbacks of models whose provider is not available: `first_available`, `with_fallbacks`.
* Changes by forms of administrators: `save_provider_form`, `save_model_form`.
* Changes by name, from commands and the setup: `upsert_provider`, `upsert_model`.
* Known and learnt facts about a model: `known_values`, `reported_values`, `learn_fact`, `learn_ratio`.
"""

import asyncio
import copy
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, TypeVar, cast
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from core.audit.services import load_stored, record, record_saved
from core.background import on_database
from core.errors import ModelError, ProductError, invalid_setting
from core.locks import lock
from core.outside import wait_outside
from core.permissions import require_right, require_store
from llm.known_models import can_chat_by_name, efforts_of, known_image_limit, suggest
from llm.models import UNKNOWN_WINDOW, Model, Provider
from llm.providers import DEFAULT_BASE_URLS, create_client
from llm.truncation import ReportedCountsJson
from llm.types.facts import ModelValues
from llm.types.model_call import CacheRule, ProviderClient
from workspace.models.version import VersionedCache

DEFAULT_LOCK = "default model"  # serialises changes of the default model
# Fields that `fill_from_known` can fill, with their values for an unknown model.
UNKNOWN_MODEL_VALUES: ModelValues = {
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
REPORTABLE_FIELDS = (*UNKNOWN_MODEL_VALUES, "retires_on")  # fields that a provider can report
RATIO_BOUNDS = (0.5, 2.0)
MIN_TRUSTED_SAMPLES = 5  # answers after which a learnt ratio replaces the default for unknown tokenizers
RATIO_WINDOW = 20  # samples; each later sample has the weight 1 / 20, so the ratio follows changes

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class LearntValues(TypedDict, total=False):
    """Fields of a model that are learnt from its answers, as they were read together with a turn."""

    token_ratio: float
    ratio_samples: int
    reported_counts: ReportedCountsJson


def new_client(provider: Provider, silence_timeout: float | None = None) -> ProviderClient:
    """Return a new client of a provider. `silence_timeout`: overrides the provider's own timeout, in seconds."""
    return create_client(
        provider.protocol,
        base_url=provider.base_url,
        api_key=provider.api_key,
        silence_timeout=silence_timeout or provider.silence_timeout,
    )


# Cache rules, from the providers' documentation. Sizes are in tokens, by model name.
OPENAI_BREAKPOINT_MODELS = re.compile(r"gpt-(?:5\.(?:[6-9]|\d\d)|[6-9]|\d\d)")
ANTHROPIC_MIN_CACHE_TOKENS = (
    (re.compile(r"opus-5|sonnet-5[.-]5|haiku-5[.-]5"), 512),
    (re.compile(r"sonnet-[45]|opus-4[.-]8"), 1_024),
)
ANTHROPIC_CACHE_RULE = CacheRule(
    min_tokens=4_096, points="any", lookback_blocks=20, lifetime=300, depends_on_settings=True, reports_usage=True
)
CACHE_RULES = {
    Provider.Kind.RESPONSES: CacheRule(granularity=128, reports_usage=True),
    Provider.Kind.OPENAI: CacheRule(granularity=128),
    Provider.Kind.OLLAMA: CacheRule(granularity=128),
}


def cache_rule(model: Model) -> CacheRule:
    """Return the cache rule of the model's provider. An unknown server has the rule of OpenAI's older models."""
    name = model.name.lower()
    protocol = model.provider.protocol
    if protocol == Provider.Kind.ANTHROPIC:
        sizes = (least for pattern, least in ANTHROPIC_MIN_CACHE_TOKENS if pattern.search(name))
        return replace(ANTHROPIC_CACHE_RULE, min_tokens=next(sizes, ANTHROPIC_CACHE_RULE.min_tokens))
    if protocol == Provider.Kind.RESPONSES and OPENAI_BREAKPOINT_MODELS.search(name):
        return CacheRule(points="user", lifetime=1_800, reports_usage=True)
    if "deepseek" in name:
        return CacheRule(min_tokens=64, granularity=64)
    return CACHE_RULES[Provider.Kind(protocol)]


def _all_models() -> dict[UUID, Model]:
    return {row.pk: row for row in Model.objects.select_related("provider").order_by("-default", "created")}


_models = VersionedCache(_all_models)


def usable_models(version: UUID | None = None) -> list[Model]:
    """Return the usable models with their providers, the default first, as of this version of the workspace or later.

    The rows are shared: do not change them. Their learnt values may be old, so do not plan with them
    (`workspace.models.version`).
    """
    return [row for row in _models.get(version).values() if row.usable]


def model_at(version: UUID | None, pk: UUID, learnt: LearntValues) -> Model | None:
    """Return a copy of the model as of this version or later, usable or not, with these newer learnt values."""
    cached = _models.get(version).get(pk)
    if cached is None:
        return None
    model = copy.copy(cached)
    if "token_ratio" in learnt:
        model.token_ratio = learnt["token_ratio"]
    if "ratio_samples" in learnt:
        model.ratio_samples = learnt["ratio_samples"]
    if "reported_counts" in learnt:
        model.reported_counts = learnt["reported_counts"]
    return model


_clients: dict[tuple[str, str, str, type[str], float], ProviderClient] = {}


def shared_client(provider: Provider, silence_timeout: float | None = None) -> ProviderClient:
    """Return the process's client for these connection settings. Building one costs about 15 ms.

    Use it only on the event loop of `core.background`, since its connections belong to that loop. `silence_timeout`:
    seconds without a byte after which a call fails, if shorter than the provider's own timeout.
    """
    silence_timeout = min(provider.silence_timeout, silence_timeout or provider.silence_timeout)
    # A lost key is an empty text of a special type.
    key = (provider.kind, provider.base_url, provider.api_key, type(provider.api_key), silence_timeout)
    if key not in _clients:
        _clients[key] = new_client(provider, silence_timeout)
    return _clients[key]


# A model whose provider was unavailable is skipped for a while, so that not every answer waits for it. Each worker
# process remembers outages separately.
OUTAGE_SECONDS = 30.0  # unless the provider sends a longer time
MAX_OUTAGE_SECONDS = 300.0
SILENCE_TIMEOUT = 40.0  # seconds; titles may take 60 s and summaries 110 s, including a fallback
MAX_FALLBACKS = 3  # models that are tried after the first one
_ADMIN_FIXABLE_CODES = ("bad_credentials", "secret_lost", "quota_exhausted")
_outages: dict[UUID, tuple[float, ModelError]] = {}  # by model: end on the monotonic clock, and the error


def note_outage(model: Model, error: ModelError) -> None:
    """Remember that the model was not available. For a while its fallback is called at once."""
    seconds = min(MAX_OUTAGE_SECONDS, max(OUTAGE_SECONDS, error.retry_after or 0))
    _outages[model.pk] = (time.monotonic() + seconds, error)
    level = logging.ERROR if error.code in _ADMIN_FIXABLE_CODES else logging.WARNING
    logger.log(level, "the provider of %s is not available: %s", model, error.code)


def current_outage(model: Model) -> ModelError | None:
    """Return the error of the model's outage. None without a current outage."""
    until, error = _outages.get(model.pk, (0.0, None))
    if error is not None and until <= time.monotonic():
        del _outages[model.pk]
        return None
    return error


def first_available(model: Model, after: Model | None = None, allowed: Collection[UUID] | None = None) -> Model | None:
    """Return the first of the model and its fallbacks that has no outage. If all have one, return the first.

    `after`: the model that has just failed. Only the models after it count; None is returned if there are none.
    `allowed`: ids of models. Other fallbacks, and fallbacks that are switched off, are skipped.
    """
    if after is None and current_outage(model) is None:
        return model
    candidates = [
        model,
        *(fallback for fallback in _usable_fallbacks(model) if allowed is None or fallback.pk in allowed),
    ]
    if after is not None:
        candidates = candidates[candidates.index(after) + 1 :] if after in candidates else []
    return next(
        (candidate for candidate in candidates if current_outage(candidate) is None),
        candidates[0] if candidates else None,
    )


async def with_fallbacks(
    model: Model, ask: Callable[[Model, float | None], Awaitable[Answer]], allowed: Collection[UUID] | None = None
) -> Answer:
    """Call `ask` with the model, then with its fallbacks while providers are unavailable. Return the answer.

    `allowed`: see `first_available`. `ask` also gets the seconds of silence after which the next model is called; None
    for the last model. Raises the error of the last called model.
    """
    current = await on_database(first_available, model, None, allowed) or model
    while True:
        next_model = await on_database(first_available, model, current, allowed)
        try:
            return await ask(current, SILENCE_TIMEOUT if next_model is not None else None)
        except ModelError as error:
            if error.unavailable:
                note_outage(current, error)
            if next_model is None or not error.unavailable:
                raise
            current = next_model


def _usable_fallbacks(model: Model) -> list[Model]:
    """Return the usable fallbacks of a model, in the order in which they are called."""
    fallbacks: list[Model] = []
    fallback_id = model.fallback_id
    visited = {model.pk}
    while fallback_id is not None and fallback_id not in visited and len(fallbacks) < MAX_FALLBACKS:
        visited.add(fallback_id)
        row = Model.objects.select_related("provider").filter(pk=fallback_id).first()
        if row is None:
            break  # just deleted
        if row.enabled and row.provider.enabled:
            fallbacks.append(row)
        fallback_id = row.fallback_id
    return fallbacks


def test_connection(*, provider: Provider) -> list[str]:
    """Return the names of the models that the provider offers. Raises `ModelError`, also after 15 seconds."""

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
    """Make a model the workspace's default."""
    require_right(user, "change", model)
    lock(DEFAULT_LOCK)
    Model.objects.filter(default=True).exclude(pk=model.pk).update(default=False)
    Model.objects.filter(pk=model.pk).update(default=True)
    model.default = True
    record(user=user, action="model.made_default", row=model, name=str(model))


@transaction.atomic
def set_fallback(*, user: AbstractUser | None = None, model: Model, fallback: Model | None) -> None:
    """Set the fallback of a model. Raises `invalid_setting` if the model would be its own fallback."""
    require_right(user, "change", model)
    model.fallback = fallback
    _validate(model)
    model.save(update_fields=["fallback"])
    changes = {"fallback": None if fallback is None else str(fallback.pk)}
    record(user=user, action="model.fallback_chosen", row=model, name=str(model), changes=changes)


@transaction.atomic
def save_provider_form(*, user: AbstractUser, provider: Provider, api_key: str | None) -> None:
    """Store the row of an administrator's form. `api_key`: None keeps the stored key, an empty text removes it.

    Raises `staff_only` and `right_missing`.
    """
    require_store(user, provider)
    if api_key is not None:
        provider.api_key = api_key
    before = load_stored(provider)
    provider.save()
    record_saved(user=user, kind="provider", row=provider, before=before, name=provider.name)


@transaction.atomic
def save_model_form(
    *, user: AbstractUser, model: Model, typed: Collection[str] = (), left_empty: Collection[str] = ()
) -> ModelValues:
    """Store the row of an administrator's form. Return the values that `fill_from_known` set in the empty fields.

    Fields in `typed` no longer follow the provider's reports, fields in `left_empty` follow them again. A typed or
    emptied window, and a typed limit of images, replace the learnt one.
    """
    require_store(user, model)
    model.set_by_hand = sorted({*model.set_by_hand, *typed} & UNKNOWN_MODEL_VALUES.keys() - {*left_empty})
    model.learnt_on = {name: day for name, day in model.learnt_on.items() if name not in typed}
    if {"provider", "name"} & {*typed}:  # the row is for another model now
        model.found = {}
        model.found_at = None
        model.retires_on = None
        clear_learnt_window(model)
        clear_learnt_images(model)
    if "context_window" in {*typed, *left_empty}:
        clear_learnt_window(model)
    if "max_images" in typed:
        clear_learnt_images(model)
    filled = fill_from_known(model, left_empty)
    before = load_stored(model)
    model.save()
    record_saved(user=user, kind="model", row=model, before=before, name=str(model))
    return filled


def known_values(model: Model) -> ModelValues:
    """Return the known values of a model: those that its provider reported, else those of its name and address."""
    provider = model.provider
    values: dict[str, object] = {
        "efforts": efforts_of(model.name) or None,
        "max_images": known_image_limit(provider.base_url or DEFAULT_BASE_URLS[provider.kind]),
    }
    suggestion = suggest(provider.kind, model.name, base_url=provider.base_url)
    if suggestion is not None:
        values |= {
            "context_window": suggestion.window,
            "max_output": suggestion.max_output,
            "input_price": suggestion.input_price,
            "output_price": suggestion.output_price,
            "cached_input_price": suggestion.cached_input_price,
            "cache_write_price": suggestion.cache_write_price,
            "vision": suggestion.vision,
            "tools": suggestion.tools,
            "reasoning": suggestion.reasoning,
        }
    values |= reported_values(model)
    return cast("ModelValues", {name: value for name, value in values.items() if value is not None})


def is_chat_model(model: Model) -> bool:
    """Return whether the model can chat, by its provider's report or else by its name."""
    reported = model.found.get("chat")
    return can_chat_by_name(model.name) if reported is None else bool(reported)


def reported_values(model: Model) -> ModelValues:
    """Return the values that the model's provider has reported."""
    fields = {field.name: field for field in Model._meta.fields}
    values = {name: fields[name].to_python(model.found[name]) for name in REPORTABLE_FIELDS if name in model.found}
    return cast("ModelValues", values)


def select_values(values: ModelValues, names: Collection[str]) -> ModelValues:
    """Return the values with these names."""
    return cast("ModelValues", {name: value for name, value in values.items() if name in names})


def assign_values(model: Model, values: ModelValues) -> None:
    """Set these fields of a model, in memory."""
    if "context_window" in values:
        model.context_window = values["context_window"]
    if "max_output" in values:
        model.max_output = values["max_output"]
    if "max_images" in values:
        model.max_images = values["max_images"]
    if "retires_on" in values:
        model.retires_on = values["retires_on"]
    _assign_abilities(model, values)
    _assign_prices(model, values)


def _assign_abilities(model: Model, values: ModelValues) -> None:
    if "vision" in values:
        model.vision = values["vision"]
    if "tools" in values:
        model.tools = values["tools"]
    if "reasoning" in values:
        model.reasoning = values["reasoning"]
    if "efforts" in values:
        model.efforts = list(values["efforts"])
    if "written_calls" in values:
        model.written_calls = values["written_calls"]


def _assign_prices(model: Model, values: ModelValues) -> None:
    if "input_price" in values:
        model.input_price = values["input_price"]
    if "output_price" in values:
        model.output_price = values["output_price"]
    if "cached_input_price" in values:
        model.cached_input_price = values["cached_input_price"]
    if "cache_write_price" in values:
        model.cache_write_price = values["cache_write_price"]


def fill_from_known(model: Model, names: Collection[str]) -> ModelValues:
    """Set these fields of `UNKNOWN_MODEL_VALUES` to the known values of the model, in memory. Return these values."""
    if not names:
        return {}
    values = select_values(known_values(model), names)
    assign_values(model, select_values(UNKNOWN_MODEL_VALUES, names) | values)
    return values


@transaction.atomic
def upsert_provider(
    *,
    name: str,
    kind: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    models: Sequence[tuple[str, int | None]] = (),
    default: bool = False,
) -> Provider:
    """Create or update a provider and its models by name. `models` are (name, window in tokens or None).

    An option that is None keeps its stored value. A new provider is enabled, and by default OpenAI at its own address.
    `default` makes the first of `models` the workspace's default. Raises `no_model` for `default` without models, and
    `invalid_setting` for values that the rows cannot have.
    """
    if default and not models:
        raise ProductError("no_model", "Name at least one model to make it the default.")
    options = {"kind": kind, "base_url": base_url, "api_key": api_key}
    changes = {option: value for option, value in options.items() if value is not None}
    before = Provider.objects.filter(name=name).first()
    _validate(_changed_provider(before, name, kind=kind, base_url=base_url, api_key=api_key))
    provider, _ = Provider.objects.update_or_create(name=name, defaults=changes)
    record_saved(user=None, kind="provider", row=provider, before=before, name=name)
    for number, (model_name, window) in enumerate(models):
        model = upsert_model(provider=provider, name=model_name, window=window)
        if default and number == 0:
            set_default_model(model=model)
    return provider


def _changed_provider(
    before: Provider | None, name: str, *, kind: str | None, base_url: str | None, api_key: str | None
) -> Provider:
    """Return an unsaved provider with these changes, for validation."""
    changed = Provider(name=name)
    if before is not None:
        changed.kind = before.kind
        changed.base_url = before.base_url
    if kind is not None:
        changed.kind = kind
    if base_url is not None:
        changed.base_url = base_url
    if api_key is not None:
        changed.api_key = api_key
    return changed


@transaction.atomic
def upsert_model(
    *,
    user: AbstractUser | None = None,
    provider: Provider,
    name: str,
    window: int | None = None,
    settings: ModelValues | None = None,
) -> Model:
    """Create a model with its known values, or enable it and update the window and the fields in `settings`.

    An unknown window is 4,096 tokens. Values that are set here no longer follow the provider's reports, and replace
    learnt values. Raises `invalid_setting`, `staff_only` and `right_missing`.
    """
    model = Model.objects.filter(provider=provider, name=name).first()
    if model is None:
        model = Model(provider=provider, name=name)
        fill_from_known(model, UNKNOWN_MODEL_VALUES)
    require_store(user, model)
    typed: ModelValues = {**settings} if settings is not None else {}
    if window is not None:
        typed["context_window"] = window
    assign_values(model, typed)
    if "context_window" in typed:
        clear_learnt_window(model)
    if "max_images" in typed:
        clear_learnt_images(model)
    model.set_by_hand = sorted({*model.set_by_hand, *typed})
    model.enabled = True
    _validate(model)
    before = load_stored(model)
    model.save()
    record_saved(user=user, kind="model", row=model, before=before, name=str(model))
    return model


def _validate(row: Provider | Model) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        raise invalid_setting(error.message_dict, str(row) or "The name") from error


# Deviations of a server from its protocol, which answers can prove.
LearntFact = Literal["whole_answers", "untagged_reasoning", "own_effort"]
LEARNT_FACTS = ("whole_answers", "untagged_reasoning", "own_effort", "learnt_on")


@transaction.atomic
def learn_fact(model: Model, fact: LearntFact, value: bool | str) -> None:
    """Store a deviation of a model's server that an answer has proven, with the date. An administrator can undo it."""
    row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
    if row is None:
        return
    learnt_on = {**row.learnt_on, fact: timezone.localdate().isoformat()}
    if learnt_on != row.learnt_on or fact == "own_effort":  # the same fact on the same day changes nothing
        row.learnt_on = learnt_on
        match fact:
            case "whole_answers":
                row.whole_answers = bool(value)
            case "untagged_reasoning":
                row.untagged_reasoning = bool(value)
            case "own_effort":
                row.own_effort = str(value)
        row.save(update_fields=[fact, "learnt_on"])
    model.refresh_from_db(fields=[fact, "learnt_on"])


@transaction.atomic
def learn_ratio(*, model: Model, counted: int, reported: int) -> None:
    """Move the model's ratio of reported to counted prompt tokens towards this answer's ratio, within bounds.

    The row is locked and read again, so that concurrent answers keep each other's samples.
    """
    if counted < 100 or reported <= 0:
        return  # in small prompts the overhead outweighs the tokenizer
    row = Model.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
    if row is None:
        return
    low, high = RATIO_BOUNDS
    sample = min(high, max(low, reported / counted))
    weight = 1.0 / min(row.ratio_samples + 1, RATIO_WINDOW)
    row.token_ratio += (sample - row.token_ratio) * weight
    row.ratio_samples += 1
    row.save(update_fields=["token_ratio", "ratio_samples"])
    model.token_ratio = row.token_ratio
    model.ratio_samples = row.ratio_samples


# Fields of learnt limits, see `llm.learning`.
LEARNT_WINDOW = ("learnt_window", "window_evidence", "reported_counts")
LEARNT_IMAGES = ("learnt_max_images", "images_evidence")


def clear_learnt_window(model: Model) -> None:
    """Clear the learnt window and the counts from which it is learnt, in memory."""
    model.learnt_window = None
    model.window_evidence = {}
    model.reported_counts = {}


def clear_learnt_images(model: Model) -> None:
    """Clear the learnt limit on images, in memory."""
    model.learnt_max_images = None
    model.images_evidence = {}


def clear_learnt_facts(model: Model) -> None:
    """Clear the learnt deviations of a model's server, in memory."""
    if "whole_answers" in model.learnt_on:
        model.whole_answers = False
    if "untagged_reasoning" in model.learnt_on:
        model.untagged_reasoning = False
    if "own_effort" in model.learnt_on:
        model.own_effort = ""
    model.learnt_on = {}
