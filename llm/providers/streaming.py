"""One model call: bytes in, step events out, every failure a `ModelError`.

Server-sent events become parsed JSON at once, without a validated object for every chunk. Their format is that of
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

from aiohttp import ClientResponse
from opentelemetry.trace import SpanKind

from core.errors import ModelError
from core.logs import tracing
from core.logs.metrics import CALLS
from core.sound import sound
from llm.providers import errors
from llm.providers.connection import FAILURES, Connection, failure, whole
from llm.providers.tool_refusals import RefusedTools
from llm.step_filters.pipeline import StepFilter
from llm.step_filters.valid_calls import mended
from llm.types.model_call import (
    EFFORTS,
    NO_SAMPLING,
    STREAM,
    Allocated,
    ModelRequest,
    ParametersLeftOut,
    StepEvent,
    StepFinished,
)

MAX_EVENT = 8 * 1024 * 1024  # bytes of one event; more is a broken or hostile server
DRAIN_TIMEOUT = 0.1  # seconds to wait for the end of the body after the protocol's last event
COUNT_PATIENCE = 2.0  # seconds for a count before a call
COUNT_AGAIN = 600.0  # seconds after which who did not count is asked again
LONGEST_DETAIL = 100  # characters of a reason for the end of an answer that is not known
MOST_TOKENS = 2**31 - 1  # of a count that is believed; it is what a column of the database holds

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEFORE_CONTENT = BYTE_ORDER_MARK + b" \t\r\n"  # a byte order mark and white space


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class Decoder:
    """Feeds on bytes, gives the payload (`data`) of every complete event. Event names are not used by any provider.

    Some servers leave out the empty line between events: a line behind a whole JSON object begins the next one.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises `ModelError` (malformed_stream) for an event without end."""
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")  # the line has ended already
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        payloads = []
        if lines and not self._begun:
            lines[0], self._begun = lines[0].removeprefix(BYTE_ORDER_MARK), True
        for line in lines:
            if line.startswith(b"data:"):
                if len(self._data) == 1 and self._data[0].endswith(b"}") and _is_object(self._data[0]):
                    payloads.append(self._take())
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                payloads.append(self._take())
        if len(self._rest) + self._size > MAX_EVENT:
            raise errors.malformed()
        return payloads

    def finish(self) -> list[bytes]:
        """An event that the end of the stream left open: some servers omit the last empty line."""
        return (self.feed(b"\n\n") if self._rest else []) + ([self._take()] if self._data else [])

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)

    def _take(self) -> bytes:
        payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data, self._size = [], 0
        return payload


def parse(payload: bytes) -> dict[str, Any]:
    """The JSON object of an event, its texts safe to store. Raises `ModelError` (malformed_stream)."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise errors.malformed() from error
    if not isinstance(value, dict):
        raise errors.malformed()
    if b"\\u" in payload:
        sounded: dict[str, Any] = sound(value)
        return sounded
    return value


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Reads what follows the last event, so that the connection can serve the next call, but does not wait for it."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT):
            async for _ in chunks:
                pass
    except TimeoutError:
        pass


class PayloadDecoder(Protocol):
    """Feeds on the bytes of a stream, gives the payloads that are complete; `finish` gives what its end left open."""

    def feed(self, chunk: bytes) -> list[bytes]: ...

    def finish(self) -> list[bytes]: ...


class StepReader(ABC):
    """Turns the bytes of one answer into events, without any I/O.

    `done`: the protocol's end mark has come. `finished`: the model said why it ended, so nothing it wrote is missing.
    """

    decoder: type[PayloadDecoder] = Decoder
    # Whether the state of reasoning that goes back holds the text of the step as it came.
    replays_text = False

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._decoder = self.decoder()
        self.done = False

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    @abstractmethod
    def _read(self, payload: bytes) -> list[StepEvent]:
        """The events of one payload; may fail with the errors of a surprising shape."""

    @abstractmethod
    def _close(self) -> Iterator[StepEvent]:
        """What the end of the stream makes certain, up to `StepFinished`."""

    def is_whole(self, content_type: str, beginning: bytes) -> bool:
        """Whether the body is no stream: one JSON object, or a web page. `beginning` holds no leading white space.

        Some servers ignore that a stream was asked for. Their content type does not always tell.
        """
        return content_type.startswith("text/html") or beginning.startswith((b"{", b"[", b"<"))

    def read_whole(self, body: bytes) -> list[StepEvent]:
        """The events of an answer that came as one JSON object. Raises `ModelError`."""
        try:
            answer = parse(body)
        except ModelError as error:
            lines = [line for line in body.splitlines() if line.strip()]
            if len(lines) > 1 and all(map(_is_object, lines)):  # a stream of lines, without the form of events
                return [event for line in lines if not self.done for event in self._events(line)]
            if body.startswith(b"[") and (refused := errors.of_list(body)):  # Google's compatible endpoint
                raise errors.from_event(refused, self._api_key) from error
            raise errors.wrong_endpoint() from error
        if errors.says_error(answer):
            raise errors.from_event(answer, self._api_key)
        try:
            events = list(self._whole(answer))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise errors.wrong_endpoint() from error
        if not (self.finished or self.done):
            raise errors.wrong_endpoint()
        return events

    @abstractmethod
    def _whole(self, answer: dict[str, Any]) -> Iterator[StepEvent]:
        """The events of a whole answer; may fail with the errors of a surprising shape."""

    def feed(self, chunk: bytes) -> Iterator[StepEvent]:
        for payload in self._decoder.feed(chunk):
            yield from self._events(payload)

    def finish(self) -> Iterator[StepEvent]:
        """Raises `ModelError` (stream_cut) when the answer is not complete."""
        if not self.finished:
            for payload in self._decoder.finish():
                try:
                    events = self._events(payload)
                except ModelError as error:
                    raise (errors.cut() if error.code == "malformed_stream" else error) from error
                yield from events
        if not (self.finished or self.done):
            raise errors.cut()
        for event in self._close():
            if isinstance(event, StepFinished) and event.usage is not None:
                event = replace(event, usage=event.usage.sensible())
            yield event

    def _events(self, payload: bytes) -> list[StepEvent]:
        try:
            return self._read(payload)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise errors.malformed() from error


# Parameters that a model refuses are left out of its requests, and whoever reads the answer is told. Which model takes
# which changes from month to month, and servers name the one they refuse; so this is no table of who takes what, but a
# memory of what was refused.

MAX_REFUSALS = 8  # of one call, each of another parameter
MAX_TOOL_REFUSALS = 16  # of one call, each of other tools

REASONING = "reasoning of earlier steps"
EFFORT = "reasoning_effort"

# Names under which servers refuse a parameter: its name in OpenAI's Chat Completions protocol.
_NAMES = {
    "reasoning": "reasoning_effort",
    "reasoning.effort": "reasoning_effort",
    "output_config": "reasoning_effort",
    "output_config.effort": "reasoning_effort",
    "think": "reasoning_effort",
    "thinking": "reasoning_effort",
    "thinking.type.disabled": "reasoning_effort",
    "thinking.type.between_tools": "reasoning_effort",
    **dict.fromkeys(EFFORTS, "reasoning_effort"),  # some name the value alone
    "text.verbosity": "verbosity",
    "text.format": "response_format",
    "output_config.format": "response_format",
    "stop_sequences": "stop",
    "prompt_cache_key": "cache_key",
    "cache_control": "cache_points",
    "diagnostics": "previous_answer",
    "diagnostics.previous_message_id": "previous_answer",
    "prompt_cache_breakpoint": "cache_points",
    "reasoning_content": REASONING,
    "reasoning_details": REASONING,
    "messages.reasoning": REASONING,
}
_UNTOLD = {"cache_key", "cache_points", "previous_answer"}  # nobody asked for them, so nobody misses them


class Refused:
    """What the models of one client have refused so far. `unknown`: what their protocol has no word for."""

    def __init__(self, unknown: tuple[str, ...] = ()) -> None:
        self._unknown = unknown
        self._names: dict[str, list[str]] = defaultdict(list)

    def learn(self, request: ModelRequest, error: ModelError) -> bool:
        """Whether the request can be sent again without what was refused in it."""
        name = _NAMES.get(error.parameter) or _NAMES.get(error.parameter.rpartition(".")[2], error.parameter)
        if name == EFFORT:  # a model that refuses one takes others
            name = f"{EFFORT} {request.sampling.reasoning_effort}"
        names = self._names[request.model]
        if not name or name in names or len(names) >= MAX_REFUSALS or without(request, name) == request:
            return False
        names.append(name)
        return True

    def removed(self, request: ModelRequest) -> tuple[ModelRequest, tuple[str, ...]]:
        """The request without what its model refuses, and what of it the person or program had asked for."""
        names = (*self._unknown, *self._names.get(request.model, ()))
        told = []
        for name in names:
            kept = without(request, name)
            if kept != request and name not in _UNTOLD:
                told.append(name.partition(" ")[0] if name.startswith(EFFORT) else name)
            request = kept
        return request, tuple(told)


# Parameters that are left out alike, and what stands there then.
_LEFT_OUT: dict[str, Any] = {
    "temperature": None,
    "stop": (),
    "parallel_tool_calls": True,
    "response_format": None,
    "cache_key": "",
    "cache_points": (),
    "previous_answer": None,
}


def without(request: ModelRequest, name: str) -> ModelRequest:
    """The request without the named parameter; as it was when it has no such one, or cannot do without."""
    if name in _LEFT_OUT:
        return replace(request, **{name: _LEFT_OUT[name]})
    match name:
        case "tool_choice" if request.tool_choice == "required":
            return replace(request, tool_choice="auto", required_tool=None)
        case _ if name == REASONING:
            return replace(request, messages=tuple(replace(each, reasoning=None) for each in request.messages))
        case _ if name == f"{EFFORT} {request.sampling.reasoning_effort}":
            name = EFFORT
    if name in request.sampling.given():
        return replace(request, sampling=replace(request.sampling, **{name: getattr(NO_SAMPLING, name)}))
    return request


class HttpClient(ABC):
    """What the clients of all protocols do alike: one call, sent again without the parameters that its model refuses.

    `unknown`: parameters of a request that the protocol has no word for, by their names in OpenAI's Chat Completions.
    """

    unknown: tuple[str, ...] = ()

    def __init__(self, server: Connection, api_key: str) -> None:
        self._server, self._api_key = server, api_key
        self._refused, self._refused_tools = Refused(self.unknown), RefusedTools()
        self._not_counting: dict[str, float] = {}  # models, and until when on the monotonic clock

    @abstractmethod
    async def _open(self, request: ModelRequest) -> ClientResponse:
        """See `Connection.send`."""

    @abstractmethod
    def _reader(self) -> StepReader: ...

    def _learn(self, request: ModelRequest, refusal: ModelError) -> bool:
        """Whether the request is worth sending again, now that this is known."""
        return self._refused.learn(request, refusal)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `llm.types.model_call.Provider`. Who did not count is left alone for a while, and that is logged once."""
        if self._not_counting.get(request.model, 0.0) > time.monotonic():
            return None
        try:
            asked, _ = self._refused.removed(replace(request, messages=mended(request.messages)))
            asked = self._refused_tools.known_of(asked)
            async with asyncio.timeout(COUNT_PATIENCE):
                if count := tokens(await self._count(asked)):
                    return count
        except (ModelError, TimeoutError, ValueError, TypeError, LookupError) as error:
            reason = type(error).__name__
        else:
            reason = "no number"
        if request.model not in self._not_counting:
            logger.info("%s is not counted by its provider (%s); our own counts are used", request.model, reason)
        self._not_counting[request.model] = time.monotonic() + COUNT_AGAIN
        return None

    async def _count(self, request: ModelRequest) -> Any:
        """The number as the provider says it; None where the protocol has no way to ask."""
        return None

    async def allocated(self, model: str) -> Allocated | None:
        """Nothing, as services of others do not cut prompts."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yields the events of one call. Closing it, or cancelling the task, closes the HTTP stream at once."""
        request = replace(request, messages=mended(request.messages))
        reader, began, outcome = self._reader(), time.monotonic(), "given up"
        step = StepFilter(request, replays_text=reader.replays_text)
        asked = {"gen_ai__operation__name": "chat", "gen_ai__request__model": request.model}
        call = tracing.begin(f"chat {request.model}", SpanKind.CLIENT, **asked, server__address=self._server.host)
        try:
            with tracing.inside(call):
                response, left_out = await self._opened(request)
            call.add_event("answers")
            logger.info("asked %s: it answers after %.2f s", request.model, time.monotonic() - began)
            try:
                if left_out.names or left_out.tools:
                    yield left_out
                async with aclosing(_pieces(response, reader)) as pieces:
                    async for events in pieces:
                        for event in step.pass_on(events):
                            yield event
            except FAILURES as error:
                if not reader.finished:  # else only the report of usage and the end mark are missing
                    raise failure(error, begun=True) from error
            finally:
                response.release()
            outcome = "answered"
            for event in step.pass_on(reader.finish()):
                yield event
        except ModelError as refusal:
            understood = errors.with_count(refusal, request.counted)
            outcome = understood.code
            logger.info("asked %s: %s after %.2f s", request.model, outcome, time.monotonic() - began)
            raise understood from refusal.__cause__
        finally:
            CALLS.labels(self._server.host, request.model, outcome).inc()
            tracing.end(call, "" if outcome == "answered" else outcome)

    async def _opened(self, request: ModelRequest) -> tuple[ClientResponse, ParametersLeftOut]:
        """The response, and what was left out of the request for its model's sake."""
        forgotten: tuple[str, ...] = ()
        sent = known = self._refused_tools.known_of(request)
        met: list[ModelError] = []
        while True:
            asked, left_out = self._refused.removed(sent)
            try:
                response = await self._open(asked)
            except ModelError as refusal:
                if refusal.code == "reasoning_refused" and REASONING not in forgotten:
                    sent, forgotten = without(sent, REASONING), (*forgotten, REASONING)
                elif refusal.parameter == STREAM and sent.streaming:
                    sent, forgotten = replace(sent, streaming=False), (*forgotten, STREAM)
                elif not self._learn(asked, refusal):
                    fewer = self._refused_tools.without(sent, refusal)
                    if len(met) >= MAX_TOOL_REFUSALS or fewer == sent:
                        raise
                    sent = fewer
                    met.append(refusal)
                continue
            if met:
                self._refused_tools.remember(known, met, sent)
            names = {each.name for each in sent.tools}
            lost = tuple(each.name for each in request.tools if each.name not in names)
            return response, ParametersLeftOut(left_out + forgotten, lost)

    async def close(self) -> None:
        await self._server.close()


async def _pieces(response: ClientResponse, reader: StepReader) -> AsyncGenerator[Iterable[StepEvent], None]:
    """The events of each piece of the body, up to the end of the answer; of one that is no stream all at once."""
    chunks, begun = response.content.iter_any(), False
    async for chunk in chunks:
        if not begun and (beginning := chunk.lstrip(_BEFORE_CONTENT)):
            begun = True
            if reader.is_whole(response.headers.get("content-type", ""), beginning):
                yield reader.read_whole(beginning + await whole(response))
                return
        yield reader.feed(chunk)
        if reader.done:
            await _drain(chunks)
            return


def tokens(value: Any) -> int:
    """A count that a provider reports; what is none, negative or beyond reason is as if it had not been reported."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        note_strange(f"{type(value).__name__} in the place of a number")
        return 0
    if not 0 <= value <= MOST_TOKENS:
        note_strange("negative number" if value < 0 else f"number above {MOST_TOKENS:,}")
        return 0
    return value


@lru_cache
def note_strange(what: str) -> None:
    """Once: a provider that reports nonsense does so with every answer."""
    logger.warning("a provider reported a %s as its count of tokens, which is not taken", what)


def members(value: Any) -> dict[str, Any]:
    """Those of a JSON object that a provider may send; none where it sends something else."""
    return value if isinstance(value, dict) else {}


def named(listed: Any, member: str = "data", name: str = "id") -> list[str]:
    """The names in a server's list of models. Raises `ModelError` for what is none."""
    try:
        return [str(model[name]) for model in listed[member]]
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint() from error
