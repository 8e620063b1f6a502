"""Limits of one person's work at a time: beyond them comes 429 with a sentence, and the written text is kept."""

import json
from datetime import date, timedelta
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.models import Limit, User
from chat.conversations.services import create_conversation
from chat.models import Conversation, Message, NextMessage, Turn
from chat.models.conversation_state import place_in_line
from chat.sending.services import queue, send, send_next
from chat.turns.line import find_startable
from chat.turns.services import stop_turn
from chat.turns.store import find_stale
from chat.turns.submit import Ask, regenerate
from core.errors import ProductError
from llm.models import Model, Provider
from projects.planner.models import Run
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create
from tests.application import Application
from tests.conftest import Person
from tests.product import until


@pytest.fixture(autouse=True)
def _limited(settings: Settings) -> None:
    settings.LIVE_TURNS = 5
    settings.WAITING_TURNS = 0


@pytest.fixture
def user(db: object) -> User:
    provider = Provider.objects.create(name="Nobody asks it", base_url="http://127.0.0.1:9/v1")
    Model.objects.create(provider=provider, name="silent", context_window=8_000, default=True)
    return User.objects.create_user(f"fair-{uuid4().hex[:8]}")


def live(user: User, count: int = 1) -> list[Conversation]:
    """Create conversations with a running answer."""
    conversations = [create_conversation(user=user) for _ in range(count)]
    for conversation in conversations:
        send(user=user, conversation=conversation, ask=Ask("Hello"))
    return conversations


def refused(user: User) -> ProductError:
    with pytest.raises(ProductError) as caught:
        live(user)
    return caught.value


def test_five_answers_of_a_person_are_written_at_a_time(user: User) -> None:
    live(user, 5)
    error = refused(user)
    assert (error.code, error.status, error.extra["retry_after"]) == ("too_many_answers", 429, 5)
    assert error.detail.startswith("5 of your answers are being written or wait in line, ")
    assert Message.objects.filter(conversation__owner=user).count() == 10  # nothing of the refused one is left
    live(User.objects.create_user("somebody-else"))


def test_one_more_goes_once_an_answer_is_complete(user: User) -> None:
    first, *_ = live(user, 5)
    Turn.objects.filter(conversation=first).update(status=Turn.Status.DONE)
    live(user)


def test_an_answer_is_written_anew_only_where_there_is_room(user: User) -> None:
    first, *_ = live(user, 5)
    Turn.objects.filter(conversation=first).update(status=Turn.Status.DONE)
    live(user)
    with pytest.raises(ProductError, match="too_many_answers"):
        regenerate(user=user, message=Message.objects.get(conversation=first, role="user"))


def test_no_limit_at_0(user: User, settings: Settings) -> None:
    settings.LIVE_TURNS = 0
    live(user, 6)


def test_a_limit_says_how_many_of_a_person(user: User) -> None:
    Limit.objects.create(user=user, unit="live_turns", amount=2)
    live(user, 2)
    assert refused(user).detail.startswith("2 of your answers are being written")
    Limit.objects.filter(user=user).update(amount=9)  # the strictest holds
    live(user, 3)
    refused(user)


def test_a_message_that_waits_for_its_answer_waits_for_room_too(user: User) -> None:
    first, *_ = live(user, 5)
    queue(user=user, conversation=first, ask=Ask("And then?"))
    Turn.objects.filter(conversation=first).update(status=Turn.Status.DONE)
    Conversation.objects.filter(pk=first.pk).update(state=Conversation.State.IDLE)
    [other] = live(user)
    assert not send_next(first.pk)
    assert str(NextMessage.objects.get(conversation=first).problem) == ""
    Turn.objects.filter(conversation=other).update(status=Turn.Status.DONE)
    assert send_next(first.pk)


def test_runs_leave_room_for_what_their_person_writes(user: User) -> None:
    live(user, 4)
    task = create(actor=Actor(user), new=NewTask("Tidy up", date=date(2026, 1, 1)))
    conversation = create_conversation(user=user)
    Run.objects.create(owner=user, task=task, conversation=conversation, heartbeat=timezone.now())
    with pytest.raises(ProductError, match="too_many_answers"):
        send(user=user, conversation=conversation, ask=Ask("Go", of_run=True))
    live(user)


def test_programs_get_429_with_when_to_try_again(application: Application, person: Person, settings: Settings) -> None:
    settings.LIVE_TURNS = 1
    conversation, empty = create_conversation(user=person.user), create_conversation(user=person.user)
    slow = "script: " + json.dumps({"tokens": 10_000, "interval": 0.02})
    [turn] = send(user=person.user, conversation=conversation, ask=Ask(slow))
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
    until(lambda: Turn.objects.get(pk=turn.pk).status == "running", "it is being written")
    with application.http(headers={"Authorization": f"Bearer {person.token}"}) as http:
        answer = http.post("/v1/chat/completions", json=body)
        other = http.post(f"/api/v1/conversations/{empty.pk}/turns/", json={"text": "Hi"})
    stop_turn(user=person.user, turn=turn)
    until(lambda: Turn.objects.get(pk=turn.pk).status == "stopped", "it has been stopped")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
    assert answer.json()["error"]["code"] == "too_many_answers"
    assert (other.status_code, other.headers["Retry-After"]) == (429, "5")


def test_more_wait_in_their_persons_own_line_which_nobody_else_waits_for(user: User, settings: Settings) -> None:
    settings.WAITING_TURNS = 50
    many = live(user, 55)
    assert refused(user).status == 429
    other = User.objects.create_user("with-one")
    [one] = live(other)
    turns = list(Turn.objects.filter(conversation__owner=user).order_by("pk"))
    assert find_startable(other.pk) == [Turn.objects.get(conversation=one).pk]
    assert find_startable(user.pk) == [turn.pk for turn in turns[:5]]
    Turn.objects.filter(conversation__in=[many[0], many[3]]).update(status=Turn.Status.DONE)
    assert find_startable(user.pk) == [turns[number].pk for number in (1, 2, 4, 5, 6)]
    live(user, 2)


def test_what_waits_is_found_again_by_the_sweeper_in_its_turn(user: User, settings: Settings) -> None:
    settings.WAITING_TURNS = 5
    live(user, 8)
    turns = [turn.pk for turn in Turn.objects.filter(conversation__owner=user).order_by("pk")]
    Turn.objects.filter(pk__in=turns).update(heartbeat=timezone.now() - timedelta(minutes=5))
    assert set(find_stale().unclaimed) & set(turns) == set(turns[:5])
    Turn.objects.filter(pk=turns[0]).update(status=Turn.Status.INTERRUPTED)
    assert set(find_stale().unclaimed) & set(turns) == {turns[5]}


def test_what_waits_is_written_when_it_is_its_turn(person: Person, settings: Settings) -> None:
    settings.LIVE_TURNS, settings.WAITING_TURNS = 1, 5
    places = [create_conversation(user=person.user) for _ in range(3)]
    slow = "script: " + json.dumps({"tokens": 10_000, "interval": 0.02})
    [first] = send(user=person.user, conversation=places[0], ask=Ask(slow))
    until(lambda: Turn.objects.get(pk=first.pk).status == "running", "it is being written")
    later = [send(user=person.user, conversation=place, ask=Ask("Hi"))[0] for place in places[1:]]
    assert {Turn.objects.get(pk=turn.pk).status for turn in later} == {"queued"}
    assert [place_in_line(turn.pk) for turn in later] == [1, 2]
    stop_turn(user=person.user, turn=first)
    for turn in later:
        until(lambda pk=turn.pk: Turn.objects.get(pk=pk).status == "done", "it has been answered")
