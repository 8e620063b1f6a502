"""The Redis stream of a turn: every event in order, until an hour after the end, as the JSON that goes out.

Readers block on the streams themselves (XREAD), all those of a process in one read, so there is no announcement that
could be lost or come too early: what is in a stream is read, in order, from any point. Entry ids are `<seq>-0`: Redis
itself refuses a wrong order. What Redis loses, its readers see by the numbers; the rows have it.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

import redis
from redis.exceptions import OutOfMemoryError

from chat.realtime.append_only import request_rewrite
from chat.realtime.events import Event, Written, written
from core.background import streams, streams_of_loop

KEPT = 3600  # seconds after the last event
BLOCK = 2_500  # milliseconds; how often a silent reader looks whether the turn is still there
BATCH = 100  # events of one turn that are read at once
PAUSE, LONGEST_PAUSE = 0.0005, 0.010  # seconds between two reads: for each turn, in which more gathers, and of all
GATHERED = 0.005  # seconds after what was appended before
UNANSWERED = 5.0  # seconds over its time after which a blocked read is given up, and for a write
REQUEST_WAITS = 2.0  # seconds that a request waits for Redis
RETRY_FOR = 20.0  # seconds that a write waits for a Redis that is away, for example restarting
# A Redis that is full takes nothing either, until there is room again.
CONNECTION_ERRORS = (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError, ConnectionError, TimeoutError)


def _stream(turn: UUID | str) -> str:
    return f"turn:{turn}:wire"  # another name than before what stands in it was the JSON that goes out


async def append(turn: UUID | str, events: Sequence[Event], seconds: float = RETRY_FOR) -> None:
    """Adds events. Waits for a Redis that is away; raises its error after so many seconds.

    Adding is idempotent: an event whose seq is in the stream already, from an attempt whose reply was lost, is skipped.
    """
    deadline = time.monotonic() + seconds
    # Encoded here, where what cannot be is the error of this turn alone.
    entries = [(event.seq, str(event.type), written(event.to_wire()).encode()) for event in events]
    kept = KEPT if events[-1].last else 24 * KEPT
    while True:
        try:
            await _writer().add(_stream(turn), entries, kept)
            return
        except CONNECTION_ERRORS:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        except redis.BusyLoadingError:
            await asyncio.sleep(0.1)


async def append_if_reachable(turn: UUID | str, events: Sequence[Event]) -> None:
    """Add events, for a request. A Redis that is away or hangs loses them: readers then get them from the row."""
    with suppress(*CONNECTION_ERRORS):
        async with asyncio.timeout(REQUEST_WAITS):
            await append(turn, events, seconds=0)


Entry = tuple[int, str, bytes]  # an event's number, its type and its JSON
_Waiting = tuple[str, Sequence[Entry], int, "asyncio.Future[None]"]  # to which stream, kept for so many seconds


class _Writer:
    """What the turns of a process append at the same time goes in one round trip: at once where nothing is on its way,
    else with what has gathered since."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, stream: str, entries: Sequence[Entry], kept: int) -> None:
        """`kept`: seconds from now. Raises the errors of Redis."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((stream, entries, kept, future))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await future

    async def _write(self) -> None:
        try:
            while self._waiting:
                several, self._waiting = self._waiting, []
                try:
                    errors = await self._appended(several)
                except Exception as error:  # whatever it is, those who wait have to hear it
                    errors = [error] * len(several)
                for (*_, future), error_or_none in zip(several, errors, strict=True):
                    _settle(future, error_or_none)
                await asyncio.sleep(GATHERED)
        finally:
            self._writing = None  # it would keep its loop, whose writer this is

    async def _appended(self, several: Sequence[_Waiting]) -> list[Exception | None]:
        """What became of each: None where all of it is in its stream."""
        async with asyncio.timeout(UNANSWERED), streams_of_loop().pipeline(transaction=False) as pipe:
            for stream, entries, kept, _ in several:
                for seq, type_, wire in entries:
                    pipe.xadd(stream, {"type": type_, "wire": wire}, id=f"{seq}-0")
                pipe.expire(stream, kept)
            results = iter(await pipe.execute(raise_on_error=False))
        return [_refused([next(results) for _ in range(len(entries) + 1)]) for _, entries, _, _ in several]


def _refused(results: Sequence[Any]) -> Exception | None:
    """The first error of them that is none of an event that was added before."""
    errors = (each for each in results if isinstance(each, Exception))
    return next((error for error in errors if "equal or smaller" not in str(error)), None)


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


_writers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Writer]" = WeakKeyDictionary()


def _writer() -> _Writer:
    """That of the running event loop."""
    return _writers.setdefault(asyncio.get_running_loop(), _Writer())


def _written(entry: tuple[str, dict[str, str]]) -> Written:
    number, fields = entry
    return Written(fields["type"], int(number.partition("-")[0]), fields["wire"])


async def read(turn: UUID | str, after_seq: int = 0) -> list[Written]:
    """Return all events after `after_seq` that are in the stream now. Raises redis.ConnectionError and TimeoutError."""
    try:
        async with asyncio.timeout(UNANSWERED):
            entries = await streams_of_loop().xrange(_stream(turn), min=f"({after_seq}-0")
    except TimeoutError as error:
        raise redis.TimeoutError("Redis does not answer") from error
    return [_written(entry) for entry in entries]


async def news(turn: UUID | str, seq: int) -> list[Written]:
    """The turn's next events after `seq`; none after 2.5 s of silence, and where Redis is away."""
    return await _reader().news(_stream(turn), seq)


class _Reader:
    """One blocking read for all streams that are followed in a process, while somebody waits for news of one.

    Who has got some waits anew once it is passed on: for a client that reads slowly, little is read. To be heard while
    a read blocks that does not ask for their stream, they write to one that every read asks for.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[list[Written]], tuple[str, int]] = {}  # for which stream, and what they have
        self._asked: dict[str, int] = {}  # of the read that blocks now, by stream
        self._door, self._knocked = f"streams:door:{uuid4()}", "0-0"
        self._reading: asyncio.Task[None] | None = None

    async def news(self, stream: str, seq: int) -> list[Written]:
        """The stream's next events after `seq`; none after 2.5 s of silence, and where Redis is away."""
        future: asyncio.Future[list[Written]] = asyncio.get_running_loop().create_future()
        self._waiting[future] = stream, seq
        try:
            async with asyncio.timeout(BLOCK / 1000):
                if self._reading is None:
                    self._reading = asyncio.create_task(self._read())
                elif self._asked and self._asked.get(stream, seq + 1) > seq:
                    self._asked = {}  # nobody else need knock
                    await self._knock()
                return await future
        except TimeoutError:
            return []
        finally:
            self._waiting.pop(future, None)

    async def _knock(self) -> None:
        with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):  # the read that blocks finds that out, too
            async with streams_of_loop().pipeline(transaction=False) as pipe:
                pipe.xadd(self._door, {"": ""}, maxlen=1, approximate=False)
                pipe.expire(self._door, KEPT)
                await pipe.execute()

    async def _read(self) -> None:
        try:
            while self._waiting:
                await self._read_once()
        finally:
            self._reading = None  # it would keep its loop, whose reader this is

    async def _read_once(self) -> None:
        asked: dict[str, int] = {}
        for stream, seq in self._waiting.values():
            asked[stream] = min(seq, asked.get(stream, seq))
        self._asked = asked
        try:
            self._hand_out(await self._news_of(asked), asked)
        except (*CONNECTION_ERRORS, redis.BusyLoadingError):
            await asyncio.sleep(0.2)
            self._give_up()
        except Exception as error:  # whatever it is, those who wait have to hear it
            self._give_up(error)
        finally:
            self._asked = {}
        await asyncio.sleep(min(LONGEST_PAUSE, PAUSE * len(asked)))

    async def _news_of(self, asked: Mapping[str, int]) -> dict[str, list[Written]]:
        after: dict[Any, Any] = {stream: f"{seq}-0" for stream, seq in asked.items()}
        async with asyncio.timeout(BLOCK / 1000 + UNANSWERED):
            answer: Any = await streams_of_loop().xread({**after, self._door: self._knocked}, count=BATCH, block=BLOCK)
        news: dict[str, Any] = dict(answer or ())
        self._knocked = news.pop(self._door, [[self._knocked]])[-1][0]
        return {stream: [_written(entry) for entry in entries] for stream, entries in news.items()}

    def _hand_out(self, news: Mapping[str, list[Written]], asked: Mapping[str, int]) -> None:
        for future, (stream, seq) in list(self._waiting.items()):
            if asked.get(stream, seq + 1) > seq:
                continue  # who came while the read blocked lacks what is before it, which the next one brings
            later = [event for event in news.get(stream, ()) if event.seq > seq]
            if later and not future.done():
                del self._waiting[future]
                future.set_result(later)

    def _give_up(self, error: Exception | None = None) -> None:
        """Whoever waits hears of silence, or of the error."""
        while self._waiting:
            future, _ = self._waiting.popitem()
            if future.done():
                continue
            if error is None:
                future.set_result([])
            else:
                future.set_exception(error)


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Reader]" = WeakKeyDictionary()


def _reader() -> _Reader:
    """That of the running event loop."""
    return _readers.setdefault(asyncio.get_running_loop(), _Reader())


def forget(turns: Iterable[UUID]) -> None:
    """Delete the streams of these turns, and have them leave the disk too. Synchronous, for services.

    With a Redis that is away each goes by itself within `KEPT` seconds of its turn's end.
    """
    if names := [_stream(turn) for turn in turns]:
        with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):
            streams().delete(*names)
            request_rewrite()
