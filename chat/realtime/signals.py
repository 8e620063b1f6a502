"""Send signals of people to a running turn: stop it, allow or refuse a tool call.

The row and the keys in Redis hold the state. A message on a channel only wakes the waiting worker.
"""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import redis

from chat.realtime.events import Approval
from chat.realtime.turn_stream import BLOCK_MILLISECONDS, CONNECTION_ERRORS, KEEP_SECONDS
from core.background import streams, streams_of_loop
from core.json_types import JsonObject

CLAIM_SECONDS = 10
_CHANNEL = "turns:bell"  # every process with running turns subscribes to it


def _decision_key(turn: UUID | str, call: str) -> str:
    return f"turn:{turn}:decision:{call}"


class _SignalListener:
    """The subscription of an event loop for all its turns. It wakes the coroutines that wait for a signal.

    Signals may be lost. So each is stored as well, and the waiting code checks the store from time to time.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}
        self.listens = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    async def wait_for(self, signal: str, seconds: float | None = None) -> None:
        """Wait for this signal, at most `seconds`. May return without it, so check the stored state afterwards."""
        event = self._waiting[signal] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        finally:
            del self._waiting[signal]

    async def _listen(self) -> None:
        while True:
            try:
                async with streams_of_loop().pubsub() as channel:
                    await channel.subscribe(_CHANNEL)
                    async for message in channel.listen():
                        if message["type"] == "subscribe":
                            self.listens.set()
                        elif event := self._waiting.get(message["data"]):
                            event.set()
            except (*CONNECTION_ERRORS, redis.BusyLoadingError):
                self.listens.clear()
                await asyncio.sleep(0.2)


_listeners: "WeakKeyDictionary[asyncio.AbstractEventLoop, _SignalListener]" = WeakKeyDictionary()


def _listener() -> _SignalListener:
    """Return the listener of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _listeners:
        _listeners[loop] = _SignalListener()
    return _listeners[loop]


async def wait_for_stop(turn: UUID | str) -> None:
    """Wait until a user asks this turn to stop. If the signal is lost, the worker reads the row within a second."""
    await _listener().wait_for(f"stop:{turn}")


async def wait_for_decision(turn: UUID | str, call: str, seconds: float) -> Approval:
    """Wait for a person's decision about a call and return it; `TIMED_OUT` if there is none after `seconds`.

    The first caller who sets the key decides. The signal only wakes the waiting worker.
    """
    key = _decision_key(turn, call)
    deadline = time.monotonic() + seconds
    listener = _listener()
    with suppress(TimeoutError):
        async with asyncio.timeout(min(seconds, BLOCK_MILLISECONDS / 1000)):
            await listener.listens.wait()
    while True:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                await streams_of_loop().set(key, Approval.TIMED_OUT, nx=True, ex=KEEP_SECONDS)
            if decided := await streams_of_loop().get(key):
                return Approval(decided)
            await listener.wait_for(key, max(0.01, min(left, BLOCK_MILLISECONDS / 1000)))
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            if left <= 0:
                return Approval.TIMED_OUT
            await asyncio.sleep(0.2)


async def form_content(turn: UUID | str, call: str) -> JsonObject:
    """Return the values that the person has filled in, once the decision is `ALLOWED`; empty if they are lost."""
    with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):
        if stored := await streams_of_loop().get(f"{_decision_key(turn, call)}:content"):
            content: JsonObject = json.loads(stored)
            return content
    return {}


def store_form_content(turn: UUID | str, call: str, content: JsonObject) -> None:
    """Store the values of a form before its decision, see `decide`. Synchronous."""
    streams().set(f"{_decision_key(turn, call)}:content", json.dumps(content), ex=KEEP_SECONDS)


def claim_decision(turn: UUID | str, call: str) -> bool:
    """Claim an undecided call for `CLAIM_SECONDS`, and return whether the caller may decide it. Synchronous.

    A caller that stores rows with its decision must claim the call first and store them before `decide`, since the
    worker continues at once.
    """
    key = _decision_key(turn, call)
    claimed: Any = streams().set(f"{key}:claim", 1, nx=True, ex=CLAIM_SECONDS)
    return bool(claimed) and not streams().exists(key)


def decide(turn: UUID | str, call: str, decision: Approval) -> bool:
    """Store a decision and wake the worker. Return False if the call was already decided. Synchronous."""
    key = _decision_key(turn, call)
    if not streams().set(key, decision, nx=True, ex=KEEP_SECONDS):
        return False
    streams().publish(_CHANNEL, key)
    return True


def signal_stop(turn: UUID | str) -> None:
    """Wake the worker of a turn whose row has a stop request. Synchronous, for services.

    If Redis cannot be reached, the stop is only delayed, since the worker also reads the row.
    """
    with suppress(redis.RedisError, OSError):
        streams().publish(_CHANNEL, f"stop:{turn}")
