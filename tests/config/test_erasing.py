"""After a person is erased none of their data is left. The audit stays valid and has only their id."""

import logging
import re
from collections.abc import Callable
from itertools import cycle
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.urls import reverse

from accounts.models import User
from accounts.services import create_token
from chat.ledger.models import ModelCall
from chat.models import Import, Turn
from core.audit.chain import ChainCheck, verify
from core.audit.models import Entry
from core.errors import ProductError
from files.models import File
from personas.models import Persona
from projects.models import Project
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.documents import ask_and_wait, upload
from tests.config.household import PRIVATE, Household, signed_in
from tests.conftest import Person
from tests.leftovers import dumped, redis_keys_with, stored, tables_with
from tests.product import until
from workspace.administration.erasing import erase_person


@pytest.fixture
def admin(committed: None) -> User:
    return User.objects.create_user(f"admin-{uuid4().hex}", is_staff=True, is_superuser=True)


def broken() -> list[object]:
    return list(verify(ChainCheck()))


def test_of_everything_that_can_be_theirs_nothing_is_left(household: Household, admin: User) -> None:
    owner = next(row for row in household.rows if isinstance(row, User))
    brought = Import.objects.get(owner=owner)
    uploaded = default_storage.save(f"imports/{uuid4()}", ContentFile(b"[]"))
    Import.objects.filter(pk=brought.pk).update(blob=uploaded)
    before = broken()
    assert len(tables_with(PRIVATE)) > 15 and tables_with(owner.username)
    erase_person(user=admin, person=User.objects.get(pk=owner.pk))
    assert (tables_with(PRIVATE), tables_with(owner.username)) == ([], [])
    assert not default_storage.exists(uploaded)
    acts = Entry.objects.filter(object_id=str(owner.pk)).order_by("sequence")
    last = acts.last()
    assert last is not None and (last.action, last.actor_id, last.object_name) == ("person.erased", admin.pk, "")
    assert broken() == before


def test_files_answers_and_sessions_go_and_what_was_used_stays(
    application: Application, person: Person, admin: User, caplog: pytest.LogCaptureFixture
) -> None:
    """The person has 50 texts, each in a row or a file of its own. None is left in database, Redis, storage or logs."""
    caplog.set_level(logging.INFO)
    mark = f"mark{uuid4().hex}"
    texts = [f"{mark}-{number}" for number in range(50)]
    message, own, named = (text + "x" for text in texts[:3])
    browser = signed_in(person.user)
    _, token = create_token(user=person.user, name=named)
    file = upload(person, f"{named}.txt", f"The secret is {own}.".encode())
    place = person.caller.conversation()
    turn = ask_and_wait(
        person, place, f'Remember {message}\nscript: {{"text": "{message} it is."}}', files=[file["id"]]
    )
    blob = str(File.objects.get(pk=file["id"]).blob.name)
    assert all(tables_with(each) for each in (message, own, named, person.username)) and default_storage.exists(blob)
    assert any(turn["id"] in key for key in redis_keys_with(settings.STREAMS_URL, message))
    call = ModelCall.objects.get(person=person.user, purpose="answer")
    written_by(person, texts[3:])
    assert {*re.findall(rf"{mark}-\d+", dumped(mark))} == {*texts} and stored(mark)
    erase_person(user=admin, person=User.objects.get(pk=person.user.pk))
    assert [tables_with(each) for each in (mark, person.username)] == [[], []]
    assert not stored(mark) and mark not in caplog.text
    assert not default_storage.exists(blob)
    assert browser.get("/").status_code == 302
    assert application.http("/api/v1/", headers={"Authorization": f"Bearer {token}"}).get("me/").status_code == 401
    call.refresh_from_db()
    assert (call.person_id, call.conversation_id) == (None, None) and call.output
    entries = Entry.objects.filter(actor_id=person.user.pk, action="token.made")
    assert set(entries.values_list("actor_name", "token_name", "object_name", "address")) == {("", "", "", "")}


def written_by(person: Person, texts: list[str]) -> None:
    """A row or a file for each of these texts, of all kinds that people write."""
    call, owner = person.caller, person.user
    makers: list[Callable[[str], object]] = [
        lambda text: call.post("conversations/", {"title": text}, expect=201),
        lambda text: past(owner, 1, parts=[{"type": "text", "text": text}]),
        lambda text: call.post("personas/", {"name": text, "instructions": text}, expect=201),
        lambda text: call.post("projects/", {"name": uuid4().hex, "instructions": text}, expect=201),
        lambda text: call.post("tasks/", {"title": text, "level": "task", "horizon": "day"}, expect=201),
        lambda text: call.post("prompts/", {"name": uuid4().hex, "text": text}, expect=201),
        lambda text: upload(person, "a.txt", f"It says {text}.".encode()),
        lambda text: create_token(user=owner, name=text),
    ]
    for text, make in zip(texts, cycle(makers), strict=False):
        make(text)


def test_while_an_answer_is_being_written_it_is_stopped_first(
    application: Application, person: Person, admin: User
) -> None:
    turn = person.caller.ask("Go on for long", {"text": "word " * 2_000, "interval": 0.02})
    until(lambda: Turn.objects.filter(pk=turn["id"], status="running"), "it is answered")
    erased = User.objects.get(pk=person.user.pk)
    with pytest.raises(ProductError, match="being stopped") as refused:
        erase_person(user=admin, person=erased)
    assert refused.value.code == "still_answering" and not User.objects.get(pk=erased.pk).is_active
    until(lambda: not Turn.objects.live().filter(pk=turn["id"]), "the answer has ended")
    erase_person(user=admin, person=erased)
    assert not User.objects.filter(pk=person.user.pk).exists()


def test_who_may_not_is_refused(person: Person, stranger: Person, admin: User) -> None:
    for user, whom, code in ((person.user, stranger.user, "staff_only"), (admin, admin, "yourself")):
        with pytest.raises(ProductError) as refused:
            erase_person(user=user, person=User.objects.get(pk=whom.pk))
        assert refused.value.code == code
    assert User.objects.filter(pk__in=[stranger.user.pk, admin.pk], is_active=True).count() == 2


def test_the_command_says_what_would_go_and_does_it_with_yes(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    Project.objects.create(owner=person.user, name="Mine")
    Persona.objects.create(owner=person.user, name=uuid4().hex)
    call_command("erase", person.username)
    output = capsys.readouterr().out
    assert "0 conversations, 0 files, 1 projects, 1 personas" in output and "--yes" in output
    assert User.objects.filter(pk=person.user.pk).exists()
    call_command("erase", person.username, "--yes")
    assert not User.objects.filter(pk=person.user.pk).exists()
    assert Entry.objects.get(action="person.erased", object_id=str(person.user.pk)).actor_id is None
    with pytest.raises(CommandError, match="no user"):
        call_command("erase", person.username, "--yes")


def test_the_admin_asks_first(person: Person, admin: User) -> None:
    browser, url = signed_in(admin), reverse("admin:accounts_user_erase", args=[person.user.pk])
    assert "Erase" in browser.get(f"/admin/accounts/user/{person.user.pk}/change/").content.decode()
    assert browser.get(url).status_code == 200
    browser.post(url, {"_form_submitted": "on"})  # without having said that it cannot be undone
    assert User.objects.filter(pk=person.user.pk).exists()
    browser.post(url, {"_form_submitted": "on", "sure": "on"})
    assert not User.objects.filter(pk=person.user.pk).exists()
