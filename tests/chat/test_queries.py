"""The SQL statements of a turn: they read the same rows as Django would, and their effects."""

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
from chat.models.queries import Following, branch, claim, end, following, lock, settle, standing, store
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


def claimed(turn: Turn) -> Turn:
    turn_ = claim(turn.pk)
    assert turn_ is not None
    return turn_


def fields(row: object) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name != "_state"}


def test_a_claimed_turn_has_the_rows_that_django_would_read(owner: User, model: Model) -> None:
    persona = Persona.objects.create(owner=owner, name="P", tools=["tasks"], starter_messages=["Hi"])
    turn = claimed(queued(owner, model, persona=persona))
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
    turn = claimed(queued(owner, None))
    assert turn.model is None and turn.conversation.persona is None


def test_what_comes_along_is_the_persons_the_personas_and_the_models_own(owner: User, model: Model) -> None:
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
        LastPrompt.objects.create(conversation=turn.conversation, model=each, prompt={"of": each.name})
    along = fields(claimed(turn))
    assert [each for each in along["reminders"] if each in texts.values()] == [texts["everywhere"], texts["chosen"]]
    assert along["mentions"] == [{"day": today.isoformat(), "code": "M2026-11-T01"}]
    assert {each["model"] for each in along["prompts"]} == {str(model.pk), str(model.fallback_id)}
    flags = [along[name] for name in ("has_summary", "has_marks", "has_tasks", "prompted", "run_step")]
    assert flags == [False, False, False, True, None]


def test_a_locked_conversation_is_the_row_and_a_deleted_one_none(owner: User) -> None:
    place = Conversation.objects.create(owner=owner, title="Here", documents={"a": 1}, effort="low")
    row = lock(place.pk)
    assert row is not None and fields(row) == fields(Conversation.objects.get(pk=place.pk))
    Conversation.objects.filter(pk=place.pk).update(deleted=timezone.now())
    assert lock(place.pk) is None and lock(uuid4()) is None


def test_how_things_stand_is_asked_of_the_conversation_and_of_its_person(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place, other = turn.conversation, Conversation.objects.create(owner=owner)
    place.leaf = turn.answer
    SummaryJob.objects.create(conversation=other)
    task = create_task(actor=Actor(owner), new=NewTask("A task"))
    Run.objects.create(owner=owner, task=task, conversation=other, status="waiting", heartbeat=timezone.now())
    here, elsewhere_ = standing(place), standing(other)
    assert here[:5] == (True, False, False, 1, 1)
    assert elsewhere_[:5] == (False, True, True, 1, None)
    assert here.version == WorkspaceVersion.objects.get().version
    assert (here.sent_before, elsewhere_.sent_before) == (0, 0)
    Turn.objects.filter(pk=turn.pk).update(context_used=70)
    assert (standing(place).sent_before, standing(other).sent_before) == (70, 0)
    Turn.objects.update(status=Turn.Status.DONE)
    SummaryJob.objects.update(status=SummaryJob.Status.FAILED)
    Run.objects.update(status=Run.Status.DONE)
    assert (standing(place)[:4], standing(other)[:4]) == ((False, False, False, 0), (False, False, False, 0))


def test_rows_are_stored_as_django_would_and_all_or_none(owner: User, model: Model) -> None:
    place = Conversation.objects.create(owner=owner)
    question = Message(conversation=place, owner=owner, role="user", parts=[{"type": "text", "text": "100 % {sure}"}])
    answer = Message(conversation=place, owner=owner, parent=question, depth=1, role="assistant", model=model)
    turn = Turn(conversation=place, owner=owner, user_message=question, answer=answer, model=model)
    turn.options = {"stop": ["%s"]}
    place.title, place.leaf = "A title", answer
    store([question, answer, turn], place, ["title", "leaf"])
    for row in (question, answer, turn):
        stored = fields(type(row)._default_manager.get(pk=row.pk))
        assert stored.items() <= fields(row).items() and not row._state.adding
    assert (Conversation.objects.get(pk=place.pk).leaf_id, place.title) == (answer.pk, "A title")
    second = Message(conversation=place, parent=question, depth=1, role="assistant")
    again = Turn(conversation=place, user_message=question, answer=second, model=model)
    place.title = "Another"
    with pytest.raises(IntegrityError, match="one_live_turn_per_slot"), transaction.atomic():
        store([second, again], place, ["title"])
    assert not Message.objects.filter(pk=second.pk).exists()
    assert Conversation.objects.get(pk=place.pk).title == "A title"


def test_a_new_conversation_is_stored_with_its_rows_however_many_they_are(owner: User) -> None:
    place = Conversation(owner=owner, title="New")
    rows = [Message(conversation=place, role="user", parts=[{"type": "text", "text": "Hi"}]) for _ in range(6_000)]
    place.leaf = rows[0]
    store(rows, place, [])
    assert place.messages.count() == 6_000
    assert fields(Conversation.objects.get(pk=place.pk)).items() <= fields(place).items()


def test_an_answer_below_what_a_programs_tools_said_knows_that(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place, question = turn.conversation, turn.user_message
    called = Message.objects.create(conversation=place, parent=question, depth=1, role="assistant")
    Message.objects.filter(pk=turn.answer_id).update(parent=called, depth=2)
    assert fields(claimed(turn))["given"] == called
    assert fields(claimed(queued(owner, model)))["given"].role == "user"


def test_a_branch_comes_oldest_first_and_knows_which_of_its_messages_have_files(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    file = File.objects.create(owner=owner, name="a.txt", sha256="0" * 64, size=1)
    Attachment.objects.create(message=turn.user_message, file=file, name="a.txt", ordinal=0)
    arguments = {"leaf": turn.answer_id, "covered": None, "room": 9, "path": ["x", "y"], "unsent": []}
    rows = branch({**arguments, "excluded": [], "older": []})
    assert [(row.pk, row.has_files) for row in rows] == [(turn.user_message_id, True), (turn.answer_id, False)]
    stored = Message.objects.get(pk=turn.user_message_id)
    assert rows[0]._replace(has_files=False) == (*(getattr(stored, name) for name in rows[0]._fields[:-1]), False)
    assert rows[0].text == stored.text == "Hello"
    assert [row.pk for row in branch({**arguments, "covered": turn.user_message_id, "excluded": [], "older": []})] == [
        turn.answer_id
    ]


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
            times = timed(application.model, statements, person.user, partial(send, json={"text": mark}), mark)
    assert times.count <= 8, [each.shortened for each in times.before]


def test_a_program_of_openais_protocol_waits_for_nine(application: Application, person: Person) -> None:
    """The request sends: the token, the version of the workspace, the personas, the line, the status, the new rows. The
    worker sends: the claim, the branch, the last prompt."""
    mark = uuid4().hex
    body = {"model": "scripted", "messages": [{"role": "user", "content": mark}]}
    with application.http("/v1/", headers={"Authorization": f"Bearer {person.token}"}) as client:
        client.post("chat/completions", json=body | {"messages": [{"role": "user", "content": "Before."}]})
        settled(person.user)
        with listening() as statements:
            times = timed(
                application.model, statements, person.user, partial(client.post, "chat/completions", json=body), mark
            )
    assert times.count <= 9, [each.shortened for each in times.before]


def only(*names: str) -> Following:
    return Following(**{name: name in names for name in Following._fields})


def test_what_may_follow_in_a_conversation_is_told_from_its_rows(owner: User, model: Model) -> None:
    turn = queued(owner, model, titled=True)
    place = turn.conversation
    assert following(uuid4()) == only()
    assert following(place.pk) == only("line")
    NextMessage.objects.create(conversation=place, text="And then?")
    assert following(place.pk) == only("line", "message")
    task = create_task(actor=Actor(owner), new=NewTask("A task"))
    Run.objects.create(owner=owner, task=task, conversation=place, status="waiting", heartbeat=timezone.now())
    SummaryJob.objects.create(conversation=place)
    Task.objects.filter(pk=task.pk).update(draft=Task.Draft.DUE)
    Conversation.objects.update(titled=False)
    assert following(place.pk) == only("message", "run", "summary", "draft", "title", "line")
    assert following(Conversation.objects.create(owner=owner).pk) == only("draft", "title", "line")
    Conversation.objects.filter(pk=place.pk).update(leaf=turn.answer_id)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.INTERRUPTED)
    assert following(place.pk) == only("message", "run", "summary", "draft", "title", "interrupted")


def test_an_answer_ends_once(owner: User, model: Model) -> None:
    turn = claimed(queued(owner, model))
    first = {"parts": [{"type": "text", "text": "100 % {sure}"}], "status": "done"}
    assert end(turn, {"status": "done", "usage": {"input": 3}, "cost": None, "finished": timezone.now()}, first)
    assert not end(turn, {"status": "failed"}, {"parts": [], "status": "failed"})
    row = Turn.objects.select_related("answer").get(pk=turn.pk)
    assert (row.status, row.usage, row.attempt) == ("done", {"input": 3}, turn.attempt + 1)
    assert (row.answer.status, row.answer.parts) == ("done", first["parts"])


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
    rows = LastPrompt.objects.filter(conversation=place).values_list("model", "prompt")
    assert sorted(rows) == sorted([(model.pk, 2), (fallback.pk, 2)])


def test_a_conversation_is_open_when_nothing_is_under_way_in_it(owner: User, model: Model) -> None:
    turn = queued(owner, model)
    place = turn.conversation
    assert settle(place.pk) is None and settle(uuid4()) is None
    Turn.objects.update(status=Turn.Status.DONE)
    job = SummaryJob.objects.create(conversation=place)
    states = [settle(place.pk)]
    SummaryJob.objects.filter(pk=job.pk).update(status=SummaryJob.Status.DONE)
    states.append(settle(place.pk))
    assert [each.state for each in states if each] == ["summarising", "idle"]
    assert states[1] is not None and fields(states[1]) == fields(Conversation.objects.get(pk=place.pk))
