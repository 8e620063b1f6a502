"""The page “Memory”, and `/api/v1/memories/` and `/api/v1/profile/`."""

import pytest
from django.test import Client

from chat.memory.models import Fact, Profile
from projects.models import Project
from tests.chat.memory.remembering import set_to
from tests.conftest import Person


def word(number: int) -> str:
    """Return a word of its own for a number: facts that differ in a number contradict one another."""
    return "q" + "".join(chr(ord("a") + int(digit)) for digit in str(number)) + "q"


def test_a_program_reads_and_changes_the_profile(person: Person) -> None:
    first = person.caller.get("profile/")
    assert (first["about"], first["in_prompts"], first["proposals"]) == ("", True, "off")
    changed = person.caller.http.patch("profile/", json={"about": " I garden. ", "proposals": "ask"}).json()
    assert (changed["about"], changed["proposals"]) == ("I garden.", "ask")
    for body, status in (({"about": "x" * 1_501}, 400), ({"proposals": "always"}, 400), ({"proposals": "keep"}, 403)):
        assert person.caller.http.patch("profile/", json=body).status_code == status
    set_to(memory_unasked=True)
    assert person.caller.http.patch("profile/", json={"proposals": "keep"}).status_code == 200


def test_a_program_writes_lists_corrects_pins_and_forgets_facts(person: Person) -> None:
    fact = person.caller.post("memories/", {"text": "  Likes\n tea ", "pinned": True}, expect=201)
    assert (fact["text"], fact["status"], fact["pinned"], fact["proposed_by"]) == ("Likes tea", "kept", True, "person")
    path = f"memories/{fact['id']}/"
    newer = person.caller.http.patch(path, json={"text": "Likes green tea"}).json()
    assert (newer["id"] != fact["id"], newer["pinned"], newer["text"]) == (True, True, "Likes green tea")
    older = person.caller.get(path)
    assert (older["status"], older["outdated_by"], older["pinned"]) == ("outdated", newer["id"], False)
    assert person.caller.post(f"{path}restore/", {}, expect=200)["status"] == "kept"
    assert [row["id"] for row in person.caller.get("memories/?q=green")["results"]] == [newer["id"]]
    assert person.caller.http.delete(path).status_code == 204
    forgotten = person.caller.get(path)
    assert (forgotten["status"], forgotten["text"], bool(forgotten["forgotten"])) == ("forgotten", "", True)
    assert [row["id"] for row in person.caller.get("memories/")["results"]] == [newer["id"]]
    assert person.caller.post("memories/forget/", {}, expect=200) == {"forgotten": 1}
    assert Fact.objects.filter(owner=person.user).exclude(text="").count() == 0


@pytest.mark.parametrize(
    "body", [{"text": ""}, {"text": "x" * 301}, {"text": "a", "more": 1}, {}, {"text": 1, "pinned": "a"}]
)
def test_a_bad_fact_is_refused(person: Person, body: dict[str, object]) -> None:
    assert person.caller.http.post("memories/", json=body).status_code == 400


def test_a_fact_of_somebody_elses_project_is_refused(person: Person, stranger: Person) -> None:
    project = Project.objects.create(owner=stranger.user, name="Garden")
    body = {"text": "Likes tea", "project": str(project.pk)}
    assert person.caller.http.post("memories/", json=body).status_code in (400, 404)


def test_nobody_else_sees_or_changes_a_fact(person: Person, stranger: Person) -> None:
    fact = person.caller.post("memories/", {"text": "Likes tea"}, expect=201)
    path = f"memories/{fact['id']}/"
    assert stranger.caller.http.get(path).status_code == 404
    assert stranger.caller.http.delete(path).status_code == 404
    assert stranger.caller.http.patch(path, json={"text": "x"}).status_code == 404
    assert stranger.caller.get("memories/")["results"] == []


def test_the_number_of_pinned_facts_has_a_limit(person: Person) -> None:
    for number in range(Fact.MAX_PINNED):
        person.caller.post("memories/", {"text": f"Likes {word(number)}", "pinned": True}, expect=201)
    refused = person.caller.http.post("memories/", json={"text": "Likes tea", "pinned": True})
    assert refused.status_code == 400 and refused.json()["code"] == "too_many_pinned"


def test_where_the_workspace_has_it_off_nothing_new_is_stored_and_forgetting_works(person: Person) -> None:
    fact = person.caller.post("memories/", {"text": "Likes tea"}, expect=201)
    set_to(memory=False)
    assert person.caller.http.post("memories/", json={"text": "Likes cake"}).status_code == 403
    assert person.caller.http.delete(f"memories/{fact['id']}/").status_code == 204


def test_a_legal_hold_keeps_facts(person: Person) -> None:
    fact = person.caller.post("memories/", {"text": "Likes tea"}, expect=201)
    person.user.legal_hold = True
    person.user.save()
    assert person.caller.http.delete(f"memories/{fact['id']}/").status_code == 409
    assert person.caller.http.post("memories/forget/", json={}).status_code == 409
    assert person.caller.get(f"memories/{fact['id']}/")["text"] == "Likes tea"


def test_the_page_saves_the_profile_and_adds_and_finds_facts(person: Person) -> None:
    client = Client()
    client.force_login(person.user)
    form = {"about": "I garden.", "answering": "Short.", "in_prompts": "on", "proposals": "ask"}
    saved = client.post("/memory/", form, follow=True)
    assert "Saved." in saved.content.decode() and "I garden." in saved.content.decode()
    assert Profile.objects.get(person=person.user).proposals == "ask"
    refused = client.post("/memory/", {**form, "about": "x" * 1_501})
    assert refused.status_code == 400 and "Shorten it." in refused.content.decode()
    client.post("/memory/facts/", {"text": "Likes <b>tea</b>"})
    client.post("/memory/facts/", {"text": "Has roses"})
    page = client.get("/memory/").content.decode()
    assert "Likes &lt;b&gt;tea&lt;/b&gt;" in page and "2 remembered, 0 proposed, 0 outdated" in page
    listed = client.get("/memory/?q=roses&status=kept").content.decode()
    assert "Has roses" in listed and "&lt;b&gt;tea" not in listed
    client.post("/memory/forget/")
    assert "Nothing is remembered yet." in client.get("/memory/").content.decode()


def test_the_options_of_a_conversation_leave_memory_out_and_take_it_in_again(person: Person) -> None:
    place = person.caller.conversation()
    client = Client()
    client.force_login(person.user)
    for label, value in (("Leave out what is remembered", "no"), ("Send what is remembered", "yes")):
        assert label in client.get(f"/c/{place}/organise/").content.decode()
        response = client.post(f"/c/{place}/memory/", {"memory": value}, headers={"HX-Request": "true"})
        assert response.status_code == 204 and "planchange" in response["HX-Trigger"]
    assert person.caller.get(f"conversations/{place}/")["memory_in_prompts"] is True
