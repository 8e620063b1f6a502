"""The scripted model's server: its paths, and the playing of a step."""

import asyncio
import itertools
import json
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from . import anthropic_wire, dialects, ollama_wire, openai_wire, peculiar, responses_wire, tool_rules
from .caching import PromptCache
from .connection import Connection, Exchange
from .prompts import Prompt, of_completions, of_messages, of_responses
from .records import Records
from .refusals import TOO_LONG, images_in, too_long, too_many_images
from .script import MODEL_PREFIX, BadScript, Chosen, Failure, Step, choose, parse_script, prompt_tokens
from .seed_rules import broken_rules

_MAX_COUNTERS = 20_000  # scripts whose failures are counted
_YIELD_EVERY = 50  # pieces without an interval between two looks at the socket
_WAIT = 10.0
_WIRES: Mapping[str, ModuleType] = {
    "/v1/chat/completions": openai_wire,
    "/v1/responses": responses_wire,
    "/v1/messages": anthropic_wire,
    "/api/chat": ollama_wire,
}

_READERS: Mapping[ModuleType, Callable[[Mapping[str, Any]], Prompt]] = {
    openai_wire: of_completions,
    ollama_wire: of_completions,
    responses_wire: of_responses,
    anthropic_wire: of_messages,
}
_COUNTS: Mapping[str, ModuleType] = {
    "POST /v1/messages/count_tokens": anthropic_wire,
    "POST /v1/responses/input_tokens": responses_wire,
}


class Server:
    """Speaks both protocols. Belongs to the event loop it is started on; `records` may be read from any thread."""

    def __init__(self) -> None:
        self.records = Records()
        self.scripts: dict[str, tuple[Step, ...]] = {}
        self.cache = PromptCache()
        self.broken_rules: deque[str] = deque(maxlen=100)  # of the documents in the order book, by prompts so far
        self.questions: set[int] = set()  # hashes of the user messages that prompts had in their newest turn
        self.other_answers: dict[
            str, Any
        ] = {}  # by route, what a server says beside the protocols, such as `GET /props`
        self._counted: OrderedDict[str, int] = OrderedDict()
        self._listener: asyncio.Server | None = None
        self._numbers = itertools.count(1)
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()

    async def start(self, port: int = 0) -> int:
        """Listens on loopback and returns the port."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connect, "127.0.0.1", port, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    def _connect(self) -> Connection:
        connection = Connection(self._handle, self.records, time.time, next(self._numbers))
        self._connections.add(connection)
        return connection

    async def stop(self) -> None:
        """Stops listening and drops every connection, as a crash would."""
        if self._listener is not None:
            self._listener.close()
        await self.drop()

    async def drop(self) -> None:
        """Drops every connection, and listens on."""
        for connection in list(self._connections):
            connection.abandon()
        await asyncio.sleep(0)  # the transports close in the loop's next round

    async def _handle(self, exchange: Exchange) -> None:
        path, dialect = _without_dialect(exchange.path)
        wire = _WIRES.get(path, openai_wire)
        route = f"{exchange.method} {path}"
        if exchange.path.startswith("/control/"):
            await self._control(exchange, route)
        elif exchange.method == "POST" and not isinstance(exchange.body, dict):
            await _fail(exchange, wire, Failure(400, "We could not parse the JSON body of your request."))
        elif exchange.method == "POST" and path in _WIRES:
            await self._answer(exchange, wire, dialect)
        elif route in _COUNTS:
            await _count(exchange, _COUNTS[route])
        elif route == "POST /v1/embeddings":
            await exchange.answer(200, openai_wire.embeddings(exchange.body))
        elif route == "GET /v1/models":
            names = ["scripted", *(MODEL_PREFIX + name for name in self.scripts)]
            wire = anthropic_wire if "anthropic-version" in exchange.headers else openai_wire
            await exchange.answer(200, wire.models(names))
        elif route in self.other_answers:
            await exchange.answer(200, self.other_answers[route])
        elif route == "GET /api/tags":
            await exchange.answer(
                200, ollama_wire.models(["scripted", *(MODEL_PREFIX + name for name in self.scripts)])
            )
        else:
            await _fail(exchange, wire, Failure(404, f"Unknown request URL: {route}"))

    async def _control(self, exchange: Exchange, route: str) -> None:
        if route.startswith("POST /control/scripts/"):
            name = unquote(exchange.path.removeprefix("/control/scripts/"))
            try:
                self.scripts[name] = parse_script(exchange.body)
            except BadScript as error:
                await exchange.answer(400, {"error": str(error)})
                return
            await exchange.answer(200, {"model": MODEL_PREFIX + name})
        elif route == "GET /control/requests":
            await self._list_requests(exchange)
        elif route == "DELETE /control/requests":
            self.records.clear()
            await exchange.answer(200, {})
        else:
            await exchange.answer(404, {"error": f"no {route}"})

    async def _list_requests(self, exchange: Exchange) -> None:
        contains, count = exchange.query.get("contains", ""), int(exchange.query.get("finished", 0))
        try:
            if count:
                records = await asyncio.to_thread(self.records.finished, contains, count, _WAIT)
            else:
                records = self.records.find(contains)
        except TimeoutError as error:
            await exchange.answer(504, {"error": str(error)})
            return
        await exchange.answer(200, {"requests": [record.as_json() for record in records]})

    async def _answer(self, exchange: Exchange, wire: ModuleType, dialect: str) -> None:
        body: Mapping[str, Any] = exchange.body
        if refused := _refusal(wire, dialect, body):
            await _fail(exchange, wire, refused)
            return
        prompt = _READERS[wire](body)
        self.questions.update(
            hash(message.text) for message in prompt.messages[prompt.current :] if message.role == "user"
        )
        broken = broken_rules(prompt)
        self.broken_rules.extend(f"{sentence}\n{json.dumps(body)[:4_000]}" for sentence in broken)
        read = responses_wire.conversation(body) if wire is responses_wire else dict(body)
        try:
            chosen = choose(read, self.scripts)
        except BadScript as error:
            await _fail(exchange, wire, Failure(400, f"scripted model: {error}"))
            return
        except LookupError:
            code = "model_not_found" if wire is openai_wire else None
            await _fail(exchange, wire, Failure(404, f"The model `{body.get('model')}` does not exist.", code))
            return
        if refused := peculiar.refusal(chosen.step, wire, body):
            await _fail(exchange, wire, refused)
            return
        await self._play(exchange, wire, self._with_cache(chosen, wire, body, prompt_tokens(read), dialect), dialect)

    async def _play(self, exchange: Exchange, wire: ModuleType, chosen: Chosen, dialect: str) -> None:
        body: Mapping[str, Any] = exchange.body
        read = responses_wire.conversation(body) if wire is responses_wire else dict(body)
        step = chosen.step
        if await _refused(exchange, step, prompt_tokens(read), wire):
            return
        if step.hangs_times and self._seen(chosen) <= step.hangs_times:
            await asyncio.Event().wait()  # until the client goes away
        elif step.error is not None and self._still_fails(chosen):
            await asyncio.sleep(step.ttft)
            await _fail(exchange, wire, step.error)
        elif step.whole is not None:
            await exchange.answer(200, step.whole)
        elif body.get("stream") and step.streaming != "ignored":
            await _stream(exchange, step, self._answer_of(wire, body, chosen, dialect))
        else:
            answer = self._answer_of(wire, body, chosen, dialect)
            await asyncio.sleep(step.ttft + step.interval * sum(1 for _ in answer.frames()))
            await exchange.answer(200, answer.whole())

    def _answer_of(self, wire: ModuleType, body: Mapping[str, Any], chosen: Chosen, dialect: str) -> Any:
        if wire is openai_wire:
            return openai_wire.Answer(body, chosen, dialect)
        return wire.Answer(body, chosen, *([self.cache.diagnose] if wire is anthropic_wire else []))

    def _with_cache(
        self, chosen: Chosen, wire: ModuleType, body: Mapping[str, Any], total: int, dialect: str
    ) -> Chosen:
        """Return the step with the cache's figures, unless the script sets the usage itself."""
        step = chosen.step
        if step.usage is not None or step.error or step.context_limit is not None or wire is ollama_wire:
            return chosen
        if wire is anthropic_wire:
            served = self.cache.anthropic(body, total)
        elif dialect == "deepseek":
            served = self.cache.openai(body, total, step=64, least=64)
        else:
            served = self.cache.openai(body, total)
        usage = {"input": total, "cached": served.read, "written": served.written}
        return replace(chosen, step=replace(step, usage=usage))

    def _still_fails(self, chosen: Chosen) -> bool:
        return chosen.step.error_times is None or self._seen(chosen) <= chosen.step.error_times

    def _seen(self, chosen: Chosen) -> int:
        """Return how often the script was used, this time included."""
        count = self._counted.pop(chosen.key, 0) + 1
        self._counted[chosen.key] = count
        if len(self._counted) > _MAX_COUNTERS:
            self._counted.popitem(last=False)
        return count


def _refused_otherwise(wire: ModuleType, dialect: str, body: Mapping[str, Any]) -> Failure | None:
    """Return a vendor's refusal beyond the rules of its protocol, or None."""
    if dialect:
        return dialects.refusal(dialect, body) if wire is openai_wire else None
    if wire is ollama_wire:
        return None
    return tool_rules.anthropic(body) if wire is anthropic_wire else tool_rules.openai(body)


def _without_dialect(path: str) -> tuple[str, str]:
    """Return the path in the protocol, and the vendor that begins it: `/deepseek/v1/…`."""
    _, first, rest = [*path.split("/", 2), "", ""][:3]
    return (f"/{rest}", first) if first in dialects.RULES else (path, "")


async def _count(exchange: Exchange, wire: ModuleType) -> None:
    """Answer a count of tokens. It refuses what a call would refuse, and members that a count does not have."""
    if sentence := wire.count_refusal(exchange.body):
        await _fail(exchange, wire, Failure(400, sentence))
        return
    read = responses_wire.conversation(exchange.body) if wire is responses_wire else exchange.body
    await exchange.answer(200, {"input_tokens": prompt_tokens(read)})


def _refusal(wire: ModuleType, dialect: str, body: Mapping[str, Any]) -> Failure | None:
    """Return the refusal of an invalid request, which precedes its script, or None."""
    if sentence := wire.refusal(body) or peculiar.calls_refusal(wire, body):
        return Failure(400, sentence)
    return _refused_otherwise(wire, dialect, body)


async def _fail(exchange: Exchange, wire: ModuleType, failure: Failure) -> None:
    body = wire.error(failure) if failure.body is None else failure.body
    await exchange.answer(failure.status, body, dict(failure.headers))


async def _refused(exchange: Exchange, step: Step, used: int, wire: ModuleType) -> bool:
    """Answers a request that is too long or has too many images; returns whether it is one."""
    if step.context_limit is not None and used > step.context_limit:
        await _refuse_length(exchange, step, used, wire)
        return True
    if step.image_limit is not None and images_in(exchange.body.get("messages")) > step.image_limit:
        await exchange.answer(400, too_many_images(step.image_limit))
        return True
    return False


async def _refuse_length(exchange: Exchange, step: Step, used: int, wire: ModuleType) -> None:
    if step.limit_style is None or step.limit_style not in TOO_LONG:
        await exchange.answer(400, _too_long(step, used, wire))
        return
    status, body = too_long(step.limit_style, used, step.context_limit or 0)
    if status is not None:
        await exchange.answer(status, body)
        return
    exchange.start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})
    await exchange.send(f"event: error\ndata: {json.dumps(body)}\n\n".encode())
    exchange.end()


def _too_long(step: Step, used: int, wire: ModuleType) -> dict[str, Any]:
    limit = step.context_limit
    style = step.limit_style or ("anthropic" if wire is anthropic_wire else "openai")
    if style == "anthropic":
        return anthropic_wire.error(Failure(400, f"prompt is too long: {used} tokens > {limit} maximum"))
    if style == "llamacpp":
        message = f"request ({used} tokens) exceeds the available context size ({limit} tokens), try increasing it"
        kind = "exceed_context_size_error"
        return {"error": {"code": 400, "message": message, "type": kind, "n_prompt_tokens": used, "n_ctx": limit}}
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {used} tokens. "
        "Please reduce the length of the messages."
    )
    return openai_wire.error(Failure(400, message, "context_length_exceeded"))


async def _stream(exchange: Exchange, step: Step, answer: Any) -> None:
    """Plays a step on schedule: piece k is due `ttft + k * interval` after the request, late pieces at once."""
    headers = {"content-type": answer.content_type, "cache-control": "no-cache"}
    loop = asyncio.get_running_loop()
    began = loop.time()
    if step.early_headers:
        exchange.start(200, headers)
    count = 0
    for count, frame in enumerate(answer.frames()):
        if await _incident(exchange, step, answer, count):
            return
        due = began + step.ttft + count * step.interval - loop.time()
        if due > 0 or count % _YIELD_EVERY == 0:
            await asyncio.sleep(max(0.0, due))
        if exchange.record.status is None:
            exchange.start(200, headers)
        await exchange.send(frame)
        exchange.record.pieces = count + 1
    if exchange.record.pieces == 0:
        await asyncio.sleep(step.ttft)
    if await _incident(exchange, step, answer, exchange.record.pieces):
        return
    if exchange.record.status is None:
        exchange.start(200, headers)
    await exchange.send(answer.tail())
    exchange.end()


async def _incident(exchange: Exchange, step: Step, answer: Any, count: int) -> bool:
    """Do what the script says should go wrong after `count` pieces. Return True if the answer is over."""
    if count == step.silent_after:
        await asyncio.Event().wait()  # until the client goes away
    if count == step.cut_after:
        exchange.cut()
        return True
    if count == step.malformed_after:
        if exchange.record.status is None:
            exchange.start(200, {"content-type": answer.content_type})
        await exchange.send(answer.malformed)
    return False
