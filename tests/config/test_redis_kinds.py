"""A start names each Redis that answers but cannot be used, and what to do. The tests use real servers."""

from pathlib import Path

import pytest

from config.embedded.paths import StartError
from config.embedded.services import check_redis
from tests.valkey import NOWHERE, Valkey

pytestmark = pytest.mark.process

REPLICA, CLUSTER = ("--replicaof", " ".join(NOWHERE)), ("--cluster-enabled", "yes")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (REPLICA, "is a replica, which refuses writes; set CACHE_URL to"),
        (CLUSTER, "is a node of a Redis Cluster, which is not supported; set CACHE_URL to"),
        (("--sentinel",), "is a Sentinel, which stores no data; set CACHE_URL to"),
    ],
    ids=["replica", "cluster", "sentinel"],
)
def test_it_is_said_what_it_is_and_what_to_do(tmp_path: Path, options: tuple[str, ...], what: str) -> None:
    with Valkey(tmp_path, *options) as valkey, pytest.raises(StartError) as raised:
        check_redis(valkey.url, "CACHE_URL")
    assert f"127.0.0.1:{valkey.port} {what}" in str(raised.value)


def test_one_that_may_not_be_asked_what_it_is_can_be_used(tmp_path: Path) -> None:
    with Valkey(tmp_path) as valkey:
        valkey.client.acl_setuser("app", enabled=True, passwords=["+secret"], categories=["+@all"], commands=["-info"])
        check_redis(valkey.url.replace("//", "//app:secret@"))
        check_redis(valkey.url)


def test_one_that_does_not_know_the_question_can_be_used(tmp_path: Path) -> None:
    with Valkey(tmp_path, "--rename-command", "INFO", "hidden") as valkey:
        check_redis(valkey.url)
