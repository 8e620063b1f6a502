"""Files of a project that are not sent whole: what a model is told of them, with tools and without."""

import json
from typing import Any
from uuid import uuid4

from files.models import File, FileText
from llm.models import Model
from llm.tokens import CATCH_ALL
from projects.models import Project, ProjectFile
from tests.application import Application
from tests.chat.documents import PREFIX, asked, picture, sent, upload
from tests.conftest import Person
from tests.product import until


def test_a_picture_of_a_project_is_not_said_to_be_found_by_search(application: Application, person: Person) -> None:
    file = upload(person, "shot.png", picture())
    place = put_together(person, file)
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "Now?"}, expect=200)
    [source] = [each for each in plan["sources"] if each["kind"] == "project_file"]
    assert (source["state"], source["reason"]) == ("left_out", "project_image")
    assert "file_listing" not in plan["sections"]


def small_model(scripted_model_row: Model, **abilities: Any) -> Model:
    return Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=4_000, **abilities
    )


def put_together(person: Person, *files: dict[str, Any]) -> str:
    """A conversation in a new project of these files."""
    project = person.caller.post("projects/", {"name": "Together"}, expect=201)
    for file in files:
        person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    place: str = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    return place


def searchable(person: Person, file: dict[str, Any]) -> None:
    until(lambda: person.caller.get(f"files/{file['id']}/")["searchable"], "it has been indexed")


def test_a_model_without_tools_is_given_what_a_search_finds_in_a_project_that_does_not_fit(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row)
    filler = " ".join(f"Clause {number} is about nothing in particular." for number in range(600))
    big = upload(person, "contract.txt", f"{filler} The platypus fee is 4711 euros. {filler}".encode())
    searchable(person, big)
    place, mark = put_together(person, big), uuid4().hex
    text = f"How much is the platypus fee? {mark}"
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": text, "model": str(model.pk)}, expect=200)
    turn = asked(person, place, text, models=[str(model.pk)])
    listing, _, found = sent(application, mark)[1]["content"].partition(f"\n\n{PREFIX}\n")
    assert "contract.txt" in listing and big["id"] in listing and "by search" not in listing
    [document] = json.loads(found)["documents"]
    assert document["document"] == 1 and "4711 euros" in document["contents"]
    report = person.caller.get(f"turns/{turn['id']}/report/")
    assert report["used"] == plan["used"] <= report["limit"]
    assert [each["text"] for each in report["messages"]] == [each["content"] for each in sent(application, mark)]


def test_a_model_with_tools_searches_by_itself(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row, tools=True)
    big = upload(person, "big.txt", b"many words " * 1_500)
    searchable(person, big)
    place, mark = put_together(person, big), uuid4().hex
    asked(person, place, f"How many? {mark}", models=[str(model.pk)])
    listing = sent(application, mark)[1]["content"]
    assert "can be reached by search" in listing and "many words" not in listing


def test_the_list_of_a_project_with_many_files_leaves_room_for_the_question(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = small_model(scripted_model_row)
    files = File.objects.bulk_create(
        File(
            owner=person.user,
            name=f"note-{number}.txt",
            status="ready",
            searchable=True,
            tokens={CATCH_ALL: 500},
            size=1,
        )
        for number in range(300)
    )
    FileText.objects.bulk_create(FileText(file=file, text="many words " * 250) for file in files)
    project = Project.objects.create(owner=person.user, name="Many")
    ProjectFile.objects.bulk_create(
        ProjectFile(project=project, file=file, added_by=person.user, ordinal=number)
        for number, file in enumerate(files)
    )
    place = person.caller.post("conversations/", {"project": str(project.pk)}, expect=201)["id"]
    mark = uuid4().hex
    asked(person, place, f"What now? {mark}", models=[str(model.pk)])
    lines = sent(application, mark)[1]["content"].splitlines()[1:]
    assert "note-0.txt" in lines[0] and 2 < len(lines) < 20
    assert lines[-1] == f"- and {300 - (len(lines) - 1)} more files"
