"""Tool servers to which each person signs in, in the plan, in a turn and on the page."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from llm.models import Model, ToolGrant, ToolServer
from personas.models import Persona
from tests.application import Application
from tests.chat.documents import ask_and_wait
from tests.conftest import Person
from tests.llm.oauth_server import OAuthServer, serving
from tests.llm.sign_ins import signed_in


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with serving() as server:
        yield server


@pytest.fixture
def row(application: Application, committed: None, oauth: OAuthServer) -> Iterator[ToolServer]:
    stored = ToolServer.objects.create(
        name=f"o{uuid4().hex[:8]}", base_url=oauth.url, access="person", approval_required=False
    )
    yield stored
    stored.delete()


def scope_of(person: Person, row: ToolServer) -> str:
    persona = Persona.objects.create(owner=person.user, name="Notes", instructions="Look.", tools=[f"{row.name}__*"])
    return str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])


def calling(row: ToolServer, mark: str) -> str:
    steps = [{"tool_calls": [{"name": f"{row.name}__whoami", "arguments": {}}]}, {"text": "Done."}]
    return f"Who am I? {mark}\nscript: {json.dumps({'steps': steps})}"


def results(application: Application, mark: str) -> list[str]:
    """Return what the model was sent as results of tools."""
    messages = application.model.finished(mark)[-1].body["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_who_has_not_signed_in_is_asked_to_at_the_plan_and_the_turn_goes_on(
    application: Application, person: Person, row: ToolServer, oauth: OAuthServer, caller_of_tools: Model
) -> None:
    place, mark = scope_of(person, row), uuid4().hex
    turn = ask_and_wait(person, place, f"Hello {mark}", models=[str(caller_of_tools.pk)])
    assert turn["status"] == "done"
    assert "tools" not in application.model.finished(mark)[0].body
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["sign_ins"] == [row.name]
    assert [note for note in report["notes"] if "Sign in under “Connected tools” in the settings." in note]
    client = browser(person.user)
    button = f'action="{reverse("settings:tools-sign-in", args=[row.pk])}"'
    page = client.get(reverse("chat:conversation", args=[place])).content.decode()
    assert button in page and f"The tools of {row.name} are left out until you sign in to it." in page
    assert button in client.get(reverse("chat:report", args=[turn["id"]])).content.decode()

    go_page = client.post(
        reverse("settings:tools-sign-in", args=[row.pk]), {"then": reverse("chat:conversation", args=[place])}
    )
    assert go_page.status_code == 200 and "127.0.0.1" in go_page.content.decode()
    oauth.accounts.person = "alice"
    back = client.get(str(oauth.authorize(go_page.context["address"]).raw_path.decode()))
    assert (back.status_code, back["Location"]) == (302, reverse("chat:conversation", args=[place]))
    assert button not in client.get(reverse("chat:conversation", args=[place])).content.decode()
    mark = uuid4().hex
    turn = ask_and_wait(person, place, calling(row, mark), models=[str(caller_of_tools.pk)])
    assert results(application, mark) == ["alice"]
    assert person.caller.get(f"turns/{turn['id']}/report/")["sign_ins"] == []


def test_a_grant_that_ends_during_a_turn_is_a_result_and_a_button(
    application: Application, person: Person, row: ToolServer, oauth: OAuthServer, caller_of_tools: Model
) -> None:
    grant = signed_in(person.user, row, oauth, "alice")
    place, mark = scope_of(person, row), uuid4().hex
    ask_and_wait(person, place, calling(row, mark), models=[str(caller_of_tools.pk)])
    assert results(application, mark) == ["alice"]
    oauth.accounts.end("alice")
    mark = uuid4().hex
    turn = ask_and_wait(person, place, calling(row, mark), models=[str(caller_of_tools.pk)])
    assert turn["status"] == "done"
    grant.refresh_from_db()
    assert grant.ended == "revoked"
    page = browser(person.user).get(reverse("chat:conversation", args=[place])).content.decode()
    assert f'action="{reverse("settings:tools-sign-in", args=[row.pk])}"' in page


def test_the_owner_of_a_conversation_lends_nobody_their_sign_in(
    application: Application,
    person: Person,
    stranger: Person,
    row: ToolServer,
    oauth: OAuthServer,
    caller_of_tools: Model,
) -> None:
    signed_in(person.user, row, oauth, "alice")
    signed_in(stranger.user, row, oauth, "bob")
    for who, account in ((person, "alice"), (stranger, "bob"), (person, "alice")):
        mark = uuid4().hex
        ask_and_wait(who, scope_of(who, row), calling(row, mark), models=[str(caller_of_tools.pk)])
        assert results(application, mark) == [account]
    ToolGrant.objects.filter(user=stranger.user).delete()
    mark = uuid4().hex
    turn = ask_and_wait(stranger, scope_of(stranger, row), f"Hi {mark}", models=[str(caller_of_tools.pk)])
    assert stranger.caller.get(f"turns/{turn['id']}/report/")["sign_ins"] == [row.name]
