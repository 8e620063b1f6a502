"""Files in a bucket, on a server that speaks S3's protocol."""

import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier

import boto3
import pytest
from django.core.files.storage import default_storage
from django.utils import timezone
from moto.server import ThreadedMotoServer
from pytest_django.fixtures import Settings

from chat.conversations.importing.jobs import sweep_uploads
from config import service_urls
from config.embedded.paths import StartError
from config.management.commands.doctor import _storage
from core.net.object_storage import ObjectStorage
from files import ingest, storage
from files.models import File
from tests.application import Application
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import free_port

pytestmark = pytest.mark.process

KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Its address; it has a bucket `ours`."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer("127.0.0.1", free_port())
    running.start()
    address = f"http://127.0.0.1:{running._port}"
    boto3.client("s3", endpoint_url=address, region_name="us-east-1", **KEYS).create_bucket(Bucket="ours")
    yield address
    running.stop()


@pytest.fixture
def bucket(s3: str, settings: Settings) -> None:
    use(settings, s3)


def use(settings: Settings, s3: str) -> None:
    settings.STORAGE_URL = f"s3://key:secret@ours/workspace?endpoint={s3}&region=us-east-1"
    settings.STORAGES = {**settings.STORAGES, "default": service_urls.storage(settings.STORAGE_URL)}


def test_a_file_is_stored_read_given_back_and_deleted_there(
    bucket: None, application: Application, person: Person
) -> None:
    name = upload(person, "far.md", b"# Far away\n\nFrom a bucket.")
    assert name["status"] == "ready"
    file = File.objects.get(pk=name["id"])
    with storage.local_path(file) as path:
        assert path.read_bytes() == b"# Far away\n\nFrom a bucket."
    assert person.caller.http.get(f"files/{file.pk}/content/").content == b"# Far away\n\nFrom a bucket."
    assert storage.sweep(file.sha256[:2]) == 0 and default_storage.exists(str(file.blob))
    sweep_uploads()
    assert person.caller.http.delete(f"files/{file.pk}/").status_code == 204
    assert not default_storage.exists(str(file.blob))


def test_doctor_uses_it_and_says_nothing_of_its_keys(bucket: None, s3: str, settings: Settings) -> None:
    [check] = _storage()
    assert (check.state, check.detail.english) == ("ok", "ours/workspace can be written and read")
    use(settings, s3.replace("127.0.0.1", "127.0.0.1:1/"))
    [check] = _storage()
    assert check.state == "fail" and "secret" not in check.detail.english


def test_a_server_that_is_away_is_told_in_words(application: Application, person: Person, settings: Settings) -> None:
    use(settings, "http://127.0.0.1:1")
    answer = person.caller.http.post("files/", files={"file": ("a.txt", b"text")})
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")


def test_a_server_that_is_away_uses_up_none_of_the_times_that_a_file_may_be_read(
    bucket: None, application: Application, person: Person, settings: Settings
) -> None:
    file = File.objects.get(pk=upload(person, "far.md", b"From a bucket.")["id"])
    present = settings.STORAGES
    use(settings, "http://127.0.0.1:1")
    for _ in range(ingest.MAX_READS + 1):
        File.objects.filter(pk=file.pk).update(status=File.Status.UPLOADED, searchable=False, attempt=0)
        assert list(ingest.read_waiting(file.pk)) == []
        assert File.objects.filter(pk=file.pk).values_list("status", "attempt").get() == (File.Status.UPLOADED, 0)
    settings.STORAGES = present
    File.objects.filter(pk=file.pk).update(heartbeat=timezone.now() - timedelta(seconds=11))
    assert file.pk in ingest.READS.to_hand_out()
    assert list(ingest.read_waiting(file.pk)) == [file.pk]


def test_threads_have_connections_of_their_own_and_share_what_is_dear_to_make() -> None:
    bucket = ObjectStorage(bucket_name="ours", endpoint_url="http://127.0.0.1:1", access_key="key", secret_key="secret")
    gate = Barrier(2)

    def connected(_: int) -> tuple[int, int]:
        gate.wait()
        return id(bucket.connection), id(bucket._create_session())

    with ThreadPoolExecutor(2) as threads:
        connections, sessions = zip(*threads.map(connected, range(2)), strict=True)
    assert len(set(connections)) == 2 and len(set(sessions)) == 1


@pytest.mark.parametrize("url", ["ftp://ours", "s3://", "s3://ours?acl=public-read", "file://srv/files", "file:///"])
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(StartError, match="STORAGE_URL"):
        service_urls.storage(url)


def test_a_directory_is_named_by_its_path() -> None:
    assert service_urls.uploads("file:///srv/our%20files") == "/srv/our files"
    assert service_urls.storage("file:///srv/files") == service_urls.storage("")


def test_a_server_that_hangs_is_noticed_before_anything_is_written_or_read(
    bucket: None, s3: str, settings: Settings, application: Application, person: Person
) -> None:
    """The storage checks twice with a short timeout whether the object exists, and then nobody asks for a while."""
    file = upload(person, "far.md", b"From a bucket.")["id"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        use(settings, f"http://127.0.0.1:{server.getsockname()[1]}")
        assert person.caller.http.get(f"files/{file}/content/").json()["code"] == "storage_unavailable"
        answer = person.caller.http.post("files/", files={"file": ("b.txt", b"other text")})
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        server.setblocking(False)
        lines = list[bytes]()
        with suppress(BlockingIOError):
            while True:
                with server.accept()[0] as connection:
                    lines.append(connection.recv(10_000).partition(b" ")[0])
    assert lines == [b"HEAD"] * 2
