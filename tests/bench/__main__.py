"""`make bench`: every figure with its limit or peer beside it, as a ratio; also written as JSON."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.bench import bench_context, turn
from tests.product import installed
from tests.services import Services

OUT = Path(os.environ.get("BENCH_RESULTS", "bench-results"))


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    print(f"{'what':<62} {'value':>10} {'unit':<8} {'limit/peer':>10} {'ratio':>7}")
    for row in rows:
        limit = row.get("limit", row.get("peer", ""))
        print(f"{row['name']:<62} {row['value']:>10} {row['unit']:<8} {limit:>10} {row.get('ratio', ''):>7}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{title.split()[0].lower()}.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def main(wanted: list[str]) -> None:
    """`wanted`: names of tables (context, turn); none means all."""
    if not wanted or "context" in wanted:
        show("Context engine", bench_context.rows())
    if not wanted or "turn" in wanted:
        services = Services()
        try:
            with installed(services.database, services.redis) as (product, caller):
                rows = turn.first_token(product, caller) + turn.stop(product, caller)
                for count in (25, 50, 100):
                    rows += turn.streams(product, caller, count)
                show("Turn (the whole path, from the post to the event)", rows)
        finally:
            services.end()


if __name__ == "__main__":
    main(sys.argv[1:])
