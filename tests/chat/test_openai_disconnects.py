"""A program that disconnects stops its answer, at any moment."""

import asyncio
import json
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import connection, transaction
from django.middleware.security import SecurityMiddleware
from psycopg_pool import PoolTimeout

from chat.models import Turn
from chat.models.conversation_state import join_line
from chat.openai_api.answer import AnswerHead, Relay
from chat.openai_api.serialize import Completion
from core import background
from llm.models import Model
from personas.models import Persona
from tests.application import Application, _application, _scope
from tests.chat.openai_clients import user_messages
from tests.chat.tool_servers import diary, is_running
from tests.conftest import Person
from tests.product import WAIT, until

NEVER: dict[str, Any] = {"text": "Late.", "ttft": 600}


class Program:
    """One request for a streamed answer, which can be left at any moment."""

    def __init__(self, person: Person, step: dict[str, Any], model: str = "scripted") -> None:
        body = {"model": model, "stream": True, "messages": user_messages(f"Hi {uuid4().hex}", step)}
        self._unread = [{"type": "http.request", "body": json.dumps(body).encode()}]
        self._gone = asyncio.Event()
        self.messages: list[dict[str, Any]] = []
        headers = {"Authorization": f"Bearer {person.token}", "Content-Type": "application/json"}
        request = httpx.Request("POST", f"{Application.url}/v1/chat/completions", headers=headers)
        self._request = background.submit(self._send_all(_scope(request)))

    async def _send_all(self, scope: dict[str, Any]) -> None:
        await _application()(scope, self._receive, self._send)

    def leave(self) -> None:
        background.loop().call_soon_threadsafe(self._gone.set)

    def wait(self) -> None:
        """Return when the application has ended the request."""
        self._request.result(WAIT)

    async def _receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)


def turn_of(person: Person) -> Turn:
    return until(Turn.objects.filter(conversation__owner=person.user).first, "the turn is there")  # type: ignore[no-any-return]


def is_stopped(person: Person) -> None:
    until(lambda: turn_of(person).status == Turn.Status.STOPPED, "the turn is stopped")


def test_one_that_leaves_while_its_turn_is_being_made(application: Application, person: Person) -> None:
    with transaction.atomic():
        join_line(person.user.pk)  # the turn waits for it
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        program = Program(person, NEVER)

        def waits() -> bool:
            with connection.cursor() as cursor:
                cursor.execute(blocked)
                return bool(cursor.fetchone()[0])

        until(waits, "the request waits for the person's lock")
        program.leave()
    program.wait()
    is_stopped(person)


def test_one_that_leaves_while_its_turn_is_queued(
    application: Application, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background.TURNS, "key", f"turns:queue:{uuid4()}")  # which no worker takes from
    program = Program(person, NEVER)
    assert turn_of(person).status == Turn.Status.QUEUED
    program.leave()
    program.wait()
    is_stopped(person)


def test_one_that_leaves_before_the_first_event(application: Application, person: Person) -> None:
    program = Program(person, NEVER)
    until(lambda: turn_of(person).status == Turn.Status.RUNNING, "a worker has the turn")
    program.leave()
    program.wait()
    is_stopped(person)
    assert program.messages == []


def test_one_that_leaves_while_middleware_has_its_answer(
    application: Application, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django closes only an answer that has come through all of it."""
    arrived, go_on = threading.Event(), threading.Event()
    process_response = SecurityMiddleware.process_response

    def slow(self: SecurityMiddleware, request: Any, response: Any) -> Any:
        arrived.set()
        assert go_on.wait(WAIT)
        return process_response(self, request, response)

    monkeypatch.setattr(SecurityMiddleware, "process_response", slow)
    program = Program(person, {"tokens": 5_000, "interval": 0.05})
    with ExitStack() as slowed:
        slowed.callback(go_on.set)
        assert arrived.wait(WAIT)
        program.leave()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), background.loop()).result(WAIT)
    program.wait()
    is_stopped(person)
    handler: Any = _application()
    assert handler.application_mapping["http"]._answers == {}, "an answer is held on to after its request"


def test_one_that_leaves_while_a_tool_runs(
    application: Application, person: Person, scripted_model_row: Model, tmp_path: Path
) -> None:
    tools = diary(person, scripted_model_row, tmp_path)
    persona = Persona.objects.get(owner=person.user)
    Persona.objects.filter(pk=persona.pk).update(model=tools.model)
    program = Program(person, {"tool_calls": [tools.call("wait")]}, str(persona.pk))
    [line] = until(tools.lines, "the tool runs")
    program.leave()
    program.wait()
    is_stopped(person)
    until(lambda: not is_running(int(line.removeprefix("waiting "))), "the tool's process has ended")
    tools.row.delete()


def test_one_that_leaves_while_all_connections_to_the_database_are_taken(
    application: Application, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn.objects.get(pk=person.caller.ask("Hi", {"tokens": 5_000, "interval": 0.05})["id"])
    until(lambda: turn_of(person).status == Turn.Status.RUNNING, "a worker has the turn")
    pool: Any = connection.pool  # type: ignore[attr-defined]  # the stubs lack it
    connection.close()
    monkeypatch.setattr(pool, "timeout", 0.1)
    with ExitStack() as stack:
        with suppress(PoolTimeout):  # threads of the application may keep the others
            for _ in range(pool.max_size):
                stack.callback(pool.putconn, pool.getconn(timeout=2))
        Relay(turn, Completion(AnswerHead(str(turn.pk), "", (), str))).close()
    is_stopped(person)
