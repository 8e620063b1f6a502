"""Every change to providers and models, and the shared provider clients."""

import asyncio
import copy
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from audit.services import record, record_saved, stored
from core.background import on_database
from core.errors import ModelError, ProductError, invalid_setting
from core.locks import lock
from core.permissions import require_right, require_store
from llm.known_models import efforts_of, suggest
from llm.models import UNKNOWN_WINDOW, Model, Provider
from llm.models.workspace import Kept
from llm.providers import create
from llm.types.model_call import Allocated, CacheRule
from llm.types.model_call import Provider as ProviderClient

DEFAULT_LOCK = "default model"  # two admins choosing a default at once choose one after the other
# What `fill_from_known` can fill, and what stands there when nothing is known.
UNKNOWN: dict[str, Any] = {
    "context_window": UNKNOWN_WINDOW,
    "max_output": None,
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

    Not to be changed, nor planned with: what they have learnt (`llm.models.workspace`) may be older.
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

    What was `typed` stays from now on, whatever the provider says; what was left empty follows it.
    """
    require_store(user, model)
    model.set_by_hand = sorted({*model.set_by_hand, *typed} & UNKNOWN.keys() - {*left_empty})
    model.learnt_on = {name: day for name, day in model.learnt_on.items() if name not in typed}
    if {"provider", "name"} & {*typed}:  # it is another model now
        model.found, model.found_at, model.retires_on = {}, None, None
    found = fill_from_known(model, left_empty)
    before = stored(model)
    model.save()
    record_saved(user=user, kind="model", row=model, before=before, name=str(model))
    return found


def known_of(model: Model) -> dict[str, Any]:
    """The fields of `UNKNOWN` that are known of a model: what its provider said, else by its name and address."""
    known = suggest(model.provider.kind, model.name, base_url=model.provider.base_url)
    values = {name: getattr(known, "window" if name == "context_window" else name, None) for name in UNKNOWN}
    values["efforts"] = efforts_of(model.name) or None
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
    *, name: str, kind: str, base_url: str, api_key: str | None, models: Sequence[tuple[str, int | None]], default: bool
) -> Provider:
    """Creates or updates a provider and its models by name; `models` are (name, window in tokens or None).

    Idempotent. `api_key` None keeps the stored one; `default` makes the first of `models` the workspace's default.
    Raises `invalid_setting` for what the rows cannot hold.
    """
    if default and not models:
        raise ProductError("no_model", "Name at least one model to make it the default.")
    changes = {"kind": kind, "base_url": base_url, "enabled": True} | ({} if api_key is None else {"api_key": api_key})
    _check(Provider(name=name, **changes))
    before = Provider.objects.filter(name=name).first()
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

    An unknown window is 4,096 tokens. What is given here stays, whatever the provider says.
    """
    model = Model.objects.filter(provider=provider, name=name).first()
    if model is None:
        model = Model(provider=provider, name=name)
        fill_from_known(model, UNKNOWN)
    require_store(user, model)
    typed = dict(settings or {}) | ({} if window is None else {"context_window": window})
    for field, value in typed.items():
        setattr(model, field, value)
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
LEARNT_DEFAULTS: Mapping[LearntFact, Any] = {"whole_answers": False, "untagged_reasoning": False, "own_effort": ""}


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
def forget_facts(*, user: AbstractUser, model: Model) -> None:
    """Takes back what answers have taught; the next ones teach it anew where it still holds."""
    require_right(user, "change", model)
    row = Model.objects.select_for_update(of=("self",)).get(pk=model.pk)
    before = stored(row)
    defaults = {fact: value for fact, value in LEARNT_DEFAULTS.items() if fact in row.learnt_on}
    Model.objects.filter(pk=row.pk).update(**defaults, learnt_on={})
    row.refresh_from_db()
    record_saved(user=user, kind="model", row=row, before=before, name=str(row))


def learn_ratio(*, model: Model, counted: int, reported: int) -> None:
    """Moves the model's ratio of reported to counted prompt tokens towards this answer's, within bounds."""
    if counted < 100 or reported <= 0:
        return  # small prompts say more about overhead than about the tokenizer
    low, high = RATIO_BOUNDS
    sample = min(high, max(low, reported / counted))
    weight = 1.0 / min(model.ratio_samples + 1, RATIO_MEMORY)
    model.token_ratio += (sample - model.token_ratio) * weight
    changes = {"token_ratio": model.token_ratio, "reads": model.reads}
    Model.objects.filter(pk=model.pk).update(**changes, ratio_samples=F("ratio_samples") + 1)


# A server that says it read less than a share of what was sent has cut it. Ours, by what is known of counting: chat
# templates, definitions of tools and images are counted differently everywhere, texts much less so.
READ_AT_LEAST = {"known": 0.85, "seen": 0.75, "unknown": 0.6}  # by what is known of how the model counts
# Whatever was learnt: a server that makes twice our tokens of Vietnamese makes about as many as we of English.
READ_OF_ANY_TEXT = 0.9
FEW_TOOLS = 5  # definitions of less than a fifth of the texts say little about how a server writes them
DOUBTFUL = 0.97  # of what was sent; a server that read less is asked for the window that it really has
UNREAD_AT_LEAST = 300  # tokens; less may be a matter of counting
PLAUSIBLE = 256  # tokens; a server that says it read less than that has not counted
LEAST_WINDOW = 2_048  # tokens; no server in use has less
RATIO_TRUSTED = 5  # answers from which a learnt ratio replaces what is assumed of unknown tokenizers
COMPARABLE = 4  # a prompt of less than a quarter says more about templates than about the tokenizer


class Sent(NamedTuple):
    """Tokens of one call by our count: `texts` without images and replayed reasoning, `tools` their definitions.

    `plain`: there was nothing else.
    """

    texts: int
    tools: int = 0
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt that its server has not read whole: `read` of `sent` tokens, by the server's own count.

    `window` and `server` where the server says which window it has, and so what it is.
    """

    read: int
    sent: int
    window: int | None = None
    server: str = ""

    @property
    def missing(self) -> int:
        return self.sent - self.read


def cut(model: Model, sent: Sent, read: int, allocated: Allocated | None = None) -> Cut | None:
    """Whether a server that says it read `read` tokens has cut the prompt; None where counting can explain it.

    `read` may hold images, reasoning and what a server adds, so it is held against the least that the rest can take.
    `allocated` decides what counting leaves open: a window smaller than what was sent is proof.
    """
    if not _doubtful(model, sent, read):
        return None
    ratio, known = _ratio(model, sent)
    expected = round((sent.texts + sent.tools) * ratio)
    found = Cut(read, expected, *((allocated.window, allocated.server) if allocated else ()))
    if found.window is not None and found.window < expected:
        return found
    # A window with room for all is no reason to cut, so then only what nothing else explains is one.
    share = READ_AT_LEAST["unknown" if found.window is not None else known]
    # Of tools nothing is expected: some servers do not write them into the prompt.
    return found if read < min(share * ratio, READ_OF_ANY_TEXT) * sent.texts else None


async def held_against(model: Model, sent: Sent, read: int) -> Cut | None:
    """As `cut`; the server is asked for its window when it has read less than was sent, and only then.

    What was read of a whole prompt is remembered, by `learn_ratio` also in the row.
    """
    found = None
    if _doubtful(model, sent, read):
        found = cut(model, sent, read, await shared_client(model.provider).allocated(model.name))
    if found is None and sent.plain and read >= PLAUSIBLE and sent.tools * FEW_TOOLS <= sent.texts:
        model.reads = [*model.reads, [sent.texts + sent.tools, read]][-RATIO_MEMORY:]
    return found


def _doubtful(model: Model, sent: Sent, read: int) -> bool:
    expected = round((sent.texts + sent.tools) * _ratio(model, sent)[0])
    return PLAUSIBLE <= read < DOUBTFUL * expected and expected - read >= UNREAD_AT_LEAST


def _ratio(model: Model, sent: Sent) -> tuple[float, str]:
    """Tokens of the server for one of ours, and how well that is known.

    From what it read of prompts of about this length or longer: the least, since a server may add text of its own,
    and what it adds to a short prompt says nothing of a long one. Few of them only ever lower what is expected.
    """
    counted = sent.texts + sent.tools
    seen = [read / before for before, read in model.reads if before * COMPARABLE >= counted]
    if model.tokenizer:
        return 1.0, "known"
    if not seen:
        return 1.0, "unknown"
    low, high = RATIO_BOUNDS
    least = max(low, min(high, *seen))
    return (least, "known") if len(seen) >= RATIO_TRUSTED else (min(1.0, least), "seen")


def learn_cut(model: Model, found: Cut) -> None:
    """Remembers the window of a server that cut a prompt: what it says, else what it read or a little more.

    Servers drop whole messages, and their windows are powers of two.
    """
    guess = 1 << (found.read - 1).bit_length()
    window = found.window or (guess if guess < model.window else found.read)
    model.learnt_window = max(LEAST_WINDOW, window)
    Model.objects.filter(pk=model.pk).update(learnt_window=model.learnt_window)


def learn_refusal(model: Model, limit: int | None) -> str:
    """The provider refused a prompt as too long: remembers the limit it named, or a fifth less than was thought.

    Returns a sentence for the report. The same row in memory is changed too, so that the next plan uses it.
    """
    before = model.window
    model.learnt_window = max(256, limit if limit is not None and limit < before else before * 4 // 5)
    Model.objects.filter(pk=model.pk).update(learnt_window=model.learnt_window)
    named = (
        "It named that limit" if model.learnt_window == limit else "It named no usable limit, so a fifth less is used"
    )
    return (
        f"The provider refused a prompt that fits into {before:,} tokens. {named}: from now on "
        f"{model.learnt_window:,}. An admin can correct the model's window."
    )
