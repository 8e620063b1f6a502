"""Undo of whole imports: what goes, what stays and is named, interruptions at any statement, and who may."""

import io
import json
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.conversations import import_undo
from chat.conversations.importing import jobs
from chat.conversations.services import update_conversation
from chat.conversations.sharing import create_share
from chat.memory.models import Fact
from chat.models import Attachment, Conversation, Import, Message
from core.audit.models import Entry
from core.sentences import Sentence
from files.models import File
from personas.models import Persona
from personas.services import update_persona
from projects.models import Project
from projects.planner import services as planner
from projects.planner.models.task import Task
from projects.planner.rules import Actor
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import update_saved_prompt
from projects.services import update_project
from tests.chat.exports import as_json
from tests.chat.foreign_exports import tea

pytestmark = pytest.mark.django_db
OLD = datetime(2020, 1, 1, tzinfo=UTC)
LISTS: dict[str, list[dict[str, Any]]] = {
    "personas": [{"id": f"p{n}", "name": name} for n, name in enumerate(("Cook", "Baker"))],
    "projects": [{"id": f"r{n}", "name": name} for n, name in enumerate(("Kitchen", "Garden", "Cellar"))],
    "prompts": [{"name": "Mail", "text": "Write."}, {"name": "Poem", "text": "Rhyme.", "project": "r2"}],
    "memory": [{"text": text, "status": "kept"} for text in ("Lives in Hue", "Has a cat")],
    "profile": [{"about": "I bake."}],
    "tasks": [
        {"code": "D2026-11-02-T01", "title": "Bake", "archetype": "user"},
        {"code": "D2026-11-02-T01.C01", "title": "Flour"},
        {"code": "D2026-11-02-T02", "title": "Sweep", "archetype": "user"},
    ],
}


@pytest.fixture
def user(settings: Any, tmp_path: Path) -> User:
    settings.MEDIA_ROOT = tmp_path
    return User.objects.create_user("mover")


def own_export() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("manifest.json", "{}")
        for name, rows in LISTS.items():
            writer.writestr(f"{name}.json", json.dumps(rows))
    return archive.getvalue()


def chats(number: int) -> bytes:
    """Return an export of chats, every third with a file."""
    rows = [tea(f"chat-{n}", title=f"Tea {n}") for n in range(number)]
    for n in range(0, number, 3):
        question = rows[n]["chat"]["history"]["messages"]["q1"]
        question["files"] = [
            {"type": "file", "id": f"f{n}", "name": "n.txt", "file": {"data": {"content": f"File {n}"}}}
        ]
    return as_json(*rows)


def waiting(user: User, content: bytes, name: str = "export.json") -> Import:
    blob = default_storage.save("imports/x", ContentFile(content))
    return Import.objects.create(owner=user, name=name, blob=blob)


def imported(user: User, content: bytes, name: str = "export.json") -> Import:
    job = waiting(user, content, name)
    jobs.run(job.pk)
    job.refresh_from_db()
    assert job.status == "done"
    return job


def undone(job: Import) -> dict[str, str]:
    """Undo an import. Return the reasons by title."""
    import_undo.undo_import(user=job.owner, job=job)
    import_undo.run(job.pk)
    job.refresh_from_db()
    assert job.status == "undone"
    return {result["title"]: Sentence.load(result["why"]).english for result in job.results}


class Killed(BaseException):
    """Ends a worker."""


@contextmanager
def counting(kill_at: int | None = None) -> Iterator[list[str]]:
    """Yield a list that gets each statement to the database. The worker ends in place of the statement `kill_at`.

    Savepoints stand for transactions here, so statements about them are not counted.
    """
    statements: list[str] = []

    def count(execute: Callable[..., Any], statement: str, *arguments: Any) -> Any:
        if not statement.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            statements.append(statement)
            if len(statements) == kill_at:
                raise Killed(statement[:200])
        return execute(statement, *arguments)

    with connection.execute_wrapper(count):
        yield statements


def rows_of(user: User) -> Counter[Any]:
    """Return what somebody has, without ids."""
    messages = Message.objects.filter(conversation__owner=user, conversation__deleted=None)
    columns = (
        "conversation__imported_from",
        "conversation__title",
        "parent__parts",
        "depth",
        "role",
        "parts",
        "created",
    )
    rows = Counter(json.dumps(row, default=str) for row in messages.values_list(*columns))
    files = Attachment.objects.filter(message__conversation__owner=user, message__conversation__deleted=None)
    rows.update(json.dumps(row) for row in files.values_list("name", "file__sha256", "ordinal"))
    rows.update(json.dumps(row) for row in File.objects.filter(owner=user).values_list("name", "sha256"))
    return rows


def test_an_undo_removes_every_kind_of_row(user: User) -> None:
    job = imported(user, own_export(), "glasshouse.zip")
    assert set(job.rows.values_list("kind", flat=True)) == {"persona", "project", "prompt", "fact", "task"}
    reasons = undone(job)
    for table in (Persona, Project, SavedPrompt, Task):
        assert not table._default_manager.filter(owner=user).exists()
    assert not Fact.objects.exclude(status="forgotten").exists() and not job.rows.exists()
    assert reasons["tasks.json"] == "It was removed again."
    assert reasons["profile.json"] == "What it has changed stays."
    again = imported(user, own_export(), "glasshouse.zip")
    assert again.rows.count() == 12


def test_an_undo_keeps_and_names_what_a_person_has_changed(user: User) -> None:
    job = imported(user, own_export(), "glasshouse.zip")
    update_persona(user=user, persona=Persona.objects.get(name="Cook"), fields={"description": "Knows soups."})
    update_project(user=user, project=Project.objects.get(name="Garden"), fields={"name": "Orchard"})
    update_saved_prompt(user=user, prompt=SavedPrompt.objects.get(name="Poem"), fields={"text": "Rhyme well."})
    flour = Task.objects.get(title="Flour")
    planner.set_status(actor=Actor(user), task=flour, status="done")
    Fact.objects.filter(text="Has a cat").update(pinned=True)
    reasons = undone(job)
    assert [row.name for row in Persona.objects.filter(owner=user)] == ["Cook"]
    assert sorted(row.name for row in Project.objects.filter(owner=user)) == ["Cellar", "Orchard"]
    assert [row.name for row in SavedPrompt.objects.all()] == ["Poem"]
    assert sorted(row.title for row in Task.objects.filter(owner=user)) == ["Bake", "Flour"]
    assert [row.text for row in Fact.objects.exclude(status="forgotten")] == ["Has a cat"]
    changed = "It was changed here, so it stays."
    for name in ("Cook", "Orchard", "Poem", "D2026-11-02-T01 Bake", "Has a cat"):
        assert reasons[name] == changed
    assert reasons["Cellar"] == "It is in use, so it stays."


def test_an_undo_keeps_conversations_that_were_changed_shared_or_continued(user: User, client: Client) -> None:
    job = imported(user, chats(6))
    places = {row.title: row for row in Conversation.objects.filter(owner=user)}
    update_conversation(user=user, conversation=places["Tea 0"], fields={"title": "Mine"})
    update_conversation(user=user, conversation=places["Tea 1"], fields={"tags": ["green"]})
    create_share(user=user, conversation=places["Tea 2"])
    tea_3 = places["Tea 3"]
    Message.objects.create(conversation=tea_3, owner=user, parent=tea_3.leaf, depth=4, role="user", parts=[])
    update_conversation(user=user, conversation=places["Tea 4"], fields={"archived": True})
    reasons = undone(job)
    left = Conversation.objects.filter(owner=user, deleted=None)
    assert sorted(row.title for row in left) == ["Mine", "Tea 1", "Tea 2", "Tea 3"]
    assert (reasons["Tea 0"], reasons["Tea 2"]) == ("It was changed here, so it stays.", "It is shared, so it stays.")
    assert (reasons["Tea 1"], reasons["Tea 3"]) == (reasons["Tea 0"], "It was continued here, so it stays.")
    assert reasons["n.txt"] == "It is in use, so it stays."
    assert File.objects.filter(owner=user).count() == 2
    client.force_login(user)
    page = client.get(f"/import/{job.pk}/").content.decode()
    assert page.index("It is shared") < page.index("It was removed again.") and "Skipped." not in page


def test_an_import_that_is_killed_at_any_statement_ends_with_the_same_rows(user: User) -> None:
    other = User.objects.create_user("other")
    content = chats(9)
    first = waiting(other, content)
    with counting() as statements:
        jobs.run(first.pk)
    job = waiting(user, content)
    chance = random.Random(11)
    kills = 0
    for _ in range(20):
        with counting(chance.randrange(2, len(statements) // 4)):
            try:
                jobs.run(job.pk)
            except Killed as kill:
                kills += 1
                assert (
                    Conversation.objects.filter(owner=user).count() == job.rows.filter(kind="conversation").count()
                ), kill
        before = Import.objects.filter(pk=job.pk, status="running")
        before.update(tries=0, heartbeat=OLD)  # as a sweep finds it later; many are killed before they store a row
    jobs.run(job.pk)
    assert kills >= 10
    job.refresh_from_db()
    assert (job.status, job.imported, job.known, job.skipped) == ("done", 9, 0, 0)
    assert rows_of(user) == rows_of(other)
    of_kind = Counter(job.rows.values_list("kind", flat=True))
    assert of_kind == Counter(first.rows.values_list("kind", flat=True)) == {"conversation": 9, "file": 3}
    assert undone(job)["Tea 8"] == "It was removed again."
    assert not rows_of(user)


def test_an_undo_that_is_killed_at_any_statement_goes_on(user: User) -> None:
    other = User.objects.create_user("other")
    content = chats(9)
    for_count = imported(other, content)
    import_undo.undo_import(user=other, job=for_count)
    with counting() as statements:
        import_undo.run(for_count.pk)
    job = imported(user, content)
    update_conversation(
        user=user, conversation=Conversation.objects.get(owner=user, title="Tea 8"), fields={"title": "X"}
    )
    import_undo.undo_import(user=user, job=job)
    chance = random.Random(12)
    kills = 0
    for _ in range(20):
        with counting(chance.randrange(2, len(statements) // 4)):
            try:
                import_undo.run(job.pk)
            except Killed:
                kills += 1
    import_undo.run(job.pk)
    job.refresh_from_db()
    assert kills >= 4 and job.status == "undone"
    assert [row.title for row in Conversation.objects.filter(owner=user, deleted=None)] == ["X"]
    assert not File.objects.filter(owner=user).exists()
    reasons = {result["title"]: Sentence.load(result["why"]).english for result in job.results}
    assert reasons.pop("Tea 8") == "It was changed here, so it stays."
    assert set(reasons.values()) == {"It was removed again."} and len(reasons) == 8


def test_an_import_is_undone_although_it_was_paused_before_its_end(user: User) -> None:
    job = imported(user, chats(3))
    Import.objects.filter(pk=job.pk).update(status="paused", results=[])
    row = Conversation.objects.get(owner=user, title="Tea 1")
    update_conversation(user=user, conversation=row, fields={"title": "Mine"})
    job.refresh_from_db()
    assert undone(job)["Mine"] == "It was changed here, so it stays."


def test_administrators_pause_and_undo_imports_of_others(user: User, admin_client: Client) -> None:
    job = waiting(user, chats(3))

    def press(act: str) -> str:
        admin_client.post(reverse(f"admin:chat_import_{act}", args=[job.pk]), {"_form_submitted": "on"})
        page = admin_client.get(reverse("admin:chat_import_changelist"))
        return " ".join(str(message) for message in page.context["messages"])

    assert press("undo") == "Only an import that has ended and has brought something can be undone."
    assert press("pause") == "The import is paused."
    assert press("retry") == "The import begins again."
    jobs.run(job.pk)
    assert press("undo") == "The import is being undone."
    import_undo.run(job.pk)
    assert not Conversation.objects.filter(owner=user, deleted=None).exists()
    entry = Entry.objects.get(action="conversation.import_undone")
    assert entry.object_id == str(job.pk)
