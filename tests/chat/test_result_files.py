"""Files that tools of an MCP server return: stored, read, sent to models that see, shown, marked, exported."""

import base64
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import Q
from django.test import Client

from accounts.models import Limit
from chat.conversations.erasing import erase
from chat.models import Attachment, Conversation
from chat.prompts.wording import REASONS
from files.models import File
from llm.models import Model, ToolServer
from personas.models import Persona
from readers.tests.samples import word
from tests.application import Application
from tests.chat.documents import picture
from tests.conftest import Person
from tests.product import until

SERVER = """
import base64, pathlib, sys
from mcp.server import MCPServer
from mcp.server.mcpserver import Audio, Image
from mcp_types import BlobResourceContents, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

server = MCPServer("studio")
folder = pathlib.Path(sys.argv[1])

def blob(name, media_type):
    content = base64.b64encode((folder / name).read_bytes()).decode()
    resource = BlobResourceContents(uri=f"file:///out/{name}", mime_type=media_type, blob=content)
    return EmbeddedResource(type="resource", resource=resource)

@server.tool(structured_output=False)
def chart(number: int = 1):
    return ["Here it is.", Image(path=folder / f"chart{number}.png")]

@server.tool(structured_output=False)
def letter():
    return [blob("letter.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document")]

@server.tool(structured_output=False)
def source():
    resource = TextResourceContents(uri="repo://glasshouse/main/barge.py", mime_type="text/plain", text="BARGE = 17")
    lock = "repo://glasshouse/main/lock.py"
    link = ResourceLink(type="resource_link", uri=lock, name="lock.py", description="Locks.")
    return [EmbeddedResource(type="resource", resource=resource), link]

@server.tool(structured_output=False)
def sound():
    return [Audio(data=b"RIFF" + bytes(range(256)) * 8, format="wav")]

server.run()
"""
ANSWER = {"text": "I have seen it."}


@pytest.fixture
def studio(application: Application, committed: None, tmp_path: Path) -> Iterator[ToolServer]:
    (tmp_path / "studio.py").write_text(SERVER)
    for number in (1, 2):
        (tmp_path / f"chart{number}.png").write_bytes(picture(64 * number, 32))
    (tmp_path / "letter.docx").write_bytes(word(["The barge leaves on Tuesday."]))
    command = shlex.join([sys.executable, str(tmp_path / "studio.py"), str(tmp_path)])
    row = ToolServer.objects.create(name=f"s{uuid4().hex[:8]}", kind="stdio", command=command, approval_required=False)
    yield row
    row.delete()


class Studio:
    """A conversation of a persona with the tools of the server."""

    def __init__(self, application: Application, person: Person, server: ToolServer, model: Model) -> None:
        self.application, self.person, self.server, self.model = application, person, server, model
        persona = Persona.objects.create(
            owner=person.user, name="Studio", instructions="Draw.", tools=[f"{server.name}__*"]
        )
        self.place = str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"])

    def ask(self, *tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """Have the model call the tools in one step, then answer. Returns the turn."""
        calls = [{"name": f"{self.server.name}__{name}", "arguments": arguments} for name, arguments in tools]
        steps = [{"tool_calls": calls}, ANSWER] if calls else [ANSWER]
        self.mark = uuid4().hex
        turn = self.person.caller.ask(f"Do it {self.mark}", {"steps": steps}, self.place, models=[str(self.model.pk)])
        ended: dict[str, Any] = self.person.caller.ended(turn["id"])
        assert ended["status"] == "done", ended["error"]
        return ended

    def sent(self) -> list[dict[str, Any]]:
        """Return the messages of the newest request to the model."""
        messages: list[dict[str, Any]] = self.application.model.finished(self.mark)[-1].body["messages"]
        return messages

    def images(self) -> list[bytes]:
        """Return the images of the newest request to the model."""
        parts = [part for each in self.sent() if isinstance(each["content"], list) for part in each["content"]]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        return [base64.b64decode(url.partition("base64,")[2]) for url in urls]

    def results(self) -> list[str]:
        return [each["content"] for each in self.sent() if each["role"] == "tool"]

    def sources(self, turn: dict[str, Any], kind: str) -> list[dict[str, Any]]:
        report = self.person.caller.get(f"turns/{turn['id']}/report/")
        return [each for each in report["sources"] if each["kind"] == kind]

    def files(self, turn: dict[str, Any]) -> list[dict[str, Any]]:
        message = self.person.caller.get(f"messages/{turn['message']}/")
        files: list[dict[str, Any]] = message["files"]
        assert [each["file"] for part in message["parts"] for each in part.get("files", ())] == [
            each["id"] for each in files
        ]
        return files

    def mark_file(self, turn: dict[str, Any], mark: str | None) -> None:
        [file] = self.files(turn)
        path = f"messages/{turn['message']}/files/{file['id']}/"
        response = self.person.caller.http.patch(path, json={"mark": mark})
        assert response.status_code == 200, response.text


@pytest.fixture
def at(application: Application, person: Person, studio: ToolServer) -> Callable[[Model], Studio]:
    return lambda model: Studio(application, person, studio, model)


def test_an_image_is_a_file_of_the_conversation_that_a_seeing_model_gets_below_the_result(
    at: Callable[[Model], Studio], able: Model
) -> None:
    place = at(able)
    turn = place.ask(("chart", {}))
    assert place.results() == ["Here it is.\n[image: the file chart.png]"]
    assert place.images() == [picture(64, 32)]
    after = place.sent()[[each["role"] for each in place.sent()].index("tool") + 1]
    assert after["role"] == "user"
    assert after["content"][0]["text"].startswith("These images belong to the tool results above: chart.png.")
    assert [each["name"] for each in place.files(turn)] == ["chart.png"]
    [row] = place.sources(turn, "image")
    assert (row["state"], row["title"]) == ("full", "chart.png") and row["tokens"] > 0


def test_the_images_of_one_step_stand_below_its_last_result(at: Callable[[Model], Studio], able: Model) -> None:
    place = at(able)
    place.ask(("chart", {}), ("chart", {"number": 2}), ("source", {}))
    roles = [each["role"] for each in place.sent()]
    assert roles[roles.index("tool") :][:4] == ["tool", "tool", "tool", "user"]
    assert place.images() == [picture(64, 32), picture(128, 32)]


def test_an_image_of_an_earlier_turn_is_sent_again_only_when_its_turn_is_pinned(
    at: Callable[[Model], Studio], able: Model
) -> None:
    place = at(able)
    first = place.ask(("chart", {}))
    second = place.ask()
    assert place.images() == []
    assert [each["state"] for each in place.sources(second, "image")] == ["stubbed"]
    place.mark_file(first, "pinned")
    third = place.ask()
    assert place.images() == [picture(64, 32)]
    assert [each["state"] for each in place.sources(third, "image")] == ["full"]
    place.mark_file(first, "excluded")
    fourth = place.ask()
    assert place.images() == []
    [row] = place.sources(fourth, "image")
    assert (row["state"], row["reason"]) == ("left_out", "by_user")


def test_a_model_that_sees_nothing_is_told_the_name_and_the_report_says_so(
    at: Callable[[Model], Studio], caller_of_tools: Model
) -> None:
    place = at(caller_of_tools)
    turn = place.ask(("chart", {}))
    assert place.results() == ["Here it is.\n[image: the file chart.png]"] and not place.images()
    [row] = place.sources(turn, "image")
    assert (row["state"], row["reason"]) == ("left_out", "no_vision")
    assert len(place.files(turn)) == 1


def test_the_readers_read_an_embedded_document(at: Callable[[Model], Studio], caller_of_tools: Model) -> None:
    place = at(caller_of_tools)
    turn = place.ask(("letter", {}))
    [text] = place.results()
    assert text.startswith("[file:///out/letter.docx]\n[resource: the file letter.docx]")
    assert text.endswith("[The text of letter.docx]\nThe barge leaves on Tuesday.")
    [row] = place.sources(turn, "file")
    assert (row["state"], row["title"]) == ("full", "letter.docx")
    later = place.ask()
    [row] = place.sources(later, "file")
    assert (row["state"], row["reason"]) == ("stubbed", "of_result") and REASONS["of_result"]


def test_an_embedded_text_is_in_the_result_and_a_file_that_tools_reach_later(
    at: Callable[[Model], Studio], caller_of_tools: Model
) -> None:
    place = at(caller_of_tools)
    turn = place.ask(("source", {}))
    assert place.results() == [
        "[repo://glasshouse/main/barge.py]\n[resource: the file barge.py]\nBARGE = 17\n"
        "[resource_link: lock.py repo://glasshouse/main/lock.py] Locks."
    ]
    [file] = place.files(turn)
    until(lambda: File.objects.get(pk=file["id"]).searchable, "the file can be searched")
    place.ask()
    offered = place.application.model.finished(place.mark)[-1].body["tools"]
    assert {"search_files", "read_file"} <= {each["function"]["name"] for each in offered}
    place.mark_file(turn, "excluded")
    place.ask()
    offered = place.application.model.finished(place.mark)[-1].body["tools"]
    assert "search_files" not in {each["function"]["name"] for each in offered}


def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    at: Callable[[Model], Studio], caller_of_tools: Model
) -> None:
    place = at(caller_of_tools)
    turn = place.ask(("sound", {}))
    [text] = place.results()
    assert text.startswith("[audio: the file sound.wav]\n\n[The file sound.wav cannot be read. ")
    assert [each["name"] for each in place.files(turn)] == ["sound.wav"]


def test_a_file_for_which_there_is_no_storage_is_named_and_the_turn_goes_on(
    at: Callable[[Model], Studio], able: Model, person: Person
) -> None:
    Limit.objects.create(user=person.user, unit=Limit.Unit.STORAGE, amount=10)
    place = at(able)
    turn = place.ask(("chart", {}))
    [text] = place.results()
    assert "[The file chart.png was not kept. Your uploads take" in text and not place.images()
    notes = person.caller.get(f"turns/{turn['id']}/report/?call=1")["notes"]
    assert any("The file chart.png, which a tool returned, was not kept." in note for note in notes)


def test_the_page_shows_the_image_and_the_panel_offers_to_leave_it_out(
    at: Callable[[Model], Studio], able: Model, person: Person, stranger: Person
) -> None:
    place = at(able)
    turn = place.ask(("chart", {}))
    [file] = place.files(turn)
    client = Client()
    client.force_login(person.user)
    page = client.get(f"/c/{place.place}/").content.decode()
    assert f'<img src="/files/{file["id"]}/shown/"' in page
    panel = client.get(f"/turns/{turn['id']}/report/").content.decode()
    assert f"/messages/{turn['message']}/mark/" in panel and file["id"] in panel
    assert client.get(f"/files/{file['id']}/shown/").status_code == 200
    client.force_login(stranger.user)
    assert client.get(f"/files/{file['id']}/shown/").status_code == 404


def test_an_export_names_the_file_and_erasing_takes_it_along(
    at: Callable[[Model], Studio], able: Model, person: Person
) -> None:
    place = at(able)
    turn = place.ask(("chart", {}))
    [file] = place.files(turn)
    client = Client()
    client.force_login(person.user)
    exported = client.get(f"/c/{place.place}/export.json").json()["messages"][-1]
    assert [each["id"] for each in exported["attachments"]] == [file["id"]]
    assert [part["files"] for part in exported["parts"] if "files" in part] == [
        [{"file": file["id"], "name": "chart.png", "image": True}]
    ]
    assert Attachment.objects.filter(message=UUID(turn["message"])).count() == 1
    erase(Conversation.objects.get(pk=place.place), files=Q())
    assert not File.objects.filter(pk=file["id"]).exists()
