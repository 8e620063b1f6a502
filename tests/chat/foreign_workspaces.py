"""Generated workspaces of Open WebUI and LibreChat of any size, and a comparison with the rows here.

The comparison reads the other product's rows by itself. It shares no code with the importer.
"""

import json
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson.objectid import ObjectId

from chat.models import Conversation
from tests.chat.foreign_exports import (
    START,
    Branch,
    branches_here,
    libre_branches,
    libre_message,
    webui_branches,
    webui_chat,
    webui_message,
)

SEED = 47
# The tables of Open WebUI 0.12, with the columns that are read and some that are not.
TABLES = """
CREATE TABLE "user" (id VARCHAR PRIMARY KEY, name VARCHAR, email VARCHAR, username VARCHAR, role VARCHAR,
    profile_image_url TEXT, settings JSON, created_at BIGINT);
CREATE TABLE "group" (id TEXT PRIMARY KEY, user_id TEXT, name TEXT, description TEXT, permissions JSON);
CREATE TABLE group_member (id TEXT PRIMARY KEY, group_id TEXT, user_id TEXT, created_at BIGINT);
CREATE TABLE folder (id TEXT PRIMARY KEY, parent_id TEXT, user_id TEXT, name TEXT, data JSON, created_at BIGINT);
CREATE TABLE chat (id VARCHAR PRIMARY KEY, user_id VARCHAR, title TEXT, chat JSON, created_at BIGINT, updated_at BIGINT,
    share_id TEXT, archived BOOLEAN, pinned BOOLEAN, meta JSON, folder_id TEXT, summary TEXT, current_message_id TEXT);
CREATE TABLE chat_message (id TEXT PRIMARY KEY, chat_id TEXT, user_id TEXT, role TEXT, parent_id TEXT, content JSON,
    output JSON, model_id TEXT, files JSON, sources JSON, created_at BIGINT);
CREATE TABLE memory (id VARCHAR PRIMARY KEY, user_id VARCHAR, content TEXT, updated_at BIGINT, created_at BIGINT);
CREATE TABLE prompt (id TEXT PRIMARY KEY, command VARCHAR, user_id VARCHAR, name TEXT, content TEXT);
CREATE TABLE model (id TEXT PRIMARY KEY, user_id TEXT, base_model_id TEXT, name TEXT, params TEXT, meta TEXT,
    is_active BOOLEAN, updated_at BIGINT, created_at BIGINT);
CREATE TABLE file (id VARCHAR PRIMARY KEY, user_id VARCHAR, filename TEXT, path TEXT, data JSON, meta JSON);
CREATE TABLE knowledge (id TEXT PRIMARY KEY, user_id TEXT, name TEXT, description TEXT, meta JSON);
CREATE TABLE knowledge_file (id TEXT PRIMARY KEY, knowledge_id TEXT, file_id TEXT, user_id TEXT);
CREATE TABLE tool (id TEXT PRIMARY KEY, user_id TEXT, name TEXT, content TEXT);
"""


@dataclass(frozen=True)
class Place:
    """Describes a conversation of the other product: its source here, its owner, and all that is compared."""

    source: str
    email: str
    title: str
    created: datetime | None
    updated: datetime | None
    branches: list[Branch]
    shown: str
    pinned: bool
    archived: bool


def fill(execute: Callable[..., object], mark: str, workspace: dict[str, list[dict[str, Any]]]) -> None:
    """Write the rows with `execute`. Only columns of the tables above are written."""
    for table, rows in workspace.items():
        declared = TABLES.replace('"', "").partition(f"CREATE TABLE {table} (")[2].partition(");")[0]
        for row in rows:
            names = [name for name in row if f"{name} " in declared]
            values = [json.dumps(row[name]) if _is_json(declared, name, row[name]) else row[name] for name in names]
            listed = ", ".join(names)
            execute(f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join([mark] * len(names))})', values)  # noqa: S608


def _is_json(declared: str, name: str, value: Any) -> bool:
    return value is not None and (f"{name} JSON" in declared or isinstance(value, dict))


def generated_chat(number: int, owner: str, chance: random.Random) -> dict[str, Any]:
    """A chat as Open WebUI 0.12 stores it: edited questions, answers side by side, several answers in one second."""
    messages: list[dict[str, Any]] = []
    second = 0

    def add(above: str | None, role: str, **more: Any) -> str:
        nonlocal second
        second += chance.choice([0, 1, 30])
        key = str(uuid.UUID(int=chance.getrandbits(128)))
        text = f"{role} {len(messages)} of {number}: " + " ".join(["trà xanh"] * chance.randrange(1, 40))
        text = chance.choice(["", "    "]) + text + chance.choice(["", "\n"])
        messages.append(webui_message(key, above, role, text, second, **more))
        return key

    above: str | None = None
    for _ in range(chance.randrange(1, 6)):
        question = ""
        for _ in range(chance.choice([1, 1, 2])):
            question = add(above, "user")
        answers = [add(question, "assistant", modelIdx=index) for index in range(chance.choice([1, 1, 2]))]
        above = chance.choice(answers)
    fields = {"created_at": START + number, "updated_at": START + number + 900, "title": f"Chat {number}"}
    return webui_chat(f"{owner}-{number}", messages, str(above), user_id=owner, pinned=number % 97 == 0, **fields)


def write_open_webui(path: Path, emails: list[str], number: int) -> None:
    """Write a database with this number of chats, which belong to the people in turn."""
    chance = random.Random(SEED)
    people = [{"id": f"u-{email}", "name": email, "email": email, "role": "user"} for email in emails]
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        fill(database.execute, "?", {"user": people})
        for at in range(number):
            owner = people[at % len(people)]["id"]
            fill(database.execute, "?", {"chat": [generated_chat(at, owner, chance)]})
    database.close()


def open_webui_places(path: Path) -> Iterator[Place]:
    """Yield the chats of a database, also one that Open WebUI itself has made."""
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    for row in database.execute('SELECT chat.*, "user".email FROM chat JOIN "user" ON "user".id = chat.user_id'):
        chat = {"chat": json.loads(row["chat"])}
        history = chat["chat"]["history"]
        yield Place(
            source=f"openwebui:{row['id']}",
            email=row["email"],
            title=row["title"],
            created=_second(row["created_at"]),
            updated=_second(row["updated_at"]),
            branches=webui_branches(chat),
            shown=history["messages"][history["currentId"]]["content"],
            pinned=bool(row["pinned"]),
            archived=bool(row["archived"]),
        )
    database.close()


def write_librechat(folder: Path, emails: list[str], number: int) -> None:
    """Write a dump as `mongodump` does, with this number of conversations. The messages are in no order."""
    chance = random.Random(SEED)
    people = [{"_id": ObjectId(), "email": email, "name": email, "role": "USER"} for email in emails]
    folder.mkdir()
    (folder / "users.bson").write_bytes(b"".join(map(bson.encode, people)))
    messages: list[bytes] = []
    with (folder / "conversations.bson").open("wb") as file:
        for at in range(number):
            user = str(people[at % len(people)]["_id"])
            own = f"{user}-{at}"
            rows = _libre_messages(own, at, chance)
            row = {
                "_id": ObjectId(), "conversationId": own, "title": f"Chat {at}", "user": user, "endpoint": "openAI",
                "model": "gpt-4o", "createdAt": _second(START + at), "updatedAt": _second(START + at + 900),
                "isArchived": at % 5 == 0,
            }  # fmt: skip
            file.write(bson.encode(row))
            messages += [bson.encode({**each, "user": user}) for each in rows]
    chance.shuffle(messages)
    (folder / "messages.bson").write_bytes(b"".join(messages))


def _libre_messages(own: str, number: int, chance: random.Random) -> list[dict[str, Any]]:
    """Messages of LibreChat: edited questions, and answers that were made again, some with parts."""
    rows: list[dict[str, Any]] = []
    time = _second(START + number)

    def add(above: str | None, *, question: bool) -> str:
        nonlocal time
        time += timedelta(milliseconds=chance.randrange(1, 40_000))
        key = str(uuid.UUID(int=chance.getrandbits(128)))
        text = f"{len(rows)} of {number}: " + " ".join(["trà xanh"] * chance.randrange(1, 40))
        text = chance.choice(["", "    "]) + text + chance.choice(["", "\n"])
        parts = {} if question or chance.random() < 0.5 else {"content": [{"type": "text", "text": text}]}
        row = libre_message(key, above, question, "" if parts else text, 0, conversationId=own, **parts)
        rows.append({**row, "createdAt": time, "updatedAt": time})
        return key

    above: str | None = None
    for _ in range(chance.randrange(1, 6)):
        question = ""
        for _ in range(chance.choice([1, 1, 2])):
            question = add(above, question=True)
        above = chance.choice([add(question, question=False) for _ in range(chance.choice([1, 1, 2]))])
    return rows


def librechat_places(folder: Path) -> Iterator[Place]:
    """Yield the conversations of a dump. It reads all messages at once."""
    emails = {str(row["_id"]): row["email"] for row in _documents(folder / "users.bson")}
    messages: dict[str, list[dict[str, Any]]] = {}
    for row in _documents(folder / "messages.bson"):
        messages.setdefault(row["conversationId"], []).append({**row, "createdAt": row["createdAt"].isoformat()})
    for row in _documents(folder / "conversations.bson"):
        rows = sorted(messages[row["conversationId"]], key=lambda each: datetime.fromisoformat(each["createdAt"]))
        branches = libre_branches(rows)
        newest = libre_branches([{**rows[-1], "parentMessageId": "00000000-0000-0000-0000-000000000000"}])
        yield Place(
            f"librechat:{row['conversationId']}", emails[row["user"]], row["title"], row["createdAt"], row["updatedAt"],
            branches, newest[0].text, False, row["isArchived"],
        )  # fmt: skip


def _documents(path: Path) -> list[dict[str, Any]]:
    options: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(tz_aware=True)
    return bson.decode_all(path.read_bytes(), options)


def differences(places: Iterator[Place]) -> list[str]:
    """Return the sources of conversations that are not here, are here twice, or differ in anything that is compared."""
    wrong: list[str] = []
    for place in places:
        rows = list(
            Conversation.objects.filter(imported_from=place.source, owner__email=place.email).select_related(
                "owner", "leaf"
            )
        )
        same = len(rows) == 1 and place == Place(
            place.source, rows[0].owner.email, rows[0].title, rows[0].created, rows[0].updated, branches_here(rows[0]),
            rows[0].leaf.text if rows[0].leaf else "", rows[0].pinned is not None, rows[0].archived,
        )  # fmt: skip
        if not same:
            wrong.append(place.source)
    return wrong


def _second(number: int) -> datetime:
    return datetime.fromtimestamp(number, UTC)


# By product: what writes a workspace, and what reads it.
GENERATED: dict[str, tuple[Callable[[Path, list[str], int], None], Callable[[Path], Iterator[Place]]]] = {
    "openwebui": (write_open_webui, open_webui_places),
    "librechat": (write_librechat, librechat_places),
}
