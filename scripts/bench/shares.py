"""One person holds all they may hold at once: what another notices of it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import httpx
import psutil
from websockets.sync.client import connect

from config.embedded.supervisor import BACKGROUND_NICENESS, WORKERS
from tests.product import ROOT, Caller, Product

RUNS = 20
LIVE, OPEN, UPLOADS = 5, 100, 5  # the limits as they are set by default
TTFT = 0.05  # seconds the scripted model waits before its first token


def rows(product: Product, hog: Caller) -> list[dict[str, Any]]:
    _separate_workers(product)
    other = _somebody(product)
    _first_tokens(other, 5)
    alone = _first_tokens(other, RUNS)
    with _everything(product, hog) as live:
        beside = _first_tokens(other, RUNS)
        refused = _refused(hog, live)
    peer, value = median(alone) * 1000, median(beside) * 1000
    return [
        {"name": "another's first token beside one at all limits, p50", "value": round(value, 1), "unit": "ms",
         "peer": round(peer, 1), "ratio": round(value / peer, 2)},
        {"name": "what is one too many is refused with 429", "value": refused, "unit": "of 3", "limit": 3,
         "ratio": refused / 3},
    ]  # fmt: skip


def _separate_workers(product: Product) -> None:
    """As `make run` starts them: what reads files and imports gives way to answers."""
    product.end("worker", signal.SIGTERM)
    for queue, threads in WORKERS.items():
        product.start(queue, "celery", "-A", "config", "worker", "-P", "threads", "-c", str(threads), "-Q", queue)
    psutil.Process(product.processes["background"].pid).nice(BACKGROUND_NICENESS)
    product.wait_until_ready()


def _somebody(product: Product) -> Caller:
    def manage(*arguments: str) -> str:
        environment = {**product.environment, "DJANGO_SUPERUSER_PASSWORD": "for-benchmarks-only"}
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    manage("createsuperuser", "--noinput", "--username", "other", "--email", "other@example.org")
    return Caller(product, manage("token", "other"))


def _first_tokens(caller: Caller, count: int) -> list[float]:
    """Seconds from the post to the first text event."""
    found = []
    for _ in range(count):
        place = str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])
        began = time.perf_counter()
        turn = caller.ask("hi", {"ttft": TTFT, "tokens": 3, "interval": 0.001}, place)
        next(event for event in caller.events(turn["id"]) if event["type"] == "TEXT_MESSAGE_CONTENT")
        found.append(time.perf_counter() - began)
        caller.ended(turn["id"])
    return found


@contextmanager
def _everything(product: Product, hog: Caller) -> Iterator[str]:
    """Answers at 50 tokens a second, sockets that listen, an import, uploads that trickle, and files to be read.

    The id of a turn that is live meanwhile.
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
        time.sleep(1.0)  # all of them are under way
        yield turn


def _trickle(hog: Caller, done: threading.Event) -> None:
    """A file of 20 kB a tenth of a second until `done`."""

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="slow.txt"\r\n\r\n'
        while not done.wait(0.1):
            yield b"word " * 4_000
        yield b"\r\n--b--\r\n"

    form = {"Content-Type": "multipart/form-data; boundary=b"}
    with httpx.Client(headers={**hog.http.headers, **form}, timeout=60) as http:
        http.post(f"{hog.url}/api/v1/files/", content=body())


def _refused(hog: Caller, live: str) -> int:
    place = hog.conversation()
    answer = hog.http.post(f"conversations/{place}/turns/", json={"text": "One more."})
    stream = hog.http.get(f"turns/{live}/events/")
    upload = hog.http.post("files/", files={"file": ("a.txt", b"words " * 50_000)})
    return [answer.status_code, stream.status_code, upload.status_code].count(429)


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
