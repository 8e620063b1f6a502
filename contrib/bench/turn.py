"""Measure the cost of a turn: the time it adds to the model's first token, and many streams at once.

Each row is compared with reading the same scripted server directly, in the same run. A separate process reads the
answers and only keeps their bytes. A client that does more would send later, and so load the product less than a real
one.
"""

import json
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from contrib.bench.peers.client import AnswerExchange, Clients, TimedAnswer, http
from tests.product import Caller, Product
from tests.scripted_model import expected_text

RUNS = 50
WARMING = 5  # answers that are not measured, to warm up
WITHIN = 0.5  # seconds over which the starts of the streams are spread
TTFT = 0.05  # seconds the scripted model waits before its first token
LIMIT_MS = 25.0


def _direct(product: Product, script: dict[str, Any]) -> AnswerExchange:
    """Return an exchange with the model itself."""
    url = urlsplit(product.model.openai_url)
    question = {"role": "user", "content": f"hi\nscript: {json.dumps(script)}"}
    body = json.dumps({"model": "scripted", "stream": True, "messages": [question]}).encode()
    return AnswerExchange(url.port or 80, http("POST", f"{url.path}/chat/completions", {}, body), rb"\[DONE\]")


def _through(product: Product, caller: Caller, script: dict[str, Any]) -> AnswerExchange:
    """Return an exchange with the product, which streams events as the response. The model gets the same question."""
    # With a title: otherwise the product would ask the model for a title during the next run.
    conversation = caller.post("conversations/", {"title": "Bench"}, expect=201)["id"]
    headers = {"Authorization": f"Bearer {caller.token}", "Accept": "text/event-stream"}
    body = json.dumps({"text": f"hi\nscript: {json.dumps(script)}"}).encode()
    request = http("POST", f"/api/v1/conversations/{conversation}/turns/", headers, body)
    failed = rb"^HTTP/1\.1 [45]|RUN_(STOPPED|ERROR)"
    return AnswerExchange(urlsplit(product.url).port or 80, request, rb"RUN_FINISHED", failed)


def _first(clients: Clients, exchange: AnswerExchange, token: bytes) -> float:
    """Return the seconds from the request to the first token, which the pattern `token` matches."""
    [answer] = clients.run([exchange])
    if not answer.whole:
        raise RuntimeError(f"the answer was not whole: {answer.text()[-1000:]!r}")
    return answer.matches(token)[0][0] - answer.sent


def first_token(product: Product, caller: Caller, clients: Clients) -> list[dict[str, Any]]:
    script = {"ttft": TTFT, "tokens": 3, "interval": 0.001}
    pairs = []
    for _ in range(WARMING + RUNS):
        direct = _first(clients, _direct(product, script), rb'"content": ?"[^"]')
        pairs.append((direct, _first(clients, _through(product, caller, script), rb"TEXT_MESSAGE_CONTENT")))
    pairs = pairs[WARMING:]
    added = sorted((through - direct) * 1000 for direct, through in pairs)
    rows = [
        ("added to first token, p50", statistics.median(added)),
        ("added to first token, p95", added[int(0.95 * RUNS)]),
    ]
    model = statistics.median(direct for direct, _ in pairs) * 1000
    return [
        {"name": name, "value": round(value, 1), "unit": "ms", "limit": LIMIT_MS, "ratio": round(value / LIMIT_MS, 2)}
        for name, value in rows
    ] + [{"name": "the model alone, p50", "value": round(model, 1), "unit": "ms"}]


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _events(answer: TimedAnswer) -> list[tuple[float, dict[str, Any]]]:
    """Return each event with the Unix time of its arrival, to compare with its `ts`."""
    clock = time.time() - time.monotonic()
    return [(at + clock, json.loads(match[1])) for at, match in answer.matches(rb"data: (\{.*\})\n")]


def _delays(events: list[tuple[float, dict[str, Any]]]) -> list[float]:
    """Return the milliseconds between the worker's timestamp of each text event and its arrival here."""
    return [(at - event["ts"]) * 1000 for at, event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]


def streams(product: Product, caller: Caller, clients: Clients, count: int, tokens: int = 250) -> list[dict[str, Any]]:
    """Measure `count` parallel answers at 50 tokens/s: how many are complete, in order and stored; delay and CPU."""
    script = {"tokens": tokens, "interval": 0.02, "ttft": 0.1}
    expected = expected_text(script)
    processes = [psutil.Process(process.pid) for process in product.processes.values()]

    def look(answer: TimedAnswer) -> tuple[bool, bool, list[float]]:
        events = _events(answer)
        text = "".join(event["delta"] for _, event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        numbers = [event["seq"] for _, event in events if "seq" in event]
        in_order = numbers == list(range(1, len(numbers) + 1))
        complete = answer.whole and text == expected == caller.ended(events[0][1]["turn"])["text"]
        return complete, in_order, _delays(events)

    exchanges = [_through(product, caller, script) for _ in range(count)]
    before = _cpu(processes)
    answers = clients.run(exchanges, WITHIN)
    spent = _cpu(processes) - before
    results = [look(answer) for answer in answers]
    delays = sorted(delay for _, _, some in results for delay in some)
    good = sum(complete and in_order for complete, in_order, _ in results)
    direct = _direct_cpu(product, script, count)
    label = f"{count} streams at 50/s"
    return [
        {"name": f"{label}: complete, in order and stored", "value": good, "limit": count, "unit": "answers",
         "ratio": good / count},
        {"name": f"{label}: delay of an event, p50", "value": round(statistics.median(delays), 1), "unit": "ms"},
        {"name": f"{label}: delay of an event, p99", "value": round(delays[int(0.99 * len(delays))], 1), "unit": "ms"},
        {"name": f"{label}: CPU a token, all our processes", "value": round(spent / count / tokens * 1e6), "unit": "µs",
         "limit": round(direct * 1e6), "ratio": round(spent / count / tokens / direct, 1)},
    ]  # fmt: skip


def _direct_cpu(product: Product, script: dict[str, Any], count: int) -> float:
    """Return the CPU seconds per token of a plain client that reads the same server's stream, for comparison."""
    body = {
        "model": "scripted",
        "stream": True,
        "messages": [{"role": "user", "content": f"hi\nscript: {json.dumps({**script, 'interval': 0})}"}],
    }
    began = time.thread_time()
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", product.model.openai_url + "/chat/completions", json=body) as response,
    ):
        pieces = sum(1 for line in response.iter_lines() if line.startswith("data: {") and json.loads(line[6:]))
    return (time.thread_time() - began) / max(1, pieces)


def stop(product: Product, caller: Caller) -> list[dict[str, Any]]:
    """Measure the time from a stop request to the end of the turn, and of the provider's connection, at four rates."""
    rows = []
    for interval in (0.005, 0.02, 0.05, 0.2):
        ended, closed = zip(*(_stop_once(product, caller, interval) for _ in range(5)), strict=True)
        for what, values in (("turn ended", ended), ("provider connection closed", closed)):
            worst = max(values) * 1000
            name = f"stop at {interval * 1000:g} ms a token: {what}, worst of 5"
            rows.append(
                {"name": name, "value": round(worst, 1), "unit": "ms", "limit": 200, "ratio": round(worst / 200, 2)}
            )
    return rows


def _stop_once(product: Product, caller: Caller, interval: float) -> tuple[float, float]:
    mark = f"stop {time.time_ns()}"
    turn = caller.ask(mark, {"tokens": 5000, "interval": interval})
    stopped_at = 0.0
    for event in caller.events(turn["id"]):
        if event["type"] == "TEXT_MESSAGE_CONTENT" and not stopped_at:
            stopped_at = time.time()
            caller.post(f"turns/{turn['id']}/stop/")
        if event["type"] == "RUN_STOPPED":
            ended = event["ts"]
    record = product.model.finished(mark)[0]
    return ended - stopped_at, (record.ended_at or 0) - stopped_at
