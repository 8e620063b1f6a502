"""`/readyz` tells whether the web process can serve, and whether workers are there."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client
from pytest_django.fixtures import Settings

from config import service_urls
from core import background
from tests.product import WAIT, until

pytestmark = pytest.mark.django_db

# Where no worker of a running product says that it is there.
ELSEWHERE = service_urls.redis(django_settings.REDIS_URL, service_urls.CACHE_DB)


@pytest.fixture(autouse=True)
def _no_workers(settings: Settings) -> None:
    settings.STREAMS_URL = ELSEWHERE
    with redis.Redis.from_url(ELSEWHERE) as connection:
        connection.delete(*(f"worker:{queue}:heard" for queue in background.QUEUES))


def readiness(client: Client, status: int = 200) -> Any:
    answer = client.get("/readyz")
    assert answer.status_code == status
    return answer.json()


def report_workers(*queues: str) -> None:
    """Report workers of these queues until this process has noticed them."""
    telling = background.submit(background.report_queues(queues))
    until(lambda: set(queues) <= set(background.report_ages()), "a worker has said that it is there")
    telling.cancel()


def test_it_is_ready_without_workers_and_says_which_are_missing(client: Client) -> None:
    advice = "has reported within 20 s; start one, or wait if it is starting"
    sentence = f"no worker of turns and background {advice}"
    assert readiness(client) == {"ready": True, "database": "ok", "redis": "ok", "worker": sentence}
    report_workers("turns")
    assert readiness(client)["worker"] == f"no worker of background {advice}"
    report_workers("turns", "background")
    assert readiness(client)["worker"] == "ok"


def test_a_worker_that_has_been_silent_for_too_long_is_gone(client: Client) -> None:
    report_workers("turns", "background")
    with redis.Redis.from_url(ELSEWHERE) as connection:
        connection.expire("worker:turns:heard", 86_400 - 25)
    assert readiness(client)["worker"].startswith("no worker of turns has reported within 20 s")
    assert 25 <= background.report_ages()["turns"] < 60


def test_without_redis_it_is_not_ready(client: Client, settings: Settings) -> None:
    settings.STREAMS_URL = "redis://127.0.0.1:1/0"
    state = readiness(client, 503)
    assert (state["ready"], state["database"], state["redis"], state["worker"]) == (
        False,
        "ok",
        "unreachable",
        "unknown",
    )


def test_a_worker_touches_its_file_while_it_takes_work(tmp_path: Path) -> None:
    def shown(stalled: bool) -> Path:
        file, called = tmp_path / str(stalled), threading.Event()

        def is_deaf() -> bool:
            called.set()
            return stalled

        showing = background.submit(background.touch_life_file(file, is_deaf))
        assert called.wait(WAIT)
        background.submit(asyncio.sleep(0)).result()  # its first round is over
        showing.cancel()
        return file

    assert shown(stalled=False).exists()
    assert not shown(stalled=True).exists()
