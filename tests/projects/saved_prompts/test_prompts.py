"""Saved prompts of projects and of the workspace, and their variables."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from accounts.services import create_token
from core.errors import ProductError
from projects.models import Membership, Project
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import suggest_prompts
from projects.saved_prompts.variables import Variable, fill, variables
from tests.conftest import Person
from tests.product import Caller

PAGE = "/personas/prompts/"


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(User.objects.get(pk=person.user.pk))
    return client


@pytest.fixture
def project(person: Person) -> Project:
    return Project.objects.create(owner=person.user, name="Contracts")


def join(person: Person, project: Project, role: str) -> None:
    Membership.objects.create(project=project, user=person.user, role=role)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to {{name}}.", [Variable("name")]),
        ("{{ First  Name }} and {{First Name}}", [Variable("First Name")]),
        ("{{who}}: {{who:Ann}}", [Variable("who", "Ann")]),
        ("{{tone: formal | friendly|formal}}", [Variable("tone", "formal", ("formal", "friendly"))]),
        ("{{tone:|}} {{größe}}", [Variable("tone"), Variable("größe")]),
        ("{{}} {{1}} {name} {{ {a} }} {{{{", []),
    ],
)
def test_variables_are_found_and_other_braces_are_text(text: str, expected: list[Variable]) -> None:
    assert variables(text) == expected


def test_a_text_is_filled_and_what_is_put_in_is_not_read_again() -> None:
    text = "To {{who}} ({{tone:formal|friendly}}, {{length:short}}): {{who}}, {{"
    assert fill(text, {"who": "{{tone}}\n"}) == "To {{tone}}\n (formal, short): {{tone}}\n, {{"
    assert fill(text, {"who": "Ann", "tone": "friendly", "length": "long"}) == "To Ann (friendly, long): Ann, {{"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "variable_missing"),
        ({"who": " "}, "variable_missing"),
        ({"who": "Ann", "tone": "rude"}, "variable_unknown_choice"),
        ({"who": "x" * 20_001}, "variable_too_long"),
    ],
)
def test_what_cannot_be_put_in_is_refused(values: dict[str, str], code: str) -> None:
    with pytest.raises(ProductError) as refused:
        fill("{{who}} {{tone:formal|friendly}}", values)
    assert refused.value.code == code


def test_a_projects_prompt_is_seen_by_members_and_changed_by_editors(
    person: Person, stranger: Person, project: Project
) -> None:
    body: dict[str, Any] = {"name": "Clause", "text": "Which clause covers {{subject}}?", "project": str(project.pk)}
    created = person.caller.post("prompts/", body, expect=201)
    assert created["variables"] == [{"name": "subject", "default": "", "choices": []}] and created["workspace"] is False
    place, theirs = f"prompts/{created['id']}/", stranger.caller.http
    assert theirs.get(place).status_code == 404
    assert theirs.post("prompts/", json={**body, "name": "Mine"}).status_code == 400  # a project that they do not see
    join(stranger, project, "reader")
    assert theirs.get(place).json()["editable"] is False
    assert theirs.patch(place, json={"text": "x"}).json()["code"] == "not_editor"
    assert theirs.delete(place).status_code == 403
    assert theirs.post("prompts/", json={**body, "name": "Mine"}).status_code == 403
    filled_in = theirs.post(f"{place}fill/", json={"values": {"subject": "the fee"}})
    assert filled_in.json() == {"text": "Which clause covers the fee?"}
    assert theirs.post(f"{place}fill/", json={}).json()["code"] == "variable_missing"
    mine = theirs.post(f"{place}copy/").json()
    assert (mine["project"], mine["editable"]) == (None, True)
    Membership.objects.update(role="editor")
    assert theirs.patch(place, json={"text": "Which clause?"}).json()["text"] == "Which clause?"
    assert theirs.post(f"{place}copy/").json()["name"] == "Clause 2"
    project.delete()
    assert person.caller.http.get(place).status_code == 404
    assert theirs.get(f"prompts/{mine['id']}/").status_code == 200


def test_a_prompt_is_handed_over_and_taken_back_by_who_may(person: Person, stranger: Person, project: Project) -> None:
    join(stranger, project, "editor")
    created = person.caller.post("prompts/", {"name": "Points", "text": "Five points."}, expect=201)
    place, mine, theirs = f"prompts/{created['id']}/", person.caller.http, stranger.caller.http
    assert mine.patch(place, json={"workspace": True}).status_code == 403
    assert mine.patch(place, json={"project": str(project.pk), "workspace": True}).status_code in (400, 403)
    assert mine.patch(place, json={"project": str(project.pk)}).json()["project"] == str(project.pk)
    assert theirs.patch(place, json={"workspace": False, "name": "More points"}).json()["project"] == str(project.pk)
    assert theirs.patch(place, json={"project": None}).json()["project"] is None
    assert mine.get(place).status_code == 404


def test_the_workspaces_prompts_are_for_everybody_and_made_with_the_right(person: Person, stranger: Person) -> None:
    assert person.caller.http.post("prompts/", json={"name": "A", "text": "x", "workspace": True}).status_code == 403
    User.objects.filter(pk=person.user.pk).update(is_staff=True, is_superuser=True)
    mine = person.caller.http
    assert mine.post("prompts/", json={"name": "A", "text": "x", "workspace": True}).json()["code"] == "missing_scope"
    _, token = create_token(user=person.user, name="admin", scopes=["chat", "admin"])
    admin = Caller(person.caller.server, token)
    created = admin.post("prompts/", {"name": "Review", "text": "Review {{what}}.", "workspace": True}, expect=201)
    place = f"prompts/{created['id']}/"
    try:
        assert stranger.caller.get(place)["workspace"] is True
        listed = {each["id"] for each in stranger.caller.get("prompts/?of=workspace")["results"]}
        assert created["id"] in listed and not stranger.caller.get("prompts/?of=own")["results"]
        assert stranger.caller.http.get("prompts/?of=theirs").json()["code"] == "bad_filter"
        for refused in (stranger.caller.http.delete(place), stranger.caller.http.patch(place, json={"name": "B"})):
            assert refused.status_code == 403
        again = admin.http.post("prompts/", json={"name": "Review", "text": "x", "workspace": True})
        assert again.json()["code"] == "prompt_name_taken"
        assert b"/Review" in signed_in(stranger).get("/offered-prompts/?q=rev").content
    finally:
        assert admin.http.delete(place).status_code == 204


def test_a_slash_offers_a_projects_prompts_in_that_project_only(person: Person, project: Project) -> None:
    SavedPrompt.objects.create(project=project, name="Clause", text="Which clause?")
    SavedPrompt.objects.create(owner=person.user, name="Clean", text="Clean it up: {{text}}")
    client = signed_in(person)
    inside = client.get(f"/offered-prompts/?project={project.pk}&q=cl").content.decode()
    assert "/Clause" in inside and "Contracts" in inside and inside.index("/Clean") < inside.index("/Clause")
    assert "data-fill" in inside and 'data-insert="Which clause?"' in inside
    outside = client.get("/offered-prompts/?q=cl").content.decode()
    assert "/Clause" not in outside and "/Clean" in outside
    assert b"/Clause" in client.get(f"/projects/{project.pk}/").content


def test_a_slash_offers_ones_own_prompts_before_those_of_the_project_and_of_the_workspace(
    person: Person, project: Project
) -> None:
    for_everybody = SavedPrompt.objects.create(name="Order A", text="x")
    try:
        SavedPrompt.objects.create(project=project, name="Order B", text="x")
        SavedPrompt.objects.create(owner=person.user, name="Order C", text="x")
        offered = suggest_prompts(user=person.user, persona=None, project=project, typed="order ")
        assert [each.name for each in offered] == ["Order C", "Order B", "Order A"]
    finally:
        for_everybody.delete()


def test_without_scripts_a_page_asks_and_the_text_stands_in_the_field(person: Person) -> None:
    row = SavedPrompt.objects.create(owner=person.user, name="Letter", text="To {{who}}, {{tone:formal|friendly}}.")
    client, place = signed_in(person), f"/prompts/{row.pk}/use/"
    page = client.get(place).content.decode()
    assert 'name="value who"' in page and ">friendly</option>" in page
    refused = client.post(place, {"value who": " ", "value tone": "friendly"})
    assert refused.status_code == 400 and "Enter a value for “who”" in refused.content.decode()
    assert '<option value="friendly" selected>' in refused.content.decode()
    done = client.post(place, {"value who": "Ann", "value tone": "friendly"}).content.decode()
    assert 'id="composer"' in done and ">To Ann, friendly.</textarea>" in done
    script = client.post(place, {"value who": "Ann"}, headers={"HX-Request": "true"})
    assert script.content.decode() == "To Ann, formal." and script["Content-Type"].startswith("text/plain")
    SavedPrompt.objects.filter(pk=row.pk).update(text="No question.")
    assert b">No question.</textarea>" in client.get(place).content


def test_the_page_shares_copies_and_finds(person: Person, stranger: Person, project: Project) -> None:
    client = signed_in(person)
    assert client.post(PAGE, {"name": "Clause", "text": "Which?", "holder": str(project.pk)}).status_code == 302
    row = SavedPrompt.objects.get(project=project)
    assert client.post(PAGE, {"name": "All", "text": "x", "holder": "workspace"}).status_code == 403
    assert b"Clause" in client.get(f"{PAGE}?q=whi").content and b"Clause" not in client.get(f"{PAGE}?q=nowhere").content
    other = signed_in(stranger)
    assert other.post(f"{PAGE}{row.pk}/copy/").status_code == 404
    assert other.post(PAGE, {"name": "Mine", "text": "x", "holder": str(project.pk)}).status_code == 404
    join(stranger, project, "reader")
    assert b"Copy to mine" in other.get(PAGE).content
    assert other.post(f"{PAGE}{row.pk}/", {"name": "Mine", "text": "x", "holder": ""}).status_code == 403
    assert other.post(f"{PAGE}{row.pk}/copy/").status_code == 302
    assert SavedPrompt.objects.get(owner=stranger.user).text == "Which?"
    assert client.post(f"{PAGE}{row.pk}/", {"name": "Clause", "text": "Which one?"}).status_code == 302
    row.refresh_from_db()
    assert (row.text, row.project) == ("Which one?", project)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "x" * 61, "text": "x"}, "prompt_too_long"),
        ({"name": "x", "text": "x" * 20_001}, "prompt_too_long"),
        ({"name": "x", "text": " ".join(f"{{{{v{number}x}}}}" for number in range(21))}, "too_many_variables"),
    ],
)
def test_what_is_too_much_is_refused_and_kept_in_the_form(person: Person, fields: dict[str, str], code: str) -> None:
    refused = signed_in(person).post(PAGE, fields)
    assert refused.status_code == 400
    page = refused.content.decode()
    assert code in page and fields["text"][:50] in page


def test_administrators_write_the_workspaces_prompts_in_the_admin(admin_client: Client, admin_user: User) -> None:
    place = "/admin/personas/savedprompt/"
    SavedPrompt.objects.create(owner=admin_user, name="A private prompt", text="x")
    assert admin_client.post(f"{place}add/", {"name": " To  all ", "text": "Say {{what}}.\r\nNow."}).status_code == 302
    row = SavedPrompt.objects.get(owner=None, project=None, name="To all")
    assert row.text == "Say {{what}}.\nNow."
    listed = admin_client.get(place).content.decode()
    assert "To all" in listed and "A private prompt" not in listed
    assert admin_client.post(f"{place}add/", {"name": "To all", "text": "x"}).status_code == 200  # said beside the name
    assert admin_client.post(f"{place}{row.pk}/change/", {"name": "To all", "text": "Other"}).status_code == 302
    row.refresh_from_db()
    assert (row.text, row.owner) == ("Other", None)
    assert admin_client.post(f"{place}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not SavedPrompt.objects.filter(pk=row.pk).exists()
