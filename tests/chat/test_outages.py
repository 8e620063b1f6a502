"""PostgreSQL and Redis restart, really, in the middle of an answer, and Redis becomes a replica; on services of this
module's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from scripts.services import Services, copy_prepared_cluster, use_migrated_database
from tests.product import Caller, Product, installed, until
from tests.scripted_model import expected_text

pytestmark = pytest.mark.process

SCRIPT = {"tokens": 400, "interval": 0.02}


class Installation:
    def __init__(self, directory: Path) -> None:
        self._places = {name: directory / name for name in ("postgres", "redis")}
        for place in self._places.values():
            place.mkdir()
        copy_prepared_cluster(self._places["postgres"])
        self.services = {name: Services(place, name) for name, place in self._places.items()}
        use_migrated_database(self.services["postgres"].database)
        self.product: Product
        self.caller: Caller

    def restart(self, name: str) -> None:
        self.services[name].end()
        self.services[name] = Services(self._places[name], name)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    started = Installation(tmp_path_factory.mktemp("own-services"))
    try:
        with installed(started.services["postgres"].database, started.services["redis"].redis) as (
            started.product,
            started.caller,
        ):
            yield started
    finally:
        for service in started.services.values():
            service.end()


@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_a_restart_in_the_middle_of_an_answer_loses_nothing(installation: Installation, name: str) -> None:
    caller = installation.caller
    turn = caller.ask(f"While {name} restarts.", SCRIPT)
    seen = []
    for event in caller.events(turn["id"]):
        seen.append(event)
        if len(seen) == 30:
            installation.restart(name)
    stored = caller.ended(turn["id"])
    assert stored["status"] == "done", json.dumps(stored["error"])
    assert stored["text"] == expected_text(SCRIPT)
    again = caller.ask("And afterwards?", {"text": "All is well."})
    assert caller.ended(again["id"])["text"] == "All is well."


def test_a_redis_that_is_a_replica_for_a_while_loses_nothing_and_no_worker(installation: Installation) -> None:
    """Sentinel demotes a primary in this way: its connections stay open. Celery's queue is there too."""
    caller, log = installation.caller, installation.product.log
    with redis.Redis.from_url(installation.services["redis"].redis) as first:
        turn = caller.ask("While Redis is a replica.", SCRIPT)
        seen, lost = [], log("worker").count("Connection to broker lost")
        for event in caller.events(turn["id"]):
            seen.append(event)
            if len(seen) == 30:
                first.replicaof("127.0.0.1", "1")
                until(lambda: log("worker").count("Connection to broker lost") > lost, "Celery's worker sees it")
                first.replicaof("NO", "ONE")
    stored = caller.ended(turn["id"])
    assert stored["status"] == "done", json.dumps(stored["error"])
    assert stored["text"] == expected_text(SCRIPT)
    again = caller.ask("And afterwards?", {"text": "All is well."})
    assert caller.ended(again["id"])["text"] == "All is well."
    assert installation.product.processes["worker"].poll() is None
