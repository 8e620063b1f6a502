"""A person's saved prompts: by program, on their page, and behind a /."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from personas.models import Persona
from projects.saved_prompts.models import SavedPrompt
from tests.conftest import Person


@pytest.fixture
def client(person: Person) -> Client:
    signed_in = Client()
    signed_in.force_login(person.user)
    return signed_in


def save(person: Person, name: str, text: str = "Summarise it in five points.") -> dict[str, Any]:
    return dict(person.caller.post("prompts/", {"name": name, "text": text}, expect=201))


def test_a_program_saves_changes_lists_and_deletes_prompts(person: Person) -> None:
    saved = save(person, "  Five   points ")
    assert saved["name"] == "Five points"
    http = person.caller.http
    assert http.patch(f"prompts/{saved['id']}/", json={"text": "Say it in three."}).json()["text"] == "Say it in three."
    assert [each["name"] for each in person.caller.get("prompts/")["results"]] == ["Five points"]
    assert http.delete(f"prompts/{saved['id']}/").status_code == 204
    assert person.caller.get("prompts/")["results"] == []


@pytest.mark.parametrize(("name", "text", "status"), [("Points", "Again.", 409), (" ", "x", 400), ("New", "", 400)])
def test_what_cannot_be_saved_is_refused(person: Person, name: str, text: str, status: int) -> None:
    save(person, "Points")
    assert person.caller.http.post("prompts/", json={"name": name, "text": text}).status_code == status
    assert SavedPrompt.objects.filter(owner=person.user).count() == 1


def test_there_is_an_end_to_how_many_one_saves(person: Person) -> None:
    rows = (SavedPrompt(owner=person.user, name=str(number), text="x") for number in range(SavedPrompt.MAX_COUNT))
    SavedPrompt.objects.bulk_create(rows)
    response = person.caller.http.post("prompts/", json={"name": "more", "text": "x"})
    assert response.json()["code"] == "too_many_prompts"


def test_prompts_are_their_owners_alone(person: Person, stranger: Person) -> None:
    saved = save(person, "Mine")
    assert stranger.caller.get("prompts/")["results"] == []
    for method in ("get", "delete"):
        assert getattr(stranger.caller.http, method)(f"prompts/{saved['id']}/").status_code == 404
    foreign = Client()
    foreign.force_login(User.objects.get(pk=stranger.user.pk))
    assert foreign.post(f"/personas/prompts/{saved['id']}/", {"name": "Yours"}).status_code == 404
    assert b"Mine" not in foreign.get("/offered-prompts/?q=").content


def test_the_page_saves_changes_and_deletes(person: Person, client: Client) -> None:
    page = "/personas/prompts/"
    assert client.post(page, {"name": "One", "text": "First."}).status_code == 302
    assert client.post(page, {"name": "One", "text": "Other words."}).status_code == 409
    row = SavedPrompt.objects.get(owner=person.user)
    assert client.post(f"{page}{row.pk}/", {"name": "Two", "text": "Second."}).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.text) == ("Two", "Second.")
    assert b"Second." in client.get(page).content
    client.post(f"{page}{row.pk}/delete/")
    assert not SavedPrompt.objects.filter(pk=row.pk).exists()


def test_a_slash_offers_ones_own_prompts_and_the_personas_starters(person: Person, client: Client) -> None:
    save(person, "Weekly report")
    save(person, "Other")
    persona = Persona.objects.create(
        owner=person.user, name="P", starter_messages=["Report on the week", "Something else"]
    )
    place = person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]
    for path in (f"/c/{place}/prompts/?q=REPORT", f"/offered-prompts/?persona={persona.pk}&q=report"):
        page = client.get(path).content.decode()
        assert "/Weekly report" in page and 'data-insert="Report on the week"' in page
        assert "Other" not in page and "Something else" not in page


def test_another_persona_answers_from_now_on(person: Person, client: Client) -> None:
    persona = Persona.objects.create(owner=person.user, name="P", instructions="Be a lawyer.")
    place = person.caller.conversation()
    response = client.post(f"/c/{place}/persona/", {"persona": str(persona.pk)}, headers={"HX-Request": "true"})
    assert response.status_code == 204 and "planchange" in response["HX-Trigger"]
    assert person.caller.get(f"conversations/{place}/")["persona"] == str(persona.pk)
    client.post(f"/c/{place}/persona/", {"persona": ""})
    assert person.caller.get(f"conversations/{place}/")["persona"] is None
