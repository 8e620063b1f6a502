"""All that a person has, in one zip to take along."""

import io
import json
import zipfile

from files.models import File
from personas.models import Persona
from projects.models import Project, ProjectFile
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task
from projects.saved_prompts.models import SavedPrompt
from tests.application import Application
from tests.chat.documents import ask_and_wait, upload
from tests.conftest import Person


def test_everything_that_is_theirs_is_in_it_and_nothing_of_others(
    application: Application, person: Person, stranger: Person
) -> None:
    for one in (person, stranger):
        file = upload(one, f"report of {one.username}.txt", f"Written by {one.username}.".encode())
        ask_and_wait(one, one.caller.conversation(), f"Hello from {one.username}")
        Persona.objects.create(owner=one.user, name=f"Editor {one.username}", instructions="Be brief.", tools=["tasks"])
        project = Project.objects.create(owner=one.user, name=f"Place of {one.username}", instructions="Cite.")
        ProjectFile.objects.create(project=project, file_id=file["id"])
        SavedPrompt.objects.create(owner=one.user, name="Greeting", text=f"Greet {one.username}.")
        create_task(actor=Actor(one.user), new=NewTask(f"Call {one.username}", notes="At noon."))
    lost = File.objects.create(owner=person.user, name="lost.pdf", size=1, sha256="f" * 64, blob="ff/ff/none")
    response = person.caller.http.get("export/")
    archive = zipfile.ZipFile(io.BytesIO(response.content))
    content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert not [name for name, text in content.items() if stranger.username in name + text]
    assert [json.loads(content[name])[0][field] for name, field in FIELDS] == [
        f"Editor {person.username}",
        f"Place of {person.username}",
        f"Greet {person.username}.",
        f"Call {person.username}",
    ]
    assert json.loads(content["projects.json"])[0]["files"][0]["file__name"] == f"report of {person.username}.txt"
    [original] = [text for name, text in content.items() if name.startswith("files/")]
    assert original == f"Written by {person.username}."
    assert content["missing.txt"] == f"{lost.name}\n"
    assert len([name for name in content if name.startswith(("md/", "json/"))]) == 2 and "usage.csv" in content


FIELDS = (("personas.json", "name"), ("projects.json", "name"), ("prompts.json", "text"), ("tasks.json", "title"))
