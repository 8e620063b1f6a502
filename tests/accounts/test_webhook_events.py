"""The events for which the running product calls a webhook, and its further attempts."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Webhook
from accounts.services import create_token
from accounts.webhooks.services import create_webhook
from core.jobs import sweep
from files.ingest import MAX_READS, READS
from files.models import File
from llm.models import Model
from llm.tokens import count
from projects.planner.models import Run
from tests.accounts.receiver import Receiver
from tests.accounts.webhooks import is_signed_with
from tests.chat.runs.working import tool_model
from tests.conftest import Person
from tests.product import Caller, until


@pytest.fixture
def webhook(person: Person, receiver: Receiver) -> Webhook:
    return create_webhook(user=person.user, url=receiver.url, events=Webhook.Event.values, origin=person.caller.url)


def test_an_answer_that_has_ended_is_told_once_with_a_link_that_works(
    person: Person, stranger: Person, webhook: Webhook, receiver: Receiver
) -> None:
    stranger.caller.ended(stranger.caller.ask("Not mine.")["id"])
    turn = person.caller.ask("Hello.", {"text": "very private words"})
    [call] = receiver.wait_for("turn.finished")
    data = call.payload["data"]
    assert is_signed_with(webhook.secret, call)
    assert (data["turn"], data["message"], data["status"]) == (turn["id"], turn["message"], "done")
    link = person.caller.http.get(data["url"])
    assert link.json()["text"] == "very private words"
    assert b"private" not in call.body
    assert len(receiver.received) == 1


@pytest.mark.parametrize(("script", "status"), [({"error": {"status": 400}}, "failed"), ({"tokens": 5000}, "stopped")])
def test_answers_that_fail_or_are_stopped_are_told_too(
    person: Person, webhook: Webhook, receiver: Receiver, script: dict[str, object], status: str
) -> None:
    turn = person.caller.ask("Go.", {"interval": 0.05, **script})
    if status == "stopped":
        person.caller.post(f"turns/{turn['id']}/stop/")
    [call] = receiver.wait_for("turn.finished")
    assert (call.payload["data"]["turn"], call.payload["data"]["status"]) == (turn["id"], status)


def test_a_file_that_has_been_read_is_told(person: Person, webhook: Webhook, receiver: Receiver) -> None:
    file = person.caller.http.post("files/", files={"file": ("a.txt", b"some words")}).json()
    [call] = receiver.wait_for("file.ready")
    assert call.payload["data"] == {
        "file": file["id"],
        "status": "ready",
        "url": f"{person.caller.url}/api/v1/files/{file['id']}/",
    }
    assert File.objects.get(pk=file["id"]).status == "ready"


def sent(person: Person, content: bytes, name: str = "a.txt") -> dict[str, Any]:
    file: dict[str, Any] = person.caller.http.post("files/", files={"file": (name, content)}).json()
    return file


def test_a_file_that_is_too_long_for_every_model_is_told_with_that_state(
    person: Person, webhook: Webhook, receiver: Receiver
) -> None:
    words = " a" * max(model.window for model in Model.objects.usable())
    assert count(words) > 100_000
    row = sent(person, words.encode())
    [call] = receiver.wait_for("file.ready")
    assert (call.payload["data"]["file"], call.payload["data"]["status"]) == (row["id"], "too_long")
    assert receiver.of("file.failed") == []


def test_a_file_that_cannot_be_read_is_told_with_the_reason(
    person: Person, webhook: Webhook, receiver: Receiver
) -> None:
    row = sent(person, b"%PDF-1.7 and then nothing of the kind", "private words.pdf")
    [call] = receiver.wait_for("file.failed")
    file = File.objects.get(pk=row["id"])
    assert call.payload["data"] == {
        "file": row["id"],
        "status": "failed",
        "code": "damaged",
        "detail": "It is damaged, so it cannot be opened. Upload an intact copy.",
        "url": f"{person.caller.url}/api/v1/files/{row['id']}/",
    }
    assert (file.status, file.error_code, file.error) == ("failed", "damaged", call.payload["data"]["detail"])
    assert b"private" not in call.body and receiver.of("file.ready") == []


def test_a_file_whose_reading_was_cut_off_twice_is_told_too(
    person: Person, webhook: Webhook, receiver: Receiver
) -> None:
    file = sent(person, b"some words")
    receiver.wait_for("file.ready")
    until(lambda: File.objects.get(pk=file["id"]).searchable, "it is searchable")
    # As a second reader that has died leaves it; the sweeper finds it.
    long_ago = timezone.now() - timedelta(minutes=2)
    left = {"status": File.Status.PROCESSING, "attempt": MAX_READS, "heartbeat": long_ago, "searchable": False}
    File.objects.filter(pk=file["id"]).update(**left)
    sweep(READS)
    [call] = receiver.wait_for("file.failed")
    assert (call.payload["data"]["file"], call.payload["data"]["code"]) == (file["id"], "interrupted")
    assert File.objects.get(pk=file["id"]).status == "failed"


def test_a_run_that_waits_is_told_once_for_each_reason(
    person: Person, webhook: Webhook, receiver: Receiver, scripted_model_row: Model
) -> None:
    model = tool_model(scripted_model_row)
    task = person.caller.post("tasks/", {"title": "Report", "level": "task", "archetype": "model"}, expect=201)
    item = {"title": "Ask first", "level": "item", "parent": task["id"], "breakpoint": True}
    person.caller.post("tasks/", item, expect=201)
    run = person.caller.post(f"tasks/{task['id']}/runs/", {"start": True, "model": str(model.pk)})
    [call] = receiver.wait_for("run.waiting")
    row = Run.objects.get(pk=run["id"])
    assert (call.payload["data"]["run"], call.payload["data"]["code"]) == (run["id"], "breakpoint")
    assert (row.status, row.code) == ("waiting", "breakpoint")
    assert len(receiver.of("run.waiting")) == 1


@pytest.mark.product
def test_the_product_tries_again_by_itself(person: Person, webhook: Webhook, receiver: Receiver) -> None:
    receiver.answers = [503]
    person.caller.ask("Hello.")
    first, second = receiver.wait_for("turn.finished", 2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    until(lambda: webhook.deliveries.get().status == "done", "the delivery is done")
    _, token = create_token(user=person.user, name="hooks", scopes=["admin"])
    listed = Caller(person.caller.server, token).get("webhooks/deliveries/")["results"]
    assert [[entry["status"] for entry in each["log"]] for each in listed] == [[503, 204]]
