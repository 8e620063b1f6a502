"""Start PostgreSQL and Redis for this test run, before Django's settings are loaded (`-p tests.environment`).

Under xdist the controller starts them once. Each worker has its own database, which pytest-django names, and its own
four database numbers of the one Redis.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scripts import services

gc.disable()  # collecting while modules load takes a quarter of the time and finds nothing
worker = os.environ.get("PYTEST_XDIST_WORKER")
started = services.start() if worker is None else None  # they come up while Django loads
if worker is not None:
    first = (int(worker.removeprefix("gw")) + 1) * 4
    parts = urlsplit(os.environ["REDIS_URL"])
    changed = parts._replace(query=f"db={first}") if parts.scheme == "unix" else parts._replace(path=f"/{first}")
    os.environ["REDIS_URL"] = changed.geturl()
os.environ.setdefault("SECRET_KEY", "only-for-tests-only-for-tests-only-for-tests-12345")
os.environ.setdefault("API_RATES", services.UNLIMITED)
os.environ.setdefault("PAGE_RATES", services.UNLIMITED_PAGES)
os.environ.setdefault("LIVE_TURNS", "0")
os.environ.setdefault("WEBHOOK_ALLOW_PRIVATE", "true")  # what receives them in tests is on this machine
# Every product that a test starts would collect them anew; the next run finds them, too.
os.environ.setdefault("STATIC_ROOT", str(Path(__file__).resolve().parents[1] / "staticfiles"))
os.environ.pop("BUNDLED_MODEL_URL", None)


@pytest.hookimpl(tryfirst=True)  # before xdist starts its workers
def pytest_sessionstart() -> None:
    if started is not None:
        started.wait()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze loaded modules, so that garbage collections during the tests skip them."""
    collected = yield
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # the tests keep much and leave little behind in circles
    gc.enable()
    return collected
