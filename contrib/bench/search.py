"""Measure the time of a search in many chunks, and the time until a new file is searchable among them.

    python -m contrib.bench.search [chunks]

Building 100,000 chunks takes about six minutes.
"""

import json
import os
import subprocess
import sys
from typing import Any

from scripts.services import Services

CHUNKS = 100_000
PROGRAM = "import django; django.setup(); from contrib.bench.retrieval.large_collection import main; main({})"


def rows(chunks: int = CHUNKS) -> list[dict[str, Any]]:
    """Return rows with name, value, unit, limit, and ratio to the limit."""
    services = Services()
    urls = {"DATABASE_URL": services.database, "REDIS_URL": services.redis}
    environment = {**os.environ, **urls, "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.setdefault("SECRET_KEY", "only-for-benchmarks-only-for-benchmarks-only-for-benchmarks")
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(chunks)], env=environment, stdout=subprocess.PIPE, check=True
        )
    finally:
        services.end()
    table: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return table


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(f"{row['name']:<62} {row['value']:>8} {row['unit']:<3} limit {row['limit']:>5} ratio {row['ratio']:.2f}")
