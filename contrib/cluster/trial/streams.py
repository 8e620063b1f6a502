"""Stream many answers at once through the proxy with TLS. Check that they are complete and in order, and not late."""

import asyncio
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp
import psutil

from contrib.cluster.company import Company
from contrib.cluster.trial.client import Client
from contrib.cluster.trial.work import conversation, scripted, text_of
from tests.scripted_model import expected_text

COUNT, WITHIN = 300, 1.0  # streams, and the seconds in which they begin
DESCRIPTION = f"{COUNT} streams at 50 tokens/s over 2 web processes and 3 workers"
SCRIPT = {"tokens": 250, "interval": 0.02, "ttft": 0.1}  # 50 tokens a second, for five seconds
CONCURRENT_CREATIONS = 20  # conversations that are created in parallel
COMPLETE = "complete"
LATEST = 1.0  # seconds; limit for the delay of 99 % of the events
DATA = re.compile(rb"^data: (\{.*\})$", re.M)

Piece = tuple[float, bytes]  # Unix time of arrival, and the bytes


async def run_trial(company: Company, session: aiohttp.ClientSession) -> tuple[str, bool]:
    """Run the trial. Return a line for the table, and whether it passed."""
    client, gate = Client(company, session), asyncio.Semaphore(CONCURRENT_CREATIONS)

    async def place() -> str:
        async with gate:
            return await conversation(client)

    places = await asyncio.gather(*(place() for _ in range(COUNT)))
    processes = [psutil.Process(process.pid) for process in company.own.values() if process.pid]
    before, began = _cpu(processes), time.monotonic()
    pieces = await asyncio.gather(*(_stream(company, session, each, n) for n, each in enumerate(places)))
    cpu_time, seconds = _cpu(processes) - before, time.monotonic() - began
    ends, in_order, delays = Counter[str](), 0, list[float]()
    for each in pieces:
        end, ordered, late = _looked_at(each)
        ends[end], in_order, delays = ends[end] + 1, in_order + ordered, delays + late
    others = "".join(f", {count} {end}" for end, count in ends.items() if end != COMPLETE)
    delays.sort()
    middle, last = statistics.median(delays or [0.0]), delays[int(0.99 * len(delays))] if delays else 0.0
    load = psutil.getloadavg()[0]
    tokens = COUNT * SCRIPT["tokens"]
    summary = (
        f"{ends[COMPLETE]} {COMPLETE}{others}, {in_order} in order; an event's delay p50 {middle:.2f} s, "
        f"p99 {last:.2f} s; {seconds:.0f} s in all; {cpu_time / tokens * 1e6:.0f} µs of processor a token in all our "
        f"processes (load of the machine {load:.0f})"
    )
    return summary, ends[COMPLETE] == in_order == COUNT and last <= LATEST


async def _stream(company: Company, session: aiohttp.ClientSession, place: str, number: int) -> list[Piece]:
    """Read one answer. It is parsed later, so that the reader does not slow down the measurement."""
    await asyncio.sleep(WITHIN * number / COUNT)
    pieces = list[Piece]()
    headers = {"Accept": "text/event-stream"}
    address = f"{company.url}/api/v1/conversations/{place}/turns/"
    async with session.post(address, json={"text": scripted("hi", SCRIPT)}, headers=headers) as answer:
        async for data in answer.content.iter_any():
            pieces.append((time.time(), data))
    return pieces


def _looked_at(pieces: Sequence[Piece]) -> tuple[str, bool, list[float]]:
    """Return how an answer ended, whether its events came in order, and the delays of events with text in seconds."""
    arrivals, offset = list[tuple[int, float]](), 0
    for when, data in pieces:
        offset += len(data)
        arrivals.append((offset, when))
    events = list[tuple[float, dict[str, Any]]]()
    number = 0
    for match in DATA.finditer(b"".join(data for _, data in pieces)):
        while arrivals[number][0] < match.end():
            number += 1
        events.append((arrivals[number][1], json.loads(match[1])))
    texts = [(when, event) for when, event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
    numbers = [event["seq"] for _, event in events if event.get("seq")]
    text, last = text_of(event for _, event in events), events[-1][1] if events else {"type": "nothing"}
    ended = last["type"] == "RUN_FINISHED" or (last["type"] == "SNAPSHOT" and last["status"] == "done")
    end = COMPLETE if ended and text == expected_text(SCRIPT) else f"with {len(text)} characters, {last['type']}"
    return end, numbers == sorted(set(numbers)), [when - event["ts"] for when, event in texts]


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes if each.is_running())
