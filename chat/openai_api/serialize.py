"""An answer as the protocol says it: chunks of a stream, or one completion made of the same chunks."""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn

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

Chunk = dict[str, Any]
Delta = dict[str, Any]

# The protocol's words for reasons that it has not. A model that was told to call nothing more and tried to has been cut
# off by us, not by the program's tools.
# `other` is no good end, and the protocol has no word for it: `length` tells programs that the answer may not be whole.
REASONS = {
    "tool_calls": "stop",
    "refusal": "content_filter",
    "context_window": "length",
    "pause": "length",
    "other": "length",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk says: of which turn it is, and the model's name as the program knows it.

    `absolute` makes an address of a path of ours; `external` are the names of the program's own tools.
    `ends_with_answer`: the last message of the request is the assistant's, which some models refuse to continue.
    """

    turn: str
    model: str
    external: Collection[str]
    absolute: Callable[[str], str]
    include_usage: bool = False
    ends_with_answer: bool = False


class Completion:
    """Fed with the events of a turn (`chat.realtime.events`), in order, until `ended`.

    `feed` returns the chunks to send and raises `ProductError` when the turn ends without a whole answer.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._created = int(time.time())
        self._model = head.model
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[str, dict[str, Any]] = {}  # by the call's id, as the protocol shows them
        self._sources: dict[int, CitedSource] = {}
        self._part = -1  # the last part of text that was written
        self._begins: dict[int, int] = {}  # of each part of text, its place in `_text`
        self._lengths = Counter[int]()  # characters of each part that were told
        self._planned = 0  # tokens of the prompts, as we count them
        self._opened = self.ended = False
        self._finish = "stop"
        self._usage: dict[str, Any] = {}

    def feed(self, event: WireEvent) -> list[Chunk]:
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT" | "REASONING_CONTENT" as type_:
                tell = self._say if type_ == "TEXT_MESSAGE_CONTENT" else self._think
                return tell(event["part"], event["delta"])
            case "TEXT_BECAME_REASONING":
                return self._take_back(event["part"], event["text"])
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
        """Keeps what the end of the answer is said with."""
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

    def end(self, turn: Turn) -> list[Chunk]:
        """As the row says, when the turn has ended and its last event is gone."""
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

    def _catch_up(self, event: WireEvent) -> list[Chunk]:
        """What a SNAPSHOT has that was not told."""
        if event["fallback"]:
            self._model = event["model"]
        return [chunk for number, part in enumerate(event["parts"]) for chunk in self._rest(number, part)]

    def _rest(self, number: int, part: MessagePart) -> list[Chunk]:
        if part["type"] == "reasoning" and number in self._begins:
            return self._take_back(number, part["text"])
        if part["type"] in ("text", "reasoning"):
            self._sources |= {source["number"]: source for source in part.get("citations", ())}
            tell = self._say if part["type"] == "text" else self._think
            rest = part["text"][self._lengths[number] :]
            return tell(number, rest) if rest else []
        if part["type"] != "tool_call" or part["name"] not in self._head.external:
            return []
        begun = [] if part["id"] in self._calls else self._call(part["id"], part["name"])
        rest = part["arguments"][len(self._calls[part["id"]]["function"]["arguments"]) :]
        return [*begun, *(self._arguments(part["id"], rest) if rest else [])]

    def whole(self) -> dict[str, Any]:
        """The answer as one object, once it has `ended`."""
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if not self._calls:
            message["content"] = text
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        if annotations := self._annotations():
            message["annotations"] = annotations
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._base("chat.completion"), "choices": [choice], "usage": self._usage}

    def _say(self, part: int, delta: str) -> list[Chunk]:
        # What was said before a tool ran and what was said after it are paragraphs of one answer.
        between = "\n\n" if self._text and part != self._part else ""
        self._part = part
        self._begins.setdefault(part, len(self._text))
        self._lengths[part] += len(delta)
        self._text.append(between + delta)
        return [self._chunk({"content": between + delta})]

    def _take_back(self, part: int, text: str) -> list[Chunk]:
        """What was sent as content cannot be unsaid; a program that knows of reasoning is sent it once more as such."""
        del self._text[self._begins.pop(part, len(self._text)) :]
        self._lengths[part] = len(text)
        self._reasoning.append(text)
        return [self._chunk({"reasoning_content": text})]

    def _think(self, part: int, delta: str) -> list[Chunk]:
        self._lengths[part] += len(delta)
        self._reasoning.append(delta)
        return [self._chunk({"reasoning_content": delta})]

    def _call(self, id_: str, name: str) -> list[Chunk]:
        function = {"name": name, "arguments": ""}
        self._calls[id_] = {"id": id_, "type": "function", "function": dict(function)}
        call = {"index": len(self._calls) - 1, "id": id_, "type": "function", "function": function}
        return [self._chunk({"tool_calls": [call]})]

    def _arguments(self, id_: str, delta: str) -> list[Chunk]:
        self._calls[id_]["function"]["arguments"] += delta
        index = list(self._calls).index(id_)
        return [self._chunk({"tool_calls": [{"index": index, "function": {"arguments": delta}}]})]

    def _close(self, finish: str, usage: dict[str, int]) -> list[Chunk]:
        self.ended = True
        # A call that the greatest length of the answer has cut is no call to run.
        cut = finish in ("length", "context_window")
        self._finish = "tool_calls" if self._calls and not cut else REASONS.get(finish, finish)
        self._usage = self._counted(usage)
        annotations = self._annotations()
        last = self._chunk({"annotations": annotations} if annotations else {}, self._finish)
        totals = {**self._base("chat.completion.chunk"), "choices": [], "usage": self._usage}
        return [last, totals] if self._head.include_usage else [last]

    def _counted(self, usage: dict[str, int]) -> dict[str, Any]:
        """As the provider counts; of one that reports nothing, as we do."""
        into = usage.get("input") or self._planned
        out = usage.get("output") or tokens.count("".join(self._text))
        return {
            "prompt_tokens": into,
            "completion_tokens": out,
            "total_tokens": into + out,
            "prompt_tokens_details": {"cached_tokens": usage.get("cached_input", 0)},
            "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
        }

    def _annotations(self) -> list[dict[str, Any]]:
        """Where the answer cites what, in the protocol's form; `start_index` and `end_index` are characters."""
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

    def _base(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._head.turn}",
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": None,
        }

    def _chunk(self, delta: Delta, finish: str | None = None) -> Chunk:
        if not self._opened:
            self._opened = True
            delta = {"role": "assistant", "content": "", **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._head.include_usage else {}
        return {**self._base("chat.completion.chunk"), "choices": [choice], **usage}


def stopped() -> ProductError:
    sentence = "This answer was stopped from elsewhere before its end. What was written is kept in its conversation."
    return ProductError("stopped", sentence, status=409, should_retry=False)


class Relay:
    """One turn on its way to one program. An async iterable of the lines of a stream.

    `close` stops the turn unless it has ended; Django calls it when a streamed response is over, however it ends.
    """

    def __init__(self, turn: Turn, completion: Completion) -> None:
        self._turn, self._completion = turn, completion
        self._chunks = self._follow()
        self._ready: list[Chunk] = []

    async def begin(self) -> None:
        """Waits for the first words, or for five silent seconds: until then an error can have a status of its own."""
        async for chunk in self._chunks:
            if chunk:
                self._ready.append(chunk)
            return

    async def whole(self, credential: Credential) -> dict[str, Any]:
        """Raises how the turn failed, and `bad_token` (401) once the credential has ended."""
        async for _chunk in WhileSignedIn(credential, self._chunks):
            pass
        if not self._completion.ended:
            raise ProductError("bad_token", "This token has ended, and with it this answer.", status=401)
        return self._completion.whole()

    async def __aiter__(self) -> AsyncIterator[str]:
        for chunk in self._ready:
            yield _line(chunk)
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
        if self._completion.ended:
            return
        try:
            self._stop()
        except (OperationalError, InterfaceError):
            # All connections to the database are taken, or it is away. Nobody asks again for a client that is gone.
            logger.warning("turn %s is stopped once the database can be asked", self._turn.pk)
            carry(with_retries(self._stop))

    def _stop(self) -> None:
        stop_turn(user=self._turn.conversation.owner, turn=self._turn)

    async def _follow(self) -> AsyncIterator[Chunk]:
        """The turn's chunks, until its last; an empty one after each 2.5 s of silence. Raises how it failed."""
        async for event in event_stream.wire_events(self._turn):
            if not event:
                yield {}
                continue
            for chunk in self._completion.feed(event):
                yield chunk
            if event["type"] == EventType.SNAPSHOT and event["status"] not in Turn.LIVE:
                for chunk in self._completion.end(await event_stream.row_of(self._turn.pk)):
                    yield chunk


def _line(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
