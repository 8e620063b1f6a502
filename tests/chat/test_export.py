"""Export of a conversation as a file: it leaves out nothing that can be stored, and names the rest."""

import io
import json
import zipfile

import pytest

from accounts.models import User
from chat.conversations.export import _zip, export
from chat.models import Attachment, Conversation, Message
from files.models import File
from tests.chat.conversations import past

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("exporter")


def with_source(user: User) -> Conversation:
    """Return a conversation whose answer cites a file after a search, and has a sibling on another branch."""
    conversation = past(user, 1)
    file = File.objects.create(owner=user, name="contract.txt", size=1, sha256="ab" * 32, status="ready")
    question, answer = Message.objects.filter(conversation=conversation).order_by("depth")
    Attachment.objects.create(message=question, file=file, name=file.name, ordinal=0)
    conversation.documents = {str(file.pk): 1, "https://example.org/page": 2}
    conversation.save()
    document = {"number": 1, "title": file.name, "file": str(file.pk), "page": 3}
    answer.parts = [
        {"type": "tool_call", "id": "a", "name": "search_files", "arguments": '{"query": "fee"}'},
        {"type": "tool_result", "id": "a", "text": "{}", "documents": [document]},
        {"type": "text", "text": "The fee is 42 [1]. Nobody knows [7]."},
    ]
    answer.save()
    Message.objects.create(
        conversation=conversation, owner=user, parent=question, role="assistant", depth=1, parts=[], status="done"
    )
    return conversation


def test_markdown_resolves_citations_names_calls_and_counts_other_branches(user: User) -> None:
    text = export(with_source(user), "md")
    assert "- [1] contract.txt, page 3" in text and "[7]" not in text.partition("Sources:")[2]
    assert 'Called search_files with {"query": "fee"}' in text
    assert "not in this file: 1" in text


def test_json_has_the_ids_and_hashes_of_files_and_the_numbers_of_documents(user: User) -> None:
    body = json.loads(export(with_source(user), "json"))
    [attached] = body["messages"][0]["attachments"]
    assert (attached["name"], attached["sha256"]) == ("contract.txt", "ab" * 32)
    assert body["documents"][attached["id"]] == 1 and body["summaries"] == []
    assert len(body["messages"]) == 3


def test_everything_says_what_is_in_it_and_what_is_not(user: User) -> None:
    with_source(user)
    with zipfile.ZipFile(io.BytesIO(b"".join(_zip(user)))) as archive:
        contents = archive.read("README.txt").decode()
        names = archive.namelist()
    assert "What is not in it" in contents
    assert all(name.split("/")[0] in contents for name in names if name != "README.txt")
