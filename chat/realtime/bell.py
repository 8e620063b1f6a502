"""What people tell a running turn: to stop, and whether a call may run."""

import asyncio
import time
from contextlib import suppress
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import redis

from chat.realtime.events import Approval
from chat.realtime.turn_stream import BLOCK, CONNECTION_ERRORS, KEPT
from core.background import streams, streams_of_loop

CLAIMED = 10  # seconds
_BELL = "turns:bell"  # the channel on which every process hears what is told to running turns


def _decision(turn: UUID | str, call: str) -> str:
    return f"turn:{turn}:decision:{call}"


class _Bell:
    """One subscription for all turns of a process: wakes whoever waits for a word. What it says may be lost, so
    what matters is stored elsewhere too, and those who wait look there from time to time."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}
        self.listens = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    async def rings(self, word: str, seconds: float | None = None) -> None:
        """Returns when it rings for this word, or may have, and after `seconds` at the latest."""
        event = self._waiting[word] = asyncio.Event()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        finally:
            del self._waiting[word]

    async def _listen(self) -> None:
        while True:
            try:
                async with streams_of_loop().pubsub() as channel:
                    await channel.subscribe(_BELL)
                    async for message in channel.listen():
                        if message["type"] == "subscribe":
                            self.listens.set()
                        elif event := self._waiting.get(message["data"]):
                            event.set()
            except (*CONNECTION_ERRORS, redis.BusyLoadingError):
                self.listens.clear()
                await asyncio.sleep(0.2)


_bells: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell]" = WeakKeyDictionary()


def _bell() -> _Bell:
    loop = asyncio.get_running_loop()
    if loop not in _bells:
        _bells[loop] = _Bell()
    return _bells[loop]


async def wait_for_stop(turn: UUID | str) -> None:
    """Returns when somebody asks this turn to stop. What is not heard, its row tells its worker within a second."""
    await _bell().rings(f"stop:{turn}")


async def wait_for_decision(turn: UUID | str, call: str, seconds: float) -> Approval:
    """What a person has decided about a call; `TIMED_OUT` when nobody has after `seconds`.

    The key is the truth, and the first who sets it has decided; the bell only wakes the waiting worker.
    """
    key, deadline = _decision(turn, call), time.monotonic() + seconds
    bell = _bell()
    with suppress(TimeoutError):
        async with asyncio.timeout(min(seconds, BLOCK / 1000)):
            await bell.listens.wait()
    while True:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                await streams_of_loop().set(key, Approval.TIMED_OUT, nx=True, ex=KEPT)
            if decided := await streams_of_loop().get(key):
                return Approval(decided)
            await bell.rings(key, max(0.01, min(left, BLOCK / 1000)))
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            if left <= 0:
                return Approval.TIMED_OUT
            await asyncio.sleep(0.2)


def claim_decision(turn: UUID | str, call: str) -> bool:
    """Synchronous, for services. Whether a call is undecided, and nobody else has asked so within the last seconds: who
    has something to store with the decision stores it first, since the worker goes on at once."""
    key = _decision(turn, call)
    claimed: Any = streams().set(f"{key}:claim", 1, nx=True, ex=CLAIMED)
    return bool(claimed) and not streams().exists(key)


def decide(turn: UUID | str, call: str, decision: Approval) -> bool:
    """Synchronous, for services. False when it has been decided already."""
    key = _decision(turn, call)
    if not streams().set(key, decision, nx=True, ex=KEPT):
        return False
    streams().publish(_BELL, key)
    return True


def signal_stop(turn: UUID | str) -> None:
    """Synchronous, for services. The row carries the wish too, so a Redis that is away delays it only."""
    with suppress(redis.RedisError, OSError):
        streams().publish(_BELL, f"stop:{turn}")
