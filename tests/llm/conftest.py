import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Protocol

import pytest
import pytest_asyncio

from core.errors import ModelError
from llm.providers import create_client
from llm.types.model_call import ModelMessage, ModelRequest, ProviderClient, StepEvent, TextDelta
from tests.scripted_model import ScriptedModel


class Connect(Protocol):
    def __call__(
        self, kind: str, *, api_key: str = "", silence_timeout: float = 120.0, dialect: str = ""
    ) -> ProviderClient: ...


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest_asyncio.fixture
async def connect(scripted_model: ScriptedModel) -> AsyncIterator[Connect]:
    """Makes a provider of a kind that talks to the scripted model, as the vendor of that dialect if one is named."""
    clients: list[ProviderClient] = []

    def make(kind: str, *, api_key: str = "", silence_timeout: float = 120.0, dialect: str = "") -> ProviderClient:
        vendor = f"{scripted_model.url}/{dialect}" if dialect else scripted_model.url
        url = f"{vendor}/v1" if kind in ("openai", "responses") else vendor
        clients.append(create_client(kind, base_url=url, api_key=api_key, silence_timeout=silence_timeout))
        return clients[-1]

    yield make
    for provider in clients:
        await provider.close()


def asking(script: dict[str, Any] | None = None, *, text: str = "Hello", **fields: Any) -> ModelRequest:
    """Return a request with one message, which holds the script. `fields` are those of `ModelRequest`."""
    line = "" if script is None else f"\nscript: {json.dumps(script)}"
    request: dict[str, Any] = {"model": "scripted", "messages": (ModelMessage("user", text + line),), "max_output": 500}
    return ModelRequest(**(request | fields))


def text_of(events: Iterable[StepEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def failure_after(provider: ProviderClient, request: ModelRequest) -> tuple[list[StepEvent], ModelError]:
    """The events that come before the call fails, and the failure."""
    events: list[StepEvent] = []
    try:
        async for event in provider.stream(request):
            events += [event]
    except ModelError as error:
        return events, error
    raise AssertionError(f"the call did not fail: {events}")


async def events_of(provider: ProviderClient, request: ModelRequest) -> list[StepEvent]:
    return [event async for event in provider.stream(request)]
