"""Types of ASGI (https://asgi.readthedocs.io/en/latest/specs/main.html), as Django, Channels and daphne use it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

AsgiScope: TypeAlias = MutableMapping[str, Any]
"""The scope of a connection. Servers and middleware add members, so mypy cannot know them."""
AsgiMessage: TypeAlias = MutableMapping[str, Any]
"""An event of a connection. Its `type` decides its other members."""
AsgiReceive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
AsgiSend: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]
