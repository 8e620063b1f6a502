"""Serialise an answer in OpenAI's protocol: as the chunks of a stream, or as one completion.

1. A `Relay` follows the events of a turn and feeds them to a `Completion`.
2. The `Completion` makes the chunks of the stream and collects the parts of the answer.
3. `Relay` yields the chunks as lines of a stream, or `Relay.whole` returns the collected answer.
"""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, NotRequired, TypedDict

from django.db import InterfaceError, OperationalError

from accounts.access.authentication import Credential
from accounts.realtime import WhileSignedIn
from chat.models import Turn
from chat.models.parts import CitedSource, MessagePart
from chat.openai_api import errors
from chat.openai_api.errors import failure
from chat.realtime import event_stream
from chat.realtime.events import EventType, WireEvent
from chat.rendering.references import CITED
from chat.turns.services import stop_turn
from core.background import carry, with_retries
from core.errors import ProductError
from llm import tokens


class FunctionCall(TypedDict):
    """The function of a tool call. `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCallEntry(TypedDict):
    """A tool call of a whole answer."""

    id: str
    type: str
    function: FunctionCall


class FunctionDelta(TypedDict, total=False):
    """New text of a tool call's function."""

    name: str
    arguments: str


class CallDelta(TypedDict):
    """New text of a tool call. `id` and `type` come with the first chunk of the call."""

    index: int
    id: NotRequired[str]
    type: NotRequired[str]
    function: FunctionDelta


class UrlCitation(TypedDict):
    """A citation. `start_index` and `end_index` count characters of the answer."""

    start_index: int
    end_index: int
    title: str
    url: str


class Annotation(TypedDict):
    """An annotation of an answer."""

    type: str
    url_citation: UrlCitation


class Delta(TypedDict, total=False):
    """The new text of a chunk."""

    role: str
    content: str
    reasoning_content: str
    tool_calls: list[CallDelta]
    annotations: list[Annotation]


class PromptTokensDetails(TypedDict):
    """Details of the prompt's tokens."""

    cached_tokens: int


class CompletionTokensDetails(TypedDict):
    """Details of the answer's tokens."""

    reasoning_tokens: int


class CompletionUsage(TypedDict):
    """The tokens of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ChunkChoice(TypedDict):
    """The choice of a chunk. There is one."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: str | None


class CompletionBase(TypedDict):
    """The members that every chunk and the whole answer have."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: None


class CompletionChunk(CompletionBase):
    """A chunk of a stream. The last one may have no choice, but the usage."""

    choices: list[ChunkChoice]
    usage: NotRequired[CompletionUsage | None]


class AnswerMessage(TypedDict):
    """The message of a whole answer."""

    role: str
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallEntry]]
    annotations: NotRequired[list[Annotation]]


class AnswerChoice(TypedDict):
    """The choice of a whole answer. There is one."""

    index: int
    message: AnswerMessage
    logprobs: None
    finish_reason: str


class WholeCompletion(CompletionBase):
    """A whole answer."""

    choices: list[AnswerChoice]
    usage: CompletionUsage


# Finish reasons that the protocol lacks, with its closest value. We cut off a model that calls a tool against its
# instructions, so `tool_calls` becomes `stop`. `other` becomes `length`, which tells programs that the answer may be
# incomplete.
REASONS = {
    "tool_calls": "stop",
    "refusal": "content_filter",
    "context_window": "length",
    "pause": "length",
    "other": "length",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkHead:
    """The facts of a request that its chunks need.

    `turn` is the turn's id, `model` the model name in the request. `external` has the names of the program's own tools.
    `absolute` turns a path into an address. `ends_with_answer`: the last message of the request is the assistant's;
    some models refuse to continue such a message.
    """

    turn: str
    model: str
    external: Collection[str]
    absolute: Callable[[str], str]
    include_usage: bool = False
    ends_with_answer: bool = False


class Completion:
    """Makes the chunks of an answer from the events of its turn, which are fed in order until `ended`."""

    def __init__(self, head: ChunkHead) -> None:
        self._head = head
        self._created = int(time.time())
        self._model = head.model
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[str, ToolCallEntry] = {}  # by id
        self._sources: dict[int, CitedSource] = {}
        self._part = -1  # number of the part that the last text belongs to
        self._begins: dict[int, int] = {}  # the index in `_text` at which each part begins
        self._lengths = Counter[int]()  # by part: the number of sent characters
        self._planned = 0  # prompt tokens by our own count
        self._opened = False
        self.ended = False
        self._finish = "stop"
        self._usage: CompletionUsage = self._usage_of({})

    def feed(self, event: WireEvent) -> list[CompletionChunk]:
        """Return the chunks of an event. Raises `ProductError` if the turn ends without a whole answer."""
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                return self._add_text(event["part"], event["delta"])
            case "REASONING_CONTENT":
                return self._add_reasoning(event["part"], event["delta"])
            case "TEXT_BECAME_REASONING":
                return self._move_to_reasoning(event["part"], event["text"])
            case "TOOL_CALL_START" if event["name"] in self._head.external:
                return self._call(event["call"], event["name"])
            case "TOOL_CALL_ARGS" if event["call"] in self._calls:
                return self._arguments(event["call"], event["delta"])
            case "RUN_FINISHED":
                return self._close(event["finish"], event["usage"])
            case "RUN_STOPPED" | "RUN_ERROR":
                self._fail(event)
            case "SNAPSHOT":
                return self._catch_up(event)
        self._note(event)
        return []

    def _note(self, event: WireEvent) -> None:
        """Store the values that the last chunks need."""
        match event["type"]:
            case "CITATION":
                number = event["number"]
                self._sources[number] = {"number": number, "title": event["title"], "href": event["href"]}
            case "MODEL_FALLBACK":
                self._model = event["model"]
            case "CONTEXT_REPORT":
                self._planned += event["used"]

    def _fail(self, event: WireEvent) -> NoReturn:
        self.ended = True
        raise stopped() if event["type"] == "RUN_STOPPED" else self._failure(event)

    def _failure(self, event: WireEvent) -> ProductError:
        return failure(event, ends_with_answer=self._head.ends_with_answer)

    def end(self, turn: Turn) -> list[CompletionChunk]:
        """Return the last chunks from the row of a turn whose last event has expired.

        Raises `ProductError`.
        """
        self.ended = True
        if turn.status == Turn.Status.STOPPED:
            raise stopped()
        if turn.status != Turn.Status.DONE:
            raise self._failure(
                {
                    "type": "RUN_ERROR",
                    "code": turn.answer.error_code,
                    "detail": turn.answer.error_detail.dump(),
                    "retryable": True,
                }
            )
        self._planned = sum(call["used"] for call in turn.report.get("calls", ()))
        return self._close(turn.finish_reason or "stop", turn.usage)

    def _catch_up(self, event: WireEvent) -> list[CompletionChunk]:
        """Return the chunks of a SNAPSHOT that were not sent yet."""
        if event["fallback"]:
            self._model = event["model"]
        return [chunk for number, part in enumerate(event["parts"]) for chunk in self._rest(number, part)]

    def _rest(self, number: int, part: MessagePart) -> list[CompletionChunk]:
        """Return the chunks of a part that were not sent yet."""
        if part["type"] == "reasoning" and number in self._begins:
            return self._move_to_reasoning(number, part["text"])
        if part["type"] in ("text", "reasoning"):
            self._sources |= {source["number"]: source for source in part.get("citations", ())}
            add = self._add_text if part["type"] == "text" else self._add_reasoning
            rest = part["text"][self._lengths[number] :]
            return add(number, rest) if rest else []
        if part["type"] != "tool_call" or part["name"] not in self._head.external:
            return []
        first = [] if part["id"] in self._calls else self._call(part["id"], part["name"])
        rest = part["arguments"][len(self._calls[part["id"]]["function"]["arguments"]) :]
        return [*first, *(self._arguments(part["id"], rest) if rest else [])]

    def whole(self) -> WholeCompletion:
        """Return the whole answer, after it has `ended`."""
        text = "".join(self._text)
        message: AnswerMessage = {"role": "assistant", "content": text or None, "refusal": None}
        if not self._calls:
            message["content"] = text
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        if annotations := self._annotations():
            message["annotations"] = annotations
        choice: AnswerChoice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._base("chat.completion"), "choices": [choice], "usage": self._usage}

    def _add_text(self, part: int, delta: str) -> list[CompletionChunk]:
        # The texts before and after a tool call are paragraphs of one answer.
        between = "\n\n" if self._text and part != self._part else ""
        self._part = part
        self._begins.setdefault(part, len(self._text))
        self._lengths[part] += len(delta)
        self._text.append(between + delta)
        return [self._chunk({"content": between + delta})]

    def _move_to_reasoning(self, part: int, text: str) -> list[CompletionChunk]:
        """Send a text again as reasoning. Content that was already sent cannot be withdrawn."""
        del self._text[self._begins.pop(part, len(self._text)) :]
        self._lengths[part] = len(text)
        self._reasoning.append(text)
        return [self._chunk({"reasoning_content": text})]

    def _add_reasoning(self, part: int, delta: str) -> list[CompletionChunk]:
        self._lengths[part] += len(delta)
        self._reasoning.append(delta)
        return [self._chunk({"reasoning_content": delta})]

    def _call(self, id_: str, name: str) -> list[CompletionChunk]:
        self._calls[id_] = {"id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        call: CallDelta = {
            "index": len(self._calls) - 1,
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        return [self._chunk({"tool_calls": [call]})]

    def _arguments(self, id_: str, delta: str) -> list[CompletionChunk]:
        self._calls[id_]["function"]["arguments"] += delta
        index = list(self._calls).index(id_)
        return [self._chunk({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})]

    def _close(self, finish: str, usage: Mapping[str, int]) -> list[CompletionChunk]:
        """Return the last chunks."""
        self.ended = True
        # A call that was cut off by the length limit of the answer must not be run.
        cut = finish in ("length", "context_window")
        self._finish = "tool_calls" if self._calls and not cut else REASONS.get(finish, finish)
        self._usage = self._usage_of(usage)
        annotations = self._annotations()
        last = self._chunk({"annotations": annotations} if annotations else {}, self._finish)
        totals: CompletionChunk = {**self._base("chat.completion.chunk"), "choices": [], "usage": self._usage}
        return [last, totals] if self._head.include_usage else [last]

    def _usage_of(self, usage: Mapping[str, int]) -> CompletionUsage:
        """Return the usage as the provider counts it, or by our own count if it reports none."""
        into = usage.get("input") or self._planned
        out = usage.get("output") or tokens.count("".join(self._text))
        return {
            "prompt_tokens": into,
            "completion_tokens": out,
            "total_tokens": into + out,
            "prompt_tokens_details": {"cached_tokens": usage.get("cached_input", 0)},
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
        }

    def _annotations(self) -> list[Annotation]:
        """Return the citations of the answer."""
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": match.start(),
                    "end_index": match.end(),
                    "title": self._sources[number]["title"],
                    "url": self._head.absolute(self._sources[number]["href"]),
                },
            }
            for match in CITED.finditer("".join(self._text))
            for number in map(int, re.findall(r"\d+", match[2]))
            if number in self._sources
        ]

    def _base(self, kind: str) -> CompletionBase:
        return {
            "id": f"chatcmpl-{self._head.turn}",
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": None,
        }

    def _chunk(self, delta: Delta, finish: str | None = None) -> CompletionChunk:
        if not self._opened:
            self._opened = True
            first: Delta = {"role": "assistant", "content": ""}
            delta = {**first, **delta}
        choice: ChunkChoice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        base = self._base("chat.completion.chunk")
        chunk: CompletionChunk = {
            "id": base["id"],
            "object": base["object"],
            "created": base["created"],
            "model": base["model"],
            "system_fingerprint": base["system_fingerprint"],
            "choices": [choice],
        }
        if self._head.include_usage:
            chunk["usage"] = None
        return chunk


def stopped() -> ProductError:
    """Return the error for an answer that another client stopped."""
    sentence = "This answer was stopped from elsewhere before its end. What was written is kept in its conversation."
    return ProductError("stopped", sentence, status=409, should_retry=False)


class Relay:
    """Relays one turn to one program. An async iterable of the lines of a stream.

    `close` stops the turn unless it has ended. Django calls it at the end of a streamed response, however that ends.
    """

    def __init__(self, turn: Turn, completion: Completion) -> None:
        self._turn = turn
        self._completion = completion
        self._chunks = self._follow()
        self._ready: list[CompletionChunk] = []

    async def begin(self) -> None:
        """Wait for the first chunk or some seconds of silence. An error in this time gets its own HTTP status."""
        async for chunk in self._chunks:
            if chunk:
                self._ready.append(chunk)
            return

    async def whole(self, credential: Credential) -> WholeCompletion:
        """Wait for the whole answer. Raises the turn's error, and `bad_token` (401) when the credential expires."""
        async for _chunk in WhileSignedIn(credential, self._chunks):
            pass
        if not self._completion.ended:
            raise ProductError("bad_token", "This token has ended, and with it this answer.", status=401)
        return self._completion.whole()

    async def __aiter__(self) -> AsyncIterator[str]:
        for first in self._ready:
            yield _line(first)
        try:
            async for chunk in self._chunks:
                yield _line(chunk) if chunk else ": waiting\n\n"
        except ProductError as error:
            yield _line(errors.body(error))
        except Exception:
            logger.exception("the stream of turn %s broke off", self._turn.pk)
            sentence = "Something went wrong on the server while answering. Try again."
            yield _line(errors.body(ProductError("internal_error", sentence, status=500)))
        else:
            yield "data: [DONE]\n\n"

    def close(self) -> None:
        """Stop the turn unless it has ended."""
        if self._completion.ended:
            return
        try:
            self._stop()
        except (OperationalError, InterfaceError):
            # The database has no free connection or is down. The client is gone, so the stop is retried here.
            logger.warning("turn %s is stopped once the database can be asked", self._turn.pk)
            carry(with_retries(self._stop))

    def _stop(self) -> None:
        stop_turn(user=self._turn.conversation.owner, turn=self._turn)

    async def _follow(self) -> AsyncIterator[CompletionChunk | None]:
        """Yield the turn's chunks until the last one, and None after each 2.5 s of silence. Raises the turn's error."""
        async for event in event_stream.wire_events(self._turn):
            if not event:
                yield None
                continue
            for chunk in self._completion.feed(event):
                yield chunk
            if event["type"] == EventType.SNAPSHOT and event["status"] not in Turn.LIVE:
                for chunk in self._completion.end(await event_stream.row_of(self._turn.pk)):
                    yield chunk


def _line(value: CompletionChunk | errors.ErrorBody) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
