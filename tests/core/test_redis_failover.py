"""A real Redis whose primary becomes a replica while connections to it are open."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache.backends.redis import RedisCache
from pytest_django.fixtures import Settings

from chat.realtime import turn_stream
from chat.realtime.events import Event, EventType
from config.service_urls import CACHE_OPTIONS
from core import background
from core.redis_failover import NotWritable
from tests.product import until
from tests.valkey import Valkey

pytestmark = pytest.mark.process

REFUSALS = ("READONLY", "NOREPLICAS")


@pytest.fixture
def valkey(tmp_path: Path, settings: Settings) -> Iterator[Valkey]:
    with Valkey(tmp_path) as started:
        settings.STREAMS_URL = started.url
        yield started


def _event() -> Event:
    return Event(EventType.RUN_STARTED, "turn", 1, {})


def _too_few_replicas(valkey: Valkey) -> None:
    valkey.client.config_set("min-replicas-to-write", 1)


def _enough_replicas(valkey: Valkey) -> None:
    valkey.client.config_set("min-replicas-to-write", 0)


WAYS = pytest.mark.parametrize(
    ("begin", "end"),
    [(Valkey.demote, Valkey.promote), (_too_few_replicas, _enough_replicas)],
    ids=["a replica", "too few replicas"],
)


@WAYS
def test_what_is_appended_waits_until_it_is_taken(
    valkey: Valkey, begin: Callable[[Valkey], None], end: Callable[[Valkey], None]
) -> None:
    turn = uuid4()

    async def append() -> list[int]:
        await turn_stream.append(uuid4(), [_event()])  # over a connection that stays open
        begin(valkey)
        appending = asyncio.create_task(turn_stream.append(turn, [_event()]))
        await asyncio.to_thread(until, lambda: _refused(valkey), "it is refused twice")
        assert not appending.done()
        end(valkey)
        await appending
        return [event.seq for event in await turn_stream.read_events(turn)]

    assert asyncio.run(append()) == [1]


def _refused(valkey: Valkey) -> bool:
    """Return whether four commands were refused: the first ones and their retries."""
    statistics = valkey.says("errorstats")
    return bool(sum(statistics.get(f"errorstat_{kind}", {}).get("count", 0) for kind in REFUSALS) >= 4)


def test_a_read_that_blocks_when_it_becomes_a_replica_is_silent_and_the_next_brings_what_comes(valkey: Valkey) -> None:
    turn = uuid4()

    async def follow() -> list[int]:
        reading = asyncio.create_task(turn_stream.next_events(turn, 0))
        await asyncio.to_thread(until, lambda: valkey.says("clients")["blocked_clients"], "the read blocks")
        valkey.demote()
        assert await reading == []
        valkey.promote()
        await turn_stream.append(turn, [_event()])
        return [event.seq for event in await turn_stream.next_events(turn, 0)]

    assert asyncio.run(follow()) == [1]


def _with_cache(url: str) -> None:
    RedisCache(url, {"OPTIONS": CACHE_OPTIONS}).set("key", "value")


def _with_streams(url: str) -> None:
    background.streams().set("key", "value")


@pytest.mark.parametrize("store", [_with_cache, _with_streams])
def test_a_connection_that_refuses_to_write_is_not_kept(valkey: Valkey, store: Callable[[str], Any]) -> None:
    """Another first may be behind the address by then."""
    valkey.demote()
    before = valkey.connections()
    with pytest.raises(NotWritable):
        store(valkey.url)
    until(lambda: valkey.connections() <= before, "no connection of it is left")
    valkey.promote()
    store(valkey.url)
