"""The protocol that every provider module fulfils."""

from collections.abc import AsyncGenerator
from typing import Protocol

from llm.types.events import StepEvent
from llm.types.messages import ModelRequest


class Provider(Protocol):
    """A client of one provider row. Safe to share between coroutines of one event loop."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yields the events of one model call, `StepFinished` last and exactly once.

        Raises `core.errors.ModelError`. Closing the iterator closes the HTTP stream at once.
        """
        ...

    async def list_models(self) -> list[str]:
        """The names the endpoint offers; used to test a connection. Raises `core.errors.ModelError`."""
        ...

    async def close(self) -> None: ...
