"""Measure the ranking and the time of search over all collections.

python -m contrib.bench.retrieval.table
"""

import json
import os
import subprocess
import sys
from typing import Any

from scripts.services import Services

PROGRAM = "import django; django.setup(); from contrib.bench.retrieval.measure import main; main()"


def rows() -> list[dict[str, Any]]:
    """Return rows with the name, the value, its unit, the `peer` or `limit` to compare with, and the ratio."""
    services = Services()
    urls = {"DATABASE_URL": services.database, "REDIS_URL": services.redis}
    environment = {**os.environ, **urls, "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.setdefault("SECRET_KEY", "only-for-benchmarks-only-for-benchmarks-only-for-benchmarks")
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, check=True)
    finally:
        services.end()
    table: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return table


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']:<62} {row['value']:>9} {row['unit']:<3} beside {row['peer']:>9} ratio {row['ratio']:.2f}")
