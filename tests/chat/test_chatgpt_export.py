"""The export in ChatGPT's shape: what its JSON says, and that an import brings the same conversations."""

import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client

from accounts.models import User
from chat.conversations.chatgpt_export import _zip
from chat.conversations.importing import jobs
from chat.models import Attachment, Conversation, Import, Message
from core.audit.models import Entry
from core.ids import new_id_at
from files.services import open_blob, store
from llm.models import Model, Provider
from tests.chat.foreign_exports import Branch, branches_here

pytestmark = pytest.mark.django_db
START = datetime(2025, 3, 1, 8, 30, 0, 123457, tzinfo=UTC)
# Message, message above, role, text. Two first questions, two answers to the second, and a follow-up.
STORY = (
    ("q1", None, "user", "A story"),
    ("a1", "q1", "assistant", "Once."),
    ("q2", None, "user", "A long story"),
    ("a2", "q2", "assistant", "Once upon a time."),
    ("a3", "q2", "assistant", "Long ago.\n\n* trà xanh"),
    ("q3", "a2", "user", "And then?"),
    ("a4", "q3", "assistant", "The end."),
)


@pytest.fixture
def olga(settings: Any, tmp_path: Path) -> User:
    settings.MEDIA_ROOT = tmp_path
    return User.objects.create_user("olga")


@pytest.fixture
def story(olga: User) -> Conversation:
    provider = Provider.objects.create(name="Local", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9")
    model = Model.objects.create(provider=provider, name="llama3.1:8b", context_window=8_000)
    place = Conversation.objects.create(owner=olga, title="Stories — “old”", titled=True, archived=True)
    rows: dict[str, Message] = {}
    for number, (key, above, role, text) in enumerate(STORY):
        parent = rows[above] if above else None
        thought = [{"type": "reasoning", "text": "Hm.\nLong?"}] if key == "a3" else []
        call = [
            {"type": "tool_call", "id": "c", "name": "search_files", "arguments": "{}"},
            {"type": "tool_result", "id": "c", "text": "Nine.", "error": False, "documents": []},
        ]  # fmt: skip
        rows[key] = Message.objects.create(
            id=new_id_at(START + timedelta(seconds=number)),
            conversation=place,
            owner=olga,
            parent=parent,
            depth=parent.depth + 1 if parent else 0,
            role=role,
            parts=[*thought, *(call if key == "a4" else []), {"type": "text", "text": text}],
            model=model if role == "assistant" else None,
        )
        Message.objects.filter(pk=rows[key].pk).update(created=START + timedelta(seconds=number))
    file = store(user=olga, name="giá vé.txt", content=ContentFile(b"The fee is 42.", name="x"))
    Attachment.objects.create(message=rows["q2"], file=file, name=file.name, ordinal=0)
    Attachment.objects.create(message=rows["q3"], file=None, name="gone.pdf", ordinal=0)
    Conversation.objects.filter(pk=place.pk).update(
        leaf=rows["a3"], created=START, updated=START + timedelta(minutes=9)
    )
    return Conversation.objects.get(pk=place.pk)


def test_the_shape_is_that_of_chatgpt(olga: User, story: Conversation) -> None:
    with zipfile.ZipFile(io.BytesIO(b"".join(_zip(olga)))) as archive:
        (row,) = json.loads(archive.read("conversations.json"))
        names = archive.namelist()
    mapping = row["mapping"]
    assert (row["title"], row["create_time"], row["is_archived"]) == ("Stories — “old”", START.timestamp(), True)
    assert row["current_node"] == str(story.leaf_id)
    for key, node in mapping.items():
        assert key == node["id"] and all(mapping[child]["parent"] == key for child in node["children"])
    (root,) = (node for node in mapping.values() if node["parent"] is None)
    firsts = [mapping[child]["message"] for child in root["children"]]
    assert root["message"] is None and [each["content"]["parts"] for each in firsts] == [["A story"], ["A long story"]]
    assert firsts[0]["author"]["role"] == "user"
    attachment = firsts[1]["metadata"]["attachments"][0]
    assert attachment["name"] == "giá vé.txt" and f"{attachment['id']}-giá vé.txt" in names
    last = mapping[row["current_node"]]
    thoughts = mapping[last["parent"]]["message"]["content"]
    assert last["message"]["metadata"]["model_slug"] == "llama3.1:8b"
    assert (thoughts["content_type"], thoughts["thoughts"][0]["content"]) == ("thoughts", "Hm.\nLong?")


def test_the_importer_brings_the_same_conversations(olga: User, story: Conversation) -> None:
    ivan = User.objects.create_user("ivan")
    blob = default_storage.save("imports/x", ContentFile(b"".join(_zip(olga))))
    job = Import.objects.create(owner=ivan, name="chatgpt.zip", blob=blob)
    jobs.run(job.pk)
    job.refresh_from_db()
    assert (job.status, job.imported, job.skipped) == ("done", 1, 0)
    copy = Conversation.objects.get(owner=ivan)
    assert branches_here(copy) == branches_here(story) == expected()
    before, after = (
        (row.title, row.archived, row.created, row.updated, row.leaf and row.leaf.text) for row in (story, copy)
    )
    assert before == after
    models = Message.objects.filter(conversation=copy, role="assistant").values_list("model__name", flat=True)
    assert set(models) == {"llama3.1:8b"}
    thoughtful = Message.objects.get(conversation=copy, parts__0__type="reasoning")
    assert thoughtful.parts[0] == {"type": "reasoning", "text": "Hm.\nLong?"}
    files = {row.name: row.file for row in Attachment.objects.filter(message__conversation=copy)}
    assert files.keys() == {"giá vé.txt", "gone.pdf"} and files["gone.pdf"] is None
    fees = files["giá vé.txt"]
    assert fees is not None and open_blob(file=fees).read() == b"The fee is 42."


def expected() -> list[Branch]:
    """Return the story as a tree."""
    branches = {
        key: Branch(role, text, START + timedelta(seconds=number)) for number, (key, _, role, text) in enumerate(STORY)
    }
    for key, above, _, _ in STORY:
        if above:
            branches[above].below.append(branches[key])
    return [branches[key] for key, above, _, _ in STORY if above is None]


def test_the_page_sends_it_and_the_audit_has_it(olga: User, story: Conversation, client: Client) -> None:
    client.force_login(olga)
    assert client.get("/export/for-others/")["Location"].startswith("/login/again/"), "it asks for a fresh sign-in"
    olga.set_password("the password of olga")
    olga.save()
    client.post("/login/", {"username": "olga", "password": "the password of olga"})
    assert "/export/for-others/" in client.get("/import/").content.decode()
    response = client.get("/export/for-others/")
    assert response.status_code == 200 and response["Content-Type"] == "application/zip"
    assert Entry.objects.filter(action="conversation.all_exported", actor_id=olga.pk).count() == 1


def test_an_empty_workspace_is_an_empty_list(olga: User) -> None:
    with zipfile.ZipFile(io.BytesIO(b"".join(_zip(olga)))) as archive:
        assert json.loads(archive.read("conversations.json")) == []
