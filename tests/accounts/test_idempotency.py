"""A write that is repeated with its key is done once: over HTTP, with committed transactions."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import IdempotentAnswer
from accounts.services import create_token
from accounts.tasks import forget_expired
from chat.models import Conversation
from files.models import File
from projects.models import Project
from tests.application import Application
from tests.conftest import Person
from tests.product import Caller, until

Send = Callable[..., httpx.Response]


@pytest.fixture
def send(caller: Caller) -> Send:
    """Sends a write with a key; the same one for the whole test unless another is named."""
    of_the_test = uuid4().hex

    def write(method: str, path: str, body: Any = None, *, key: str = of_the_test, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return caller.http.request(method, path, headers={"Idempotency-Key": key}, **options)

    return write


def replayed(response: httpx.Response) -> bool:
    return bool(response.headers.get("Idempotent-Replayed") == "true")


def same(first: httpx.Response, again: httpx.Response) -> bool:
    """Whether the second is the first's answer, given again."""
    kinds = [each.headers.get("Content-Type") for each in (first, again)]
    alike = (first.status_code, first.content, kinds[0]) == (again.status_code, again.content, kinds[1])
    return alike and replayed(again) and not replayed(first)


def test_a_repeated_write_gets_the_first_answer_and_is_done_once(send: Send, person: Person) -> None:
    first, again = (send("POST", "projects/", {"name": "Contracts"}) for _ in range(2))
    assert first.status_code == 201
    assert same(first, again)
    assert Project.objects.filter(owner=person.user).count() == 1


def test_the_order_of_a_bodys_members_is_no_difference(send: Send) -> None:
    first = send("POST", "projects/", {"name": "Contracts", "instructions": "Be brief."})
    assert same(first, send("POST", "projects/", {"instructions": "Be brief.", "name": "Contracts"}))


def test_every_kind_of_write_can_be_repeated(send: Send) -> None:
    project = send("POST", "projects/", {"name": "Contracts"}).json()["id"]
    changes = [send("PATCH", f"projects/{project}/", {"name": "Agreements"}, key="change") for _ in range(2)]
    assert same(*changes)
    deletions = [send("DELETE", f"projects/{project}/", key="delete") for _ in range(2)]
    assert [each.status_code for each in deletions] == [204, 204]
    assert same(*deletions)


def test_a_refusal_is_an_answer_too(send: Send) -> None:
    first, again = (send("POST", "projects/", {"name": ""}) for _ in range(2))
    assert first.status_code == 400
    assert same(first, again)


def test_another_body_with_the_same_key_is_refused(send: Send, person: Person) -> None:
    send("POST", "projects/", {"name": "Contracts"})
    other = send("POST", "projects/", {"name": "Agreements"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert other.headers["Content-Type"] == "application/problem+json"
    assert Project.objects.filter(owner=person.user).count() == 1


def test_a_key_belongs_to_its_person_method_and_path(send: Send, stranger: Person, caller: Caller) -> None:
    body, key = {"name": "Contracts"}, uuid4().hex
    first = send("POST", "projects/", body, key=key)
    theirs = stranger.caller.http.post("projects/", json=body, headers={"Idempotency-Key": key})
    other_path = send("POST", "conversations/", {}, key=key)
    changed = send("PATCH", f"projects/{first.json()['id']}/", body, key=key)
    assert [each.status_code for each in (first, theirs, other_path, changed)] == [201, 201, 201, 200]
    assert not any(map(replayed, (theirs, other_path, changed)))


def test_reading_takes_no_key(send: Send, caller: Caller) -> None:
    assert not replayed(send("GET", "projects/"))
    caller.post("projects/", {"name": "Contracts"}, expect=201)
    assert len(send("GET", "projects/").json()["results"]) == 1


def test_an_upload_is_recognised_by_its_bytes(send: Send, person: Person) -> None:
    def upload(content: bytes) -> httpx.Response:
        return send("POST", "files/", files={"file": ("notes.txt", content)})

    large = b"\x00123456789abcdef" * 400_000  # nothing to read; on the server's disk, not in its memory
    first, again = upload(large), upload(large)
    assert first.status_code == 201
    assert same(first, again)  # though the form is divided by other words each time
    assert upload(large[:-1] + b"!").json()["code"] == "idempotency_key_reused"
    assert [file.size for file in File.objects.filter(owner=person.user)] == [len(large)]
    assert person.caller.http.get(f"files/{first.json()['id']}/content/").content == large


@pytest.fixture
def locked_conversation(caller: Caller) -> Iterator[tuple[str, threading.Event]]:
    """A conversation that another transaction holds until the event is set, so that a turn in it has to wait."""
    place, release, locked = caller.conversation(), threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Conversation.objects.select_for_update().get(pk=place)
                locked.set()
                release.wait(60)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert locked.wait(60)
        yield place, release
        release.set()
        holding.result()


def runs() -> bool:
    """Whether some request has taken the lock of its key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
            "WHERE locktype = 'advisory' AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


def test_a_repeat_while_the_first_runs_is_told_to_wait(
    send: Send, locked_conversation: tuple[str, threading.Event]
) -> None:
    place, release = locked_conversation
    with ThreadPoolExecutor(1) as pool:
        path, body = f"conversations/{place}/turns/", {"text": "Hello"}
        running: Future[httpx.Response] = pool.submit(send, "POST", path, body)
        until(runs, "the first request waits inside its transaction")
        meanwhile = send("POST", path, body)
        release.set()
        first = running.result()
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "request_in_progress")
    assert int(meanwhile.headers["Retry-After"]) >= 1
    assert first.status_code == 202
    assert same(first, send("POST", path, body))


def test_of_many_at_once_one_is_done(send: Send, person: Person) -> None:
    barrier = threading.Barrier(6)

    def write(_: int) -> httpx.Response:
        barrier.wait()
        return send("POST", "projects/", {"name": "Contracts"})

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(write, range(6)))
    created = [each for each in answers if each.status_code == 201]
    assert len([each for each in created if not replayed(each)]) == 1
    assert len({each.json()["id"] for each in created}) == 1
    assert {each.status_code for each in answers} <= {201, 409}
    assert Project.objects.filter(owner=person.user).count() == 1


def test_a_busy_conversation_is_no_lasting_answer(send: Send, caller: Caller) -> None:
    turn = caller.ask("Long.", {"tokens": 5_000, "interval": 0.02})
    path = f"conversations/{caller.turn(turn['id'])['conversation']}/turns/"
    busy = send("POST", path, {"text": "And then?"})
    assert (busy.status_code, busy.json()["code"]) == (409, "already_answering")
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    later = send("POST", path, {"text": "And then?"})
    assert later.status_code == 202
    assert not replayed(later)
    assert same(later, send("POST", path, {"text": "And then?"}))


def test_a_turns_own_key_outlives_the_kept_answer(send: Send, caller: Caller, person: Person) -> None:
    path = f"conversations/{caller.conversation()}/turns/"
    first = send("POST", path, {"text": "Hello"}).json()["turns"][0]
    caller.ended(first["id"])
    IdempotentAnswer.objects.filter(user=person.user).delete()
    again = send("POST", path, {"text": "Hello"})
    assert again.json()["turns"][0]["id"] == first["id"]


def test_an_answer_is_forgotten_after_a_day(send: Send, person: Person) -> None:
    send("POST", "projects/", {"name": "Contracts"})
    answers = IdempotentAnswer.objects.filter(user=person.user)
    answers.update(created=timezone.now() - timedelta(hours=25))
    assert not replayed(send("POST", "projects/", {"name": "Agreements"}))  # before anything cleaned up
    answers.update(created=timezone.now() - timedelta(hours=25))
    send("POST", "projects/", {"name": "Notes"}, key="younger")
    forget_expired()
    assert answers.count() == 1


def test_what_ends_in_a_server_error_leaves_nothing_and_runs_again(person: Person) -> None:
    """The error is real: for a moment the database refuses such a row."""
    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {person.token}"})

    def write() -> Any:
        headers = {"Idempotency-Key": "server-error"}
        return client.post("/api/v1/projects/", {"name": "Contracts"}, "application/json", headers=headers)

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE projects_project ADD CONSTRAINT refused CHECK (name <> 'Contracts') NOT VALID")
    try:
        assert write().status_code == 500
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE projects_project DROP CONSTRAINT refused")
    assert not IdempotentAnswer.objects.filter(user=person.user).exists()
    assert write().status_code == 201


@pytest.mark.parametrize(
    ("path", "body", "secret"),
    [
        ("tokens/", {"name": "made", "scopes": ["chat"]}, "token"),
        ("webhooks/", {"url": "https://example.org/hook", "events": ["file.ready"]}, "secret"),
    ],
)
def test_a_repeat_names_what_was_made_without_its_secret(
    application: Application, person: Person, path: str, body: Any, secret: str
) -> None:
    _, token = create_token(user=person.user, name="maker", scopes=["admin", "chat"])
    http, key = Caller(application, token).http, {"Idempotency-Key": uuid4().hex}
    original, again = (http.post(path, json=body, headers=key) for _ in range(2))
    assert (original.status_code, again.status_code, replayed(again)) == (201, 201, True)
    first, second = original.json(), again.json()
    assert first[secret] and first["left_out"] == ""
    assert second == {**first, secret: None, "left_out": second["left_out"]}
    assert f"“{secret}” was shown only in the first answer" in second["left_out"]


def test_an_answer_that_cannot_be_read_any_more_is_not_given_and_nothing_done_again(
    send: Send, person: Person, settings: Settings
) -> None:
    assert send("POST", "projects/", {"name": "Contracts"}).status_code == 201
    settings.ENCRYPTION_KEYS = ["another key " * 5]
    again = send("POST", "projects/", {"name": "Contracts"})
    assert (again.status_code, again.json()["code"]) == (409, "answer_lost")
    assert Project.objects.filter(owner=person.user).count() == 1


def test_a_key_that_is_too_long_is_refused(send: Send) -> None:
    refused = send("POST", "projects/", {"name": "Contracts"}, key="k" * 101)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_idempotency_key")


def test_who_may_not_is_told_so_and_not_replayed_to(send: Send, application: Application, person: Person) -> None:
    body = {"name": "Contracts"}
    send("POST", "projects/", body, key="of-the-owner")
    _, chat_only = create_token(user=person.user, name="chat only", scopes=["chat"])
    for token, status in ((chat_only, 403), ("gh_unknown", 401)):
        other = Caller(application, token).http.post(
            "projects/", json=body, headers={"Idempotency-Key": "of-the-owner"}
        )
        assert other.status_code == status
        assert not replayed(other)
