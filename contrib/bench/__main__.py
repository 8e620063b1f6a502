"""Run the benchmarks (`make bench`). Prints each figure with its limit or peer and the ratio, and writes it as JSON."""

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
PASSWORD = "for-benchmarks-only"  # the admin's password


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
    """Run a module in its own process, since it sets up Django. Return the rows that it prints as JSON."""
    everything = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **environment}
    command = [sys.executable, "-m", module]
    rows: list[dict[str, Any]] = json.loads(
        subprocess.run(command, env=everything, check=True, stdout=subprocess.PIPE).stdout
    )
    return rows


def with_services(names: list[str]) -> None:
    os.environ["ADMIN_PASSWORD"] = PASSWORD
    services = Services()
    try:
        with installed(services.database, services.redis) as (product, caller):
            urls = {"DATABASE_URL": services.database, "REDIS_URL": services.redis}
            if "plan" in names:
                show("Plan (rows to prompt)", separately("contrib.bench.with_django.plan", **urls))
            if "replay" in names:
                show("Replay (stored turns planned again)", separately("contrib.bench.with_django.replay", **urls))
            if "files" in names:
                show("Files (upload to readable and searchable)", files.rows(caller))
            if "page" in names:
                show("Page (a long answer in Chromium)", page.rows(product, caller, PASSWORD))
            if "looks" in names:
                show("Looks (the first one at a page, and scrolling)", looks.rows(product, caller, PASSWORD))
            if "turn" in names:
                with Clients() as clients:
                    rows = turn.first_token(product, caller, clients) + turn.stop(product, caller)
                    for count in (25, 50, 100):
                        rows += turn.streams(product, caller, clients, count)
                show("Turn (the whole path, from the post to the event)", rows)
            if "hanging" in names:
                show("Hanging (answers of a silent model)", hanging.rows(product, caller))
    finally:
        services.end()


def with_limits() -> None:
    """Measure an installation with the default limits. The one in `with_services` has no limits for its single user."""
    os.environ["LIVE_TURNS"] = str(shares.LIVE)
    services = Services()
    try:
        with installed(services.database, services.redis) as (product, caller):
            show("Shares (one person at all limits, another beside)", shares.rows(product, caller))
    finally:
        services.end()


def main(names: list[str]) -> None:
    """Run the benchmarks with these names; without names, run all."""
    names = names or [
        *("context", "rendering", "traces", "plan", "replay", "files", "page", "looks", "turn", "hanging", "shares"),
        *("search", "volume", "retrieval"),
    ]
    if "context" in names:
        show("Context (the engine alone)", [dict(row) for row in bench_context.rows()])
    if "rendering" in names:
        show("Rendering (400,000 hostile characters)", separately("contrib.bench.with_django.rendering"))
    if "traces" in names:
        show("Traces (what the spans of a turn cost)", separately("contrib.bench.with_django.traces"))
    if "search" in names:
        show("Search (100,000 chunks)", [dict(row) for row in search.rows()])
    if "volume" in names:
        show("Volume (beside a million messages of others)", volume.rows([]))
    if "retrieval" in names:
        show("Retrieval (how well search ranks, and how long that takes)", retrieval.rows())
    if "shares" in names:
        with_limits()
    if {"plan", "replay", "files", "page", "looks", "turn", "hanging"} & set(names):
        with_services(names)


if __name__ == "__main__":
    main(sys.argv[1:])
