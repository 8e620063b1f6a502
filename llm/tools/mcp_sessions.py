"""Keep sessions with MCP servers open, so that servers with state work.

1. `call_tool` uses the session of a scope. The first call opens it, and the next answers of the conversation use it,
   too.
2. `McpSession` is one session. Its own task opens it, answers its questions and closes it.
3. `_SessionPool` has the sessions of an event loop. It closes idle and old sessions, and sessions beyond the bounds,
   the longest unused one first. If all sessions are busy, a call gets a session of its own.

A call that fails, is stopped or takes too long ends its session, since the server may be in any state. The next call
opens another session. The report tells the person that the server's state is lost.
"""

import asyncio
import hashlib
import json
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Generic
from uuid import UUID
from weakref import WeakKeyDictionary

from django.utils.translation import gettext_noop
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import ElicitRequestParams, ElicitResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from core.json_types import JsonObject
from core.net.addresses import host_of
from core.net.outgoing import note
from core.sentences import Sentence
from core.text import clean
from llm.tools import mcp_failures
from llm.tools.mcp import MAX_FORMS
from llm.tools.mcp_client import (
    Answer,
    Question,
    RawAnswer,
    RawListing,
    ask_in_session,
    ask_once,
    call_question,
    converse,
    list_question,
    list_raw_tools,
    start_detached,
)
from llm.tools.mcp_content import to_output
from llm.tools.mcp_failures import Exchange
from llm.tools.mcp_forms import to_form, to_result
from llm.tools.servers import ServerFailed, SessionScope, ToolServerConfig
from llm.types.forms import FormAnswer, PersonAsker, ToolQuestion
from llm.types.tools import ToolOutput, person_asker

IDLE_SECONDS = 300.0  # seconds after the last call
MAX_AGE_SECONDS = 3_600.0  # seconds after which a session takes no more calls
SWEEP_SECONDS = 15.0  # between two sweeps of the pool
SUBSCRIPTION_TIMEOUT = 3.0  # seconds for which the first call waits for the subscription to changes of the tools
MAX_SESSIONS = 32  # sessions of a process
MAX_SESSIONS_OF_PERSON = 8  # sessions of a person in a process
MAX_REMEMBERED_SESSIONS = 1_000  # ended sessions that the pool remembers, so that reports can name them
SESSION_NOT_FOUND = 404
CONNECTION_CLOSED = "Connection closed"  # the package's error for a connection that the server has closed
ELICITATION = "elicitation/create"
TOOLS_CHANGED = "notifications/tools/list_changed"
# Requests of servers that Glasshouse does not answer. The package refuses them.
REFUSED_REQUESTS: Mapping[str, str] = {
    "sampling/createMessage": gettext_noop("an answer of a model (sampling)"),
    "roots/list": gettext_noop("the folders of the person (roots)"),
    ELICITATION: gettext_noop("an answer of the person (elicitation)"),
}
REQUEST_REFUSED = gettext_noop("The tool server {name} asked for {what}. Glasshouse does not give that to tools.")
FORM_UNREADABLE = gettext_noop("The tool server {name} sent a form that cannot be shown, so it got no answer.")
SESSION_LOST = gettext_noop(
    "The session with the tool server {name} had ended, so a new one began. The server does not know the earlier calls."
)


async def call_tool(
    server: ToolServerConfig, tool: str, arguments: Mapping[str, Any], scope: SessionScope | None
) -> ToolOutput:
    """Call a tool, in the session of the scope if there is one. A failure of the server is an output, too."""
    question = call_question(server, tool, arguments)
    asker = _with_record(server, person_asker())
    session = _pool().take(server, scope, asks=asker is not None) if scope is not None else None
    try:
        if session is None:
            result = await ask_once(server, question, Exchange())
        else:
            session, result = await _ask_in_session(session, question, scope, asker)
    except ServerFailed as failure:
        output = ToolOutput(str(failure), error=True)
    else:
        # In a thread: decoding the largest result takes a tenth of a second, which would block other answers.
        output = await asyncio.to_thread(to_output, result, tool)
    return replace(output, notes=session.take_notes()) if session is not None else output


def _with_record(server: ToolServerConfig, asker: PersonAsker | None) -> PersonAsker | None:
    """Return the asker. It also records, for the current task, the answers that leave the workspace."""
    if asker is None or not server.reaches_out:
        return asker
    context = copy_context()

    async def ask(question: ToolQuestion) -> FormAnswer:
        answer = await asker(question)
        if answer.content:
            sent = json.dumps(answer.content, ensure_ascii=False)
            context.run(note, host_of(server.url) or server.name, sent)
        return answer

    return ask


async def _ask_in_session(
    session: "McpSession", question: Question[JsonObject], scope: SessionScope | None, asker: PersonAsker | None
) -> "tuple[McpSession, JsonObject]":
    """Return the answer and its session. If the server has forgotten the session, ask again in a new one.

    A server reports this with status 404, without running the call (Streamable HTTP, "Session Management").
    """
    reused = session.answered > 0
    try:
        return session, await session.ask(question, asker)
    except ServerFailed:
        is_forgotten = reused and session.exchange.status == SESSION_NOT_FOUND
        new_session = (
            _pool().take(session.server, scope, asks=session.asks) if is_forgotten and scope is not None else None
        )
        if new_session is None:
            raise
    return new_session, await new_session.ask(question, asker)


async def list_raw_tools_in_scope(
    server: ToolServerConfig, max_tools: int, timeout: float, scope: SessionScope | None
) -> RawListing:
    """List tools as `list_raw_tools` does, in the session of the scope if one is open: its tools may differ."""
    session = _pool().open_session(server, scope) if scope is not None else None
    if session is not None:
        session.tools_changed = False
        with suppress(ServerFailed, TimeoutError):  # the session may be dead, and the server alive
            async with asyncio.timeout(timeout):
                return await session.ask(list_question(max_tools))
    return await list_raw_tools(server, max_tools, timeout)


def tools_changed(scope: SessionScope) -> bool:
    """Return whether a server has notified a session of the scope that its tools changed since the last listing."""
    return _pool().tools_changed(scope)


@dataclass(slots=True)
class _Request(Generic[Answer]):
    """A question, and the future of its answer. `asker` asks the person. `forms`: the number of forms so far."""

    question: Question[Answer]
    answer: "asyncio.Future[Answer]"
    asker: PersonAsker | None
    forms: int = 0


class McpSession:
    """One open session. Questions may be asked at the same time.

    `tools_changed`: the server has notified that its tools changed. `exchange`: observations that explain a failure.
    `answered`: the number of the server's answers. `opened` and `used`: times of the event loop. `asks`: the server may
    ask people with forms.
    """

    def __init__(self, server: ToolServerConfig, notes: Sequence[Sentence] = (), *, asks: bool = False) -> None:
        self.server = server
        self.asks = asks
        self.exchange = Exchange()
        self.tools_changed = False
        self.answered = 0
        self.opened = self.used = asyncio.get_running_loop().time()
        self._notes = list(notes)
        self._refused: set[str] = set()
        self._waiting = 0
        self._closed = False
        self._error: Exception | None = None
        self._requests: asyncio.Queue[_Request[Any] | None] = asyncio.Queue()
        self._running_tasks: set[asyncio.Task[None]] = set()
        self._running_requests: list[_Request[Any]] = []  # the requests that run, the oldest first
        elicit = self._elicit if asks else None
        self._task = start_detached(converse(server, self._serve, self.exchange, self._on_message, elicit))

    @property
    def busy(self) -> bool:
        return self._waiting > 0

    @property
    def ended(self) -> bool:
        """Return whether the session takes no more questions: it was closed, or its server has ended."""
        return self._closed or self._task.done() or self.exchange.ended

    @property
    def stateful(self) -> bool:
        """Return whether the server may have state from earlier calls."""
        return self.answered > 0 and (not self.server.url or self.server.sse or self.exchange.session)

    def take_notes(self) -> tuple[Sentence, ...]:
        """Return the notes for people since the last call of this method."""
        notes, self._notes = self._notes, []
        return tuple(notes)

    async def ask(self, question: Question[Answer], asker: PersonAsker | None = None) -> Answer:
        """Ask a question. Raises `ServerFailed`. A caller that is cancelled ends the session."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            self._requests.put_nowait(_Request(question, answer, asker))
            outcomes: set[asyncio.Future[Any]] = {answer, self._task}
            await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if not self._task.cancelled():
                self._task.result()  # raises the failure that ended the session
            raise mcp_failures.to_failure(self.server, self.exchange, None)
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._waiting -= 1
            self.used = asyncio.get_running_loop().time()

    def close(self) -> None:
        """End the session as soon as it is open."""
        self._closed = True
        self._requests.put_nowait(None)

    def abort(self) -> None:
        """End the session at once. It is closed in the background."""
        self.close()
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the session has ended."""
        await asyncio.wait({self._task})

    def _on_message(self, method: str) -> None:
        if method == TOOLS_CHANGED:
            self.tools_changed = True
        elif method in REFUSED_REQUESTS and method not in self._refused and not (self.asks and method == ELICITATION):
            self._refused.add(method)
            what = Sentence(REFUSED_REQUESTS[method])
            self._notes.append(Sentence(REQUEST_REFUSED, name=self.server.name, what=what))

    async def _serve(self, client: Client, _answer: RawAnswer) -> None:
        """Answer questions until the session is closed. Raises the error of a question that ends the session."""
        try:
            subscribed = asyncio.Event()
            self._start(self._subscribe_to_tools(client, subscribed))
            with suppress(TimeoutError):  # a change that the first call makes must not be missed
                async with asyncio.timeout(SUBSCRIPTION_TIMEOUT):
                    await subscribed.wait()
            while (request := await self._requests.get()) is not None:
                self._start(self._answer_question(client, request))
            if self._error is not None:
                raise self._error
        finally:
            for task in self._running_tasks:
                task.cancel()
            await asyncio.gather(*self._running_tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running_tasks.add(task)
        task.add_done_callback(self._running_tasks.discard)

    async def _subscribe_to_tools(self, client: Client, subscribed: asyncio.Event) -> None:
        """Note changes of the server's tools. Before 2026-07-28 servers send them without a subscription.

        `subscribed` is set as soon as changes are noted, or when that is impossible.
        """
        tools = client.server_capabilities.tools
        try:
            if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
                return
            async with client.listen(tools_list_changed=True) as changes:
                subscribed.set()
                async for _ in changes:
                    self.tools_changed = True
        except (MCPError, SubscriptionLost, ListenNotSupportedError, TimeoutError):
            return  # the next turn lists the tools again in any case
        finally:
            subscribed.set()

    async def _answer_question(self, client: Client, request: _Request[Any]) -> None:
        """Answer one question. A refusal by the server is the answer to it. Another error ends the session."""
        try:
            self._running_requests.append(request)
            try:
                result = await ask_in_session(client, request.question)
            finally:
                self._running_requests.remove(request)
        except Exception as error:
            refusal = self._to_refusal(error)
            if refusal is None:
                self._error = self._error or error
                self.close()
            elif not request.answer.done():
                self.answered += 1
                request.answer.set_exception(refusal)
        else:
            self.answered += 1
            if not request.answer.done():
                request.answer.set_result(result)

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Ask the person of the oldest running call, since the protocol does not name the call of a question."""
        request = next((each for each in self._running_requests if each.asker is not None), None)
        if request is None or request.asker is None or request.forms == MAX_FORMS:
            return ElicitResult(action="cancel")
        request.forms += 1
        form = to_form(params, request.forms)
        if form is None:
            self._notes.append(Sentence(FORM_UNREADABLE, name=self.server.name))
            return ElicitResult(action="cancel")
        return to_result(form, await request.asker(form))

    def _to_refusal(self, error: Exception) -> ServerFailed | None:
        """Return the failure if the server has answered with this error, else None."""
        if not isinstance(error, MCPError) or error.message == CONNECTION_CLOSED:
            return None
        failure = mcp_failures.to_failure(self.server, self.exchange, error, clean(error.message))
        return failure if failure.code == "tool_server_error" else None


_Key = tuple[SessionScope, str]


class _SessionPool:
    """The sessions of one event loop, the longest unused first."""

    def __init__(self) -> None:
        self._sessions: dict[_Key, McpSession] = {}
        self._ended_sessions: dict[_Key, None] = {}  # ended sessions whose server had state, the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def take(self, server: ToolServerConfig, scope: SessionScope, *, asks: bool) -> McpSession | None:
        """Return the session of the scope, and open it if necessary. None if the bounds are reached and all are busy.

        `asks`: in a new session the server may ask people.
        """
        self._sweep()
        key = (scope, _fingerprint(server))
        session = self._sessions.pop(key, None)
        if session is None:
            if not self._make_room(scope.person):
                return None
            lost = key in self._ended_sessions
            self._ended_sessions.pop(key, None)
            notes = [Sentence(SESSION_LOST, name=server.name)] if lost else ()
            session = McpSession(server, notes, asks=asks)
        self._sessions[key] = session
        return session

    def open_session(self, server: ToolServerConfig, scope: SessionScope) -> McpSession | None:
        """Return the session of the scope if it is open."""
        self._sweep()
        return self._sessions.get((scope, _fingerprint(server)))

    def tools_changed(self, scope: SessionScope) -> bool:
        return any(session.tools_changed for (each, _), session in self._sessions.items() if each == scope)

    async def close(self) -> None:
        """Close all sessions, and wait until they have ended."""
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        for session in sessions:
            session.abort()
        await asyncio.gather(*(session.wait_closed() for session in sessions))

    def _make_room(self, person: UUID) -> bool:
        """Make room for one more session: close the longest unused ones. Return whether it may be opened."""
        of_person = [key for key in self._sessions if key[0].person == person]
        for keys, maximum in ((of_person, MAX_SESSIONS_OF_PERSON), ([*self._sessions], MAX_SESSIONS)):
            if len(keys) < maximum:
                continue
            unused = next((key for key in keys if key in self._sessions and not self._sessions[key].busy), None)
            if unused is None:
                return False
            self._end(unused)
        return True

    def _sweep(self) -> None:
        """Close sessions that are idle or old, and remove those that have ended.

        Repeat this while there are sessions.
        """
        now = asyncio.get_running_loop().time()
        for key, session in [*self._sessions.items()]:
            is_over = session.ended or now - session.used > IDLE_SECONDS or now - session.opened > MAX_AGE_SECONDS
            if session.ended or (is_over and not session.busy):
                self._end(key)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if self._sessions else None

    def _end(self, key: _Key) -> None:
        session = self._sessions.pop(key)
        if session.stateful:
            self._ended_sessions[key] = None
            while len(self._ended_sessions) > MAX_REMEMBERED_SESSIONS:
                del self._ended_sessions[next(iter(self._ended_sessions))]
        session.close()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _SessionPool] = WeakKeyDictionary()


def _pool() -> _SessionPool:
    return _pools.setdefault(asyncio.get_running_loop(), _SessionPool())


async def close_sessions() -> None:
    """Close all sessions of this event loop. This also ends the servers that are processes."""
    await _pool().close()


def _fingerprint(server: ToolServerConfig) -> str:
    """Return a digest of the configuration.

    A change of the address, the secret or the sign-in needs another session.
    """
    signed_in = server.bearer.key if server.bearer is not None else ""
    configuration = [server.name, server.url, server.command, sorted(server.secrets.items()), signed_in]
    return hashlib.sha256(json.dumps(configuration).encode()).hexdigest()
