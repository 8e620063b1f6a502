"""Read a dump of LibreChat's database: a folder of `mongodump`, or of files that `mongoexport` has made.

1. `LibreChatDump` finds a file for each collection that is read: `messages.bson`, `messages.json`, …, also with `.gz`.
2. It copies the documents into a temporary SQLite file, since a dump has the messages of all people in any order.
3. `rows_of` reads a person's documents from there, one conversation at a time, so that memory does not grow.

No MongoDB is needed. `mongoexport` writes JSON lines, or a list with `--jsonArray`; numbers, times and ids in it have
the forms of MongoDB's Extended JSON.
"""

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import bson
import ijson
from bson.errors import BSONError
from bson.objectid import ObjectId

from chat.conversations.importing import librechat, openwebui
from chat.conversations.importing.reading import (
    ImportedListRow,
    UnusableConversation,
    as_list,
    as_object,
    as_text,
    parse_time,
)
from chat.conversations.moving.sources import (
    ForeignFile,
    ForeignPerson,
    MovedRow,
    SkippedRow,
    UnreadableSource,
)
from core.json_types import JsonObject
from core.sentences import Sentence

MAX_LINE = 48_000_000  # bytes of one document; MongoDB's own limit is 16 MB of BSON
MAX_CONVERSATION = 48_000_000  # bytes of the messages of one conversation
MAX_DEPTH = 100  # levels of nesting of a document
BATCH = 500  # documents that are written together
# By collection: the members with the owner and with the document above, as far as these are looked up.
_COLLECTIONS = {
    "users": ("", ""),
    "groups": ("", ""),
    "conversations": ("user", ""),
    "messages": ("user", "conversationId"),
    "presets": ("user", ""),
    "agents": ("author", ""),
    "promptgroups": ("author", ""),
    "prompts": ("author", "groupId"),
    "memoryentries": ("userId", ""),
    "chatprojects": ("user", ""),
    "files": ("user", ""),
}
_IDS = {"messages": "messageId", "conversations": "conversationId", "files": "file_id"}
_LEFT_BEHIND: dict[str, Callable[[int], Sentence]] = {
    "actions": lambda n: Sentence("Actions of agents: {count}.", count=n),
    "assistants": lambda n: Sentence("Assistants of OpenAI: {count}.", count=n),
    "sharedlinks": lambda n: Sentence("Shared links: {count}.", count=n),
    "skills": lambda n: Sentence("Skills: {count}.", count=n),
    "mcpservers": lambda n: Sentence("Tool servers: {count}. Connect them in the administration.", count=n),
    "balances": lambda n: Sentence("Balances: {count}. Set limits instead.", count=n),
    "schedules": lambda n: Sentence("Schedules: {count}.", count=n),
}
_ENDINGS = ("bson", "bson.gz", "json", "json.gz", "jsonl", "jsonl.gz", "ndjson")


class LibreChatDump:
    """A workspace of LibreChat (`MoveSource`). `uploads` and `images` are copies of its folders of these names."""

    product = "LibreChat"

    def __init__(self, folder: Path, uploads: Path | None = None, images: Path | None = None) -> None:
        self._folder = folder
        self._stores = {"uploads": uploads, "images": images}
        if _collection_file(folder, "conversations") is None or _collection_file(folder, "messages") is None:
            raise UnreadableSource(
                f"{folder} has no dump of LibreChat. Name the folder with conversations.bson and messages.bson of "
                "mongodump, or with conversations.json and messages.json of mongoexport."
            )
        # Without a name it is a temporary file, which SQLite removes from its folder at once: a kill leaves nothing.
        self._index = sqlite3.connect("", isolation_level=None)
        self._index.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE document (collection TEXT, key TEXT, owner TEXT, above TEXT, time TEXT, body TEXT);"
        )
        for name in _COLLECTIONS:
            self._copy(name)
        self._index.executescript(
            "CREATE INDEX by_owner ON document (collection, owner, key);"
            "CREATE INDEX by_above ON document (collection, above, owner, time);"
            "CREATE INDEX by_key ON document (collection, key);"
        )

    def close(self) -> None:
        """Delete the temporary file."""
        self._index.close()

    def people(self) -> Iterator[ForeignPerson]:
        for row in self._documents("users"):
            key = as_text(row.get("_id"))
            ids = {key, as_text(row.get("idOnTheSource")) or key}
            yield ForeignPerson(
                key=key,
                email=as_text(row.get("email")).strip(),
                name=as_text(row.get("name")).strip(),
                username=as_text(row.get("username")).strip(),
                is_admin=row.get("role") == "ADMIN",
                groups=tuple(sorted({name for each in ids for name in self._groups.get(each, ())})),
            )

    def rows_of(self, person: ForeignPerson) -> Iterator[MovedRow]:
        for row in self._documents("memoryentries", person.key):
            yield ImportedListRow("memories", {"text": as_text(row.get("value"))})
        yield from self._prompts(person)
        for row in self._documents("presets", person.key):
            yield librechat.read_preset(row)
        for row in self._documents("agents", person.key):
            yield librechat.read_agent(row)
        projects = {
            as_text(row.get("_id")): openwebui.folder_name(as_text(row.get("name")))
            for row in self._documents("chatprojects", person.key)
        }
        for row in self._documents("conversations", person.key):
            yield self._conversation(person, row, projects)

    def file(self, key: str) -> ForeignFile | None:
        row = self._file_row(key)
        return None if row is None else ForeignFile(as_text(row.get("filename")) or "file", as_text(row.get("text")))

    def open_file(self, key: str) -> IO[bytes] | None:
        row = self._file_row(key) if key else None
        if row is None:
            return None
        path = as_text(row.get("filepath")).partition("?")[0].strip("/")
        store, _, rest = path.partition("/")
        base = self._stores.get(store)
        if base is None or not rest:
            return None
        place = (base / rest).resolve()
        return place.open("rb") if place.is_relative_to(base.resolve()) and place.is_file() else None

    def left_behind(self) -> list[Sentence]:
        sentences = []
        for name, sentence in _LEFT_BEHIND.items():
            path = _collection_file(self._folder, name)
            if path is not None and (count := sum(1 for _ in _documents_of(path))):
                sentences.append(sentence(count))
        return sentences

    def _copy(self, collection: str) -> None:
        """Copy the documents of a collection into the temporary file."""
        path = _collection_file(self._folder, collection)
        if path is None:
            return
        owner, above = _COLLECTIONS[collection]
        key = _IDS.get(collection, "_id")
        batch: list[tuple[str, ...]] = []
        for document in _documents_of(path):
            body = json.dumps(document, ensure_ascii=False)
            columns = [as_text(document.get(name)) if name else "" for name in (key, owner, above)]
            batch.append((collection, *columns, as_text(document.get("createdAt")), as_text(body)))
            if len(batch) >= BATCH or len(body) > MAX_LINE // BATCH:
                self._write(batch)
        self._write(batch)

    def _write(self, batch: list[tuple[str, ...]]) -> None:
        self._index.execute("BEGIN")
        self._index.executemany("INSERT INTO document VALUES (?, ?, ?, ?, ?, ?)", batch)
        self._index.execute("COMMIT")
        batch.clear()

    def _documents(self, collection: str, owner: str = "") -> Iterator[JsonObject]:
        """Yield the documents of a collection that belong to this owner, in the order of their keys."""
        query = "SELECT rowid FROM document WHERE collection = ? AND owner = ? ORDER BY key, rowid"
        for (row,) in self._index.execute(query, (collection, owner)).fetchall():
            body = self._index.execute("SELECT body FROM document WHERE rowid = ?", (row,)).fetchone()[0]
            yield as_object(json.loads(body))

    def _file_row(self, key: str) -> JsonObject | None:
        query = "SELECT body FROM document WHERE collection = 'files' AND key = ?"
        row = self._index.execute(query, (key,)).fetchone()
        return as_object(json.loads(row[0])) if row else None

    @cached_property
    def _groups(self) -> dict[str, set[str]]:
        """The names of the groups by the id of a member."""
        groups: dict[str, set[str]] = {}
        for row in self._documents("groups"):
            for member in as_list(row.get("memberIds")):
                groups.setdefault(as_text(member), set()).add(as_text(row.get("name")).strip())
        return groups

    def _prompts(self, person: ForeignPerson) -> Iterator[ImportedListRow]:
        """Yield the version in use of each prompt."""
        texts = {as_text(row.get("_id")): as_text(row.get("prompt")) for row in self._documents("prompts", person.key)}
        for group in self._documents("promptgroups", person.key):
            if text := texts.get(as_text(group.get("productionId")), ""):
                name = as_text(group.get("command")) or as_text(group.get("name"))
                yield ImportedListRow("prompts", {"name": name, "text": text})

    def _conversation(self, person: ForeignPerson, row: JsonObject, projects: dict[str, str]) -> MovedRow:
        title = as_text(row.get("title"))
        if row.get("isTemporary") is True or row.get("expiredAt"):
            return SkippedRow(title, Sentence("It is temporary."))
        place = ("messages", as_text(row.get("conversationId")), person.key)
        condition = "FROM document WHERE collection = ? AND above = ? AND owner = ?"
        size = self._index.execute(f"SELECT coalesce(sum(length(body)), 0) {condition}", place).fetchone()[0]
        if size > MAX_CONVERSATION:
            return SkippedRow(title, Sentence("It is larger than {most} MB.", most=MAX_CONVERSATION // 1_000_000))
        bodies = self._index.execute(f"SELECT body {condition} ORDER BY time, rowid", place)
        row = {**row, "messages": [as_object(json.loads(body)) for (body,) in bodies]}
        try:
            conversation = librechat.read_librechat(row)
        except UnusableConversation as error:
            return SkippedRow(title, error.sentence)
        conversation.folder = projects.get(as_text(row.get("chatProjectId")), "")
        return conversation


def _collection_file(folder: Path, collection: str) -> Path | None:
    paths = [folder / f"{collection}.{ending}" for ending in _ENDINGS]
    return next((path for path in paths if path.is_file()), None)


def _documents_of(path: Path) -> Iterator[JsonObject]:
    """Yield the documents of a file. Raises `UnreadableSource`."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = cast("IO[bytes]", file)
            rows = _bson_rows(content) if ".bson" in path.name else _json_rows(content)
            for row in rows:
                value = _plain(row)
                if isinstance(value, dict):
                    yield value
    except (BSONError, ValueError, TypeError, ijson.JSONError, OSError, EOFError) as error:
        raise UnreadableSource(f"{path} cannot be read: {error}. Make the dump again.") from error


def _bson_rows(file: IO[bytes]) -> Iterator[Any]:
    while head := file.read(4):
        size = int.from_bytes(head, "little")
        if not 5 <= size <= MAX_LINE:
            raise ValueError("a document has no valid length")
        yield bson.decode(head + file.read(size - 4))


def _json_rows(file: IO[bytes]) -> Iterator[Any]:
    first = file.readline(MAX_LINE + 1)
    file.seek(0)
    if first.lstrip().startswith(b"["):
        yield from ijson.items(file, "item", use_float=True)
        return
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise ValueError(f"a line has more than {MAX_LINE:,} bytes")
        if line.strip():
            yield json.loads(line)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of BSON or Extended JSON as one of JSON: ids and times become text. Deep parts become None."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, dict):
        if len(value) == 1:
            ((name, inner),) = value.items()
            if isinstance(name, str) and name.startswith("$"):
                return _extended(name, inner)
        return {str(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, datetime):
        return parse_time(value.isoformat()).isoformat()  # type: ignore[union-attr]  # a datetime always has a time
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return None


def _extended(name: str, inner: Any) -> Any:
    """Return the value of an object of Extended JSON such as `{"$oid": "…"}`."""
    if name == "$date":
        number = inner.get("$numberLong") if isinstance(inner, dict) else inner
        time = parse_time(int(str(number)) / 1000) if str(number).lstrip("-").isdecimal() else parse_time(number)
        return time.isoformat() if time is not None else None
    if name in ("$numberInt", "$numberLong"):
        return int(inner)
    if name in ("$numberDouble", "$numberDecimal"):
        return float(inner)
    return inner if name in ("$oid", "$symbol", "$uuid") else None
