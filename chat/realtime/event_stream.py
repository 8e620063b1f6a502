"""What reaches those who look at a conversation, and how they reach a running turn.

The Redis stream of a turn has every event in order, until an hour after the end. A reader blocks on the stream itself
(XREAD), so there is no announcement that could be lost or come too early: what is in the stream is read, in order, from
any point. Entry ids are `<seq>-0`: Redis itself refuses a wrong order. People tell a running turn to stop, and whether
a call may run. Open pages get hints that something has changed and ask for what they show; a lost hint costs nothing.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import transaction
from django.http import StreamingHttpResponse
from redis import asyncio as aioredis

from accounts.access.authentication import Credential
from accounts.realtime import WhileSignedIn, tell_group
from chat.models import Conversation, Turn
from chat.models.conversation_state import state_of
from chat.realtime.events import LAST, Approval, Event, EventType
from core.background import on_database
from core.i18n import translated

KEPT = 3600  # seconds after the last event
BLOCK = 2_500  # milliseconds; how often a silent reader looks whether the turn is still there
BATCH = 500
RETRY_FOR = 20.0  # seconds that a write waits for a Redis that is away, for example restarting
CONNECTION_ERRORS = (redis.ConnectionError, redis.TimeoutError, ConnectionError, TimeoutError)

# On a pool of threads, not on the one that Channels shares between all sockets of a process; and the connection goes
# back to its pool at once, where Django would keep it until the socket or the stream of events is closed.
threaded = partial(database_sync_to_async, thread_sensitive=False)

logger = logging.getLogger(__name__)

_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, aioredis.Redis]" = WeakKeyDictionary()


def client() -> aioredis.Redis:
    """The event loop's own client. Each reader holds one connection while it waits, hence the large pool."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        pool = aioredis.BlockingConnectionPool.from_url(
            settings.STREAMS_URL, max_connections=2_000, timeout=10, protocol=2, decode_responses=True
        )
        _clients[loop] = aioredis.Redis(connection_pool=pool)
    return _clients[loop]


def _stream(turn: UUID | str) -> str:
    return f"turn:{turn}:events"


def _decision(turn: UUID | str, call: str) -> str:
    return f"turn:{turn}:decision:{call}"


async def append(turn: UUID | str, events: Sequence[Event]) -> None:
    """Adds events in one round trip. Waits for a Redis that is away; raises its error after 20 s.

    Adding is idempotent: an event whose seq is in the stream already, from an attempt whose reply was lost, is skipped.
    """
    deadline = time.monotonic() + RETRY_FOR
    while True:
        try:
            async with client().pipeline(transaction=False) as pipe:
                for event in events:
                    body = json.dumps(event.payload, ensure_ascii=False, separators=(",", ":"))
                    entry: dict[Any, Any] = {"type": str(event.type), "ts": f"{event.ts:.3f}", "payload": body}
                    pipe.xadd(_stream(turn), entry, id=f"{event.seq}-0")
                pipe.expire(_stream(turn), KEPT if events[-1].last else 24 * KEPT)
                results = await pipe.execute(raise_on_error=False)
            for result in results:
                if isinstance(result, redis.ResponseError) and "equal or smaller" not in str(result):
                    raise result
            return
        except CONNECTION_ERRORS:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        except redis.BusyLoadingError:
            await asyncio.sleep(0.1)


def _event(turn: UUID | str, entry: tuple[str, dict[str, str]]) -> Event:
    number, fields = entry
    seq = int(number.partition("-")[0])
    return Event(EventType(fields["type"]), str(turn), seq, json.loads(fields["payload"]), float(fields["ts"]))


async def read(turn: UUID | str, after_seq: int = 0) -> list[Event]:
    """All events after `after_seq` that are in the stream now."""
    entries = await client().xrange(_stream(turn), min=f"({after_seq}-0")
    return [_event(turn, entry) for entry in entries]


async def follow(turn: UUID | str, after_seq: int = 0) -> AsyncIterator[Event | None]:
    """Events after `after_seq` as they come, until the last one of the turn; None after each 2.5 s of silence.

    A caller looks at the row when it gets None: the turn may have ended without its last event, or its stream expired.
    """
    seq = after_seq
    while True:
        try:
            answer: Any = await client().xread({_stream(turn): f"{seq}-0"}, count=BATCH, block=BLOCK)
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            await asyncio.sleep(0.2)
            yield None
            continue
        if not answer:
            yield None
            continue
        for entry in answer[0][1]:
            event = _event(turn, entry)
            seq = event.seq
            yield event
            if event.type in LAST:
                return


_BELL = "turns:bell"  # the channel on which every process hears what is told to running turns


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
                async with client().pubsub() as channel:
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
                await client().set(key, Approval.TIMED_OUT, nx=True, ex=KEPT)
            if decided := await client().get(key):
                return Approval(decided)
            await bell.rings(key, max(0.01, min(left, BLOCK / 1000)))
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            if left <= 0:
                return Approval.TIMED_OUT
            await asyncio.sleep(0.2)


def decide(turn: UUID | str, call: str, decision: Approval) -> bool:
    """Synchronous, for services. False when it has been decided already."""
    key = _decision(turn, call)
    with redis.Redis.from_url(settings.STREAMS_URL, protocol=2) as connection:
        if not connection.set(key, decision, nx=True, ex=KEPT):
            return False
        connection.publish(_BELL, key)
    return True


def signal_stop(turn: UUID | str) -> None:
    """Synchronous, for services. The row carries the wish too, so a Redis that is away delays it only."""
    with redis.Redis.from_url(settings.STREAMS_URL, protocol=2) as connection:
        connection.publish(_BELL, f"stop:{turn}")


def _ended(turn_id: UUID) -> Turn | None:
    return Turn.objects.exclude(status__in=Turn.LIVE).filter(pk=turn_id).first()


async def wire_events(turn_id: UUID, after_seq: int, *, idle: bool = False) -> AsyncIterator[dict[str, Any]]:
    """The turn's events as wire objects, until its end. With `idle`, an empty object after each 2.5 s of silence.

    When the stream has expired, or misses its last event, one SNAPSHOT sends the reader to the row, which is complete.
    """
    ended = await threaded(_ended)(turn_id)
    if ended is not None:
        stored = await read(turn_id, after_seq)
        for event in stored:
            yield event.to_wire()
        if not (stored and stored[-1].last):
            yield _snapshot(ended)
        return
    async for event_or_none in follow(turn_id, after_seq):
        if event_or_none is not None:
            yield event_or_none.to_wire()
            continue
        ended = await threaded(_ended)(turn_id)
        if ended is not None:
            yield _snapshot(ended)
            return
        if idle:
            yield {}


async def ended_turn(turn_id: UUID | str) -> Turn:
    """The turn with its answer, which are complete: for whoever was sent to the row by a SNAPSHOT."""
    return await threaded(Turn.objects.select_related("answer__model").get)(pk=turn_id)


def response(credential: Credential, lines: AsyncIterable[str]) -> StreamingHttpResponse:
    """Server-sent events, for as long as the credential holds."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would hold events back
    told = WhileSignedIn(credential, lines)
    return StreamingHttpResponse(told, content_type="text/event-stream", headers=headers)


def readable(wire: dict[str, Any]) -> dict[str, Any]:
    """An event with what it says to people in the active language."""
    return {**wire, **{name: translated(wire[name]) for name in ("detail", "label") if name in wire}}


def _snapshot(ended: Turn) -> dict[str, Any]:
    return {"type": "SNAPSHOT", "turn": str(ended.pk), "message": str(ended.answer_id), "status": ended.status}


def group_of(conversation_id: UUID) -> str:
    """The channel group of everyone who looks at a conversation."""
    return f"conversation.{conversation_id}"


async def announce_state(conversation_id: UUID, **more: str) -> None:
    state = await on_database(state_of, conversation_id)
    hint = {"type": "conversation.state", "conversation": str(conversation_id), "state": state}
    await announce(conversation_id, {**hint, **more})


async def announce(conversation_id: UUID, hint: dict[str, str]) -> None:
    """A hint to open pages; a page that misses it sees the same at its next request."""
    group = group_of(conversation_id)
    try:
        await tell_group(group, hint, group)
    except CONNECTION_ERRORS:
        logger.warning("no hint to open pages: Redis is away")


def tell_pages(conversation: Conversation) -> None:
    """Once the change is committed, open pages look again at what waits."""
    transaction.on_commit(partial(async_to_sync(announce), conversation.pk, hint(conversation.pk)))


def hint(conversation_id: UUID) -> dict[str, str]:
    return {"type": "conversation.next", "conversation": str(conversation_id)}


def tell_marks(conversation_id: UUID, question: UUID) -> None:
    """Once the change is committed, open pages look again at the turn of this question and at the plan."""
    changed = {"type": "conversation.marks", "conversation": str(conversation_id), "message": str(question)}
    transaction.on_commit(partial(async_to_sync(announce), conversation_id, changed))
