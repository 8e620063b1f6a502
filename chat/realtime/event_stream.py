"""What reaches those who look at a conversation, and how they reach a running turn.

The Redis stream of a turn has every event in order, until an hour after the end, as the JSON that goes out. Readers
block on the streams themselves (XREAD), all those of a process in one read, so there is no announcement that could be
lost or come too early: what is in a stream is read, in order, from any point. Entry ids are `<seq>-0`: Redis itself
refuses a wrong order. People tell a running turn to stop, and whether a call may run. Open pages get hints that
something has changed and ask for what they show; a lost hint costs nothing.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakKeyDictionary

import redis
from asgiref.sync import async_to_sync
from channels.db import database_sync_to_async
from django.db import transaction
from django.http import StreamingHttpResponse
from django.utils.translation import override
from redis.exceptions import OutOfMemoryError

from accounts.access.authentication import Credential
from accounts.realtime import WhileSignedIn, tell_group
from chat.models import Conversation, Turn
from chat.models.queries import place_in_line
from chat.realtime.events import IN_WORDS, SENTENCES, Approval, Event, Written, written
from core.background import TURNS, streams, streams_of_loop
from core.i18n import translated

KEPT = 3600  # seconds after the last event
CLAIMED = 10  # seconds
BLOCK = 2_500  # milliseconds; how often a silent reader looks whether the turn is still there
BATCH = 100  # events of one turn that are read at once
PAUSE, LONGEST_PAUSE = 0.0005, 0.010  # seconds between two reads: for each turn, in which more gathers, and of all
GATHERED = 0.005  # seconds after what was appended before
UNANSWERED = 5.0  # seconds over its time after which a blocked read is given up, and for a write
RETRY_FOR = 20.0  # seconds that a write waits for a Redis that is away, for example restarting
QUEUED = "QUEUED"  # the type of what is said of a turn that no worker has room for
# A Redis that is full takes nothing either, until there is room again.
CONNECTION_ERRORS = (redis.ConnectionError, redis.TimeoutError, OutOfMemoryError, ConnectionError, TimeoutError)

# On a pool of threads, not on the one that Channels shares between all sockets of a process; and the connection goes
# back to its pool at once, where Django would keep it until the socket or the stream of events is closed.
threaded = partial(database_sync_to_async, thread_sensitive=False)

logger = logging.getLogger(__name__)


def _stream(turn: UUID | str) -> str:
    return f"turn:{turn}:wire"  # another name than before what stands in it was the JSON that goes out


def _decision(turn: UUID | str, call: str) -> str:
    return f"turn:{turn}:decision:{call}"


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
    """All events after `after_seq` that are in the stream now."""
    entries = await streams_of_loop().xrange(_stream(turn), min=f"({after_seq}-0")
    return [_written(entry) for entry in entries]


async def follow(turn: UUID | str, after_seq: int = 0) -> AsyncIterator[list[Written]]:
    """Events after `after_seq` as they come, until the last one of the turn; none after each 2.5 s of silence.

    A caller looks at the row when it gets none: the turn may have ended without its last event, or its stream expired.
    """
    seq = after_seq
    while True:
        events = await _reader().news(_stream(turn), seq)
        yield events
        if events:
            seq = events[-1].seq
            if events[-1].last:
                return


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


def forget(turns: Iterable[UUID]) -> None:
    """Synchronous, for services: what these turns have said is kept no longer. With a Redis that is away it goes within
    `KEPT` seconds of each turn's end by itself."""
    if names := [_stream(turn) for turn in turns]:
        with suppress(*CONNECTION_ERRORS, redis.BusyLoadingError):
            streams().delete(*names)


def signal_stop(turn: UUID | str) -> None:
    """Synchronous, for services. The row carries the wish too, so a Redis that is away delays it only."""
    streams().publish(_BELL, f"stop:{turn}")


def _ended(turn_id: UUID) -> Turn | None:
    return Turn.objects.exclude(status__in=Turn.LIVE).filter(pk=turn_id).first()


async def _position(turn_id: UUID) -> int | None:
    """In the queue of all, else in its person's own line; None when a worker has it."""
    return await TURNS.position(turn_id) or await threaded(place_in_line)(turn_id)


async def events_of(turn: Turn, after_seq: int = 0) -> AsyncIterator[list[Written]]:
    """The turn's events to its end, as they come; none after each 2.5 s of silence. Give it the row as it is now.

    Instead of none, QUEUED tells at which position the turn waits for a worker. When the stream has expired, or misses
    its last event, one SNAPSHOT sends the reader to the row, which is complete.
    """
    seq = after_seq
    if turn.status in Turn.LIVE:
        async for events in follow(turn.pk, after_seq):
            if events:
                seq = events[-1].seq
            elif (ended := await threaded(_ended)(turn.pk)) is not None:
                turn = ended
                break
            elif (position := await _position(turn.pk)) is not None:
                events = [_queued(turn, position)]
            yield events
        else:
            return
    # Of a turn that has just ended, too: a process that is busy may have been silent itself.
    stored = await read(turn.pk, seq)
    yield stored if stored and stored[-1].last else [*stored, _snapshot(turn)]


async def wire_events(turn: Turn, after_seq: int = 0) -> AsyncIterator[dict[str, Any]]:
    """`events_of` as wire objects, one by one; an empty one after each 2.5 s of silence, also while it is queued."""
    async for events in events_of(turn, after_seq):
        for event in events:
            yield event.wire() if event.type != QUEUED else {}
        if not events:
            yield {}


async def ended_turn(turn_id: UUID | str) -> Turn:
    """The turn with its answer, which are complete: for whoever was sent to the row by a SNAPSHOT."""
    return await threaded(Turn.objects.select_related("answer__model").get)(pk=turn_id)


def response(credential: Credential, lines: AsyncIterable[str | bytes]) -> StreamingHttpResponse:
    """Server-sent events, for as long as the credential holds."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would hold events back
    told = WhileSignedIn(credential, lines)
    return StreamingHttpResponse(told, content_type="text/event-stream", headers=headers)


async def lines(turn: Turn, after_seq: int, language: str) -> AsyncIterator[bytes]:
    """The turn's events after `after_seq` as server-sent ones, for somebody of this language."""
    yield b": open\n\n"
    async for events in events_of(turn, after_seq):
        yield "".join(_line(event, language) for event in events).encode() or b": waiting\n\n"


def _line(event: Written, language: str) -> str:
    number = f"id: {event.seq}\n" if event.seq else ""
    return f"{number}event: {event.type}\ndata: {text_of(event, language)}\n\n"


def readable(wire: dict[str, Any]) -> dict[str, Any]:
    """An event with what it says to people in the active language."""
    return {**wire, **{name: translated(wire[name]) for name in SENTENCES if name in wire}}


def text_of(event: Written, language: str) -> str:
    """The JSON of an event for somebody of this language: as it was written, but for what it says to people."""
    if event.type not in IN_WORDS:
        return event.text
    with override(language):  # a stream is read when the middleware that chose it has ended
        return written(readable(event.wire()))


def _queued(turn: Turn, position: int) -> Written:
    return Written(QUEUED, 0, written({"type": QUEUED, "turn": str(turn.pk), "position": position}))


def _snapshot(ended: Turn) -> Written:
    wire = {"type": "SNAPSHOT", "turn": str(ended.pk), "message": str(ended.answer_id), "status": ended.status}
    return Written("SNAPSHOT", 0, written(wire))


def group_of(conversation_id: UUID) -> str:
    """The channel group of everyone who looks at a conversation."""
    return f"conversation.{conversation_id}"


async def announce_state(conversation_id: UUID, state: str, **more: str) -> None:
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
