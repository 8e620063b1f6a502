"""Exports of a workspace, and imports from other products."""

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, TestCase
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from chat.conversations.importing import counting, jobs, stream
from chat.models import Conversation, Import, Message
from chat.models.tree import branch_rows
from chat.prompts.history import counts_of
from core.errors import ProductError
from core.sentences import Sentence
from files.services import stored_bytes
from llm.tokens import CATCH_ALL, count, tokenizer
from tests.application import Application
from tests.chat.conversations import past
from tests.chat.exports import as_json, as_zip, branched, chatgpt, claude, node
from tests.conftest import Person
from tests.product import until

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
    """Upload an export on the page, and do the worker's job."""
    settings.MEDIA_ROOT = tmp_path

    def through(content: bytes) -> Import:
        answer = browser.post("/import/", {"file": SimpleUploadedFile("export.zip", content)})
        assert answer.status_code == 302
        pk = Import.objects.visible_to(user).latest("id").pk
        jobs.run(pk)
        job = Import.objects.get(pk=pk)
        stored = [default_storage.open(job.blob).read()] if job.status == "failed" else []
        assert [path.read_bytes() for path in tmp_path.rglob("imports/*")] == stored
        return job

    return through


def texts_of(conversation: Conversation) -> list[tuple[str, str]]:
    return [(row.role, row.text) for row in branch_rows(conversation.leaf_id).order_by("depth")]


def test_a_conversation_of_chatgpt_keeps_its_tree_its_times_and_its_place(upload: Upload, user: User) -> None:
    job = upload(as_zip(as_json(branched())))
    assert (job.status, job.imported, job.progress) == ("done", 1, 100)
    place = Conversation.objects.visible_to(user).get()
    assert texts_of(place) == [
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
    assert texts_of(place) == [("user", "Look."), ("assistant", "Found it."), ("user", "Thanks.")]
    assert Message.objects.get(conversation=place, depth=0).attachments.get().name == "notes.txt"


def test_what_an_import_brought_is_counted_before_somebody_waits_for_it(upload: Upload, user: User) -> None:
    job = upload(as_json(claude()))
    rows = Message.objects.filter(conversation__owner=user)
    assert job.counting and not rows.exclude(tokens={}).exists()
    counting.run(job.pk)
    assert not Import.objects.get(pk=job.pk).counting
    assert [row.tokens[CATCH_ALL]["each"] for row in rows] == [[count(row.text)] for row in rows]
    assert counts_of(list(rows), tokenizer=tokenizer(CATCH_ALL), overhead=4) == []


def test_counting_goes_on_where_a_dead_worker_left_it(upload: Upload, user: User) -> None:
    job = upload(as_json(claude()))
    first, *others = Message.objects.filter(conversation__owner=user)
    done = {CATCH_ALL: {"each": [99], "as_history_4": 103}}
    Message.objects.filter(pk=first.pk).update(tokens=done)
    Import.objects.filter(pk=job.pk).update(heartbeat=timezone.now() - timedelta(seconds=61))
    assert counting.COUNTING_JOBS.to_hand_out() == [job.pk]
    counting.run(job.pk)
    assert counting.COUNTING_JOBS.to_hand_out() == [] and Message.objects.get(pk=first.pk).tokens == done
    assert others and all(CATCH_ALL in Message.objects.get(pk=each.pk).tokens for each in others)


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
    assert texts_of(Conversation.objects.get(owner=user))[-1] == ("user", "Thanks.")


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
        ({"title": "Strange"}, "of a product that can be imported"),
        ("words", "of a product that can be imported"),
        (chatgpt("odd", [{"id": "q", "parent": 7, "message": {"author": [], "content": "x"}}], "q"), "no message"),
    ],
)
def test_what_cannot_be_imported_is_skipped_with_its_reason(upload: Upload, user: User, row: Any, why: str) -> None:
    job = upload(as_json(row, claude()))
    assert (job.status, job.imported, job.skipped) == ("done", 1, 1)
    assert why in Sentence.load(job.results[0]["why"]).english
    assert Conversation.objects.visible_to(user).count() == 1


def test_what_postgresql_cannot_store_is_left_out(upload: Upload, user: User) -> None:
    row = chatgpt("odd", [node("q", "root", "user", "a\0b\ud800c")], "q", title="t\0\udfff")
    assert upload(as_json(row)).imported == 1
    assert texts_of(Conversation.objects.get(owner=user)) == [("user", "ab?c")]


def test_a_conversation_far_too_deep_for_recursion_is_imported(upload: Upload, user: User) -> None:
    nodes = [
        node(f"n{n}", f"n{n - 1}" if n else "root", "assistant" if n % 2 else "user", f"m{n}") for n in range(3_000)
    ]
    assert upload(as_json(chatgpt("deep", nodes, "n2999"))).imported == 1
    assert len(texts_of(Conversation.objects.get(owner=user))) == 3_000


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "not_an_export"),
        (b"\x89PNG\r\n", "not_an_export"),
        (b'{"a": {}}', "not_an_export"),
        (b'{"a": {}} {"b": {}}', "not_an_export"),
        (as_json({"a": 1}, {"b": 2}), "not_an_export"),
        (as_zip(b"[]", "other.json"), "not_an_export"),
        (as_json(claude())[:-40], "damaged_export"),
        (b"[" * 200_000, "damaged_export"),
        (b"[1 2]", "damaged_export"),
        (
            b'[{"title": "n", "create_time": 1e999999, "update_time": %s, "mapping": {}}]' % (b"9" * 100_000),
            "damaged_export",
        ),
        (as_zip(as_json(claude()))[:-300] + b"PK\x05\x06" + b"\0" * 18, "not_an_export"),
    ],
)
def test_hostile_and_damaged_files_are_refused_with_a_sentence(upload: Upload, content: bytes, code: str) -> None:
    job = upload(content)
    assert (job.status, job.error_code) == ("failed", code)
    assert len(job.error_detail.english) > 20


def test_a_zip_bomb_is_refused_while_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_JSON", 5_000_000)
    bomb = as_zip(b"[" + b" " * 50_000_000 + b"]")
    assert len(bomb) < 100_000
    with pytest.raises(ProductError) as caught:
        list(stream.export_rows(io.BytesIO(bomb)))
    assert caught.value.code == "export_too_large"


def test_a_hostile_conversation_costs_itself_and_not_the_others(upload: Upload, user: User) -> None:
    hostile = b'[{"title":"M","mapping":{"a":[' + b"[]," * stream.MAX_VALUES + b"[]]}},"
    job = upload(as_zip(hostile + as_json(claude())[1:]))
    assert (job.status, job.imported, job.skipped) == ("done", 1, 1)
    assert (job.results[0]["title"], Sentence.load(job.results[0]["why"]).english) == (
        "M",
        "It has more than 1,000,000 values.",
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"title": "M", "mapping": {"a": {"parts": ["x" * 600, "y" * 600]}}}, "characters"),
        ({"title": "M", "mapping": {"x" * 1_100: 1}}, "characters"),
        ({"title": "M", "mapping": {"a": json.loads("[" * 150 + "]" * 150)}}, "nested"),
        ({"title": "M", "mapping": {"a": {"unknown": ["x" * 2_000]}}}, ""),
    ],
)
def test_only_what_is_looked_at_counts_and_has_limits(monkeypatch: pytest.MonkeyPatch, row: Any, why: str) -> None:
    monkeypatch.setattr(stream, "MAX_CONVERSATION_LENGTH", 1_000)
    rows = [
        each
        for each in stream.export_rows(io.BytesIO(as_json(row, {"title": "next"})))
        if isinstance(each, stream.ExportRow)
    ]
    assert why in Sentence.load(rows[0].why).english and bool(why) == bool(rows[0].why)
    assert rows[0].value["title"] == "M"
    assert (rows[1].value, rows[1].why) == ({"title": "next"}, "")


@pytest.mark.parametrize("size", range(1, 40))
def test_pieces_of_any_size_make_the_same_conversations(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(stream, "PIECE_BYTES", size)
    text = rb'[{"title": "\ud83d\ude00 \\ud83d \\\\ \" \ud83d. \ude00 \u00e9\ud83d\ude00"}]'
    (row,) = (each for each in stream.export_rows(io.BytesIO(text)) if isinstance(each, stream.ExportRow))
    assert row.value == {"title": '\U0001f600 \\ud83d \\\\ " ?. ? \xe9\U0001f600'}


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("kill -XCPU $$", "took_too_long"),
        ("kill -KILL $$", "too_much_memory"),
        ("kill -SEGV $$", "damaged_export"),
        ("echo nonsense", "damaged_export"),
        ("echo 7", "damaged_export"),
        (
            """echo '{"percent": 1, "title": "x", "known": true, "why": "", "foreign": {"messages": 7}}'""",
            "damaged_export",
        ),
    ],
)
def test_an_import_whose_reader_dies_or_lies_ends_at_once(
    upload: Upload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, code: str
) -> None:
    reader = tmp_path / "reader"
    reader.write_text(f"#!/bin/sh\n{does}\n")
    reader.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(reader))
    job = upload(as_json(claude()))
    assert (job.status, job.error_code, job.attempt) == ("failed", code, 1)
    assert len(job.error_detail.english) > 20


@pytest.fixture
def failed(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Return an import whose reading process failed. That of the next import works."""
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/bin/false")
        return upload(as_json(claude()))


@pytest.mark.parametrize("address", ["/api/v1/imports/{}/retry/", "/import/{}/retry/"])
def test_what_was_uploaded_for_an_import_that_failed_is_kept_and_tried_again(
    failed: Import, user: User, browser: Client, address: str
) -> None:
    size = len(as_json(claude()))
    shown = browser.get(f"/api/v1/imports/{failed.pk}/").json()
    assert (shown["size"], shown["kept_until"][:4]) == (size, str(failed.finished.year if failed.finished else 0))
    assert stored_bytes(user) == size
    for page in ("/import/", f"/import/{failed.pk}/"):
        html = browser.get(page).content.decode()
        assert "The file is damaged" in html and "Try again" in html and "Remove" in html
    assert browser.post(address.format(failed.pk)).status_code in (202, 302)
    jobs.run(failed.pk)
    again = browser.get(f"/api/v1/imports/{failed.pk}/").json()
    assert (again["status"], again["imported"], again["error_code"]) == ("done", 1, "")
    assert (again["size"], again["kept_until"]) == (0, None)
    assert stored_bytes(user) == len("private")  # the text of the attached file
    refused = browser.post(address.format(failed.pk), headers={"Accept": "application/json"})
    assert refused.status_code == 409 and b"has not failed" in refused.content


def test_an_import_that_failed_waits_until_another_is_done_before_it_is_tried_again(
    failed: Import, user: User, browser: Client
) -> None:
    under_way = Import.objects.create(owner=user, name="x", blob="imports/x")
    refused = browser.post(f"/api/v1/imports/{failed.pk}/retry/")
    assert (refused.status_code, refused.json()["code"], refused["Retry-After"]) == (429, "import_running", "30")
    refused = browser.delete(f"/api/v1/imports/{under_way.pk}/")
    assert (refused.status_code, refused.json()["code"]) == (409, "import_under_way")


def test_what_is_kept_of_an_import_goes_when_it_is_removed(failed: Import, user: User, browser: Client) -> None:
    stranger = Client()
    stranger.force_login(User.objects.create_user("stranger"))
    for method, address in (("delete", ""), ("post", "retry/")):
        assert getattr(stranger, method)(f"/api/v1/imports/{failed.pk}/{address}").status_code == 404
    assert stranger.post(f"/import/{failed.pk}/remove/").status_code == 404
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert browser.delete(f"/api/v1/imports/{failed.pk}/").status_code == 204
    assert not Import.objects.exists() and not default_storage.exists(failed.blob)


def test_what_is_kept_of_an_import_stays_while_its_person_is_under_a_legal_hold(
    failed: Import, user: User, tmp_path: Path
) -> None:
    os.utime(tmp_path / failed.blob, (0, 0))
    Import.objects.update(finished=timezone.now() - Import.KEPT_FOR - timedelta(minutes=1))
    User.objects.filter(pk=user.pk).update(legal_hold=True)
    jobs.sweep_uploads()
    assert default_storage.exists(failed.blob)
    User.objects.filter(pk=user.pk).update(legal_hold=False)
    jobs.sweep_uploads()
    assert not default_storage.exists(failed.blob)


def test_what_is_kept_of_an_import_goes_after_thirty_days_and_with_its_person(
    failed: Import, browser: Client, tmp_path: Path
) -> None:
    lost, young = (default_storage.save(f"imports/{name}", io.BytesIO(b"x")) for name in ("lost", "young"))
    for blob in (failed.blob, lost):
        os.utime(tmp_path / blob, (0, 0))
    jobs.sweep_uploads()
    assert sorted(path.name for path in tmp_path.rglob("imports/*")) == sorted([str(failed.pk), "young"])
    Import.objects.update(finished=timezone.now() - Import.KEPT_FOR - timedelta(minutes=1))
    jobs.sweep_uploads()
    assert [path.name for path in tmp_path.rglob("imports/*")] == ["young"] and default_storage.exists(young)
    refused = browser.post(f"/api/v1/imports/{failed.pk}/retry/")
    assert (refused.status_code, refused.json()["code"]) == (409, "upload_gone")
    assert "The upload was deleted" in browser.get(f"/import/{failed.pk}/").content.decode()


def test_an_export_has_to_fit_beside_what_is_stored(failed: Import, browser: Client, settings: Any) -> None:
    settings.STORED_BYTES = failed.size + 10
    answer = browser.post("/api/v1/imports/", {"file": SimpleUploadedFile("conversations.json", as_json(claude()))})
    assert (answer.status_code, answer.json()["code"]) == (429, "storage_full")
    assert Import.objects.count() == 1


def test_administrators_try_imports_again_and_remove_them(failed: Import, admin_client: Client) -> None:
    def press(act: str) -> str:
        admin_client.post(reverse(f"admin:chat_import_{act}", args=[failed.pk]), {"_form_submitted": "on"})
        page = admin_client.get(reverse("admin:chat_import_changelist"))
        return " ".join(str(message) for message in page.context["messages"])

    assert press("retry") == "The import begins again."
    assert Import.objects.get().status == "queued"
    assert press("remove") == "This import is under way. Remove it after it has ended."
    jobs.run(failed.pk)
    assert press("remove") == "The import is removed."
    assert not Import.objects.exists()


def test_an_upload_over_the_limit_is_refused_at_once(browser: Client, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 10
    answer = browser.post("/import/", {"file": SimpleUploadedFile("x.json", as_json(claude()))})
    assert answer.status_code == 413
    assert "larger than" in answer.content.decode()
    assert not Import.objects.exists()


def test_a_second_import_at_once_is_told_when_to_try_again(browser: Client, user: User) -> None:
    Import.objects.create(owner=user, name="x", blob="imports/x")
    for address in ("/api/v1/imports/", "/import/"):
        refused = browser.post(address, {"file": SimpleUploadedFile("conversations.json", as_json(claude()))})
        assert (refused.status_code, refused["Retry-After"]) == (429, "30")
        assert b"An import is under way." in refused.content
    assert Import.objects.count() == 1


def test_an_import_whose_worker_died_is_taken_up_and_makes_nothing_twice(upload: Upload, user: User) -> None:
    upload(as_json(claude()))
    blob = default_storage.save("imports/x", io.BytesIO(as_json(claude(), branched())))
    job = Import.objects.create(owner=user, name="x", blob=blob, status="running", attempt=1)
    jobs.run(job.pk)
    assert Import.objects.get(pk=job.pk).status == "running"
    Import.objects.filter(pk=job.pk).update(heartbeat=datetime(2020, 1, 1, tzinfo=UTC))
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


def test_programs_import_and_take_everything_out_again(application: Application, person: Person) -> None:
    with (
        application.http("/api/v1", headers={"Authorization": f"Bearer {person.token}"}) as api,
        application.http() as nobody,
    ):
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
            kinds = sorted(name.partition("/")[0] for name in archive.namelist() if "/" in name)
            assert kinds == ["files"] + ["json"] * 3 + ["md"] * 3
            bodies = [json.loads(archive.read(name)) for name in archive.namelist() if name.startswith("json/")]
        place = next(body["id"] for body in bodies if body["title"] == "With Claude")
        assert api.get(f"/conversations/{place}/export/").json()["id"] == place
        assert api.get(f"/conversations/{place}/export/?kind=md").text.startswith("# With Claude")
        assert nobody.get("/api/v1/export/").status_code == 401
