"""The Redis stream of a turn: every event in order, as the JSON that is sent, until an hour after the end.

Readers block on the streams themselves (XREAD); one read serves all readers of a process. So there is no separate
announcement that could be lost or come too early, and a reader can begin at any event. Entry ids are `<seq>-0`, so
Redis itself refuses a wrong order. Readers notice events that Redis has lost by a gap in the numbers, and get them from
the rows.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import OutOfMemoryError

from chat.realtime.append_only import request_rewrite
from chat.realtime.events import EncodedEvent, Event, encode
from core.background import streams, streams_of_loop

KEEP_SECONDS = 3600  # after the last event
BLOCK_MILLISECONDS = 2_500  # milliseconds; after so long without events a reader checks whether the turn still exists
BATCH_EVENTS = 100  # events of one turn per read
# Seconds between two reads, in which more events gather: PAUSE for each turn that is read, MAX_PAUSE at most.
PAUSE_PER_TURN = 0.0005
MAX_PAUSE = 0.010
WRITE_PAUSE = 0.005  # seconds between two writes, in which more events gather
WRITE_TIMEOUT = 5.0  # seconds after which a write is given up; also the time that a blocked read may exceed its limit
REQUEST_TIMEOUT = 2.0  # seconds that a request waits for Redis
RETRY_SECONDS = 20.0  # seconds that a write waits while Redis is unavailable, for example during a restart
# A full Redis accepts no writes until there is room again, so its error counts as well.
CONNECTION_ERRORS = (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError, ConnectionError, TimeoutError)


def _stream_key(turn: UUID | str) -> str:
    return f"turn:{turn}:wire"  # earlier versions stored another form under another name


async def append(turn: UUID | str, events: Sequence[Event], seconds: float = RETRY_SECONDS) -> None:
    """Add events. If Redis is unavailable, wait up to `seconds`, then raise its error.

    Adding is idempotent: an event whose seq is already in the stream is skipped. An earlier attempt whose reply was
    lost may have added it.
    """
    deadline = time.monotonic() + seconds
    # Encoded here, so that an event that cannot be encoded fails only its own turn.
    entries = [StreamEntry(event.seq, str(event.type), encode(event.to_wire()).encode()) for event in events]
    keep_for = KEEP_SECONDS if events[-1].last else 24 * KEEP_SECONDS
    while True:
        try:
            await _writer().add(_stream_key(turn), entries, keep_for)
            return
        except CONNECTION_ERRORS:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        except redis.BusyLoadingError:
            await asyncio.sleep(0.1)


async def append_if_reachable(turn: UUID | str, events: Sequence[Event]) -> None:
    """Add events, for a request. If Redis is unavailable or hangs, they are lost, and readers get them from the row."""
    with suppress(*CONNECTION_ERRORS):
        async with asyncio.timeout(REQUEST_TIMEOUT):
            await append(turn, events, seconds=0)


class StreamEntry(NamedTuple):
    """An event as an entry of a stream. `wire` is its JSON."""

    seq: int
    type: str
    wire: bytes


class _PendingWrite(NamedTuple):
    """Entries for a stream, which expires `keep_for` seconds after the write. `done` is set once Redis has them."""

    stream: str
    entries: Sequence[StreamEntry]
    keep_for: int
    done: "asyncio.Future[None]"


class _StreamWriter:
    """Sends the events that the turns of a process append at the same time in one round trip.

    Events are sent at once if no write is running. Otherwise they gather and are sent together after it.
    """

    def __init__(self) -> None:
        self._waiting: list[_PendingWrite] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, stream: str, entries: Sequence[StreamEntry], keep_for: int) -> None:
        """Return once Redis has the entries. Raises the errors of Redis."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingWrite(stream, entries, keep_for, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await done

    async def _write(self) -> None:
        try:
            while self._waiting:
                writes, self._waiting = self._waiting, []
                try:
                    errors = await self._append(writes)
                except Exception as error:  # of any kind: the waiting callers must get it
                    errors = [error] * len(writes)
                for write, error_or_none in zip(writes, errors, strict=True):
                    _settle(write.done, error_or_none)
                await asyncio.sleep(WRITE_PAUSE)
        finally:
            self._writing = None  # breaks a cycle: the task keeps the event loop alive, the loop keeps this writer

    async def _append(self, writes: Sequence[_PendingWrite]) -> list[Exception | None]:
        """Return an error for each write; None if all its entries are in the stream."""
        async with asyncio.timeout(WRITE_TIMEOUT), streams_of_loop().pipeline(transaction=False) as pipe:
            for write in writes:
                for entry in write.entries:
                    pipe.xadd(write.stream, {"type": entry.type, "wire": entry.wire}, id=f"{entry.seq}-0")
                pipe.expire(write.stream, write.keep_for)
            results = iter(await pipe.execute(raise_on_error=False))
        return [_first_error([next(results) for _ in range(len(write.entries) + 1)]) for write in writes]


def _first_error(results: Sequence[Any]) -> Exception | None:
    """Return the first error, ignoring those for events that were added before."""
    errors = (each for each in results if isinstance(each, Exception))
    return next((error for error in errors if "equal or smaller" not in str(error)), None)


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


_writers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _StreamWriter]" = WeakKeyDictionary()


def _writer() -> _StreamWriter:
    """Return the writer of the running event loop."""
    return _writers.setdefault(asyncio.get_running_loop(), _StreamWriter())


def _decode_entry(entry: tuple[str, dict[str, str]]) -> EncodedEvent:
    number, fields = entry
    return EncodedEvent(fields["type"], int(number.partition("-")[0]), fields["wire"])


async def read_events(turn: UUID | str, after_seq: int = 0) -> list[EncodedEvent]:
    """Return all events after `after_seq` that are in the stream now. Raises redis.ConnectionError and TimeoutError."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT):
            entries = await streams_of_loop().xrange(_stream_key(turn), min=f"({after_seq}-0")
    except TimeoutError as error:
        raise redis.TimeoutError("Redis does not answer") from error
    return [_decode_entry(entry) for entry in entries]


async def next_events(turn: UUID | str, seq: int) -> list[EncodedEvent]:
    """Return the turn's next events after `seq`; none after 2.5 s of silence, or if Redis is unavailable."""
    return await _reader().news(_stream_key(turn), seq)


class _StreamReader:
    """One blocking read for all followed streams of a process. It runs while at least one reader waits.

    A reader waits again only after it has passed its events on, so little is read for a slow client. A new reader
    whose stream the blocked read does not cover interrupts that read: it writes to a stream that every read covers.
    """

    def __init__(self) -> None:
        # The stream that each reader waits for, and the last event that it has.
        self._waiting: dict[asyncio.Future[list[EncodedEvent]], tuple[str, int]] = {}
        self._read_after: dict[str, int] = {}  # by stream: the sequence number after which the blocked read begins
        self._wakeup_stream = f"streams:door:{uuid4()}"
        self._last_wakeup = "0-0"
        self._reading: asyncio.Task[None] | None = None

    async def news(self, stream: str, seq: int) -> list[EncodedEvent]:
        """Return the stream's next events after `seq`; none after 2.5 s of silence, or if Redis is unavailable."""
        future: asyncio.Future[list[EncodedEvent]] = asyncio.get_running_loop().create_future()
        self._waiting[future] = stream, seq
        try:
            async with asyncio.timeout(BLOCK_MILLISECONDS / 1000):
                if self._reading is None:
                    self._reading = asyncio.create_task(self._read())
                elif self._read_after and self._read_after.get(stream, seq + 1) > seq:
                    self._read_after = {}  # one wake-up is enough: no other reader sends another
                    await self._wake()
                return await future
        except TimeoutError:
            return []
        finally:
            self._waiting.pop(future, None)

    async def _wake(self) -> None:
        """Interrupt the blocked read."""
        with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):  # the blocked read meets the same error
            async with streams_of_loop().pipeline(transaction=False) as pipe:
                pipe.xadd(self._wakeup_stream, {"": ""}, maxlen=1, approximate=False)
                pipe.expire(self._wakeup_stream, KEEP_SECONDS)
                await pipe.execute()

    async def _read(self) -> None:
        try:
            while self._waiting:
                await self._read_once()
        finally:
            self._reading = None  # breaks a cycle: the task keeps the event loop alive, the loop keeps this reader

    async def _read_once(self) -> None:
        after: dict[str, int] = {}
        for stream, seq in self._waiting.values():
            after[stream] = min(seq, after.get(stream, seq))
        self._read_after = after
        try:
            self._deliver(await self._read_streams(after), after)
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            await asyncio.sleep(0.2)
            self._give_up()
        except Exception as error:  # of any kind: the waiting callers must get it
            self._give_up(error)
        finally:
            self._read_after = {}
        await asyncio.sleep(min(MAX_PAUSE, PAUSE_PER_TURN * len(after)))

    async def _read_streams(self, after: Mapping[str, int]) -> dict[str, list[EncodedEvent]]:
        """Return the events after these numbers, by stream. Wait for `BLOCK_MILLISECONDS` milliseconds at most."""
        ids: dict[Any, Any] = {stream: f"{seq}-0" for stream, seq in after.items()}
        ids[self._wakeup_stream] = self._last_wakeup
        async with asyncio.timeout(BLOCK_MILLISECONDS / 1000 + WRITE_TIMEOUT):
            reply: Any = await streams_of_loop().xread(ids, count=BATCH_EVENTS, block=BLOCK_MILLISECONDS)
        entries_by_stream = dict(reply or ())
        if wakeups := entries_by_stream.pop(self._wakeup_stream, None):
            self._last_wakeup = wakeups[-1][0]
        return {stream: [_decode_entry(entry) for entry in entries] for stream, entries in entries_by_stream.items()}

    def _deliver(self, news: Mapping[str, list[EncodedEvent]], after: Mapping[str, int]) -> None:
        """Give events to the readers that wait for them. `after` as in `_read_streams`."""
        for future, (stream, seq) in list(self._waiting.items()):
            if after.get(stream, seq + 1) > seq:
                continue  # it joined during the read and lacks earlier events, which the next read returns
            later = [event for event in news.get(stream, ()) if event.seq > seq]
            if later and not future.done():
                del self._waiting[future]
                future.set_result(later)

    def _give_up(self, error: Exception | None = None) -> None:
        """Give all readers an empty list, or the error."""
        while self._waiting:
            future, _ = self._waiting.popitem()
            if future.done():
                continue
            if error is None:
                future.set_result([])
            else:
                future.set_exception(error)


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _StreamReader]" = WeakKeyDictionary()


def _reader() -> _StreamReader:
    """Return the reader of the running event loop."""
    return _readers.setdefault(asyncio.get_running_loop(), _StreamReader())


def delete_streams(turns: Iterable[UUID]) -> None:
    """Delete the streams of these turns, from the disk as well. Synchronous, for services.

    If Redis is unavailable, each stream expires by itself within `KEEP_SECONDS` of its turn's end.
    """
    if names := [_stream_key(turn) for turn in turns]:
        with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):
            streams().delete(*names)
            request_rewrite()
