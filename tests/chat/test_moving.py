"""Moves of whole workspaces of Open WebUI and LibreChat by a command."""

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import bson
import psycopg
import pytest
from bson.objectid import ObjectId
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.models import Limit, PeopleGroup, User
from chat.conversations.importing import storing
from chat.models import Attachment, Conversation, Import, ImportedRow, Message
from files.models import File
from files.services import open_blob
from llm.models import Model, Provider
from personas.models import Persona
from projects.models import Membership, Project, ProjectFile
from projects.saved_prompts.models import SavedPrompt
from tests.chat.foreign_exports import (
    START,
    Branch,
    branches_here,
    libre_branches,
    libre_story,
    tea,
    webui_branches,
    webui_chat,
    webui_message,
)
from tests.chat.foreign_workspaces import GENERATED, TABLES, differences, fill

pytestmark = pytest.mark.django_db
OLGA, IVAN, NEW = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002", "33333333-0000"


def webui_rows() -> dict[str, list[dict[str, Any]]]:
    """Two people who are here, and one who is not, with rows of each kind."""
    picture = {"type": "image", "url": "file-1"}
    own = webui_chat("c3", [webui_message("q", None, "user", "Look.", 0, files=[picture])], "q", user_id=IVAN)
    bare = {"title": "Bare", "history": {"messages": {}, "currentId": "b"}}
    persona = {"system": "You cook."}
    return {
        "user": [
            {"id": OLGA, "name": "Olga Petrova", "email": "Olga@Example.com", "username": "olga", "role": "admin"},
            {"id": IVAN, "name": "Ivan", "email": "ivan@example.com", "username": None, "role": "user"},
            {"id": NEW, "name": "", "email": "new@example.com", "username": None, "role": "pending"},
        ],
        "group": [{"id": "g", "name": "Kitchen"}, {"id": "s", "name": "Strong"}],
        "group_member": [
            {"id": "1", "group_id": "g", "user_id": OLGA},
            {"id": "2", "group_id": "s", "user_id": OLGA},
            {"id": "3", "group_id": "g", "user_id": NEW},
        ],
        "folder": [
            {"id": "f", "user_id": OLGA, "name": "Drinks", "parent_id": None, "data": {"system_prompt": "Be brief."}},
            {"id": "f2", "user_id": OLGA, "name": "Hot", "parent_id": "f", "data": None},
        ],
        "chat": [
            tea("c1", user_id=OLGA, folder_id="f2"),
            {**tea("c2", user_id=OLGA), "chat": bare, "title": "Bare"},
            own,
            {**tea("c4", user_id=IVAN), "chat": {"title": "x"}},
        ],
        "chat_message": [
            {"id": "c2-a", "chat_id": "c2", "role": "user", "parent_id": None, "content": "Hi", "created_at": START},
            {
                "id": "c2-b", "chat_id": "c2", "role": "assistant", "parent_id": "a", "content": "Hello",
                "model_id": "m", "created_at": START + 1,
            },
        ],
        "memory": [{"id": "m", "user_id": OLGA, "content": "Drinks tea."}],
        "prompt": [{"id": "p", "command": "mail", "user_id": OLGA, "name": "Mail", "content": "Write a mail."}],
        "model": [
            {"id": "cook", "user_id": OLGA, "base_model_id": "m", "name": "Cook", "params": persona, "meta": {}},
        ],
        "file": [
            {"id": "file-1", "user_id": IVAN, "filename": "cat.png", "path": "/app/data/uploads/file-1_cat.png"},
            {"id": "file-2", "user_id": OLGA, "filename": "a.pdf", "path": "s3://x/a", "data": {"content": "Fees."}},
            {"id": "file-3", "user_id": OLGA, "filename": "lost.pdf", "path": "/app/data/uploads/lost.pdf"},
        ],
        "knowledge": [{"id": "k", "user_id": OLGA, "name": "Handbook", "description": "How we work"}],
        "knowledge_file": [
            {"id": "1", "knowledge_id": "k", "file_id": "file-2"},
            {"id": "2", "knowledge_id": "k", "file_id": "file-3"},
        ],
        "tool": [{"id": "t", "name": "Timer"}],
    }  # fmt: skip


@pytest.fixture
def uploads(tmp_path: Path) -> Path:
    folder = tmp_path / "uploads"
    folder.mkdir()
    (folder / "file-1_cat.png").write_bytes(b"\x89PNG cat")
    return folder


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    path = tmp_path / "webui.db"
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        fill(database.execute, "?", webui_rows())
    database.close()
    return str(path)


@pytest.fixture
def people(settings: Any, tmp_path: Path) -> dict[str, User]:
    settings.MEDIA_ROOT = tmp_path / "media"
    return {name: User.objects.create_user(name, email=f"{name}@example.com") for name in ("olga", "ivan")}


def run(command: str, *arguments: object, **options: Any) -> str:
    out = StringIO()
    call_command(command, *map(str, arguments), stdout=out, **options)
    return out.getvalue()


def check_open_webui(people: dict[str, User]) -> None:
    """Compare what is here with the rows of the other database."""
    olga, ivan = people["olga"], people["ivan"]
    by_source = {row.imported_from: row for row in Conversation.objects.filter(deleted=None)}
    assert branches_here(by_source["openwebui:c1"]) == webui_branches(webui_rows()["chat"][0])
    assert str(by_source["openwebui:c1"].project) == "Drinks / Hot"
    hi = Branch("user", "Hi", datetime.fromtimestamp(START, UTC))
    hi.below.append(Branch("assistant", "Hello", datetime.fromtimestamp(START + 1, UTC)))
    assert branches_here(by_source["openwebui:c2"]) == [hi]
    assert (by_source["openwebui:c1"].owner, by_source["openwebui:c3"].owner) == (olga, ivan)
    picture = Attachment.objects.get(message__conversation=by_source["openwebui:c3"])
    assert picture.file and open_blob(file=picture.file).read() == b"\x89PNG cat"
    assert SavedPrompt.objects.get(owner=olga).text == "Write a mail."
    assert Persona.objects.get(owner=olga).instructions == "You cook."
    assert Project.objects.get(owner=olga, name="Drinks").instructions == "Be brief."
    entry = ProjectFile.objects.get(project__owner=olga, project__name="Handbook")
    assert (entry.file.name, open_blob(file=entry.file).read()) == ("a.pdf.txt", b"Fees.")
    memories = File.objects.get(owner=olga, name="Memories.md")
    assert open_blob(file=memories).read() == b"- Drinks tea.\n"
    new = User.objects.get(email="new@example.com")
    assert (new.username, new.is_active, new.has_usable_password()) == ("new", False, False)
    assert [group.name for group in new.people_groups.all()] == ["Kitchen"]


def test_a_workspace_of_open_webui_moves_from_an_sqlite_file(
    people: dict[str, User], sqlite: str, uploads: Path
) -> None:
    PeopleGroup.objects.create(name="Strong", claim="strong")
    report = run("import_openwebui", sqlite, uploads=uploads)
    check_open_webui(people)
    groups = people["olga"].people_groups.all()
    assert [(group.name, group.may, group.all_models) for group in groups] == [("Kitchen", [], False)]
    assert not people["olga"].groups.exists()
    assert "Tools in Python: 1." in report and "was an administrator there" in report
    assert "Files without content, imported by name only: 1." in report
    job = Import.objects.get(owner=people["olga"])
    assert (job.name, job.status, job.imported) == ("Open WebUI", "done", 2)
    assert {result["outcome"] for result in Import.objects.get(owner=people["ivan"]).results} == {"imported", "skipped"}
    models = (User, Conversation, Message, Import, ImportedRow, Project, Persona, SavedPrompt, File)
    before = [model.objects.count() for model in models]
    again = run("import_openwebui", sqlite, uploads=uploads)
    assert [model.objects.count() for model in models] == before
    assert "2 conversations here already" in again


def test_a_dry_run_lists_everything_and_stores_nothing(people: dict[str, User], sqlite: str, uploads: Path) -> None:
    provider = Provider.objects.create(name="Local", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9")
    prices = {"input_price": Decimal("1.5"), "output_price": Decimal(2)}
    Model.objects.create(provider=provider, name="llama3.1:8b", context_window=8_000, **prices)
    Model.objects.create(provider=provider, name="gpt-4o", context_window=8_000)
    report = run("import_openwebui", sqlite, uploads=uploads, dry_run=True)
    assert not PeopleGroup.objects.filter(name="Kitchen").exists()
    assert not Conversation.objects.exists() and not Import.objects.exists() and User.objects.count() == 2
    for words in (
        "Olga@Example.com: account “olga”, groups: Kitchen, Strong",
        "new@example.com: a new account, deactivated",
        "2 conversations",
        "7 messages",
        "prompts: “Mail”",
        "personas: “Cook”",
        "1 memories",
        "3 projects",
        "projects: “Drinks”, “Handbook”, “Drinks / Hot”",
        "Group “Kitchen”: 2 people join: it is new, and gives no rights",
        "Group “Strong”: 1 person joins: it is new, and gives no rights",
        "Model “llama3.1:8b”: 2 answers: here at Local, 1.5 / 2 US dollars a million tokens",
        "Model “gpt-4o”: 1 answer: here at Local, without prices",
        "Model “m”: 1 answer: no model here has this name.",
        "skipped “Tea”: It has no message with text.",
        "Tools in Python: 1.",
    ):
        assert words in report


def rights(group: PeopleGroup) -> str:
    group.may = ["share"]
    group.save()
    return "rights"


def models(group: PeopleGroup) -> str:
    group.all_models = True
    group.save()
    return "models"


def days(group: PeopleGroup) -> str:
    group.conversation_days = 3
    group.save()
    return "days that conversations are kept"


def limits(group: PeopleGroup) -> str:
    Limit.objects.create(group=group, unit="tokens", per="day", amount=1_000)
    return "limits"


def project(group: PeopleGroup) -> str:
    owner = User.objects.create_user("owner")
    Membership.objects.create(project=Project.objects.create(owner=owner, name="Secret"), group=group)
    return "memberships"


@pytest.mark.parametrize("give", [rights, models, days, limits, project])
def test_a_group_whose_members_have_something_is_joined_only_if_it_is_chosen(
    people: dict[str, User], sqlite: str, give: Callable[[PeopleGroup], str]
) -> None:
    kitchen = PeopleGroup.objects.create(name="Kitchen")
    effect = give(kitchen)
    line = f"Group “Kitchen”: 2 people do not join: its members have {effect}. To let them join, add: --join “Kitchen”"
    assert line in run("import_openwebui", sqlite, dry_run=True)
    assert line in run("import_openwebui", sqlite)
    assert not kitchen.members.exists()
    assert [group.name for group in people["olga"].people_groups.all()] == ["Strong"], "new ones are joined"
    report = run("import_openwebui", sqlite, join=["Kitchen"])
    assert "Group “Kitchen”: 2 people join: chosen by --join" in report
    assert {person.email for person in kitchen.members.all()} == {"olga@example.com", "new@example.com"}
    assert "Group “Kitchen”: 0 people join: chosen by --join" in run("import_openwebui", sqlite, join=["Kitchen"])


def test_a_group_that_follows_a_claim_is_left_to_the_provider_even_if_it_is_chosen(
    people: dict[str, User], sqlite: str
) -> None:
    strong = PeopleGroup.objects.create(name="Strong", claim="strong")
    Group.objects.create(name="Kitchen")
    report = run("import_openwebui", sqlite, join=["Strong"])
    assert "Group “Strong”: 1 person does not join: it follows a claim" in report and not strong.members.exists()
    assert not people["olga"].groups.exists(), "groups of administrators are never joined"


def test_a_chosen_group_that_is_not_here_is_refused_before_anything_moves(people: dict[str, User], sqlite: str) -> None:
    with pytest.raises(CommandError, match="no group of people “Kichen” here"):
        run("import_openwebui", sqlite, join=["Kichen"])
    assert not Conversation.objects.filter(owner__in=people.values()).exists()


@pytest.mark.parametrize("product", ["openwebui", "librechat"])
def test_a_generated_workspace_moves_whole_and_once(people: dict[str, User], tmp_path: Path, product: str) -> None:
    emails = [person.email for person in people.values()]
    path = tmp_path / "generated"
    write, places = GENERATED[product]
    write(path, emails, 40)
    run(f"import_{product}", path)
    moved = Conversation.objects.filter(owner__in=people.values())
    assert moved.count() == 40 and differences(places(path)) == []
    models = (Conversation, Message, Import, ImportedRow)
    before = [model.objects.count() for model in models]
    run(f"import_{product}", path)
    assert [model.objects.count() for model in models] == before


def test_only_some_people_move(people: dict[str, User], sqlite: str) -> None:
    run("import_openwebui", sqlite, only=["IVAN@example.com"])
    assert {row.owner for row in Conversation.objects.all()} == {people["ivan"]}
    assert User.objects.count() == 2


def test_a_person_whose_address_two_accounts_have_is_left_out(people: dict[str, User], sqlite: str) -> None:
    User.objects.create_user("twin", email="ivan@example.com")
    assert "ivan@example.com: nothing is moved" in run("import_openwebui", sqlite, dry_run=True)
    report = run("import_openwebui", sqlite)
    assert "nothing is moved: several accounts have this e-mail address" in report
    assert "2 conversations" in report.rpartition("Together:")[2]
    assert {row.owner for row in Conversation.objects.all()} == {people["olga"]}


def test_an_account_that_only_claims_an_address_gets_nothing_of_its_owner(people: dict[str, User], sqlite: str) -> None:
    User.objects.filter(pk=people["ivan"].pk).update(email_confirmed=False)
    report = run("import_openwebui", sqlite)
    assert "ivan@example.com: nothing is moved: the account “ivan” has not confirmed this address" in report
    assert not Conversation.objects.filter(owner=people["ivan"]).exists() and not User.objects.filter(username="ivan-2")
    owner = User.objects.create_user("the real one", email="ivan@example.com")
    run("import_openwebui", sqlite)
    assert Conversation.objects.filter(owner=owner).exists()
    assert not Conversation.objects.filter(owner=people["ivan"]).exists()


def test_a_workspace_of_open_webui_moves_from_postgresql(people: dict[str, User], uploads: Path) -> None:
    values = connection.get_connection_params()
    address = psycopg.conninfo.make_conninfo(
        **{name: values[name] for name in ("host", "port", "user", "password", "dbname") if values.get(name)}
    )
    with psycopg.connect(address, autocommit=True) as database:
        database.execute("CREATE SCHEMA webui")
        database.execute("SET search_path TO webui")
        try:
            database.execute(TABLES)
            fill(database.execute, "%s", webui_rows())
            place = f"host={values['host']}&port={values.get('port') or 5432}&options=-csearch_path%3Dwebui"
            run("import_openwebui", f"postgresql://{values['user']}@/{values['dbname']}?{place}", uploads=uploads)
        finally:
            database.execute("DROP SCHEMA webui CASCADE")
    check_open_webui(people)


def test_a_move_that_is_interrupted_goes_on(
    people: dict[str, User], sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for left in range(6):
        with monkeypatch.context() as broken:
            original = storing.ForeignRows.store
            calls = 0

            def dies(self: Any, foreign: Any, left: int = left, original: Any = original) -> Any:
                nonlocal calls
                calls += 1
                if calls > left:
                    raise KeyboardInterrupt
                return original(self, foreign)

            broken.setattr(storing.ForeignRows, "store", dies)
            try:
                run("import_openwebui", sqlite)
            except KeyboardInterrupt:
                continue
    run("import_openwebui", sqlite)
    assert Conversation.objects.count() == 3 and Persona.objects.filter(owner=people["olga"]).count() == 1
    jobs = Import.objects.filter(owner=people["olga"])
    assert [job.status for job in jobs] == ["done"]
    assert jobs[0].rows.filter(kind="conversation").count() == 2


@pytest.mark.parametrize("content", [None, b"", b"words", b"empty"])
def test_another_file_is_refused_with_a_sentence(
    people: dict[str, User], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "other.db"
    if content == b"empty":
        sqlite3.connect(path).executescript("CREATE TABLE x (id TEXT);")
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=r"cannot be read as an SQLite database|not the database of Open WebUI"):
        run("import_openwebui", path)


def libre_collections() -> dict[str, list[dict[str, Any]]]:
    """A small workspace of LibreChat, as documents of MongoDB."""
    olga, ivan = ObjectId("65f1ad8c90523874d2d409f8"), ObjectId("65f1ad8c90523874d2d409f9")
    project, prompt, group = ObjectId(), ObjectId(), ObjectId()

    def at(text: str) -> datetime:
        return datetime.fromisoformat(text)

    messages = [
        {**each, "user": str(olga), "createdAt": at(each["createdAt"]), "updatedAt": at(each["updatedAt"])}
        for each in libre_story()
    ]
    file = {"file_id": "f1", "filename": "cat.pdf"}
    other = {
        "messageId": "x", "conversationId": "libre-2", "parentMessageId": "00000000-0000-0000-0000-000000000000",
        "isCreatedByUser": True, "text": "Look", "user": str(ivan), "createdAt": at("2024-06-01T10:00:00+00:00"),
        "files": [file],
    }  # fmt: skip
    return {
        "users": [
            {"_id": olga, "email": "olga@example.com", "name": "Olga", "username": "olga", "role": "ADMIN"},
            {"_id": ivan, "email": "ivan@example.com", "name": "Ivan", "username": "ivan", "role": "USER"},
        ],
        "groups": [{"_id": ObjectId(), "name": "Kitchen", "memberIds": [str(olga)]}],
        "conversations": [
            {
                "_id": ObjectId(), "conversationId": "libre-1", "title": "Stories", "user": str(olga),
                "endpoint": "openAI", "model": "gpt-4o", "tags": ["tales"], "isArchived": True,
                "chatProjectId": str(project), "createdAt": at("2024-05-28T18:00:00+00:00"),
                "updatedAt": at("2024-05-28T19:00:00+00:00"),
            },
            {"_id": ObjectId(), "conversationId": "libre-2", "title": "Cat", "user": str(ivan)},
            {"_id": ObjectId(), "conversationId": "libre-3", "title": "Gone", "user": str(ivan), "isTemporary": True},
        ],
        "messages": [other, *reversed(messages)],
        "presets": [
            {"_id": ObjectId(), "presetId": "p", "endpoint": "openAI", "title": "Editor", "promptPrefix": "Cut words.",
             "user": str(olga)},
        ],
        "agents": [
            {"_id": ObjectId(), "id": "agent_1", "name": "Cook", "instructions": "You cook.", "provider": "openAI",
             "model": "gpt-4o", "author": olga, "tools": ["web_search"], "conversation_starters": ["Soup?"]},
        ],
        "promptgroups": [{"_id": group, "name": "Mail", "command": "mail", "author": olga, "productionId": prompt}],
        "prompts": [
            {"_id": ObjectId(), "groupId": group, "author": olga, "prompt": "Old."},
            {"_id": prompt, "groupId": group, "author": olga, "prompt": "Write a mail."},
        ],
        "memoryentries": [{"_id": ObjectId(), "userId": olga, "key": "drink", "value": "Drinks tea."}],
        "chatprojects": [{"_id": project, "name": "Tales", "user": str(olga)}],
        "files": [{"_id": ObjectId(), **file, "user": ivan, "filepath": "/uploads/u/f1__cat.pdf", "bytes": 3}],
        "balances": [{"_id": ObjectId(), "user": olga, "tokenCredits": 5}],
    }  # fmt: skip


def extended(value: Any) -> Any:
    """Return a value in the form of `mongoexport`."""
    if isinstance(value, ObjectId):
        return {"$oid": str(value)}
    if isinstance(value, datetime):
        return {"$date": value.isoformat().replace("+00:00", "Z")}
    if isinstance(value, dict):
        return {name: extended(each) for name, each in value.items()}
    return [extended(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["bson", "lines", "array"])
def test_a_workspace_of_librechat_moves_from_a_dump(people: dict[str, User], tmp_path: Path, form: str) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    for name, documents in libre_collections().items():
        if form == "bson":
            (dump / f"{name}.bson").write_bytes(b"".join(bson.encode(each) for each in documents))
        elif form == "lines":
            lines = "".join(json.dumps(extended(each)) + "\n" for each in documents)
            (dump / f"{name}.json").write_text(lines)
        else:
            (dump / f"{name}.json").write_text(json.dumps(extended(documents)))
    uploads = tmp_path / "stored"
    (uploads / "u").mkdir(parents=True)
    (uploads / "u" / "f1__cat.pdf").write_bytes(b"%PDF cat")
    report = run("import_librechat", dump, uploads=uploads)
    olga = people["olga"]
    story = Conversation.objects.get(owner=olga)
    assert branches_here(story) == libre_branches(libre_story())
    assert (story.title, story.archived, story.project and story.project.name) == ("Stories", True, "Tales")
    assert story.created == datetime(2024, 5, 28, 18, tzinfo=UTC)
    assert [tag.name for tag in story.tags.all()] == ["tales"]
    assert {row.name: row.instructions for row in Persona.objects.filter(owner=olga)} == {
        "Editor": "Cut words.", "Cook": "You cook.",
    }  # fmt: skip
    prompt = SavedPrompt.objects.get(owner=olga)
    assert (prompt.name, prompt.text) == ("mail", "Write a mail.")
    assert [group.name for group in olga.people_groups.all()] == ["Kitchen"]
    cat = Attachment.objects.get(message__conversation__owner=people["ivan"])
    assert cat.file and open_blob(file=cat.file).read() == b"%PDF cat"
    assert "Balances: 1." in report and "skipped “Gone”: It is temporary." in report
    before = [model.objects.count() for model in (Conversation, Message, Persona, SavedPrompt, File, Import)]
    run("import_librechat", dump, uploads=uploads)
    assert [model.objects.count() for model in (Conversation, Message, Persona, SavedPrompt, File, Import)] == before


def test_a_folder_without_a_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has no dump of LibreChat"):
        run("import_librechat", tmp_path)
    (tmp_path / "conversations.bson").write_bytes(b"\x10\0\0\0broken")
    (tmp_path / "messages.bson").write_bytes(b"")
    with pytest.raises(CommandError, match="Make the dump again"):
        run("import_librechat", tmp_path)
