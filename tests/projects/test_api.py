"""The API of projects, and the rights of readers, editors and strangers, through the running application."""

from typing import Any

import pytest

from tests.application import Application
from tests.conftest import Person, make_person
from tests.product import Caller
from tests.projects.members import join
from tests.projects.uploads import pdf, read, searchable, upload, uploaded


@pytest.fixture
def project(caller: Caller) -> str:
    return str(caller.post("projects/", {"name": "Contracts"}, expect=201)["id"])


@pytest.fixture
def reader(project: str, application: Application) -> Person:
    return joined(project, make_person(application), "reader")


@pytest.fixture
def editor(project: str, application: Application) -> Person:
    return joined(project, make_person(application), "editor")


def joined(project: str, member: Person, role: str) -> Person:
    join(project, member.user, role)
    return member


def patch(caller: Caller, path: str, body: dict[str, Any], expect: int = 200) -> Any:
    return caller._checked(caller.http.patch(path, json=body), expect)


def delete(caller: Caller, path: str, expect: int = 204) -> Any:
    return caller._checked(caller.http.delete(path), expect)


def names(caller: Caller, project: str) -> list[str]:
    return [entry["name"] for entry in caller.get(f"projects/{project}/files/")["results"]]


def add(caller: Caller, project: str, name: str, expect: int = 201, **more: Any) -> str:
    file = upload(caller, name, f"words of {name}")["id"]
    caller.post(f"projects/{project}/files/", {"file": file, **more}, expect=expect)
    return str(file)


def test_a_project_is_made_changed_and_deleted(caller: Caller) -> None:
    created = caller.post("projects/", {"name": " Big  plans ", "instructions": "Be brief."}, expect=201)
    assert (created["name"], created["instructions"], created["role"], created["version"]) == (
        "Big plans",
        "Be brief.",
        "owner",
        1,
    )
    where = f"projects/{created['id']}/"
    assert patch(caller, where, {"name": "Plans"})["version"] == 1
    assert patch(caller, where, {"instructions": "Be brief."})["version"] == 1
    changed = patch(caller, where, {"instructions": "Be exact."})
    assert (changed["name"], changed["instructions"], changed["version"]) == ("Plans", "Be exact.", 2)
    assert [each["id"] for each in caller.get("projects/")["results"]] == [created["id"]]
    delete(caller, where)
    caller.get(where, expect=404)


def test_the_web_is_on_until_the_owner_switches_it_off(caller: Caller, project: str, editor: Person) -> None:
    where = f"projects/{project}/"
    assert caller.get(where)["web"] is True
    assert patch(editor.caller, where, {"web": False}, expect=403)["code"] == "not_owner"
    assert patch(editor.caller, where, {"name": "Plans", "web": True})["web"] is True
    assert patch(caller, where, {"web": False})["web"] is False
    assert patch(editor.caller, where, {"web": True}, expect=403)["code"] == "not_owner"


def test_a_project_needs_a_name(caller: Caller) -> None:
    caller.post("projects/", {"name": "  "}, expect=400)


def test_files_keep_the_order_that_people_give_them(caller: Caller, project: str) -> None:
    first, second, third = (add(caller, project, name) for name in ("a.txt", "b.txt", "c.txt"))
    assert names(caller, project) == ["a.txt", "b.txt", "c.txt"]
    patch(caller, f"projects/{project}/files/{third}/", {"position": 0})
    assert names(caller, project) == ["c.txt", "a.txt", "b.txt"]
    patch(caller, f"projects/{project}/files/{third}/", {"position": 10**20})
    assert names(caller, project) == ["a.txt", "b.txt", "c.txt"]
    assert patch(caller, f"projects/{project}/files/{second}/", {"pinned": True})["pinned"] is True
    again = caller.post(f"projects/{project}/files/", {"file": first}, expect=201)
    assert (again["ordinal"], len(names(caller, project))) == (0, 3)
    delete(caller, f"projects/{project}/files/{first}/")
    delete(caller, f"projects/{project}/files/{first}/", expect=404)
    assert names(caller, project) == ["b.txt", "c.txt"]
    caller.get(f"files/{first}/")  # out of the project, but still there


def test_search_finds_the_passage_in_this_project_only(caller: Caller, project: str) -> None:
    contract = searchable(caller, "contract.pdf", pdf("The parties agree.", "The fee is nine thousand euros."))
    searchable(caller, "other.txt", "The fee elsewhere is one euro.")
    caller.post(f"projects/{project}/files/", {"file": contract["id"]}, expect=201)
    results = caller.post(f"projects/{project}/search/", {"query": "how large is the fee"}, expect=200)["results"]
    assert {hit["file"] for hit in results} == {contract["id"]}
    best = results[0]
    assert (best["title"], 0 < best["score"] <= 1) == ("contract.pdf", True)
    pieces = caller.get(f"files/{contract['id']}/text/")["results"]
    whole = "\n\n".join(piece["text"] for piece in pieces)
    assert whole[best["start"] : best["end"]] == best["text"]
    assert "nine thousand" in best["text"]
    caller.post(f"projects/{project}/search/", {"query": ""}, expect=400)


def test_a_reader_reads_searches_and_downloads_but_changes_nothing(
    caller: Caller, project: str, reader: Person
) -> None:
    file = searchable(caller, "memo.txt", "The harbour opens at dawn.")["id"]
    caller.post(f"projects/{project}/files/", {"file": file}, expect=201)
    theirs = reader.caller
    assert theirs.get(f"projects/{project}/")["role"] == "reader"
    assert theirs.http.get(f"files/{file}/content/").text == "The harbour opens at dawn."
    assert theirs.post(f"projects/{project}/search/", {"query": "harbour"}, expect=200)["results"]
    assert theirs.get("files/")["results"] == []  # the list is one's own
    assert patch(theirs, f"projects/{project}/", {"name": "Mine"}, expect=403)["code"] == "not_editor"
    assert add(theirs, project, "own.txt", expect=403)
    patch(theirs, f"projects/{project}/files/{file}/", {"pinned": True}, expect=403)
    delete(theirs, f"projects/{project}/files/{file}/", expect=403)
    delete(theirs, f"projects/{project}/", expect=403)
    delete(theirs, f"files/{file}/", expect=404)
    theirs.post(f"files/{file}/retry/", expect=404)


def test_an_editor_changes_the_project_but_not_who_is_in_it(
    caller: Caller, project: str, editor: Person, stranger: Person
) -> None:
    theirs = editor.caller
    assert patch(theirs, f"projects/{project}/", {"instructions": "Be exact."})["version"] == 2
    file = add(theirs, project, "plan.txt", pinned=True)
    assert caller.get(f"files/{file}/")["name"] == "plan.txt"  # the owner sees what the editor added
    new = {"username": stranger.username, "role": "reader"}
    assert theirs.post(f"projects/{project}/members/", new, expect=403)["code"] == "not_owner"
    patch(theirs, f"projects/{project}/members/{editor.user.pk}/", {"role": "reader"}, expect=403)
    delete(theirs, f"projects/{project}/", expect=403)


def test_somebody_elses_file_cannot_be_put_into_a_project(caller: Caller, project: str, stranger: Person) -> None:
    secret = uploaded(stranger.caller, "secret.txt", "secret words")["id"]
    caller.post(f"projects/{project}/files/", {"file": secret}, expect=404)
    assert names(caller, project) == []


def test_a_project_does_not_exist_for_strangers(caller: Caller, project: str, stranger: Person) -> None:
    file = add(caller, project, "a.txt")
    theirs = stranger.caller
    assert theirs.get("projects/")["results"] == []
    for path in ("", "files/", "members/"):
        theirs.get(f"projects/{project}/{path}", expect=404)
    theirs.post(f"projects/{project}/search/", {"query": "words"}, expect=404)
    add(theirs, project, "b.txt", expect=404)
    patch(theirs, f"projects/{project}/files/{file}/", {"pinned": True}, expect=404)
    theirs.get(f"files/{file}/content/", expect=404)


def test_whoever_leaves_or_is_removed_sees_nothing_any_more(
    caller: Caller, project: str, reader: Person, editor: Person
) -> None:
    file = add(caller, project, "a.txt")
    listed = caller.get(f"projects/{project}/members/")["results"]
    assert [(each["username"], each["role"]) for each in listed] == [
        (reader.username, "reader"),
        (editor.username, "editor"),
    ]
    delete(reader.caller, f"projects/{project}/members/{editor.user.pk}/", expect=403)
    delete(reader.caller, f"projects/{project}/members/{reader.user.pk}/")
    delete(caller, f"projects/{project}/members/{editor.user.pk}/")
    for each in (reader, editor):
        each.caller.get(f"projects/{project}/", expect=404)
        each.caller.get(f"files/{file}/", expect=404)


def test_a_role_can_be_changed(caller: Caller, project: str, reader: Person) -> None:
    member = f"projects/{project}/members/{reader.user.pk}/"
    assert patch(caller, member, {"role": "editor"})["role"] == "editor"
    assert reader.caller.get(f"projects/{project}/")["role"] == "editor"
    patch(caller, member, {"role": "king"}, expect=400)


def test_a_deleted_project_leaves_its_files(caller: Caller, project: str) -> None:
    file = add(caller, project, "a.txt")
    delete(caller, f"projects/{project}/")
    assert read(caller, file)["status"] == "ready"
