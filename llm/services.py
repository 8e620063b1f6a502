"""Every change to providers and models, and the shared provider clients."""

import asyncio
from collections.abc import Sequence

from django.db import transaction
from django.db.models import F

from llm.errors import ModelError, ProductError
from llm.known_models import suggest
from llm.models import UNKNOWN_WINDOW, Model, Provider
from llm.providers import create
from llm.providers.base import Provider as ProviderClient

RATIO_BOUNDS = (0.5, 2.0)
RATIO_MEMORY = 20  # samples; later ones move the ratio by at least a twentieth, so that it follows a change


def _new_client(provider: Provider) -> ProviderClient:
    return create(
        provider.kind, base_url=provider.base_url, api_key=provider.api_key, silence_timeout=provider.silence_timeout
    )


_clients: dict[tuple[str, str, str, int], ProviderClient] = {}


def shared_client(provider: Provider) -> ProviderClient:
    """The process's one client for these connection settings; building one costs about 15 ms.

    To be used on the event loop of `llm.runtime` only: its connections belong to that loop.
    """
    key = (provider.kind, provider.base_url, provider.api_key, provider.silence_timeout)
    if key not in _clients:
        _clients[key] = _new_client(provider)
    return _clients[key]


def test_connection(*, provider: Provider) -> list[str]:
    """The model names that the endpoint offers. Raises `ModelError`."""

    async def ask() -> list[str]:
        client = _new_client(provider)
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
def set_default_model(*, model: Model) -> None:
    Model.objects.filter(default=True).exclude(pk=model.pk).update(default=False)
    Model.objects.filter(pk=model.pk).update(default=True)
    model.default = True


@transaction.atomic
def save_provider(
    *, name: str, kind: str, base_url: str, api_key: str | None, models: Sequence[tuple[str, int | None]], default: bool
) -> Provider:
    """Creates or updates a provider and its models by name; `models` are (name, window in tokens or None).

    Idempotent. `api_key` None keeps the stored one; `default` makes the first of `models` the workspace's default.
    """
    if default and not models:
        raise ProductError("no_model", "Name at least one model to make it the default.")
    changes = {"kind": kind, "base_url": base_url, "enabled": True} | ({} if api_key is None else {"api_key": api_key})
    provider, _ = Provider.objects.update_or_create(name=name, defaults=changes)
    for number, (model_name, window) in enumerate(models):
        model = save_model(provider=provider, name=model_name, window=window)
        if default and number == 0:
            set_default_model(model=model)
    return provider


def save_model(*, provider: Provider, name: str, window: int | None) -> Model:
    """Creates a model with what is known of it, or updates its window. An unknown window is 4,096 tokens."""
    model = Model.objects.filter(provider=provider, name=name).first()
    if model is None:
        known = suggest(provider.kind, name)
        model = Model(provider=provider, name=name, context_window=UNKNOWN_WINDOW)
        if known is not None:
            model.context_window = known.window or UNKNOWN_WINDOW
            model.max_output = known.max_output
            model.input_price, model.output_price = known.input_price, known.output_price
            model.vision, model.tools = bool(known.vision), bool(known.tools)
    if window is not None:
        model.context_window = window
    model.enabled = True
    model.save()
    return model


def learn_ratio(*, model: Model, counted: int, reported: int) -> None:
    """Moves the model's ratio of reported to counted prompt tokens towards this answer's, within bounds."""
    if counted < 100 or reported <= 0:
        return  # small prompts say more about overhead than about the tokenizer
    low, high = RATIO_BOUNDS
    sample = min(high, max(low, reported / counted))
    weight = 1.0 / min(model.ratio_samples + 1, RATIO_MEMORY)
    model.token_ratio += (sample - model.token_ratio) * weight
    Model.objects.filter(pk=model.pk).update(token_ratio=model.token_ratio, ratio_samples=F("ratio_samples") + 1)
