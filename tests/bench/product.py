"""Rows measured on the running product. Run by `make bench` under pytest's fixtures, which start the product."""

import json
from pathlib import Path
from typing import Any

from tests.bench import turn
from tests.product import Caller, Product


def rows(product: Product, caller: Caller) -> list[dict[str, Any]]:
    measured = turn.first_token(product, caller)
    measured += turn.stop(product, caller)
    for count in (25, 50, 100):
        measured += turn.streams(product, caller, count)
    return measured


def write(measured: list[dict[str, Any]], path: Path) -> None:
    path.write_text(json.dumps(measured, indent=1, ensure_ascii=False))
