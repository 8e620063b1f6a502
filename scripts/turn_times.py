"""Measure the stages of a turn in milliseconds, and the SQL statements before the model gets the request.

Django must be set up. Statements are recorded at Django's connections. The `BEGIN` that psycopg sends before the first
statement of a transaction counts as part of that statement.
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
from core.logs.context import log_fields
from tests.application import Application, working
from tests.product import until
from tests.scripted_model import ScriptedModel

COMMIT = "COMMIT"
# Static files are not collected here, so a page cannot use names with hashes.
PLAIN = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
Send = Callable[[str, str], httpx.Response]


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement. Times in seconds since the epoch. `of_worker`: the worker sent it for a turn."""

    began: float
    ended: float
    of_worker: bool
    sql: str

    @property
    def shortened(self) -> str:
        """The SQL without the names of columns, which would fill the line."""
        short = re.sub(r"\s+", " ", self.sql).replace('"', "").strip()
        return re.sub(r"^SELECT .*? FROM", "SELECT … FROM", re.sub(r"(INTO \w+) \(.*", r"\1", short))[:96]


@dataclass(frozen=True, slots=True)
class Timed:
    """The times of one turn, in seconds since the epoch. `cpu`: seconds of this process, model and client included."""

    posted: float
    answered: float
    model_asked_at: float
    ended: float
    cpu: float
    statements: list[Statement]

    @property
    def before(self) -> list[Statement]:
        """The statements before the model got the request: the request's up to its last commit, and the worker's.

        Statements that render a page or store a report meanwhile do not count, though they may delay the worker.
        """
        early = [each for each in self.statements if each.ended < self.model_asked_at]
        stored = max(
            (each.ended for each in early if not each.of_worker and each.sql == COMMIT), default=self.model_asked_at
        )
        return [each for each in early if each.of_worker or each.ended <= stored]

    @property
    def count(self) -> int:
        return sum(each.sql != COMMIT for each in self.before)


@contextmanager
def listening() -> Iterator[list[Statement]]:
    """Record every statement of every connection that is opened meanwhile."""
    statements: list[Statement] = []
    changed: list[Any] = []

    def timed(sql: str, work: Callable[[], Any]) -> Any:
        began = time.time()
        try:
            return work()
        finally:
            # The claim has no turn yet. It runs on a thread of its own kind.
            of_worker = threading.current_thread().name.startswith("first") or "turn_id" in log_fields()
            statements.append(Statement(began, time.time(), of_worker, sql))

    def execute(execute: Callable[..., Any], sql: Any, parameters: Any, many: bool, context: Any) -> Any:
        return timed(str(sql), partial(execute, sql, parameters, many, context))

    def listen(connection: Any, **_: Any) -> None:
        if execute not in connection.execute_wrappers:
            connection.execute_wrappers.append(execute)
            connection._commit = partial(timed, COMMIT, connection._commit)
            changed.append(connection)

    connection_created.connect(listen)
    try:
        yield statements
    finally:
        connection_created.disconnect(listen)
        for connection in changed:
            connection.execute_wrappers.remove(execute)
            del connection._commit


@contextmanager
def _ways(application: Application, token: str) -> Iterator[tuple[Callable[[], str], dict[str, Send]]]:
    """Yield a function that makes a conversation, and functions that send to it: by REST, by the page, by `/v1/`."""
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
            request = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
            return program.post("chat/completions", json=request)

        yield (
            place,
            {
                "REST": lambda at, text: rest.post(f"conversations/{at}/turns/", json={"text": text}),
                "page": lambda at, text: page.post(f"c/{at}/turns/", data={"text": text}),
                "/v1/": by_program,
            },
        )


def measured(model: ScriptedModel, token: str, turns: int) -> dict[str, list[Timed]]:
    """Measure so many turns by each way, in turn. Each is the second turn of its conversation."""
    times: dict[str, list[Timed]] = {}
    uncollected = override_settings(STATIC_ROOT=None, STORAGES={**settings.STORAGES, **PLAIN})
    with uncollected, working(), listening() as statements, _ways(Application(model, Path()), token) as (place, ways):
        for number in range(turns + 2):  # two of them warm up
            for way, send in ways.items():
                at = place()
                send(at, "Say hello.").raise_for_status()
                settled(_owner())
                one = timed(model, statements, _owner(), partial(send, at, f"{way} {number}"), f"{way} {number}")
                if number > 1:
                    times.setdefault(way, []).append(one)
    return times


def _owner() -> User:
    """Return the one person who has a token."""
    return User.objects.get(api_tokens__isnull=False)


def timed(
    model: ScriptedModel, statements_so_far: list[Statement], owner: User, send: Callable[[], httpx.Response], mark: str
) -> Timed:
    """Measure one turn of `owner`, whose message contains the `mark`. Nothing else may be under way."""
    statements_so_far.clear()
    cpu, posted = time.process_time(), time.time()
    send().raise_for_status()
    answered = time.time()
    record = model.finished(mark)[0]
    settled(owner)
    spent = time.process_time() - cpu
    statements = sorted(statements_so_far, key=lambda each: each.began)
    return Timed(posted, answered, record.arrived, record.ended_at or record.arrived, spent, statements)


def settled(owner: User) -> None:
    """Wait until the turns of `owner` have ended, and the work after them."""
    until(lambda: not Turn.objects.live().filter(conversation__owner=owner).exists(), "every turn has ended")
    background.wait_for_background_tasks()


def report_lines(way: str, turns: list[Timed]) -> Iterator[str]:
    """Yield a report in lines. Its statements are those of the median turn: medians of each line belong to no turn."""
    turns = sorted(turns, key=lambda each: each.model_asked_at - each.posted)
    middle = turns[len(turns) // 2]
    cpu = statistics.median(each.cpu for each in turns)
    yield (
        f"{way}: the model has the request after {_ms(middle.model_asked_at - middle.posted)} ms (least "
        f"{_ms(turns[0].model_asked_at - turns[0].posted)}), {middle.count} statements; {_ms(cpu)} ms of CPU in all"
    )
    yield "     at   takes ms"
    stages = [
        ("POST answered", middle.answered),
        ("the model has the request", middle.model_asked_at),
        ("end", middle.ended),
    ]
    lines = [(each.began, _row(middle, each)) for each in middle.before]
    lines += [(at, f"{_ms(at - middle.posted):>7}          {name}") for name, at in stages]
    yield from (line for _, line in sorted(lines))


def _row(turn: Timed, statement: Statement) -> str:
    where = "worker " if statement.of_worker else "request"
    took = f"{_ms(statement.ended - statement.began):>7}"
    return f"{_ms(statement.began - turn.posted):>7} {took}   {where}  {statement.shortened}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f}"
