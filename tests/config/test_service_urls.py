"""The variables that name servers: the settings they give, and requests while a server hangs."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from channels.layers import channel_layers
from django.conf import settings as django_settings
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.access.sessions import close_sockets
from accounts.models import User
from config import service_urls
from core import background

SAYS = """
import json
from django.conf import settings
said = {name: getattr(settings, name) for name in ("STREAMS_URL", "CACHE_URL", "CHANNELS_URL", "CELERY_BROKER_URL")}
database = settings.DATABASES["default"]
said["cursors"] = not database["DISABLE_SERVER_SIDE_CURSORS"]
said["layer"] = settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"][0]["address"]
print(json.dumps(said))
"""


def settings_with(**variables: str) -> dict[str, object]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **variables}
    done = subprocess.run(
        [sys.executable, "-c", SAYS], cwd=django_settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, check=True
    )
    values: dict[str, object] = json.loads(done.stdout)
    return values


@pytest.mark.process
def test_each_purpose_may_have_a_redis_of_its_own() -> None:
    apart = {"STREAMS_URL": "redis://streams:6379/0", "CACHE_URL": "redis://cache:6379", "CHANNELS_URL": "redis://news"}
    values = settings_with(REDIS_URL="redis://one:6379/4", SERVER_SIDE_CURSORS="false", **apart)
    assert {name: values[name] for name in apart} == apart
    assert values["CELERY_BROKER_URL"] == "redis://one:6379/5"
    assert values["layer"] == "redis://news" and not values["cursors"]


def test_a_limit_of_statements_stands_beside_the_options_of_the_url() -> None:
    database = service_urls.database("postgresql://a@b/c?options=-c%20search_path%3Dours")
    service_urls.limit_statements(database, 1.5)
    assert database["OPTIONS"]["options"] == "-c search_path=ours -c statement_timeout=1500"
    untouched = service_urls.database("postgresql://a@b/c")
    service_urls.limit_statements(untouched, 0)
    assert "options" not in untouched["OPTIONS"]


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://user:p%40ss@host/name", "host", ""),
        ("postgresql://user:p%40ss@[::1]:5433/name", "::1", "5433"),
        ("postgresql://user:p%40ss@/name?host=/tmp/a%20socket&port=5433", "/tmp/a socket", "5433"),
        ("postgresql://user:p%40ss@first:5432,second:5433/name", "first,second", "5432,5433"),
    ],
)
def test_a_database_is_named_by_the_urls_of_libpq(url: str, host: str, port: str) -> None:
    database = service_urls.database(url)
    assert (database["HOST"], database["PORT"]) == (host, port)
    assert (database["USER"], database["PASSWORD"], database["NAME"]) == ("user", "p@ss", "name")
    assert not {"host", "port"} & database["OPTIONS"].keys()


@pytest.fixture
def hanging() -> Iterator[str]:
    """A Redis that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


@pytest.mark.django_db
def test_requests_end_while_redis_hangs(client: Client, settings: Settings, hanging: str) -> None:
    """Each of these would wait for ever for a client without a time-out."""
    settings.STREAMS_URL = hanging
    settings.CACHES = {"default": {**django_settings.CACHES["default"], "LOCATION": hanging}}
    settings.CHANNEL_LAYERS = {"default": {**django_settings.CHANNEL_LAYERS["default"], "CONFIG": {"hosts": [hanging]}}}
    channel_layers.backends.clear()
    try:
        client.force_login(User.objects.create_user("waits"))
        assert client.get("/api/v1/me/").status_code == 200
        assert client.get("/readyz").json()["redis"] == "unreachable"
        background.TURNS.put(User.objects.get().pk)
        close_sockets("nobody")
    finally:
        channel_layers.backends.clear()


ENQUEUES = "import django; django.setup(); from core import background; background.enqueue('chat.tasks.sweep_turns')"


@pytest.mark.process
def test_a_broker_that_breaks_each_connection_off_is_tried_once_by_whoever_hands_work_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
        environment["BROKER_URL"] = f"amqp://guest:guest@127.0.0.1:{server.getsockname()[1]}//"
        process = subprocess.Popen(
            [sys.executable, "-c", ENQUEUES],
            cwd=django_settings.BASE_DIR,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        server.accept()[0].close()
        assert "waits for the sweeper" in process.communicate()[1]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
