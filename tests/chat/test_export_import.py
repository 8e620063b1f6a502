"""What goes out of a workspace, and what comes in from other products."""

import io
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from accounts.models import User
from chat.conversations.importing import jobs, reading
from chat.models import Conversation, Import, Message
from chat.models.tree import branch_rows
from tests.chat.conversations import past
from tests.chat.exports import as_json, as_zip, branched, chatgpt, claude, node
from tests.conftest import Person
from tests.product import Product, until

Upload = Callable[[bytes], Import]


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("mover")


@pytest.fixture
def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def upload(browser: Client, user: User, settings: Any, tmp_path: Path) -> Upload:
    """Uploads an export on the page, and does what the worker would."""
    settings.MEDIA_ROOT = tmp_path

    def through(content: bytes) -> Import:
        answer = browser.post("/import/", {"file": SimpleUploadedFile("export.zip", content)})
        assert answer.status_code == 302
        pk = Import.objects.visible_to(user).latest("id").pk
        jobs.run(pk)
        assert list(tmp_path.rglob("imports/*")) == []
        return Import.objects.get(pk=pk)

    return through


def said(conversation: Conversation) -> list[tuple[str, str]]:
    return [(row.role, row.text) for row in branch_rows(conversation.leaf_id).order_by("depth")]


def test_a_conversation_of_chatgpt_keeps_its_tree_its_times_and_its_place(upload: Upload, user: User) -> None:
    job = upload(as_zip(as_json(branched())))
    assert (job.status, job.imported, job.progress) == ("done", 1, 100)
    place = Conversation.objects.visible_to(user).get()
    assert said(place) == [
        ("user", "Thời tiết?"),
        ("assistant", "Let me look.\n\nIt is sunny."),
        ("user", "And tomorrow?"),
        ("assistant", "Rain."),
    ]
    question = Message.objects.get(conversation=place, depth=0)
    assert {child.text for child in question.children.all()} == {"Let me look.\n\nIt is sunny.", "The other answer."}
    assert [attachment.name for attachment in question.attachments.all()] == ["map.png"]
    assert place.updated == datetime(2023, 11, 14, 22, 15, tzinfo=UTC)
    assert question.created.date().isoformat() == "2023-11-14"


def test_a_conversation_of_claude_is_read_with_its_blocks_and_names_of_files(upload: Upload, user: User) -> None:
    assert upload(as_json(claude())).imported == 1
    place = Conversation.objects.visible_to(user).get()
    assert place.title == "With Claude"
    assert said(place) == [("user", "Look."), ("assistant", "Found it."), ("user", "Thanks.")]
    assert Message.objects.get(conversation=place, depth=0).attachments.get().name == "notes.txt"


def test_branches_of_claude_follow_their_parents(upload: Upload, user: User) -> None:
    row = claude()
    first, answer, last = row["chat_messages"]
    again = {**answer, "uuid": "again", "content": [{"type": "text", "text": "Another."}]}
    row["chat_messages"] = [first, answer, again, last]
    for each, parent in ((answer, first), (again, first), (last, answer)):
        each["parent_message_uuid"] = parent["uuid"]
    upload(as_json(row))
    question = Message.objects.get(conversation__owner=user, depth=0)
    assert sorted(child.text for child in question.children.all()) == ["Another.", "Found it."]
    assert said(Conversation.objects.get(owner=user))[-1] == ("user", "Thanks.")


def test_importing_twice_makes_nothing_twice(upload: Upload, user: User, browser: Client) -> None:
    content = as_json(branched(), claude())
    first, second = upload(content), upload(as_zip(content))
    assert (first.imported, second.imported, second.known) == (2, 0, 2)
    assert Conversation.objects.visible_to(user).count() == 2
    page = browser.get(f"/import/{second.pk}/").content.decode()
    assert "It was imported before." in page
    browser.delete(f"/api/v1/conversations/{second.results[0]['conversation']}/")
    assert upload(content).imported == 1
    assert Conversation.objects.visible_to(user).count() == 2


def test_two_people_import_the_same_export(upload: Upload) -> None:
    upload(as_json(claude()))
    other = User.objects.create_user("other")
    job = Import.objects.create(
        owner=other, name="x", blob=default_storage.save("imports/x", io.BytesIO(as_json(claude())))
    )
    jobs.run(job.pk)
    assert Conversation.objects.visible_to(other).count() == 1


CIRCLE = {**chatgpt("circle", [], "x"), "mapping": {key: node(key, above, "user", "hi") for key, above in ("ab", "ba")}}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (chatgpt("empty", [], "root"), "no message"),
        (CIRCLE, "no message"),
        ({**branched(), "id": None, "conversation_id": 7}, "no id"),
        (chatgpt("long", [node("q", "root", "user", "x" * 1_000_001)], "q"), "more than 1,000,000 characters"),
        ({"title": "Strange"}, "shape"),
        ("words", "shape"),
        (chatgpt("odd", [{"id": "q", "parent": 7, "message": {"author": [], "content": "x"}}], "q"), "no message"),
    ],
)
def test_what_cannot_be_imported_is_skipped_with_its_reason(upload: Upload, user: User, row: Any, why: str) -> None:
    job = upload(as_json(row, claude()))
    assert (job.status, job.imported, job.skipped) == ("done", 1, 1)
    assert why in job.results[0]["why"]
    assert Conversation.objects.visible_to(user).count() == 1


def test_what_postgresql_cannot_store_is_left_out(upload: Upload, user: User) -> None:
    row = chatgpt("odd", [node("q", "root", "user", "a\0b\ud800c")], "q", title="t\0\udfff")
    assert upload(as_json(row)).imported == 1
    assert said(Conversation.objects.get(owner=user)) == [("user", "ab?c")]


def test_a_conversation_far_too_deep_for_recursion_is_imported(upload: Upload, user: User) -> None:
    nodes = [
        node(f"n{n}", f"n{n - 1}" if n else "root", "assistant" if n % 2 else "user", f"m{n}") for n in range(3_000)
    ]
    assert upload(as_json(chatgpt("deep", nodes, "n2999"))).imported == 1
    assert len(said(Conversation.objects.get(owner=user))) == 3_000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "not_an_export"),
        (b"\x89PNG\r\n", "not_an_export"),
        (b'{"mapping": {}}', "not_an_export"),
        (as_json({"a": 1}, {"b": 2}), "not_an_export"),
        (as_zip(b"[]", "other.json"), "not_an_export"),
        (as_json(claude())[:-40], "damaged_export"),
        (b"[" * 200_000, "damaged_export"),
        (b"[1 2]", "damaged_export"),
        (as_zip(as_json(claude()))[:-300] + b"PK\x05\x06" + b"\0" * 18, "not_an_export"),
    ],
)
def test_hostile_and_damaged_files_are_refused_with_a_sentence(upload: Upload, content: bytes, code: str) -> None:
    job = upload(content)
    assert (job.status, job.error_code) == ("failed", code)
    assert len(job.error_detail) > 20


def test_a_zip_bomb_is_refused_while_it_is_unpacked(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_JSON", 5_000_000)
    bomb = as_zip(b"[" + b" " * 50_000_000 + b"]")
    assert len(bomb) < 100_000
    assert upload(bomb).error_code == "export_too_large"


def test_an_upload_over_the_limit_is_refused_at_once(browser: Client, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 10
    answer = browser.post("/import/", {"file": SimpleUploadedFile("x.json", as_json(claude()))})
    assert answer.status_code == 413
    assert "larger than" in answer.content.decode()
    assert not Import.objects.exists()


def test_an_import_whose_worker_died_is_taken_up_and_makes_nothing_twice(upload: Upload, user: User) -> None:
    upload(as_json(claude()))
    blob = default_storage.save("imports/x", io.BytesIO(as_json(claude(), branched())))
    job = Import.objects.create(owner=user, name="x", blob=blob, status="running", attempt=1)
    jobs.run(job.pk)
    assert Import.objects.get(pk=job.pk).status == "running"
    assert jobs.unclaimed() == []
    Import.objects.filter(pk=job.pk).update(heartbeat=datetime(2020, 1, 1, tzinfo=UTC))
    assert jobs.unclaimed() == [job.pk]
    jobs.run(job.pk)
    job.refresh_from_db()
    assert (job.status, job.known, job.imported) == ("done", 1, 1)


def test_nobody_sees_the_imports_of_others(upload: Upload) -> None:
    job = upload(as_json(claude()))
    stranger = Client()
    stranger.force_login(User.objects.create_user("stranger"))
    assert stranger.get(f"/import/{job.pk}/").status_code == 404
    assert stranger.get(f"/api/v1/imports/{job.pk}/").status_code == 404


def test_markdown_holds_the_branch_on_show_and_json_the_whole_tree(upload: Upload, user: User, browser: Client) -> None:
    upload(as_json(branched()))
    place = Conversation.objects.get(owner=user)
    answer = browser.get(f"/c/{place.pk}/export.md")
    text = answer.content.decode()
    assert text.startswith("# From elsewhere\n")
    assert text.index("Thời tiết?") < text.index("It is sunny.") < text.index("Rain.")
    assert "*File: map.png*" in text
    assert "The other answer." not in text
    assert "attachment" in answer["Content-Disposition"]
    body = browser.get(f"/c/{place.pk}/export.json").json()
    assert len(body["messages"]) == 5
    assert body["leaf"] in {message["id"] for message in body["messages"]}
    parents = {message["parent"] for message in body["messages"]}
    assert parents - {None} <= {message["id"] for message in body["messages"]}
    assert browser.get(f"/c/{place.pk}/export.exe").status_code == 404


@pytest.mark.product
def test_programs_import_and_take_everything_out_again(product: Product, person: Person) -> None:
    with httpx.Client(base_url=f"{product.url}/api/v1", headers={"Authorization": f"Bearer {person.token}"}) as api:
        began = api.post("/imports/", files={"file": ("export.zip", as_zip(as_json(branched(), claude())))})
        assert began.status_code == 202

        def ended() -> Any:
            job = api.get(f"/imports/{began.json()['id']}/").json()
            return job if job["finished"] else None

        assert until(ended, "the import ends")["imported"] == 2
        past(person.user, 2)
        content = api.get("/export/")
        assert content.headers["content-type"] == "application/zip"
        with zipfile.ZipFile(io.BytesIO(content.content)) as archive:
            assert archive.testzip() is None
            kinds = sorted(name.rpartition(".")[2] for name in archive.namelist())
            assert kinds == ["csv"] + ["json"] * 3 + ["md"] * 3
            bodies = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith("json")]
        place = next(body["id"] for body in bodies if body["title"] == "With Claude")
        assert api.get(f"/conversations/{place}/export/").json()["id"] == place
        assert api.get(f"/conversations/{place}/export/?kind=md").text.startswith("# With Claude")
        assert httpx.get(f"{product.url}/api/v1/export/").status_code == 401
