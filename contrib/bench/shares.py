"""Measure how people who share a product affect each other.

The tables show the delay for one person while another one uses all their limits, the cost of limits for a sender, and
the time until sockets and streams end with a revoked token.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import cycle, islice, permutations
from statistics import median
from typing import Any

import httpx
import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from config.embedded.supervisor import BACKGROUND_NICENESS, WORKERS
from tests.product import ROOT, Caller, Product

RUNS = 20
LIVE, WAITING, OPEN, UPLOADS = 5, 50, 100, 5  # the default limits
ROUNDS, WARM = 300, 60  # measured rounds of three messages, one of them under limits; warm-up rounds
TTFT = 0.05  # seconds the scripted model waits before its first token


def rows(product: Product, hog: Caller) -> list[dict[str, Any]]:
    _separate_workers(product)
    sending = _sending(product)  # measured first, while the product has little to do and few database connections
    other = _somebody(product, "other")
    _first_tokens(other, 5)
    alone = _first_tokens(other, RUNS)
    with _everything(product, hog) as live:
        crowded = _first_tokens(other, RUNS)
        refused = _refused(hog, live)
    with _line(hog) as one_more:
        in_line = _first_tokens(other, RUNS)
    peer, value = median(alone) * 1000, median(crowded) * 1000
    return [
        {"name": "another's first token beside one at all limits, p50", "value": round(value, 1), "unit": "ms",
         "peer": round(peer, 1), "ratio": round(value / peer, 2)},
        {"name": "another's first token beside one with 50 in line, p50", "value": round(median(in_line) * 1000, 1),
         "unit": "ms", "peer": round(peer, 1), "ratio": round(median(in_line) / median(alone), 2)},
        {"name": "what is one too many is refused with 429", "value": refused + one_more, "unit": "of 3", "limit": 3,
         "ratio": (refused + one_more) / 3},
        *sending,
        *_ended(product, other),
    ]  # fmt: skip


def _separate_workers(product: Product) -> None:
    """Start the workers as `make run` does: reading files and imports have a lower priority than answers."""
    product.end("worker", signal.SIGTERM)
    for queue, threads in WORKERS.items():
        product.start(queue, "celery", "-A", "config", "worker", "-P", "threads", "-c", str(threads), "-Q", queue)
    psutil.Process(product.processes["background"].pid).nice(BACKGROUND_NICENESS)
    product.wait_until_ready()


def _manage(product: Product, *arguments: str) -> str:
    environment = {**product.environment, "DJANGO_SUPERUSER_PASSWORD": "for-benchmarks-only"}
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def _somebody(product: Product, name: str) -> Caller:
    _manage(product, "createsuperuser", "--noinput", "--username", name, "--email", f"{name}@example.org")
    return Caller(product, _manage(product, "token", name))


def _with_scope(product: Product, name: str) -> Caller:
    return Caller(product, _manage(product, "token", name, "--scopes", "admin"))


def _first_tokens(caller: Caller, count: int) -> list[float]:
    """Return the seconds from the request to the first text event for each of `count` turns."""
    seconds = []
    for _ in range(count):
        conversation = str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])
        started = time.perf_counter()
        turn = caller.ask("hi", {"ttft": TTFT, "tokens": 3, "interval": 0.001}, conversation)
        next(event for event in caller.events(turn["id"]) if event["type"] == "TEXT_MESSAGE_CONTENT")
        seconds.append(time.perf_counter() - started)
        caller.ended(turn["id"])
    return seconds


@contextmanager
def _everything(product: Product, hog: Caller) -> Iterator[str]:
    """Use all limits: answers at 50 tokens a second, open sockets, an import, slow uploads, and files to be read.

    Yields the id of one of the live turns.
    """
    done = threading.Event()
    with ExitStack() as stack:
        for number in range(LIVE):
            turn = hog.ask(f"Long {number}", {"tokens": 100_000, "interval": 0.02})["id"]
            stack.callback(hog.post, f"turns/{turn}/stop/")
        for _ in range(OPEN):
            bearer = {"Authorization": f"Bearer {hog.token}"}
            stack.enter_context(
                connect(product.url.replace("http", "ws") + "/ws/", additional_headers=bearer, ping_interval=None)
            )
        hog.http.post("imports/", files={"file": ("conversations.json", _export())}).raise_for_status()
        for number in range(20):
            words = f"{number} words of a file. ".encode() * 20_000
            hog.http.post("files/", files={"file": (f"{number}.txt", words)}).raise_for_status()
        pool = stack.enter_context(ThreadPoolExecutor(UPLOADS))
        stack.callback(done.set)
        for _ in range(UPLOADS):
            pool.submit(_trickle, hog, done)
        time.sleep(1.0)  # by then all of them are under way
        yield turn


@contextmanager
def _line(hog: Caller) -> Iterator[bool]:
    """Fill a user's queue with answers of 10 s each, 50 of which wait. Yield whether one more is refused."""
    turns = [hog.ask(f"Line {number}", {"tokens": 500, "interval": 0.02})["id"] for number in range(LIVE + WAITING)]
    try:
        one_more = hog.http.post(f"conversations/{hog.conversation()}/turns/", json={"text": "One more."})
        yield one_more.status_code == 429
    finally:
        for turn in turns:
            hog.http.post(f"turns/{turn}/stop/")


def _sending(product: Product) -> list[dict[str, Any]]:
    """Measure the time of a send without limits and under two limits.

    Three users with the same history send one after the other, in every order equally often. Two have no limits, so the
    difference between them is noise. The first rounds are not counted: after them every database connection has planned
    the frequent statements.
    """
    people = [_somebody(product, name) for name in ("free", "also-free", "limited")]
    admin, target = _with_scope(product, "admin"), {"user": people[-1].get("me/")["id"]}
    for unit, per in (("tokens", "month"), ("money", "day")):
        admin.post("limits/", {"for": target, "unit": unit, "per": per, "amount": 1_000_000_000}, expect=201)
    times: list[list[float]] = [[], [], []]
    for order in islice(cycle(permutations(range(3))), WARM + ROUNDS):
        for each in order:
            times[each].append(_sent(people[each]))
    free, also_free, limited = (took[WARM:] for took in times)
    peer = median(free) * 1000
    control, value = (
        peer + median(took - base for base, took in zip(free, others, strict=True)) * 1000
        for others in (also_free, limited)
    )
    return [
        {"name": "a message sent under two limits, p50 of pairs", "value": round(value, 2), "unit": "ms",
         "peer": round(peer, 2), "ratio": round(value / peer, 3), "control": round(control / peer, 3)},
    ]  # fmt: skip


def _sent(caller: Caller) -> float:
    """Return the seconds of a send, without the wait for its answer."""
    conversation = str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])
    started = time.perf_counter()
    turn = caller.ask("hi", {"tokens": 1}, conversation)
    seconds = time.perf_counter() - started
    caller.ended(turn["id"])
    return seconds


def _ended(product: Product, other: Caller) -> list[dict[str, Any]]:
    """Measure how long a socket and a stream outlive their token, and their group's right to a model.

    Each time ends when both have ended.
    """
    admin = _with_scope(product, "other")
    [everyone] = [each["id"] for each in admin.get("groups/")["results"] if each["everyone"]]
    after_token, after_model = [], []
    for number in range(3):
        name = f"ends {number}"
        caller = Caller(product, _manage(product, "token", "other", "--name", name))
        [pk] = [each["id"] for each in admin.get("tokens/?page_size=200")["results"] if each["name"] == name]
        remove_models = partial(admin.http.patch, f"groups/{everyone}/", json={"models": []})
        after_model.append(_until_ended(caller, other, remove_models))
        admin.http.patch(f"groups/{everyone}/", json={"models": None}).raise_for_status()
        after_token.append(_until_ended(caller, other, partial(admin.http.delete, f"tokens/{pk}/")))
    return [
        {"name": f"socket and stream after their {what}, worst of 3", "value": round(max(times) * 1000), "unit": "ms",
         "limit": 5_000, "ratio": round(max(times) / 5, 2)}
        for what, times in (("token is revoked", after_token), ("model is taken away", after_model))
    ]  # fmt: skip


def _until_ended(caller: Caller, other: Caller, act: Callable[[], httpx.Response]) -> float:
    """Return the seconds from `act` to the end of a socket and a stream. `other`: the same user with another token."""
    turn = caller.ask("Long", {"tokens": 100_000, "interval": 0.02})["id"]
    address, bearer = caller.url.replace("http", "ws") + "/ws/", {"Authorization": f"Bearer {caller.token}"}
    with (
        connect(address, additional_headers=bearer, ping_interval=None) as socket,
        caller.http.stream("GET", f"turns/{turn}/events/") as stream,
    ):
        socket.send(json.dumps({"type": "subscribe", "turn": turn}))
        started = time.perf_counter()
        act().raise_for_status()
        deque(stream.iter_lines(), maxlen=0)
        with suppress(ConnectionClosed):
            while json.loads(socket.recv())["type"] != "RUN_ERROR":
                pass
        seconds = time.perf_counter() - started
    other.http.post(f"turns/{turn}/stop/")  # it may have ended
    return seconds


def _trickle(hog: Caller, done: threading.Event) -> None:
    """Upload a file at 20 kB per 0.1 s until `done`."""

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="slow.txt"\r\n\r\n'
        while not done.wait(0.1):
            yield b"word " * 4_000
        yield b"\r\n--b--\r\n"

    form = {"Content-Type": "multipart/form-data; boundary=b"}
    with httpx.Client(headers={**hog.http.headers, **form}, timeout=60) as http:
        http.post(f"{hog.url}/api/v1/files/", content=body())


def _refused(hog: Caller, live: str) -> int:
    stream = hog.http.get(f"turns/{live}/events/")
    upload = hog.http.post("files/", files={"file": ("a.txt", b"words " * 50_000)})
    return [stream.status_code, upload.status_code].count(429)


def _export() -> bytes:
    def message(number: int) -> dict[str, Any]:
        role = "human" if number % 2 == 0 else "assistant"
        return {"uuid": str(number), "sender": role, "text": "Words of an export. " * 50}

    return json.dumps(
        [
            {"uuid": f"c{number}", "name": f"Talk {number}", "chat_messages": [message(each) for each in range(40)]}
            for number in range(500)
        ]
    ).encode()
