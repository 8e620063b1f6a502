"""Measure whether a person's pages get slower if other people have many rows.

    python -m contrib.bench.volume [the numbers of contrib.bench.fill]

The script measures every page, list, plan and send, and the search in messages. It does so in two workspaces: one of
2,000 people with a million messages, and one of two people with a thousand. The measured person has the same rows in
both: 500 messages, 50 files and tasks, a project, one session. Each workspace has services of its own. Filling the
large one takes a quarter of an hour on an idle machine. The figures of each page are printed to stderr.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from scripts.services import Services

LIMIT = 1.5  # times the small workspace's time
NOISE = 10  # ms; a smaller difference is chance
SEARCH_LIMIT, SEARCH_TIMES = 150.0, 3.0  # ms; times the small workspace
SMALL = ("--people=2", "--conversations=100", "--messages=1000")
ROUNDS = 3  # rounds, alternating between both, so that other load on the machine slows both
Workspace = dict[str, Any]  # as `with_django.volume` prints it


def measured(database: str, redis: str, arguments: list[str]) -> Workspace:
    """Measure the workspace of these services in a process of its own. If it is empty, fill it first."""
    urls = {"DATABASE_URL": database, "REDIS_URL": redis}
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **urls}
    command = [sys.executable, "-m", "contrib.bench.with_django.volume", *arguments]
    workspace: Workspace = json.loads(
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    )
    return workspace


def rows(arguments: list[str]) -> list[dict[str, Any]]:
    """Return rows with name, value, unit, limit, and the ratio of value to limit."""
    services = Services(), Services()
    try:
        rounds = [
            [
                measured(each.database, each.redis, numbers)
                for each, numbers in zip(services, ([*SMALL], arguments), strict=True)
            ]
            for _ in range(ROUNDS)
        ]
    finally:
        for each in services:
            each.end()
    small, large = (fastest(several) for several in zip(*rounds, strict=True))
    return compared(small, large)


def fastest(several: Sequence[Workspace]) -> Workspace:
    """Return the fastest time of each page and search, from several runs in one workspace."""
    names = set.intersection(*(set(each["pages"]) for each in several))
    pages = {name: min((each["pages"][name] for each in several), key=itemgetter("time")) for name in names}
    searches = [min(times) for times in zip(*(each["searches"] for each in several), strict=True)]
    return {"has": several[0]["has"], "pages": pages, "searches": searches}


def compared(small: Workspace, large: Workspace) -> list[dict[str, Any]]:
    """Compare two workspaces. Raises RuntimeError if the person has more rows in one: that would look like growth."""
    if small["has"] != large["has"]:
        raise RuntimeError(f"The person has {small['has']} in one and {large['has']} in the other.")
    return [*searches(small["searches"], large["searches"]), *pages(small["pages"], large["pages"])]


def searches(small: list[float], large: list[float]) -> Iterator[dict[str, Any]]:
    before, now = (sorted(times)[int(len(times) * 0.95)] for times in (small, large))
    yield row("search in messages, the whole workspace, p95", now, "ms", SEARCH_LIMIT, 1)
    yield row("search in messages, p95 beside 1,000 messages", now / before, "times", SEARCH_TIMES)


def pages(small: Mapping[str, Any], large: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the worst page that took noticeably longer, the worst send, and the worst plan. Print all to stderr."""
    times, noticeable = {}, {}
    for name in sorted(small.keys() & large.keys()):
        before, now = small[name], large[name]
        times[name] = ratio = now["time"] / before["time"]
        if now["time"] - before["time"] > NOISE:
            noticeable[name] = ratio
        figures = f"{name:<78} {before['queries']:>4}{now['queries']:>4} {before['time']:>8.1f}{now['time']:>8.1f}"
        over = " over" if name in noticeable and ratio > LIMIT else ""
        queries = " queries" if before["queries"] != now["queries"] else ""
        print(f"{figures} {ratio:>6.2f}{over}{queries}", file=sys.stderr)
    worst = max(noticeable or times, key=times.__getitem__)
    yield row(f"the worst of {len(times)} pages, lists, plans and sends ({worst})", times[worst], "times", LIMIT)
    plans = [ratio for name, ratio in times.items() if "/plan/" in name]
    sends = [ratio for name, ratio in times.items() if name == "POST /" or name.endswith("/turns/")]
    yield row("the worst way to send a message", max(sends), "times", LIMIT)
    yield row("the worst plan", max(plans), "times", LIMIT)


def row(name: str, value: float, unit: str, limit: float, digits: int = 2) -> dict[str, Any]:
    return {"name": name, "value": round(value, digits), "unit": unit, "limit": limit, "ratio": round(value / limit, 2)}


if __name__ == "__main__":
    for each in rows(sys.argv[1:]):
        print(f"{each['name']:<78} {each['value']:>8} {each['unit']:<5} limit {each['limit']:>5} ratio {each['ratio']}")
