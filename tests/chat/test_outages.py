"""PostgreSQL and Redis restart, really, in the middle of an answer; on services of this module's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.services import Services
from tests.product import Caller, installed
from tests.scripted_model import expected_text

pytestmark = pytest.mark.product

SCRIPT = {"tokens": 400, "interval": 0.02}


class Installation:
    def __init__(self, directory: Path) -> None:
        self._places = {name: directory / name for name in ("postgres", "redis")}
        for place in self._places.values():
            place.mkdir()
        self.services = {name: Services(place, name) for name, place in self._places.items()}
        self.caller: Caller

    def restart(self, name: str) -> None:
        self.services[name].end()
        self.services[name] = Services(self._places[name], name)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    started = Installation(tmp_path_factory.mktemp("own-services"))
    try:
        with installed(started.services["postgres"].database, started.services["redis"].redis) as (_, started.caller):
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
