"""Make one model call: a request in, step events out, every failure a `ModelError`.

1. `HttpClient.stream` leaves out the parameters and tools that the model has refused before (`RefusedParameters`,
   `llm.providers.tool_refusals`) and sends the request.
2. A refusal that names a parameter teaches the client. The request is sent again without it.
3. A `PayloadDecoder` splits the bytes of the answer into payloads. A `StepReader` turns these into events.
4. A `StepFilter` (`llm.step_filters`) finds reasoning and tool calls in the text, and passes the events on.

Server-sent events become parsed JSON directly, without a validated object for every chunk. Their format:
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
from core.json_types import JsonObject
from core.logs import tracing
from core.logs.metrics import CALLS
from core.sound import replace_unstorable
from llm.providers import errors
from llm.providers.connection import FAILURES, Connection, failure, read_body
from llm.providers.tool_refusals import RefusedTools
from llm.step_filters.pipeline import StepFilter
from llm.step_filters.valid_calls import mended
from llm.types.model_call import (
    EFFORTS,
    STREAM,
    Allocated,
    ModelRequest,
    ParametersLeftOut,
    Sampling,
    StepEvent,
    StepFinished,
)

MAX_EVENT = 8 * 1024 * 1024  # bytes per event; only a broken or hostile server sends more
DRAIN_TIMEOUT = 0.1  # seconds to wait for the end of the body after the protocol's last event
COUNT_PATIENCE = 2.0  # timeout in seconds for a count before a call
COUNT_AGAIN = 600.0  # seconds before the next request for a count after a failed one
MAX_DETAIL_LENGTH = 100  # characters stored of an unknown finish reason
MAX_TOKENS = 2**31 - 1  # largest accepted count, which is the limit of the database column

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEFORE_CONTENT = BYTE_ORDER_MARK + b" \t\r\n"  # a byte order mark and white space


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


class EventDecoder:
    """Decoder of server-sent events. It returns the payload (`data`) of every complete event, and ignores event names.

    Some servers omit the empty line between events. So a line after a complete JSON object begins the next event.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that these bytes complete. Raises `ModelError` (malformed_stream) for a huge event."""
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")  # the line has ended already
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        payloads = []
        if lines and not self._started:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
            self._started = True
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
        """Return the last event if it is still open, since some servers omit the final empty line."""
        return (self.feed(b"\n\n") if self._rest else []) + ([self._take()] if self._data else [])

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)

    def _take(self) -> bytes:
        payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data = []
        self._size = 0
        return payload


def parse(payload: bytes) -> JsonObject:
    """Return the JSON object of an event, with texts that are safe to store. Raises `ModelError` (malformed_stream)."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise errors.malformed() from error
    if not isinstance(value, dict):
        raise errors.malformed()
    if b"\\u" in payload:
        repaired: JsonObject = replace_unstorable(value)
        return repaired
    return value


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of the body, for at most `DRAIN_TIMEOUT`, so that the connection can be reused."""
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT):
            async for _ in chunks:
                pass
    except TimeoutError:
        pass


class PayloadDecoder(Protocol):
    """Interface of decoders. `feed` returns complete payloads, `finish` the payloads still open at the end."""

    def feed(self, chunk: bytes) -> list[bytes]: ...

    def finish(self) -> list[bytes]: ...


class StepReader(ABC):
    """Reader that turns the bytes of one answer into events, without any I/O.

    `done`: the protocol's end mark has arrived. `finished`: the model has sent a finish reason, so its text is whole.
    """

    decoder: type[PayloadDecoder] = EventDecoder
    replays_text = False  # whether the reasoning that is sent back contains the unchanged text of the step

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._decoder = self.decoder()
        self.done = False

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    @abstractmethod
    def _read(self, payload: bytes) -> list[StepEvent]:
        """Return the events of one payload. An unexpected shape may raise any Python error."""

    @abstractmethod
    def _close(self) -> Iterator[StepEvent]:
        """Yield the final events of the stream, up to `StepFinished`."""

    def is_whole(self, content_type: str, beginning: bytes) -> bool:
        """Return whether the body is one JSON object or a web page instead of a stream.

        Some servers ignore the request for a stream, and their content type is not reliable. `beginning` has no
        leading white space.
        """
        return content_type.startswith("text/html") or beginning.startswith((b"{", b"[", b"<"))

    def read_whole(self, body: bytes) -> list[StepEvent]:
        """Return the events of an answer that came as one JSON object. Raises `ModelError`."""
        try:
            answer = parse(body)
        except ModelError as error:
            lines = [line for line in body.splitlines() if line.strip()]
            if len(lines) > 1 and all(map(_is_object, lines)):  # a stream of JSON lines without the `data:` prefix
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
    def _whole(self, answer: JsonObject) -> Iterator[StepEvent]:
        """Yield the events of a whole answer. An unexpected shape may raise any Python error."""

    def feed(self, chunk: bytes) -> Iterator[StepEvent]:
        """Yield the events that these bytes complete. Raises `ModelError`."""
        for payload in self._decoder.feed(chunk):
            yield from self._events(payload)

    def finish(self) -> Iterator[StepEvent]:
        """Yield the last events. Raises `ModelError` (stream_cut) if the answer is not complete."""
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


# The client remembers the parameters that a model has refused, and leaves them out of later requests. A table of models
# would change every month. It is not needed, since servers name the parameter that they refuse. The answer tells people
# which parameters were left out.

MAX_REFUSALS = 8  # refused parameters per model
MAX_TOOL_REFUSALS = 16  # refusals of tools per call

REASONING = "reasoning of earlier steps"
EFFORT = "reasoning_effort"

# Maps the names in servers' refusals to names of OpenAI's Chat Completions.
_NAMES = {
    "reasoning": "reasoning_effort",
    "reasoning.effort": "reasoning_effort",
    "output_config": "reasoning_effort",
    "output_config.effort": "reasoning_effort",
    "think": "reasoning_effort",
    "thinking": "reasoning_effort",
    "thinking.type.disabled": "reasoning_effort",
    "thinking.type.between_tools": "reasoning_effort",
    **dict.fromkeys(EFFORTS, "reasoning_effort"),  # some servers name only the value
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
_UNREPORTED_PARAMETERS = {
    "cache_key",
    "cache_points",
    "previous_answer",
}  # added by Glasshouse, so people need not know


class RefusedParameters:
    """Parameters that the models of one client have refused so far. `unknown`: parameters that the protocol lacks."""

    def __init__(self, unknown: tuple[str, ...] = ()) -> None:
        self._unknown = unknown
        self._names: dict[str, list[str]] = defaultdict(list)

    def learn(self, request: ModelRequest, error: ModelError) -> bool:
        """Remember the parameter of a refusal. Return whether the request can be sent again without it."""
        name = _NAMES.get(error.parameter) or _NAMES.get(error.parameter.rpartition(".")[2], error.parameter)
        if name == EFFORT:  # a model that refuses one effort may accept others
            name = f"{EFFORT} {request.sampling.reasoning_effort}"
        names = self._names[request.model]
        if not name or name in names or len(names) >= MAX_REFUSALS or without(request, name) == request:
            return False
        names.append(name)
        return True

    def removed(self, request: ModelRequest) -> tuple[ModelRequest, tuple[str, ...]]:
        """Return the request without refused parameters, and the names of the removed ones that people had set."""
        names = (*self._unknown, *self._names.get(request.model, ()))
        left_out = []
        for name in names:
            shorter = without(request, name)
            if shorter != request and name not in _UNREPORTED_PARAMETERS:
                left_out.append(name.partition(" ")[0] if name.startswith(EFFORT) else name)
            request = shorter
        return request, tuple(left_out)


def without(request: ModelRequest, name: str) -> ModelRequest:
    """Return the request without the named parameter. Unchanged if the parameter is missing or required."""
    match name:
        case "temperature":
            return replace(request, temperature=None)
        case "stop":
            return replace(request, stop=())
        case "parallel_tool_calls":
            return replace(request, parallel_tool_calls=True)
        case "response_format":
            return replace(request, response_format=None)
        case "cache_key" | "cache_points" | "previous_answer":
            return _without_cache(request, name)
        case "tool_choice" if request.tool_choice == "required":
            return replace(request, tool_choice="auto", required_tool=None)
        case _ if name == REASONING:
            return replace(request, messages=tuple(replace(each, reasoning=None) for each in request.messages))
        case _ if name == f"{EFFORT} {request.sampling.reasoning_effort}":
            name = EFFORT
    return replace(request, sampling=_without_sampling(request.sampling, name))


def _without_cache(request: ModelRequest, name: str) -> ModelRequest:
    """Return the request without the named parameter for the provider's cache."""
    match name:
        case "cache_key":
            return replace(request, cache_key="")
        case "cache_points":
            return replace(request, cache_points=())
    return replace(request, previous_answer=None)


def _without_sampling(sampling: Sampling, name: str) -> Sampling:
    """Return the sampling parameters without the named one."""
    match name:
        case "top_p":
            return replace(sampling, top_p=None)
        case "presence_penalty":
            return replace(sampling, presence_penalty=None)
        case "frequency_penalty":
            return replace(sampling, frequency_penalty=None)
        case "seed":
            return replace(sampling, seed=None)
        case "reasoning_effort":
            return replace(sampling, reasoning_effort=None)
        case "verbosity":
            return replace(sampling, verbosity=None)
    return sampling


class HttpClient(ABC):
    """Base of the clients of all protocols. It sends a call, and resends it without refused parameters.

    `unknown`: parameters of a request that the protocol lacks, by their names in OpenAI's Chat Completions.
    """

    unknown: tuple[str, ...] = ()

    def __init__(self, server: Connection, api_key: str) -> None:
        self._server = server
        self._api_key = api_key
        self._refused = RefusedParameters(self.unknown)
        self._refused_tools = RefusedTools()
        self._not_counting: dict[str, float] = {}  # by model, until this time of the monotonic clock

    @abstractmethod
    async def _open(self, request: ModelRequest) -> ClientResponse:
        """Send the request, and return the answer as soon as it begins. See `Connection.send`."""

    @abstractmethod
    def _reader(self) -> StepReader: ...

    def _learn(self, request: ModelRequest, refusal: ModelError) -> bool:
        """Remember a refusal. Return whether the request should be sent again."""
        return self._refused.learn(request, refusal)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's count of a prompt; see `llm.types.model_call.ProviderClient`.

        After a failed count, the provider is not asked again for `COUNT_AGAIN` seconds. The first failure is logged.
        """
        if self._not_counting.get(request.model, 0.0) > time.monotonic():
            return None
        try:
            accepted, _ = self._refused.removed(replace(request, messages=mended(request.messages)))
            accepted = self._refused_tools.removed(accepted)
            async with asyncio.timeout(COUNT_PATIENCE):
                if count := tokens(await self._count(accepted)):
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
        """Return the number as the provider sends it, None if the protocol cannot count."""
        return None

    async def allocated(self, model: str) -> Allocated | None:
        """Return None: hosted services do not truncate prompts."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yield the events of one call. Closing the iterator or cancelling the task closes the HTTP stream at once."""
        request = replace(request, messages=mended(request.messages))
        reader = self._reader()
        began = time.monotonic()
        outcome = "given up"
        step = StepFilter(request, replays_text=reader.replays_text)
        call = tracing.begin(
            f"chat {request.model}",
            SpanKind.CLIENT,
            gen_ai__operation__name="chat",
            gen_ai__request__model=request.model,
            server__address=self._server.host,
        )
        try:
            with tracing.inside(call):
                response, left_out = await self._open_accepted(request)
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
                if not reader.finished:  # otherwise only the usage and the end mark are missing
                    raise failure(error, started=True) from error
            finally:
                response.release()
            outcome = "answered"
            for event in step.pass_on(reader.finish()):
                yield event
        except ModelError as refusal:
            explained = errors.with_count(refusal, request.counted)
            outcome = explained.code
            logger.info("asked %s: %s after %.2f s", request.model, outcome, time.monotonic() - began)
            raise explained from refusal.__cause__
        finally:
            CALLS.labels(self._server.host, request.model, outcome).inc()
            tracing.end(call, "" if outcome == "answered" else outcome)

    async def _open_accepted(self, request: ModelRequest) -> tuple[ClientResponse, ParametersLeftOut]:
        """Return the response, and the parameters and tools that were left out of the request."""
        dropped: tuple[str, ...] = ()
        first = self._refused_tools.removed(request)
        sent = first
        tool_refusals: list[ModelError] = []
        while True:
            accepted, left_out = self._refused.removed(sent)
            try:
                response = await self._open(accepted)
            except ModelError as refusal:
                if refusal.code == "reasoning_refused" and REASONING not in dropped:
                    sent = without(sent, REASONING)
                    dropped = (*dropped, REASONING)
                elif refusal.parameter == STREAM and sent.streaming:
                    sent = replace(sent, streaming=False)
                    dropped = (*dropped, STREAM)
                elif not self._learn(accepted, refusal):
                    fewer = self._refused_tools.without(sent, refusal)
                    if len(tool_refusals) >= MAX_TOOL_REFUSALS or fewer == sent:
                        raise
                    sent = fewer
                    tool_refusals.append(refusal)
                continue
            if tool_refusals:
                self._refused_tools.remember(first, tool_refusals, sent)
            names = {each.name for each in sent.tools}
            missing = tuple(each.name for each in request.tools if each.name not in names)
            return response, ParametersLeftOut(left_out + dropped, missing)

    async def close(self) -> None:
        await self._server.close()


async def _pieces(response: ClientResponse, reader: StepReader) -> AsyncGenerator[Iterable[StepEvent], None]:
    """Yield the events of each piece of the body, up to the end of the answer. A non-stream body is one piece."""
    chunks = response.content.iter_any()
    started = False
    async for chunk in chunks:
        if not started and (beginning := chunk.lstrip(_BEFORE_CONTENT)):
            started = True
            if reader.is_whole(response.headers.get("content-type", ""), beginning):
                yield reader.read_whole(beginning + await read_body(response))
                return
        yield reader.feed(chunk)
        if reader.done:
            await _drain(chunks)
            return


def tokens(value: Any) -> int:
    """Return the count that a provider reports, 0 for a negative or huge number or another type."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        note_strange(f"{type(value).__name__} in the place of a number")
        return 0
    if not 0 <= value <= MAX_TOKENS:
        note_strange("negative number" if value < 0 else f"number above {MAX_TOKENS:,}")
        return 0
    return value


@lru_cache
def note_strange(what: str) -> None:
    """Log an invalid token count, but only once, since such a provider sends it with every answer."""
    logger.warning("a provider reported a %s as its count of tokens, which is not taken", what)


def members(value: Any) -> JsonObject:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def model_names(listed: Any, member: str = "data", name: str = "id") -> list[str]:
    """Return the names in a server's list of models. Raises `ModelError` if the response has another form."""
    try:
        return [str(model[name]) for model in listed[member]]
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint() from error
