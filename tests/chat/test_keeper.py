"""Rows of running turns are written together, and one that cannot be written does not block the others."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Event, Thread
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, Message, Turn
from chat.models.parts import MessagePart
from chat.models.queries import claim
from chat.turns.store import Ending, TurnOutcome, TurnProgress, checkpoint, dump_parts, end_turn

LONG_AGO = timedelta(seconds=20)  # but not so long that a sweeper would end the turn


@pytest.fixture
def owner(committed: None) -> Iterator[User]:
    user = User.objects.create_user(f"owner-{uuid4().hex[:12]}")
    yield user
    Conversation.objects.filter(owner=user).delete()


def running(owner: User) -> Turn:
    place = Conversation.objects.create(owner=owner)
    question = Message.objects.create(conversation=place, role="user", parts=[])
    answer = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant", parts=[])
    turn = Turn.objects.create(conversation=place, user_message=question, answer=answer)
    claimed = claim(turn.pk)
    assert claimed is not None and claim(turn.pk) is None
    Turn.objects.filter(pk=turn.pk).update(heartbeat=timezone.now() - LONG_AGO)
    return claimed.turn


def parts_of(text: str) -> str:
    return f'[{{"type":"text","text":"{text}"}}]'


def alive(turn: Turn) -> bool:
    return Turn.objects.filter(pk=turn.pk, heartbeat__gt=timezone.now() - LONG_AGO / 2).exists()


@pytest.fixture
def locked(committed: None) -> Iterator["set[UUID]"]:
    """Yield a set of ids of turns. Another connection locks the row of each id that is added."""
    pks, has_locked, let_go = set[UUID](), Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            list(Turn.objects.select_for_update().filter(pk__in=pks))
            has_locked.set()
            let_go.wait()
        connection.close()

    class Holding(set[UUID]):
        def add(self, pk: UUID) -> None:
            pks.add(pk)
            thread.start()
            has_locked.wait()

    thread = Thread(target=hold)
    yield Holding()
    let_go.set()
    thread.join()


def test_texts_and_heartbeats_of_many_are_written_and_those_asked_to_stop_are_told(owner: User) -> None:
    new, silent, stopped = running(owner), running(owner), running(owner)
    Message.objects.filter(pk=silent.answer_id).update(parts=[{"type": "text", "text": "as it was"}])
    Turn.objects.filter(pk=stopped.pk).update(stop_requested=True)
    stops = checkpoint(
        [
            TurnProgress(new, parts_of("Hello"), 3),
            TurnProgress(silent, None, 2),
            TurnProgress(stopped, parts_of("Half of"), 5),
        ]
    )
    assert stops == {new.pk: False, silent.pk: False, stopped.pk: True}
    assert [alive(turn) for turn in (new, silent, stopped)] == [True] * 3
    stored = {turn.pk: Turn.objects.select_related("answer").get(pk=turn.pk) for turn in (new, silent, stopped)}
    assert [each.answer.text for each in stored.values()] == ["Hello", "as it was", "Half of"]
    assert [each.seq for each in stored.values()] == [3, 2, 5]


def test_a_turn_that_somebody_else_has_ended_is_left_alone(owner: User) -> None:
    ours, ended = running(owner), running(owner)
    Turn.objects.filter(pk=ended.pk).update(status=Turn.Status.INTERRUPTED, attempt=ended.attempt + 1)
    assert checkpoint([TurnProgress(ours, None, 1), TurnProgress(ended, parts_of("too late"), 9)]) == {ours.pk: False}
    assert not alive(ended) and Message.objects.get(pk=ended.answer_id).parts == []


def test_a_row_that_is_locked_holds_up_no_other_and_is_still_ours(owner: User, locked: "set[UUID]") -> None:
    free, blocked = running(owner), running(owner)
    locked.add(blocked.pk)
    stops = checkpoint([TurnProgress(blocked, parts_of("later"), 1), TurnProgress(free, parts_of("now"), 1)])
    assert stops == {blocked.pk: False, free.pk: False}
    assert alive(free) and not alive(blocked)


def test_what_cannot_be_stored_is_left_out_and_what_is_only_written_like_it_stays(owner: User) -> None:
    turn = running(owner)
    parts: list[MessagePart] = [
        {"type": "text", "text": "A NUL\x00, half a \ud83d, and in code: \\u0000, \\\\u0000, C:\\u0000.txt"}
    ]
    stored = "A NUL, half a ?, and in code: \\u0000, \\\\u0000, C:\\u0000.txt"
    checkpoint([TurnProgress(turn, dump_parts(parts), 1)])
    assert Message.objects.get(pk=turn.answer_id).text == stored
    assert end_turn(turn, Ending(Turn.Status.DONE), TurnOutcome(parts, 2))
    assert Message.objects.get(pk=turn.answer_id).text == stored
