"""Make one model call: a request in, step events out, every failure a `ModelError`.

1. `HttpClient.stream` leaves out the parameters and tools that the model has refused before (`RefusedParameters`,
   `llm.providers.tool_refusals`) and sends the request.
2. After a refusal that names a parameter or a tool, the request is sent again without it. The client remembers it.
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
from llm.providers.connection import NETWORK_ERRORS, Connection, read_body, to_model_error
from llm.providers.tool_refusals import RefusedTools
from llm.step_filters.pipeline import StepFilter
from llm.step_filters.valid_calls import mend_messages
from llm.types.model_call import (
    EFFORTS,
    STREAM,
    AllocatedWindow,
    ModelRequest,
    ParametersLeftOut,
    Sampling,
    StepEvent,
    StepFinished,
)

MAX_EVENT_BYTES = 8 * 1024 * 1024  # bytes per event; only a broken or hostile server sends more
DRAIN_TIMEOUT = 0.1  # seconds to wait for the end of the body after the protocol's last event
COUNT_TIMEOUT = 2.0  # timeout in seconds for a count before a call
COUNT_RETRY_AFTER = 600.0  # seconds between a failed request for a count and the next one
MAX_DETAIL_LENGTH = 100  # characters of an unknown finish reason that are stored
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
                    payloads.append(self._take_payload())
                self._add_data(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                payloads.append(self._take_payload())
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise errors.malformed_error()
        return payloads

    def finish(self) -> list[bytes]:
        """Return the last event if it is still open, since some servers omit the final empty line."""
        return (self.feed(b"\n\n") if self._rest else []) + ([self._take_payload()] if self._data else [])

    def _add_data(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)

    def _take_payload(self) -> bytes:
        payload = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data = []
        self._size = 0
        return payload


def parse_object(payload: bytes) -> JsonObject:
    """Return the JSON object of an event, with texts that are safe to store. Raises `ModelError` (malformed_stream)."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise errors.malformed_error() from error
    if not isinstance(value, dict):
        raise errors.malformed_error()
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

    `end_received`: the protocol's end mark has arrived. `text_complete`: a finish reason has arrived, so the text is
    complete.
    """

    decoder: type[PayloadDecoder] = EventDecoder
    replays_text = False  # whether the reasoning that is sent back includes the unchanged text of the step

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key
        self._decoder = self.decoder()
        self.end_received = False

    @property
    @abstractmethod
    def text_complete(self) -> bool: ...

    @abstractmethod
    def _read(self, payload: bytes) -> list[StepEvent]:
        """Return the events of one payload. An unexpected shape may raise any Python error."""

    @abstractmethod
    def _final_events(self) -> Iterator[StepEvent]:
        """Yield the final events of the stream, up to `StepFinished`."""

    def is_document(self, content_type: str, beginning: bytes) -> bool:
        """Return whether the body is a JSON value or a web page instead of a stream.

        Some servers ignore the request for a stream, and their content type is not reliable. `beginning` has no
        leading white space.
        """
        return content_type.startswith("text/html") or beginning.startswith((b"{", b"[", b"<"))

    def read_document(self, body: bytes) -> list[StepEvent]:
        """Return the events of an answer that is not a stream, but one JSON object or lines of them.

        Raises `ModelError`.
        """
        try:
            answer = parse_object(body)
        except ModelError as error:
            lines = [line for line in body.splitlines() if line.strip()]
            if len(lines) > 1 and all(map(_is_object, lines)):  # a stream of JSON lines without the `data:` prefix
                return [event for line in lines if not self.end_received for event in self._read_payload(line)]
            if body.startswith(b"[") and (refused := errors.find_error_in_list(body)):  # Google's compatible endpoint
                raise errors.from_event(refused, self._api_key) from error
            raise errors.wrong_endpoint_error() from error
        if errors.is_error(answer):
            raise errors.from_event(answer, self._api_key)
        try:
            events = list(self._read_answer(answer))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise errors.wrong_endpoint_error() from error
        if not (self.text_complete or self.end_received):
            raise errors.wrong_endpoint_error()
        return events

    @abstractmethod
    def _read_answer(self, answer: JsonObject) -> Iterator[StepEvent]:
        """Yield the events of a whole answer. An unexpected shape may raise any Python error."""

    def feed(self, chunk: bytes) -> Iterator[StepEvent]:
        """Yield the events that these bytes complete. Raises `ModelError`."""
        for payload in self._decoder.feed(chunk):
            yield from self._read_payload(payload)

    def finish(self) -> Iterator[StepEvent]:
        """Yield the last events. Raises `ModelError` (stream_cut) if the answer is not complete."""
        if not self.text_complete:
            for payload in self._decoder.finish():
                try:
                    events = self._read_payload(payload)
                except ModelError as error:
                    raise (errors.stream_cut_error() if error.code == "malformed_stream" else error) from error
                yield from events
        if not (self.text_complete or self.end_received):
            raise errors.stream_cut_error()
        for event in self._final_events():
            if isinstance(event, StepFinished) and event.usage is not None:
                event = replace(event, usage=event.usage.within_totals())
            yield event

    def _read_payload(self, payload: bytes) -> list[StepEvent]:
        try:
            return self._read(payload)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise errors.malformed_error() from error


# The client remembers the parameters that a model has refused, and leaves them out of later requests. It needs no table
# of models, which would change every month, since servers name the parameter that they refuse. People read with the
# answer which parameters were left out.

MAX_REFUSALS = 8  # refused parameters per model
MAX_TOOL_REFUSALS = 16  # refusals of tools per call

REASONING = "reasoning of earlier steps"
EFFORT = "reasoning_effort"

# Maps the names in servers' refusals to names of OpenAI's Chat Completions.
_PARAMETER_NAMES = {
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
# Parameters that Glasshouse adds. People did not set them, so no report names them.
_UNREPORTED_PARAMETERS = {"cache_key", "cache_points", "previous_answer"}


class RefusedParameters:
    """Parameters that the models of one client have refused. `missing_parameters`: those that the protocol lacks."""

    def __init__(self, missing_parameters: tuple[str, ...] = ()) -> None:
        self._missing_parameters = missing_parameters
        self._names: dict[str, list[str]] = defaultdict(list)

    def learn(self, request: ModelRequest, error: ModelError) -> bool:
        """Remember the parameter that a refusal names. Return whether the request can be sent again without it."""
        name = _PARAMETER_NAMES.get(error.parameter) or _PARAMETER_NAMES.get(
            error.parameter.rpartition(".")[2], error.parameter
        )
        if name == EFFORT:  # a model that refuses one effort may accept others
            name = f"{EFFORT} {request.sampling.reasoning_effort}"
        names = self._names[request.model]
        if not name or name in names or len(names) >= MAX_REFUSALS or without_parameter(request, name) == request:
            return False
        names.append(name)
        return True

    def remove_refused(self, request: ModelRequest) -> tuple[ModelRequest, tuple[str, ...]]:
        """Return the request without refused parameters, and the names of the removed ones that people had set."""
        names = (*self._missing_parameters, *self._names.get(request.model, ()))
        left_out = []
        for name in names:
            shorter = without_parameter(request, name)
            if shorter != request and name not in _UNREPORTED_PARAMETERS:
                left_out.append(name.partition(" ")[0] if name.startswith(EFFORT) else name)
            request = shorter
        return request, tuple(left_out)


def without_parameter(request: ModelRequest, name: str) -> ModelRequest:
    """Return the request without the named parameter, or unchanged if it does not have it or cannot do without it."""
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

    `missing_parameters`: parameters of a request that the protocol lacks, by their names in OpenAI's Chat Completions.
    """

    missing_parameters: tuple[str, ...] = ()

    def __init__(self, server: Connection, api_key: str) -> None:
        self._server = server
        self._api_key = api_key
        self._refused = RefusedParameters(self.missing_parameters)
        self._refused_tools = RefusedTools()
        # By model, the time of the monotonic clock from which a count is requested again.
        self._count_retry_times: dict[str, float] = {}

    @abstractmethod
    async def _send(self, request: ModelRequest) -> ClientResponse:
        """Send the request, and return the response as soon as its headers arrive. See `Connection.send`."""

    @abstractmethod
    def _new_reader(self) -> StepReader: ...

    def _learn_refusal(self, request: ModelRequest, refusal: ModelError) -> bool:
        """Remember a refusal. Return whether the request should be sent again."""
        return self._refused.learn(request, refusal)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's count of a prompt; see `llm.types.model_call.ProviderClient`.

        After a failed count, the provider gets no such request for `COUNT_RETRY_AFTER` seconds. The first failure is
        logged.
        """
        if self._count_retry_times.get(request.model, 0.0) > time.monotonic():
            return None
        try:
            request_to_count, _ = self._refused.remove_refused(
                replace(request, messages=mend_messages(request.messages))
            )
            request_to_count = self._refused_tools.remove_refused(request_to_count)
            async with asyncio.timeout(COUNT_TIMEOUT):
                if count := token_count(await self._request_count(request_to_count)):
                    return count
        except (ModelError, TimeoutError, ValueError, TypeError, LookupError) as error:
            reason = type(error).__name__
        else:
            reason = "no number"
        if request.model not in self._count_retry_times:
            logger.info("%s is not counted by its provider (%s); our own counts are used", request.model, reason)
        self._count_retry_times[request.model] = time.monotonic() + COUNT_RETRY_AFTER
        return None

    async def _request_count(self, request: ModelRequest) -> Any:
        """Return the count as the provider sends it, or None if the protocol cannot count."""
        return None

    async def allocated_window(self, model: str) -> AllocatedWindow | None:
        """Return None, since hosted services do not truncate prompts."""
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StepEvent, None]:
        """Yield the events of one call. Closing the iterator or cancelling the task closes the HTTP stream at once."""
        request = replace(request, messages=mend_messages(request.messages))
        reader = self._new_reader()
        start_time = time.monotonic()
        outcome = "given up"
        step_filter = StepFilter(request, replays_text=reader.replays_text)
        span = tracing.begin(
            f"chat {request.model}",
            SpanKind.CLIENT,
            gen_ai__operation__name="chat",
            gen_ai__request__model=request.model,
            server__address=self._server.host,
        )
        try:
            with tracing.inside(span):
                response, left_out = await self._send_accepted(request)
            span.add_event("answers")
            logger.info("asked %s: it answers after %.2f s", request.model, time.monotonic() - start_time)
            try:
                if left_out.names or left_out.tools:
                    yield left_out
                async with aclosing(_read_events(response, reader)) as pieces:
                    async for events in pieces:
                        for event in step_filter.filter_events(events):
                            yield event
            except NETWORK_ERRORS as error:
                if not reader.text_complete:  # otherwise only the usage and the end mark have not arrived
                    raise to_model_error(error, started=True) from error
            finally:
                response.release()
            outcome = "answered"
            for event in step_filter.filter_events(reader.finish()):
                yield event
        except ModelError as refusal:
            model_error = errors.reclassify_by_count(refusal, request.counted)
            outcome = model_error.code
            logger.info("asked %s: %s after %.2f s", request.model, outcome, time.monotonic() - start_time)
            raise model_error from refusal.__cause__
        finally:
            CALLS.labels(self._server.host, request.model, outcome).inc()
            tracing.end(span, "" if outcome == "answered" else outcome)

    async def _send_accepted(self, request: ModelRequest) -> tuple[ClientResponse, ParametersLeftOut]:
        """Return the response, and the parameters and tools that were left out of the request."""
        dropped: tuple[str, ...] = ()
        first = self._refused_tools.remove_refused(request)
        current = first
        tool_refusals: list[ModelError] = []
        while True:
            accepted, left_out = self._refused.remove_refused(current)
            try:
                response = await self._send(accepted)
            except ModelError as refusal:
                if refusal.code == "reasoning_refused" and REASONING not in dropped:
                    current = without_parameter(current, REASONING)
                    dropped = (*dropped, REASONING)
                elif refusal.parameter == STREAM and current.streaming:
                    current = replace(current, streaming=False)
                    dropped = (*dropped, STREAM)
                elif not self._learn_refusal(accepted, refusal):
                    fewer = self._refused_tools.remove_named(current, refusal)
                    if len(tool_refusals) >= MAX_TOOL_REFUSALS or fewer == current:
                        raise
                    current = fewer
                    tool_refusals.append(refusal)
                continue
            if tool_refusals:
                self._refused_tools.remember(first, tool_refusals, current)
            names = {each.name for each in current.tools}
            missing = tuple(each.name for each in request.tools if each.name not in names)
            return response, ParametersLeftOut(left_out + dropped, missing)

    async def close(self) -> None:
        await self._server.close()


async def _read_events(response: ClientResponse, reader: StepReader) -> AsyncGenerator[Iterable[StepEvent], None]:
    """Yield the events of each piece of the body, up to the end of the answer.

    A body that is no stream is one piece.
    """
    chunks = response.content.iter_any()
    started = False
    async for chunk in chunks:
        if not started and (beginning := chunk.lstrip(_BEFORE_CONTENT)):
            started = True
            if reader.is_document(response.headers.get("content-type", ""), beginning):
                yield reader.read_document(beginning + await read_body(response))
                return
        yield reader.feed(chunk)
        if reader.end_received:
            await _drain(chunks)
            return


def token_count(value: Any) -> int:
    """Return the count that a provider reports, or 0 for a negative or huge number and for another type."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        log_invalid_count(f"{type(value).__name__} instead of a number")
        return 0
    if not 0 <= value <= MAX_TOKENS:
        log_invalid_count("negative number" if value < 0 else f"number above {MAX_TOKENS:,}")
        return 0
    return value


@lru_cache
def log_invalid_count(description: str) -> None:
    """Log an invalid token count, but only once, since such a provider sends it with every answer."""
    logger.warning("a provider reported a %s as its count of tokens; it is ignored", description)


def as_object(value: Any) -> JsonObject:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def model_names(answer: Any, member: str = "data", name: str = "id") -> list[str]:
    """Return the names in a server's list of models. Raises `ModelError` if the answer has another form."""
    try:
        return [str(model[name]) for model in answer[member]]
    except (TypeError, LookupError) as error:
        raise errors.wrong_endpoint_error() from error
