"""The SQL statements that a turn waits for: they read the same rows as Django would, and their effects."""

from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from accounts.models import User
from chat.ledger.models import ModelCall
from chat.ledger.recording import record_calls
from chat.models import Attachment, Conversation, LastPrompt, Mention, Message, NextMessage, SummaryJob, Turn
from chat.models.conversation_state import (
    _LOCK,
    NO_FOLLOW_UPS,
    FollowUps,
    follow_ups,
    join_line,
    lock,
    settle,
    status_of,
)
from chat.models.parts import MessagePart
from chat.models.queries import ClaimedTurn, DayMention, branch, claim, store_turns
from chat.turns.store import Ending, TurnOutcome, end_turn
from core.errors import NotFound
from core.sentences import Sentence
from files.models import File
from llm.models import Model, Provider
from personas.models import Persona, Reminder
from projects.planner.models import Run
from projects.planner.models.task import Task
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task
from scripts.turn_times import listening, settled, timed
from tests.application import Application
from tests.conftest import Person
from workspace.models import WorkspaceVersion


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_user(uuid4().hex, timezone="Asia/Ho_Chi_Minh")


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1", api_key="a key")
    fallback = Model.objects.create(provider=provider, name=uuid4().hex)
    return Model.objects.create(
        provider=provider, name=uuid4().hex, fallback=fallback, token_ratio=1.25, reported_counts={"calls": [[9, 8]]}
    )


def queued(owner: User, model: Model | None, **fields: object) -> Turn:
    place = Conversation.objects.create(owner=owner, documents={"a": 1}, **fields)
    question = Message.objects.create(conversation=place, role="user", parts=[{"type": "text", "text": "Hello"}])
    answer = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant")
    options = {"stop": ["a"]}
    return Turn.objects.create(conversation=place, user_message=question, answer=answer, model=model, options=options)


def claimed(turn: Turn) -> ClaimedTurn:
    first = claim(turn.pk)
    assert first is not None
    return first


def fields(row: object) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name != "_state"}


def test_a_claimed_turn_has_the_rows_that_django_would_read(owner: User, model: Model) -> None:
    persona = Persona.objects.create(owner=owner, name="P", tools=["tasks"], starter_messages=["Hi"])
    turn = claimed(queued(owner, model, persona=persona)).turn
    row = Turn.objects.select_related("conversation__owner", "conversation__persona", "user_message").get(pk=turn.pk)
    pairs = [
        (turn.conversation, row.conversation),
        (turn.conversation.owner, row.conversation.owner),
        (turn.conversation.persona, row.conversation.persona),
        (turn.user_message, row.user_message),
    ]
    assert all(fields(one) == fields(other) and type(one) is type(other) for one, other in pairs)
    assert fields(row).items() <= fields(turn).items()
    assert (row.status, row.attempt) == (Turn.Status.RUNNING, 1) and row.started is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")  # of this transaction: heartbeats go by the clock of the database
        assert row.heartbeat == cursor.fetchone()[0]
    assert turn.model is not None and turn.model.provider.api_key == "a key"
    assert fields(Model.objects.get(pk=model.pk)).items() <= fields(turn.model).items()


def test_a_turn_is_claimed_once(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    assert claim(turn.pk) is not None and claim(turn.pk) is None and claim(uuid4()) is None


def test_a_turn_whose_model_is_gone_is_claimed_without(owner: User) -> None:
    turn = claimed(queued(owner, None)).turn
    assert turn.model is None and turn.conversation.persona is None


def test_a_claim_knows_what_is_the_persons_the_personas_and_the_models_own(owner: User, model: Model) -> None:
    persona = Persona.objects.create(owner=owner, name="P")
    texts = {name: uuid4().hex for name in ("everywhere", "chosen", "others", "off")}
    Reminder.objects.create(text=texts["everywhere"])
    Reminder.objects.create(text=texts["off"], enabled=False)
    Reminder.objects.create(text=texts["others"], scope=Reminder.Scope.PERSONA)
    persona.reminders.add(Reminder.objects.create(text=texts["chosen"], scope=Reminder.Scope.PERSONA))
    today = timezone.now().date()
    Mention.objects.create(user=owner, day=today, code="M2026-11-T01")
    Mention.objects.create(user=owner, day="2020-01-01", code="M2026-11-T02")
    Mention.objects.create(user=User.objects.create_user(uuid4().hex), day=today, code="M2026-11-T03")
    turn = queued(owner, model, persona=persona)
    for each in (model, model.fallback, Model.objects.create(provider=model.provider, name=uuid4().hex)):
        assert each is not None
        LastPrompt.objects.create(conversation=turn.conversation, model=each, prompt={"of": each.name}, window_cap=9)
    first = claimed(turn)
    assert [each.text for each in first.reminders if each.text in texts.values()] == [
        texts["everywhere"],
        texts["chosen"],
    ]
    assert first.mentions == [DayMention(today, "M2026-11-T01")]
    assert {each.model_id: each.prompt for each in first.earlier_prompts} == {
        model.pk: {"of": model.name},
        model.fallback_id: {"of": model.fallback.name if model.fallback else ""},
    }
    assert {each.window_cap for each in first.earlier_prompts} == {9}
    assert first.prompted and first.run_step is None
    assert not (first.has_summary or first.has_marks or first.has_tasks)
    assert first.version == WorkspaceVersion.objects.get().version


def test_a_locked_conversation_is_the_row_and_a_deleted_one_none(owner: User) -> None:
    place = Conversation.objects.create(owner=owner, title="Here", documents={"a": 1}, effort="low")
    assert fields(lock(place)) == fields(Conversation.objects.get(pk=place.pk))
    Conversation.objects.filter(pk=place.pk).update(deleted=timezone.now())
    for deleted in (place, Conversation(owner=owner)):
        with pytest.raises(NotFound):
            lock(deleted)


def test_a_lock_takes_the_row_and_then_the_line_of_its_owner(owner: User) -> None:
    place = Conversation.objects.create(owner=owner)
    lines = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted"
    with connection.cursor() as cursor:
        cursor.execute(lines)
        before = cursor.fetchone()[0]
        lock(place)
        cursor.execute(lines)
        assert cursor.fetchone()[0] == before + 1
        join_line(owner.pk)  # the same line
        cursor.execute(lines)
        assert cursor.fetchone()[0] == before + 1
        cursor.execute(f"EXPLAIN (FORMAT JSON) {_LOCK}", [place.pk])
        [plan] = cursor.fetchone()[0]
    assert plan["Plan"]["Node Type"] == "CTE Scan" and "pg_advisory_xact_lock" in plan["Plan"]["Filter"]
    assert plan["Plan"]["Plans"][0]["Node Type"] == "LockRows"


def test_how_things_stand_is_asked_of_the_conversation_and_of_its_person(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place, other = turn.conversation, Conversation.objects.create(owner=owner)
    place.leaf = turn.answer
    place.save()
    SummaryJob.objects.create(conversation=other)
    task = create_task(actor=Actor(owner), new=NewTask("A task"))
    Run.objects.create(owner=owner, task=task, conversation=other, status="waiting", heartbeat=timezone.now())
    status, other_status = status_of(place), status_of(other)
    assert status[:5] == (True, False, False, 1, 1)
    assert other_status[:5] == (False, True, True, 1, None)
    assert status.version == WorkspaceVersion.objects.get().version
    assert (status.sent_before, other_status.sent_before) == (0, 0)
    Turn.objects.filter(pk=turn.pk).update(context_used=70)
    assert (status_of(place).sent_before, status_of(other).sent_before) == (70, 0)
    Turn.objects.update(status=Turn.Status.DONE)
    SummaryJob.objects.update(status=SummaryJob.Status.FAILED)
    Run.objects.update(status=Run.Status.DONE)
    assert (status_of(place)[:4], status_of(other)[:4]) == ((False, False, False, 0), (False, False, False, 0))


def test_rows_are_stored_as_django_would_and_all_or_none(owner: User, model: Model) -> None:
    place = Conversation.objects.create(owner=owner)
    question = Message(conversation=place, owner=owner, role="user", parts=[{"type": "text", "text": "100 % {sure}"}])
    answer = Message(conversation=place, owner=owner, parent=question, depth=1, role="assistant", model=model)
    turn = Turn(conversation=place, owner=owner, user_message=question, answer=answer, model=model)
    turn.options = {"stop": ["%s"]}
    place.title, place.leaf = "A title", answer
    store_turns(place, [question, answer], [turn], ["title", "leaf"])
    for row in (question, answer, turn):
        stored = fields(type(row)._default_manager.get(pk=row.pk))
        assert stored.items() <= fields(row).items() and not row._state.adding
    assert (Conversation.objects.get(pk=place.pk).leaf_id, place.title) == (answer.pk, "A title")
    second = Message(conversation=place, parent=question, depth=1, role="assistant")
    again = Turn(conversation=place, user_message=question, answer=second, model=model)
    place.title = "Another"
    with pytest.raises(IntegrityError, match="one_live_turn_per_slot"), transaction.atomic():
        store_turns(place, [second], [again], ["title"])
    assert not Message.objects.filter(pk=second.pk).exists()
    assert Conversation.objects.get(pk=place.pk).title == "A title"


def test_a_new_conversation_is_stored_with_its_rows_however_many_they_are(owner: User) -> None:
    place = Conversation(owner=owner, title="New")
    rows = [Message(conversation=place, role="user", parts=[{"type": "text", "text": "Hi"}]) for _ in range(6_000)]
    place.leaf = rows[0]
    turn = Turn(conversation=place, owner=owner, user_message=rows[0], answer=rows[1])
    store_turns(place, rows, [turn], [])
    assert place.messages.count() == 6_000 and not turn._state.adding
    assert fields(Conversation.objects.get(pk=place.pk)).items() <= fields(place).items()


def test_an_answer_below_what_a_programs_tools_said_knows_that(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place, question = turn.conversation, turn.user_message
    called = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant")
    Message.objects.filter(pk=turn.answer_id).update(parent=called, depth=2)
    assert claimed(turn).leaf == called
    assert claimed(queued(owner, model)).leaf.role == "user"


def test_a_branch_comes_oldest_first_and_knows_which_of_its_messages_have_files(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    file = File.objects.create(owner=owner, name="a.txt", sha256="0" * 64, size=1)
    Attachment.objects.create(message=turn.user_message, file=file, name="a.txt", ordinal=0)
    read = partial(branch, leaf=turn.answer_id, covered=None, room=9, path=["x", "y"], unsent=[], excluded=[], older=[])
    messages = read()
    assert [(row.pk, row.has_files) for row in messages] == [(turn.user_message_id, True), (turn.answer_id, False)]
    stored = Message.objects.get(pk=turn.user_message_id)
    assert messages[0]._replace(has_files=False) == (
        *(getattr(stored, name) for name in messages[0]._fields[:-1]),
        False,
    )
    assert messages[0].text == stored.text == "Hello"
    assert [row.pk for row in read(covered=turn.user_message_id)] == [turn.answer_id]
    assert read(leaf=uuid4()) == []


def test_the_model_waits_for_eight_statements(application: Application, person: Person) -> None:
    """The request sends: the token, the conversation, its lock, its status, the new rows. The worker sends: the claim,
    the branch, the last prompt."""
    mark = uuid4().hex
    with application.http("/api/v1/", headers={"Authorization": f"Bearer {person.token}"}) as client:
        place = client.post("conversations/", json={"title": "T"}).json()["id"]
        send = partial(client.post, f"conversations/{place}/turns/")
        send(json={"text": "Before."})
        settled(person.user)
        with listening() as statements:
            turn = timed(application.model, statements, person.user, partial(send, json={"text": mark}), mark)
    assert turn.count <= 8, "\n".join(each.shortened for each in turn.before)


def test_a_program_of_openais_protocol_waits_for_nine(application: Application, person: Person) -> None:
    """The request sends: the token, the version of the workspace, the personas, the line, the status, the new rows. The
    worker sends: the claim, the branch, the last prompt."""
    mark = uuid4().hex
    body = {"model": "scripted", "messages": [{"role": "user", "content": mark}]}
    with application.http("/v1/", headers={"Authorization": f"Bearer {person.token}"}) as client:
        client.post("chat/completions", json=body | {"messages": [{"role": "user", "content": "Before."}]})
        settled(person.user)
        with listening() as statements:
            turn = timed(
                application.model, statements, person.user, partial(client.post, "chat/completions", json=body), mark
            )
    assert turn.count <= 9, "\n".join(each.shortened for each in turn.before)


def only(*names: str) -> FollowUps:
    return NO_FOLLOW_UPS._replace(**dict.fromkeys(names, True))


def test_what_may_follow_in_a_conversation_is_told_from_its_rows(owner: User, model: Model) -> None:
    turn = queued(owner, model, titled=True)
    place = turn.conversation
    assert follow_ups(uuid4()) == only()
    assert follow_ups(place.pk) == only("line")
    NextMessage.objects.create(conversation=place, text="And then?")
    assert follow_ups(place.pk) == only("line", "message")
    task = create_task(actor=Actor(owner), new=NewTask("A task"))
    Run.objects.create(owner=owner, task=task, conversation=place, status="waiting", heartbeat=timezone.now())
    SummaryJob.objects.create(conversation=place)
    Task.objects.filter(pk=task.pk).update(draft=Task.Draft.DUE)
    Conversation.objects.update(titled=False)
    assert follow_ups(place.pk) == only("message", "run", "summary", "draft", "untitled", "line")
    assert follow_ups(Conversation.objects.create(owner=owner).pk) == only("draft", "untitled", "line")
    Conversation.objects.filter(pk=place.pk).update(leaf=turn.answer_id)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.INTERRUPTED)
    assert follow_ups(place.pk) == only("message", "run", "summary", "draft", "untitled", "interrupted")


def test_an_answer_ends_once(owner: User, model: Model) -> None:
    turn = claimed(queued(owner, model)).turn
    parts: list[MessagePart] = [{"type": "text", "text": "100 % {sure}"}]
    assert end_turn(turn, Ending("done"), TurnOutcome(parts, 1, {"input": 3})) == Conversation.State.IDLE
    assert end_turn(turn, Ending("failed", "a_code", Sentence("Why.")), TurnOutcome([], 2)) is None
    row = Turn.objects.select_related("answer").get(pk=turn.pk)
    assert (row.status, row.usage, row.attempt) == ("done", {"input": 3}, turn.attempt + 1)
    assert (row.answer.status, row.answer.parts, row.answer.error_code) == ("done", parts, "")


def test_what_was_asked_last_takes_the_place_of_what_was_before(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place, fallback = turn.conversation, model.fallback
    assert fallback is not None
    call = {"model_name": "m", "provider_name": "p", "purpose": "answer", "turn": turn, "input": 5, "output": 2}
    record_calls(
        [ModelCall(**call), ModelCall(**call, number=2)], [LastPrompt(conversation=place, model=model, prompt=1)]
    )
    record_calls([], [LastPrompt(conversation=place, model=each, prompt=2) for each in (model, fallback)])
    record_calls([], [])
    assert list(ModelCall.objects.filter(turn=turn).order_by("number").values_list("number", "input")) == [
        (1, 5),
        (2, 5),
    ]
    prompts = LastPrompt.objects.filter(conversation=place).values_list("model", "prompt")
    assert sorted(prompts) == sorted([(model.pk, 2), (fallback.pk, 2)])


def test_a_conversation_is_open_when_nothing_is_under_way_in_it(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place = turn.conversation
    Conversation.objects.update(state=Conversation.State.ANSWERING)
    job = SummaryJob(conversation=place)
    assert (settle(place.pk, job), settle(uuid4())) == ("answering", "idle")
    assert not SummaryJob.objects.exists()
    Turn.objects.update(status=Turn.Status.DONE)
    assert settle(place.pk, job) == "summarising"
    SummaryJob.objects.filter(pk=job.pk).update(status=SummaryJob.Status.DONE)
    assert settle(place.pk) == "idle"
    assert Conversation.objects.get(pk=place.pk).state == "idle"
