"""`make bench`: every figure with its limit or peer beside it, as a ratio; also written as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from contrib.bench import bench_context, files, hanging, looks, page, search, shares, turn, volume
from contrib.bench.peers.client import Clients
from contrib.bench.retrieval import table as retrieval
from scripts.services import Services
from tests.product import installed

OUT = Path(os.environ.get("BENCH_RESULTS", "bench-results"))
PASSWORD = "for-benchmarks-only"  # of the admin of a product that ends with them


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    print(f"{'what':<62} {'value':>10} {'unit':<8} {'limit/peer':>10} {'ratio':>7}")
    for row in rows:
        limit = row.get("limit", row.get("peer", ""))
        line = f"{row['name']:<62} {row['value']:>10} {row['unit']:<8} {limit:>10} {row.get('ratio', ''):>7}"
        print(f"{line}, control {row['control']}" if "control" in row else line)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{title.split()[0].lower()}.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def separately(module: str, **environment: str) -> list[dict[str, Any]]:
    """The rows that a module prints as JSON, run as a process of its own that may set up Django for these services."""
    everything = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **environment}
    command = [sys.executable, "-m", module]
    rows: list[dict[str, Any]] = json.loads(
        subprocess.run(command, env=everything, check=True, stdout=subprocess.PIPE).stdout
    )
    return rows


def with_services(wanted: list[str]) -> None:
    os.environ["ADMIN_PASSWORD"] = PASSWORD
    services = Services()
    try:
        with installed(services.database, services.redis) as (product, caller):
            urls = {"DATABASE_URL": services.database, "REDIS_URL": services.redis}
            if "plan" in wanted:
                show("Plan (rows to prompt)", separately("contrib.bench.with_django.plan", **urls))
            if "replay" in wanted:
                show("Replay (stored turns planned again)", separately("contrib.bench.with_django.replay", **urls))
            if "files" in wanted:
                show("Files (upload to readable and searchable)", files.rows(caller))
            if "page" in wanted:
                show("Page (a long answer in Chromium)", page.rows(product, caller, PASSWORD))
            if "looks" in wanted:
                show("Looks (the first one at a page, and scrolling)", looks.rows(product, caller, PASSWORD))
            if "turn" in wanted:
                with Clients() as clients:
                    rows = turn.first_token(product, caller, clients) + turn.stop(product, caller)
                    for count in (25, 50, 100):
                        rows += turn.streams(product, caller, clients, count)
                show("Turn (the whole path, from the post to the event)", rows)
            if "hanging" in wanted:
                show("Hanging (answers of a silent model)", hanging.rows(product, caller))
    finally:
        services.end()


def with_limits() -> None:
    """A product whose limits are those of an installation; that of `with_services` has none for its one person."""
    os.environ["LIVE_TURNS"] = str(shares.LIVE)
    services = Services()
    try:
        with installed(services.database, services.redis) as (product, caller):
            show("Shares (one person at all limits, another beside)", shares.rows(product, caller))
    finally:
        services.end()


def main(wanted: list[str]) -> None:
    """`wanted`: names of tables; none means all."""
    wanted = wanted or [
        *("context", "rendering", "traces", "plan", "replay", "files", "page", "looks", "turn", "hanging", "shares"),
        *("search", "volume", "retrieval"),
    ]
    if "context" in wanted:
        show("Context (the engine alone)", [dict(row) for row in bench_context.rows()])
    if "rendering" in wanted:
        show("Rendering (400,000 hostile characters)", separately("contrib.bench.with_django.rendering"))
    if "traces" in wanted:
        show("Traces (what the spans of a turn cost)", separately("contrib.bench.with_django.traces"))
    if "search" in wanted:
        show("Search (100,000 chunks)", [dict(row) for row in search.rows()])
    if "volume" in wanted:
        show("Volume (beside a million messages of others)", volume.rows([]))
    if "retrieval" in wanted:
        show("Retrieval (how well search ranks, and how long that takes)", retrieval.rows())
    if "shares" in wanted:
        with_limits()
    if {"plan", "replay", "files", "page", "looks", "turn", "hanging"} & set(wanted):
        with_services(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
