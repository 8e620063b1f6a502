"""Measure hundreds of answers that wait for a silent model: their cost for a worker, and the delay of other answers."""

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import psutil
import psycopg

from tests.product import Caller, Product, until

TURNS = 600
SCRIPT = {"text": "Never said.", "silent_after": 0}
SECONDS = 300.0  # time limit; a slow machine needs most of it to post all questions


def rows(product: Product, caller: Caller) -> list[dict[str, Any]]:
    """Measure an installation in which `caller` has no rate limit. Stops all turns at once, through their rows."""
    worker = psutil.Process(product.processes["worker"].pid)
    with psycopg.connect(product.environment["DATABASE_URL"], autocommit=True) as database:
        database.execute("UPDATE llm_provider SET silence_timeout = 3600")
        caller.ended(caller.ask("The first loads modules and caches.", {"text": "So it does."})["id"])
        before = worker.memory_full_info().uss
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: caller.ask(f"Hang {number}", SCRIPT), range(TURNS)))

        def running() -> int:
            row = database.execute("SELECT count(*) FROM chat_turn WHERE status = 'running'").fetchone()
            return row[0] if row else 0

        until(lambda: running() == TURNS, "all hang", SECONDS)
        first_tokens = [_begun(caller) for _ in range(5)]
        grown = (worker.memory_full_info().uss - before) / 1e6
        began = time.perf_counter()
        database.execute("UPDATE chat_turn SET stop_requested = true WHERE status = 'running'")
        until(lambda: running() == 0, "all are stopped", SECONDS)
        stopped = time.perf_counter() - began
    return [
        _row(f"{TURNS} hanging turns: another one's first token, p50", median(first_tokens), "s", 1.0),
        _row(f"{TURNS} hanging turns: memory of the worker grows by", grown, "MB", 300.0),
        _row(f"{TURNS} hanging turns: all asked to stop have stopped", stopped, "s", 5.0),
    ]


def _row(name: str, value: float, unit: str, limit: float) -> dict[str, Any]:
    return {"name": name, "value": round(value, 2), "unit": unit, "limit": limit, "ratio": round(value / limit, 2)}


def _begun(caller: Caller) -> float:
    conversation = str(caller.post("conversations/", {"title": "Bench"}, expect=201)["id"])
    began = time.perf_counter()
    turn = caller.ask("hi", {"text": "Here."}, conversation)
    first = next(event for event in caller.events(turn["id"]) if event["type"] == "TEXT_MESSAGE_CONTENT")
    took = time.perf_counter() - began
    caller.ended(first["turn"])
    return took
