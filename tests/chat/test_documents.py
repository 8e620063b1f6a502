"""Files as the model gets them: uploaded with a message, or of a project; through the running application."""

import json
from uuid import uuid4

from django.utils import timezone

from chat.web.persona_and_project import project_meter
from files.models import File
from llm.models import Model
from projects.models import Project, ProjectFile
from tests.application import Application
from tests.chat.documents import ask_and_wait, documents, picture, sent, upload
from tests.conftest import Person
from tests.projects.members import join


def test_a_file_stands_above_its_question_for_ever_and_keeps_its_number(
    application: Application, person: Person
) -> None:
    place = person.caller.conversation()
    first = upload(person, "alpha.txt", b"The first letter is alpha.")
    second = upload(person, "beta.txt", b"The second letter is beta.")
    mark = uuid4().hex
    ask_and_wait(person, place, f"About alpha {mark}-1", files=[first["id"]])
    ask_and_wait(person, place, f"About beta {mark}-2", files=[second["id"]])
    messages = sent(application, f"{mark}-2")
    assert [message["role"] for message in messages] == ["system", "user", "user", "assistant", "user", "user"]
    assert documents(messages[1]) == [{"document": 1, "title": "alpha.txt", "contents": "The first letter is alpha."}]
    assert messages[2]["content"].startswith("About alpha")
    assert documents(messages[4])[0]["document"] == 2
    assert messages[5]["content"].startswith("About beta")


def test_the_report_names_the_files_and_shows_exactly_what_was_sent(application: Application, person: Person) -> None:
    place = person.caller.conversation()
    file = upload(person, "report.md", "# Größe\n\nZeile mit „Anführung“ und 日本語.".encode())
    mark = uuid4().hex
    turn = ask_and_wait(person, place, f"What is it? {mark}", files=[file["id"]])
    report = person.caller.get(f"turns/{turn['id']}/report/")
    source = next(source for source in report["sources"] if source["kind"] == "file")
    assert (source["title"], source["state"], source["id"]) == ("report.md", "full", file["id"])
    assert [message["text"] for message in report["messages"]] == [
        message["content"] for message in sent(application, mark)
    ]


def test_files_over_the_line_are_refused_by_name_and_the_plan_says_so(
    person: Person, scripted_model_row: Model
) -> None:
    model = Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=4_000
    )
    place = person.caller.conversation()
    file = upload(person, "long.txt", b"many words " * 1_500)
    planned = person.caller.post(
        f"conversations/{place}/plan/", {"text": "x", "files": [file["id"]], "model": str(model.pk)}, expect=200
    )
    assert planned["fits"] is False and planned["error"]["code"] == "files_too_long"
    assert planned["documents"]["selected"] > planned["documents"]["selectable_up_to"]
    body = {"text": "x", "files": [file["id"]], "models": [str(model.pk)]}
    response = person.caller.http.post(f"conversations/{place}/turns/", json=body)
    assert response.status_code == 422 and "long.txt" in response.json()["detail"]
    assert person.caller.get(f"conversations/{place}/messages/")["results"] == []


def test_somebody_elses_file_cannot_be_attached(person: Person, stranger: Person) -> None:
    file = upload(stranger, "private.txt", b"Not yours.")
    body = {"text": "x", "files": [file["id"]]}
    path = f"conversations/{person.caller.conversation()}"
    assert person.caller.http.post(f"{path}/turns/", json=body).status_code == 404
    planned = person.caller.post(f"{path}/plan/", body, expect=200)
    assert "private.txt" not in json.dumps(planned)


def test_a_file_that_could_not_be_read_is_refused_with_its_reason(person: Person) -> None:
    file = upload(person, "broken.pdf", b"%PDF-1.7 and then nothing of the kind")
    assert file["status"] == "failed"
    body = {"text": "x", "files": [file["id"]]}
    response = person.caller.http.post(f"conversations/{person.caller.conversation()}/turns/", json=body)
    assert response.status_code == 422 and response.json()["code"] == "file_failed"


def test_an_image_goes_to_a_model_that_sees_and_is_a_marker_for_another(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    provider = scripted_model_row.provider
    seeing = Model.objects.create(
        provider=provider, name=f"scripted-{uuid4().hex[:8]}", context_window=8_000, vision=True
    )
    file, mark = upload(person, "teal.png", picture()), uuid4().hex
    ask_and_wait(person, person.caller.conversation(), f"See {mark}-1", files=[file["id"]], models=[str(seeing.pk)])
    parts = sent(application, f"{mark}-1")[-1]["content"]
    assert [part["type"] for part in parts].count("image_url") == 1
    blind = ask_and_wait(person, person.caller.conversation(), f"See {mark}-2", files=[file["id"]])
    assert "cannot be shown" in documents(sent(application, f"{mark}-2")[-2])[0]["contents"]
    report = person.caller.get(f"turns/{blind['id']}/report/")
    images = [(each["state"], each["reason"]) for each in report["sources"] if each["kind"] == "image"]
    assert images == [("left_out", "no_vision")]
    assert [each["text"] for each in report["messages"]] == [each["content"] for each in sent(application, f"{mark}-2")]


def test_project_files_and_instructions_move_above_the_newest_question(
    application: Application, person: Person
) -> None:
    file = upload(person, "manual.txt", b"Press the green button.")
    project = person.caller.post("projects/", {"name": "Machine", "instructions": "Answer in one word."}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": file["id"]}, expect=201)
    place = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    mark = uuid4().hex
    ask_and_wait(person, place, f"Which button? {mark}-1")
    ask_and_wait(person, place, f"And then? {mark}-2")
    messages = sent(application, f"{mark}-2")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "user", "user"]
    assert messages[3]["content"] == "# Instructions of the project “Machine”\nAnswer in one word."
    assert documents(messages[4])[0]["contents"] == "Press the green button."
    assert messages[5]["content"].startswith("And then?")


def test_a_project_that_does_not_fit_is_listed_and_its_pinned_file_comes_first(
    application: Application, person: Person, scripted_model_row: Model
) -> None:
    model = Model.objects.create(
        provider=scripted_model_row.provider, name=f"scripted-{uuid4().hex[:8]}", context_window=4_000
    )
    big, small = upload(person, "big.txt", b"many words " * 1_500), upload(person, "small.txt", b"A short note.")
    project = person.caller.post("projects/", {"name": "Large"}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": big["id"]}, expect=201)
    person.caller.post(f"projects/{project['id']}/files/", {"file": small["id"], "pinned": True}, expect=201)
    place = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    mark = uuid4().hex
    turn = ask_and_wait(person, place, f"What is there? {mark}", models=[str(model.pk)])
    messages = sent(application, mark)
    assert [each["title"] for each in documents(messages[1])] == ["small.txt"]
    assert "- 2: big.txt" in messages[2]["content"]
    sources = person.caller.get(f"turns/{turn['id']}/report/")["sources"]
    states = {source["title"]: source["state"] for source in sources if source["kind"] == "project_file"}
    assert states == {"big.txt": "by_search", "small.txt": "full"}


def test_a_project_closed_to_somebody_is_no_source_for_them_any_more(
    application: Application, person: Person, stranger: Person
) -> None:
    project = stranger.caller.post("projects/", {"name": "Shared", "instructions": "SECRET-RULE"}, expect=201)
    members = f"projects/{project['id']}/members/"
    join(project["id"], person.user)
    place = person.caller.post("conversations/", {"project": project["id"]}, expect=201)["id"]
    mark = uuid4().hex
    ask_and_wait(person, place, f"Inside {mark}-1")
    assert "SECRET-RULE" in json.dumps(sent(application, f"{mark}-1"))
    assert stranger.caller.http.delete(f"{members}{person.user.pk}/").status_code == 204
    ask_and_wait(person, place, f"Outside {mark}-2")
    assert "SECRET-RULE" not in json.dumps(sent(application, f"{mark}-2"))
    assert Project.objects.filter(pk=project["id"]).exists()


def test_a_project_file_that_is_still_being_read_is_not_said_to_be_unreadable(
    application: Application, person: Person
) -> None:
    file = File.objects.create(owner=person.user, name="new.txt", status="processing", size=1, heartbeat=timezone.now())
    project = Project.objects.create(owner=person.user, name="Fresh")
    ProjectFile.objects.create(project=project, file=file, added_by=person.user, ordinal=0)
    place = person.caller.post("conversations/", {"project": str(project.pk)}, expect=201)["id"]
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "Now?"}, expect=200)
    [source] = [each for each in plan["sources"] if each["kind"] == "project_file"]
    assert (source["state"], source["reason"]) == ("left_out", "unread_file")
    assert project_meter(user=person.user, project=project).failed == 0


def test_a_file_that_was_deleted_is_reported_as_that(application: Application, person: Person) -> None:
    file = upload(person, "note.txt", b"The fee is due in May.")
    place = person.caller.conversation()
    ask_and_wait(person, place, "When?", files=[file["id"]])
    assert person.caller.http.delete(f"files/{file['id']}/").status_code == 204
    plan = person.caller.post(f"conversations/{place}/plan/", {"text": "And now?"}, expect=200)
    [source] = [each for each in plan["sources"] if each["kind"] == "file"]
    assert (source["state"], source["reason"], source["title"]) == ("left_out", "deleted_file", "note.txt")
