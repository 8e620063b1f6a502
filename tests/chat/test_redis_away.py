"""Requests while Redis is away or hangs: those that need only rows succeed, the others are refused in words."""

import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from pytest_django.fixtures import Settings

from accounts.models import User
from chat.models import Conversation, Message, Turn
from chat.realtime.event_stream import follow_turn
from chat.realtime.events import EventType
from tests.accounts.programs import Program
from tests.chat.conversations import past


@pytest.fixture(params=["refuses", "hangs"])
def redis_away(request: pytest.FixtureRequest, settings: Settings) -> Iterator[None]:
    """An address that refuses connections, or takes them and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            listener.listen()
        settings.STREAMS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        yield


@pytest.fixture
def olga(committed: None) -> Iterator[User]:
    """Yield a committed person: readers of an answer use the connection of another thread."""
    user = User.objects.create_user(f"olga-{uuid4().hex[:8]}")
    yield user
    user.delete()


def answering(olga: User, status: Turn.Status) -> Turn:
    conversation: Conversation = past(olga, 1)
    answer = Message.objects.get(conversation=conversation, role=Message.Role.ASSISTANT)
    Message.objects.filter(pk=answer.pk).update(status=Message.Status.PENDING)
    question = Message.objects.get(conversation=conversation, role=Message.Role.USER)
    return Turn.objects.create(
        conversation=conversation, owner=olga, user_message=question, answer=answer, status=status
    )


@pytest.mark.usefixtures("redis_away")
@pytest.mark.parametrize("status", [Turn.Status.QUEUED, Turn.Status.RUNNING])
def test_an_answer_is_stopped_all_the_same(olga: User, status: Turn.Status) -> None:
    turn = answering(olga, status)
    stopped = Program(olga, "chat").post(f"/api/v1/turns/{turn.pk}/stop/", {})
    assert stopped.status_code == 202, stopped.content
    turn.refresh_from_db()
    assert turn.stop_requested if status == Turn.Status.RUNNING else turn.status == Turn.Status.STOPPED


@pytest.mark.usefixtures("redis_away")
def test_a_decision_that_only_redis_would_hold_is_refused_with_a_sentence(olga: User) -> None:
    turn = answering(olga, Turn.Status.RUNNING)
    call = {"type": "tool_call", "id": "call_1", "name": "open_url", "arguments": "{}", "approval": "waiting"}
    Message.objects.filter(pk=turn.answer_id).update(parts=[call])
    refused: Any = Program(olga, "chat").post(f"/api/v1/turns/{turn.pk}/approvals/", {"call": "call_1", "allow": True})
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "unavailable", "5")
    assert "Redis" in refused.json()["detail"]


@pytest.mark.usefixtures("redis_away")
def test_a_reader_of_an_answer_that_has_ended_gets_it_from_the_row(olga: User) -> None:
    turn = answering(olga, Turn.Status.DONE)

    async def read() -> list[str]:
        return [event.type async for events in follow_turn(turn) for event in events]

    assert async_to_sync(read)() == [EventType.SNAPSHOT]
