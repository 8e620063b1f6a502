"""After an erasure the text leaves the append-only file of Redis too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from pytest_django.fixtures import Settings

from chat.realtime import append_only
from chat.realtime.append_only import DUE_KEY, PAUSED_KEY, REWRITE_INTERVAL, rewrite_if_due
from core.background import streams
from tests.application import Application
from tests.chat.documents import ask_and_wait
from tests.conftest import Person
from tests.product import until


@pytest.fixture(autouse=True)
def _no_pause(application: Application) -> Iterator[None]:
    client = streams()
    client.delete(DUE_KEY, PAUSED_KEY)
    yield
    client.delete(DUE_KEY, PAUSED_KEY)


def on_disk(text: str) -> bool:
    """Whether the append-only files of Redis hold this text."""
    client: Any = streams()
    place = Path(client.config_get("dir")["dir"]) / client.config_get("appenddirname")["appenddirname"]
    return any(text.encode() in path.read_bytes() for path in place.iterdir())


def rewritten(text: str) -> bool:
    """Call as the sweeper does, without its pause, since another test may have Redis rewrite just now."""
    streams().delete(PAUSED_KEY)
    rewrite_if_due()
    return not on_disk(text)


def test_a_closed_temporary_conversation_leaves_the_file(person: Person) -> None:
    marker = f"said{uuid4().hex}"
    place = person.caller.post("conversations/", {"temporary": True}, expect=201)["id"]
    ask_and_wait(person, place, f'Say it.\nscript: {{"text": "{marker}"}}')
    until(lambda: on_disk(marker), "Redis has written it down")
    rewrite_if_due()
    assert on_disk(marker)
    person.caller._checked(person.caller.http.delete(f"conversations/{place}/"), 204)
    until(lambda: rewritten(marker), "the file has been rewritten")


def test_rewrites_are_apart_and_none_is_forgotten() -> None:
    client: Any = streams()
    append_only.request_rewrite()
    client.set(PAUSED_KEY, 1, ex=REWRITE_INTERVAL)
    rewrite_if_due()
    assert client.get(DUE_KEY) == "1"

    def nothing_due() -> bool:
        client.delete(PAUSED_KEY)
        rewrite_if_due()
        return bool(client.get(DUE_KEY) == "0")

    until(nothing_due, "it is rewritten")
    assert 0 < client.ttl(PAUSED_KEY) <= REWRITE_INTERVAL


def test_a_redis_that_does_not_permit_it_is_no_error(settings: Settings) -> None:
    owner: Any = redis.Redis.from_url(settings.STREAMS_URL)
    name = f"user{uuid4().hex}"
    owner.acl_setuser(
        name, enabled=True, passwords=["+secret"], categories=["+@all"], keys=["*"], commands=["-bgrewriteaof"]
    )
    settings.STREAMS_URL = settings.STREAMS_URL.replace("unix://", f"unix://{name}:secret@")
    try:
        append_only.request_rewrite()
        rewrite_if_due()
        assert streams().get(DUE_KEY) is None
    finally:
        owner.acl_deluser(name)


def test_a_redis_that_is_away_is_no_error(settings: Settings, tmp_path: Path) -> None:
    settings.STREAMS_URL = f"unix://{tmp_path}/none.sock?db=0"
    rewrite_if_due()
