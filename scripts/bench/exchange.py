"""What an exchange costs an installation: processor time by process, the database's rows and its log of changes.

From these docs/operations.md reckons how many people one installation carries. Processor time is counted, not waited
for, so that other work on the machine changes it little. One worker does everything, as in the other benchmarks, and
PostgreSQL writes no page in full after a checkpoint (`scripts.services`), so an installation's log is larger.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import redis

from scripts.bench.peers.client import Clients, Exchange, http
from tests.product import Caller, Product

TOGETHER, TIMES = 25, 8  # conversations, and questions in each of them
TOKENS, INTERVAL = 250, 0.02  # of an answer; seconds between them
QUESTION = "Which of the clauses limits what we owe, and what does it say about the years before? " * 2
PAGES = 60
GROWING = ("chat_message", "chat_turn", "chat_modelcall")


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds by process, bytes of the log, transactions, and bytes by table."""

    seconds: dict[str, float]
    log: int
    commits: int
    tables: dict[str, int]


class Meter:
    def __init__(self, product: Product) -> None:
        self._ours = {name: psutil.Process(process.pid) for name, process in product.processes.items()}
        self._redis = redis.Redis.from_url(product.environment["REDIS_URL"])
        self._database = psycopg.connect(product.environment["DATABASE_URL"], autocommit=True)
        self._postgres = psutil.Process(self._one("SELECT pg_backend_pid()")).parent()

    def _one(self, statement: str) -> Any:
        row = self._database.execute(statement).fetchone()
        return row[0] if row else None

    def read(self) -> Spent:
        rows = self._database.execute("SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables")
        said: Any = self._redis.info("cpu")
        seconds = {name: sum(process.cpu_times()[:2]) for name, process in self._ours.items()}
        seconds["redis"] = said["used_cpu_user"] + said["used_cpu_sys"]
        seconds["postgres"] = self._of_postgres()
        return Spent(
            seconds,
            int(self._one("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")),
            self._one("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"),
            dict(rows.fetchall()),
        )

    def _of_postgres(self) -> float:
        """Of its first process with all that have ended, and of those that run."""
        assert self._postgres is not None
        return sum(self._postgres.cpu_times()[:4]) + sum(
            sum(child.cpu_times()[:2]) for child in self._postgres.children(recursive=True)
        )

    def connections(self) -> int:
        return int(self._one("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")) - 1

    def memory(self) -> dict[str, float]:
        """MB that each of our processes has for itself."""
        return {name: process.memory_full_info().uss / 1e6 for name, process in self._ours.items()}


def rows(product: Product, caller: Caller, password: str) -> list[dict[str, Any]]:
    meter, places = Meter(product), [_place(caller) for _ in range(TOGETHER)]
    found: list[dict[str, Any]] = []
    with Clients() as clients:
        _ask(product, caller, clients, places[:5], 1)  # what a process loads with its first answer
        before = meter.read()
        _ask(product, caller, clients, places, TIMES)
        after = meter.read()
    number = TOGETHER * TIMES
    found += [
        _row(f"an exchange, processor time: {name}", _each(before, after, name, number), "ms")
        for name in ("web", "worker", "postgres", "redis")
    ]
    grown = {name: after.tables[name] - size for name, size in before.tables.items()}
    rest = sum(grown.values()) - sum(map(grown.__getitem__, GROWING))
    for name, size in [*((name, grown[name]) for name in GROWING), ("all other tables", rest)]:
        found.append(_row(f"an exchange, rows with indexes: {name}", size / number / 1e3, "kB"))
    found.append(_row("an exchange, WAL without full pages", (after.log - before.log) / number / 1e3, "kB"))
    found.append(_row("an exchange, transactions", (after.commits - before.commits) / number, ""))
    with product.http("/") as browser:
        _sign_in(browser, password)
        for name, look in _looks(browser, places[0]).items():
            found += _pages(meter, name, look)
    found.append(_row(f"connections to the database, after {TOGETHER} answers at once", meter.connections(), ""))
    return [*found, *(_row(f"memory of {name}", size, "MB") for name, size in meter.memory().items())]


def _place(caller: Caller) -> str:
    # A title of its own: otherwise the model would be asked for one after the first answer.
    return str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])


def _ask(product: Product, caller: Caller, clients: Clients, places: list[str], times: int) -> None:
    """The next questions of all conversations at once, so many times; raises RuntimeError if an answer is not whole."""
    script = json.dumps({"tokens": TOKENS, "interval": INTERVAL})
    body = json.dumps({"text": f"{QUESTION}\nscript: {script}"}).encode()
    headers = {"Authorization": f"Bearer {caller.token}", "Accept": "text/event-stream"}
    port = urlsplit(product.url).port or 80
    for _ in range(times):
        requests = [http("POST", f"/api/v1/conversations/{place}/turns/", headers, body) for place in places]
        failed = rb"^HTTP/1\.1 [45]|RUN_(STOPPED|ERROR)"
        answers = clients.run([Exchange(port, request, rb"RUN_FINISHED", failed) for request in requests], 2.0)
        if not all(answer.whole for answer in answers):
            raise RuntimeError("an answer was not whole")


def _sign_in(browser: httpx.Client, password: str) -> None:
    """As the admin."""
    browser.get("/login/").raise_for_status()
    form = {"username": "admin", "password": password, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    if browser.post("/login/", data=form).status_code != 302:
        raise RuntimeError("the admin was not let in")
    browser.headers["X-CSRFToken"] = browser.cookies["csrftoken"]


def _looks(browser: httpx.Client, place: str) -> dict[str, Callable[[], httpx.Response]]:
    draft = {"text": QUESTION}
    return {
        "the page of a conversation": lambda: browser.get(f"/c/{place}/"),
        "the plan of what is typed": lambda: browser.post(f"/c/{place}/plan/", data=draft),
        "a search in messages": lambda: browser.get("/search/?q=clauses"),
    }


def _pages(meter: Meter, name: str, look: Callable[[], httpx.Response]) -> list[dict[str, Any]]:
    look().raise_for_status()
    before = meter.read()
    for _ in range(PAGES):
        look().raise_for_status()
    after = meter.read()
    return [
        _row(f"{name}, processor time: {process}", _each(before, after, process, PAGES), "ms")
        for process in ("web", "postgres")
    ]


def _each(before: Spent, after: Spent, name: str, number: int) -> float:
    return (after.seconds[name] - before.seconds[name]) / number * 1_000


def _row(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": round(value, 1), "unit": unit}
