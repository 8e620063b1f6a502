"""The message that is written while an answer is being written: kept, and sent when that is complete."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from chat.background import schedule
from chat.background.tasks import sweep_turns
from chat.models import Conversation, Message, NextMessage, Turn
from chat.sending import resuming
from chat.sending import services as sending
from core import background
from llm.models import Model
from personas.texts import TEXTS
from tests.application import Application
from tests.chat.conversations import kill_worker, past
from tests.chat.documents import upload
from tests.conftest import Person
from tests.product import Caller, Product, until
from tests.sockets import socket_of

SLOW = {"tokens": 60, "interval": 0.02}
LONG = {"tokens": 4_000, "interval": 0.02}
SECOND = 'Second.\nscript: {"text": "Soon said."}'  # without a script of its own the model plays the first one's again


def keep(caller: Caller, place: str, text: str, expect: int = 200, **more: Any) -> Any:
    response = caller.http.put(f"conversations/{place}/next/", json={"text": text, **more})
    assert response.status_code == expect, response.text
    return response.json()


def branch(caller: Caller, place: str) -> list[str]:
    """Return the texts of the questions and answers, oldest first."""
    return [message["text"] for message in reversed(caller.get(f"conversations/{place}/messages/")["results"])]


def questions(caller: Caller, place: str, number: int) -> list[str]:
    """The questions, once there are so many and all are answered."""

    def look() -> list[str]:
        idle = caller.get(f"conversations/{place}/")["state"] == "idle"
        texts = branch(caller, place)[::2]
        return texts if idle and len(texts) == number else []

    return list(until(look, f"{number} questions are answered"))


def writing(caller: Caller, turn: str) -> None:
    """Until the answer has begun."""
    next(event for event in caller.events(turn) if event["type"] == "TEXT_MESSAGE_CONTENT")


def page_of(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


def test_what_is_kept_is_shown_and_sent_after_the_answer_in_its_order(person: Person) -> None:
    caller, file = person.caller, upload(person, "notes.txt", b"Some notes.")
    first = caller.ask("First.", SLOW)
    place = first["conversation"]
    queued = keep(caller, place, "Second.", files=[file["id"]])
    assert caller.get(f"conversations/{place}/next/") == queued
    assert (queued["text"], queued["files"], queued["problem"]) == ("Second.", [file["id"]], "")
    texts = questions(caller, place, 2)
    assert texts[0].startswith("First.") and texts[1] == "Second."
    assert caller.get(f"conversations/{place}/next/", expect=404)["code"] == "no_next_message"
    second = Message.objects.get(conversation=place, role="user", depth=2)
    assert [str(each.file_id) for each in second.attachments.all()] == [file["id"]]


def test_a_program_that_does_not_know_of_it_is_refused_as_before(caller: Caller) -> None:
    turn = caller.ask("First.", LONG)
    path = f"conversations/{turn['conversation']}/turns/"
    assert caller.post(path, {"text": "Second."}, expect=409)["code"] == "already_answering"
    assert not NextMessage.objects.filter(conversation=turn["conversation"]).exists()
    caller.post(f"turns/{turn['id']}/stop/")


def test_it_is_replaced_and_removed_and_needs_an_answer_to_wait_for(caller: Caller) -> None:
    turn = caller.ask("First.", LONG)
    place = turn["conversation"]
    keep(caller, place, "Second.")
    keep(caller, place, "Better.")
    assert caller.get(f"conversations/{place}/next/")["text"] == "Better."
    for status in (204, 404):
        assert caller.http.delete(f"conversations/{place}/next/").status_code == status
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    assert keep(caller, place, "Too late.", expect=409)["code"] == "not_answering"
    assert keep(caller, place, "  ", expect=400)["code"]


@pytest.mark.parametrize("how", ["page", "socket"])
def test_one_message_waits_and_the_second_is_refused(application: Application, person: Person, how: str) -> None:
    turn = person.caller.ask("First.", LONG)
    place = turn["conversation"]
    if how == "page":
        client = page_of(person)
        client.post(f"/c/{place}/turns/", {"text": "Second.", "key": "k1"})
        client.post(f"/c/{place}/turns/", {"text": "Second.", "key": "k1"})  # the same again, after a lost reply
        refused = client.post(f"/c/{place}/turns/", {"text": "Third.", "key": "k2"})
        assert refused.status_code == 409 and b"next_message_kept" in refused.content and b"Third." in refused.content
    else:
        with socket_of(application, person) as socket:
            socket.send("watch", conversation=place)
            socket.until("ACK")
            socket.send("send", id=2, conversation=place, text="Second.")
            types: set[str] = set()
            while not types >= {"NEXT", "ACK"}:  # a TURN may come between: the worker has only just begun the first
                types.add(socket.receive()["type"])
            socket.send("send", id=3, conversation=place, text="Third.")
            assert socket.until("ERROR")[-1]["code"] == "next_message_kept"
    assert person.caller.get(f"conversations/{place}/next/")["text"] == "Second."
    person.caller.post(f"turns/{turn['id']}/stop/")


def test_a_stopped_answer_does_not_send_it_and_says_so(person: Person) -> None:
    caller = person.caller
    turn = caller.ask("First.", LONG)
    place = turn["conversation"]
    queued = keep(caller, place, SECOND)
    caller.post(f"turns/{turn['id']}/stop/")
    caller.ended(turn["id"])
    client = page_of(person)
    shown = client.get(f"/c/{place}/").content.decode()
    assert "Not sent, because the answer was stopped." in shown and "Send now" in shown
    wrong = client.post(f"/c/{place}/next/send/", {"next": str(uuid4())})
    assert wrong.status_code == 404 and len(branch(caller, place)) == 2
    client.post(f"/c/{place}/next/send/", {"next": queued["id"]})
    assert questions(caller, place, 2)[1] == SECOND


def test_a_failed_answer_does_not_send_it(person: Person) -> None:
    caller = person.caller
    turn = caller.ask("First.", {"ttft": 1.0, "error": {"status": 401}})
    keep(caller, turn["conversation"], "Second.")
    assert caller.ended(turn["id"])["status"] == "failed"
    shown = page_of(person).get(f"/c/{turn['conversation']}/next/").content.decode()
    assert "Not sent, because the answer failed." in shown and "Second." in shown


def test_what_cannot_be_sent_any_more_stays_and_says_why(person: Person) -> None:
    caller = person.caller
    file = upload(person, "gone.txt", b"Soon gone.")
    turn = caller.ask("First.", SLOW)
    place = turn["conversation"]
    keep(caller, place, "Second.", files=[file["id"]])
    assert caller.http.delete(f"files/{file['id']}/").status_code == 204
    problem = until(lambda: caller.get(f"conversations/{place}/next/")["problem"], "it says why it was not sent")
    assert "no such file" in problem and len(branch(caller, place)) == 2
    client = page_of(person)
    assert problem in client.get(f"/c/{place}/").content.decode()
    assert client.post(f"/c/{place}/next/send/").status_code == 404
    assert caller.get(f"conversations/{place}/next/")["text"] == "Second."


def test_without_scripts_it_goes_back_into_the_composer(person: Person) -> None:
    turn = person.caller.ask("First.", LONG)
    place = turn["conversation"]
    queued = keep(person.caller, place, "Half a thought.")
    shown = page_of(person).post(f"/c/{place}/next/edit/", {"next": queued["id"]}).content.decode()
    assert "autofocus>Half a thought.</textarea>" in shown
    person.caller.get(f"conversations/{place}/next/", expect=404)
    person.caller.post(f"turns/{turn['id']}/stop/")


def test_nobody_else_sees_or_removes_it(caller: Caller, stranger: Person) -> None:
    turn = caller.ask("First.", LONG)
    path = f"conversations/{turn['conversation']}/next/"
    keep(caller, turn["conversation"], "Mine.")
    for method in ("GET", "DELETE", "PUT"):
        assert stranger.caller.http.request(method, path, json={"text": "Theirs."}).status_code == 404
    client = page_of(stranger)
    for name in ("send", "edit", "remove"):
        assert client.post(f"/c/{turn['conversation']}/next/{name}/").status_code == 404
    assert caller.get(path)["text"] == "Mine."
    caller.post(f"turns/{turn['id']}/stop/")


@pytest.mark.product
def test_a_killed_worker_leaves_it_unsent_while_the_interrupted_answer_goes_on(
    caller: Caller, product: Product
) -> None:
    turn = caller.ask("First.", LONG)
    writing(caller, turn["id"])
    keep(caller, turn["conversation"], "Second.")
    kill_worker(product)
    product.start_worker()
    assert caller.ended(turn["id"])["status"] == "interrupted"
    until(lambda: len(branch(caller, turn["conversation"])) == 4, "it goes on")
    assert caller.get(f"conversations/{turn['conversation']}/next/")["text"] == "Second."
    caller.post(f"turns/{Turn.objects.filter(conversation=turn['conversation']).latest('pk').pk}/stop/")


def left_behind(person: Person) -> Conversation:
    """Return the rows of a worker that was killed after the answer, before it sent the waiting message."""
    place = past(person.user, 1)
    question, answer = place.messages.order_by("depth")
    Turn.objects.create(conversation=place, user_message=question, answer=answer, status=Turn.Status.DONE)
    NextMessage.objects.create(conversation=place, text="Second.")
    return place


def test_a_worker_killed_before_it_sends_is_made_up_for(person: Person) -> None:
    place = left_behind(person)
    sweep_turns()
    assert questions(person.caller, str(place.pk), 2)[1] == "Second."


def test_a_worker_killed_before_an_interrupted_answer_goes_on_is_made_up_for_once(person: Person) -> None:
    """The sweeper acts only when the process that ended the turn is gone, and only if the answer was not continued."""
    place = past(person.user, 1, status=Message.Status.INTERRUPTED)
    question, answer = place.messages.order_by("depth")
    ended = {"status": Turn.Status.INTERRUPTED, "finished": timezone.now()}
    turn = Turn.objects.create(
        conversation=place, user_message=question, answer=answer, model=Model.objects.get(name="scripted"), **ended
    )
    assert place.pk not in resuming.find_due()
    Turn.objects.filter(pk=turn.pk).update(finished=timezone.now() - timedelta(seconds=20))
    assert place.pk in resuming.find_due()
    sweep_turns()
    assert questions(person.caller, str(place.pk), 2)[1] == TEXTS["continue"].built_in
    assert place.pk not in resuming.find_due()


def test_without_beat_any_worker_makes_up_for_it(person: Person) -> None:
    place = left_behind(person)
    background.streams().delete(background.run_key("chat.tasks.sweep_turns"))
    background.submit(schedule.run_overdue_tasks()).result()
    assert questions(person.caller, str(place.pk), 2)[1] == "Second."


def test_two_workers_send_it_once(person: Person) -> None:
    place = left_behind(person)

    def send(_: int) -> int:
        try:
            return int(sending.send_next(place.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as workers:
        assert sorted(workers.map(send, range(4))) == [0, 0, 0, 1]
    assert questions(person.caller, str(place.pk), 2)[1] == "Second."
