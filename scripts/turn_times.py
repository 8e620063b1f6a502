"""The stages of one turn in milliseconds, and the SQL statements that the model has to wait for.

Django must be set up. Statements are taken from Django's connections; the `BEGIN` that psycopg sends before a
transaction's first one is part of that one here, and no statement of its own.
"""

import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.db.backends.signals import connection_created
from django.test import Client, override_settings

from accounts.models import User
from chat.models import Turn
from core import background
from tests.application import Application, working
from tests.product import until
from tests.scripted_model import ScriptedModel

COMMIT = "COMMIT"
# A page needs its files' names, and nobody has collected them here.
PLAIN = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
Send = Callable[[str, str], httpx.Response]


@dataclass(frozen=True, slots=True)
class Statement:
    """Times in seconds since the epoch. `of_worker`: else it belongs to the request."""

    began: float
    ended: float
    of_worker: bool
    sql: str

    @property
    def shortened(self) -> str:
        """Without the names of columns, which say little and fill the line."""
        short = re.sub(r"\s+", " ", self.sql).replace('"', "").strip()
        return re.sub(r"^SELECT .*? FROM", "SELECT … FROM", re.sub(r"(INTO \w+) \(.*", r"\1", short))[:96]


@dataclass(frozen=True, slots=True)
class Timed:
    """One turn. Times in seconds since the epoch; `cpu`: seconds of this process, model and client included."""

    posted: float
    answered: float
    asked: float
    ended: float
    cpu: float
    statements: list[Statement]

    @property
    def before(self) -> list[Statement]:
        """What the model had to wait for: of the request up to its last commit, of the worker until the model had it.

        A page that is rendered, or a report that is stored, meanwhile is not waited for, but may be in the way.
        """
        early = [each for each in self.statements if each.ended < self.asked]
        stored = max((each.ended for each in early if not each.of_worker and each.sql == COMMIT), default=self.asked)
        return [each for each in early if each.of_worker or each.ended <= stored]

    @property
    def count(self) -> int:
        return sum(each.sql != COMMIT for each in self.before)


@contextmanager
def listening() -> Iterator[list[Statement]]:
    """Gets every statement of every connection that is made meanwhile."""
    heard: list[Statement] = []
    changed: list[Any] = []

    def timed(sql: str, work: Callable[[], Any]) -> Any:
        began = time.time()
        try:
            return work()
        finally:
            of_worker = threading.current_thread().name.startswith(("database", "first", "worker"))
            heard.append(Statement(began, time.time(), of_worker, sql))

    def execute(execute: Callable[..., Any], sql: Any, parameters: Any, many: bool, context: Any) -> Any:
        return timed(str(sql), partial(execute, sql, parameters, many, context))

    def listen(connection: Any, **_: Any) -> None:
        if execute not in connection.execute_wrappers:
            connection.execute_wrappers.append(execute)
            connection._commit = partial(timed, COMMIT, connection._commit)
            changed.append(connection)

    connection_created.connect(listen)
    try:
        yield heard
    finally:
        connection_created.disconnect(listen)
        for connection in changed:
            connection.execute_wrappers.remove(execute)
            del connection._commit


@contextmanager
def _ways(application: Application, token: str) -> Iterator[tuple[Callable[[], str], dict[str, Send]]]:
    """What makes a conversation, and how a message is sent to it: by REST, by the page, by `/v1/`."""
    browser = Client()
    browser.force_login(_owner())
    cookies = {settings.SESSION_COOKIE_NAME: browser.cookies[settings.SESSION_COOKIE_NAME].value, "csrftoken": "c" * 32}
    bearer = {"Authorization": f"Bearer {token}"}
    form = {"X-CSRFToken": "c" * 32, "HX-Request": "true"}
    with (
        application.http("/api/v1/", headers=bearer) as rest,
        application.http("/", headers=form, cookies=cookies) as page,
        application.http("/v1/", headers=bearer) as program,
    ):

        def place() -> str:
            # A title of its own: otherwise the model would be asked for one.
            return str(rest.post("conversations/", json={"title": "Timed"}).raise_for_status().json()["id"])

        def by_program(_: str, text: str) -> httpx.Response:
            asked = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
            return program.post("chat/completions", json=asked)

        yield (
            place,
            {
                "REST": lambda at, text: rest.post(f"conversations/{at}/turns/", json={"text": text}),
                "page": lambda at, text: page.post(f"c/{at}/turns/", data={"text": text}),
                "/v1/": by_program,
            },
        )


def measured(model: ScriptedModel, token: str, turns: int) -> dict[str, list[Timed]]:
    """So many turns by each way, in alternation; each is the second one of its conversation."""
    found: dict[str, list[Timed]] = {}
    uncollected = override_settings(STATIC_ROOT=None, STORAGES={**settings.STORAGES, **PLAIN})
    with uncollected, working(), listening() as heard, _ways(Application(model, Path()), token) as (place, ways):
        for number in range(turns + 2):  # two of them warm up
            for way, send in ways.items():
                at = place()
                send(at, "Say hello.").raise_for_status()
                settled(_owner())
                one = timed(model, heard, _owner(), partial(send, at, f"{way} {number}"), f"{way} {number}")
                if number > 1:
                    found.setdefault(way, []).append(one)
    return found


def _owner() -> User:
    """The one person who has a token."""
    return User.objects.get(api_tokens__isnull=False)


def timed(
    model: ScriptedModel, heard: list[Statement], owner: User, send: Callable[[], httpx.Response], mark: str
) -> Timed:
    """One turn of `owner`, whose message has the `mark`; nothing else must be under way."""
    heard.clear()
    cpu, posted = time.process_time(), time.time()
    send().raise_for_status()
    answered = time.time()
    record = model.finished(mark)[0]
    settled(owner)
    spent = time.process_time() - cpu
    statements = sorted(heard, key=lambda each: each.began)
    return Timed(posted, answered, record.arrived, record.ended_at or record.arrived, spent, statements)


def settled(owner: User) -> None:
    """Nothing is left of the turn before, and of what follows it. Turns of others may never end."""
    until(lambda: not Turn.objects.live().filter(conversation__owner=owner).exists(), "every turn has ended")
    background.join()


def told(way: str, turns: list[Timed]) -> Iterator[str]:
    """Lines for people. The statements are those of the turn in the middle: no median of each line ever happened."""
    turns = sorted(turns, key=lambda each: each.asked - each.posted)
    middle = turns[len(turns) // 2]
    cpu = statistics.median(each.cpu for each in turns)
    yield (
        f"{way}: the model has the request after {_ms(middle.asked - middle.posted)} ms (least "
        f"{_ms(turns[0].asked - turns[0].posted)}), {middle.count} statements; {_ms(cpu)} ms of CPU in all"
    )
    yield "     at   takes ms"
    stages = [("POST answered", middle.answered), ("the model has the request", middle.asked), ("end", middle.ended)]
    lines = [(each.began, _row(middle, each)) for each in middle.before]
    lines += [(at, f"{_ms(at - middle.posted):>7}          {name}") for name, at in stages]
    yield from (line for _, line in sorted(lines))


def _row(turn: Timed, statement: Statement) -> str:
    where = "worker " if statement.of_worker else "request"
    took = f"{_ms(statement.ended - statement.began):>7}"
    return f"{_ms(statement.began - turn.posted):>7} {took}   {where}  {statement.shortened}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
