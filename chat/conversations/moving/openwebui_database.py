"""Read the database of Open WebUI: the SQLite file `webui.db`, or a PostgreSQL database.

Each row is read by its id, so that memory does not grow with the database. Versions differ in their columns, so only
columns that are there are asked for. Nothing is written: SQLite is opened read-only, and a session of PostgreSQL is
read-only, too.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

import psycopg
from psycopg import sql

from chat.conversations.importing import openwebui
from chat.conversations.importing.reading import UnusableConversation, as_list, as_object, as_text
from chat.conversations.moving.sources import (
    ForeignFile,
    ForeignPerson,
    ForeignProject,
    MovedRow,
    SkippedRow,
    UnreadableSource,
)
from core.json_types import JsonObject
from core.sentences import Sentence

MAX_CHAT = 48_000_000  # bytes of the JSON of one chat
MAX_FILE_TEXT = 4_000_000  # characters
PAGE = 500  # ids that are read together
MAX_FOLDER_DEPTH = 10
Values = Mapping[str, Any]
# Tables whose rows have no counterpart here.
_LEFT_BEHIND: dict[str, Callable[[int], Sentence]] = {
    "tool": lambda n: Sentence("Tools in Python: {count}. Connect a tool server instead.", count=n),
    "function": lambda n: Sentence("Functions, filters and pipes: {count}.", count=n),
    "skill": lambda n: Sentence("Skills: {count}.", count=n),
    "channel": lambda n: Sentence("Channels: {count}.", count=n),
    "note": lambda n: Sentence("Notes: {count}.", count=n),
    "automation": lambda n: Sentence("Automations: {count}.", count=n),
    "calendar_event": lambda n: Sentence("Events of calendars: {count}.", count=n),
    "shared_chat": lambda n: Sentence("Links to shared chats: {count}.", count=n),
    "api_key": lambda n: Sentence("API keys: {count}. People make new tokens in their settings.", count=n),
    "feedback": lambda n: Sentence("Ratings in the arena and of answers: {count}.", count=n),
}


class Rows(Protocol):
    """The rows of a database. `names` are those of columns; rows lack columns that the table lacks.

    `json_is_text`: values of JSON columns are not decoded.
    """

    json_is_text: bool

    def columns(self, table: str) -> frozenset[str]: ...

    def select(
        self, table: str, names: Sequence[str], where: Values, *, after: str = "", limit: int | None = None
    ) -> list[Values]:
        """Return the rows with these values, ordered by their id, with ids greater than `after`."""
        ...

    def size(self, table: str, column: str, key: str) -> int:
        """Return the bytes of one value as text; 0 if there is none."""
        ...

    def count(self, table: str) -> int: ...


class SqliteRows:
    """The rows of an SQLite file."""

    json_is_text = True

    def __init__(self, path: Path) -> None:
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise UnreadableSource(
                f"{path} cannot be read as an SQLite database ({error}). Make a copy with: "
                'sqlite3 webui.db ".backup copy.db"'
            ) from error
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns:
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            self._columns[table] = frozenset(row["name"] for row in rows)
        return self._columns[table]

    def select(
        self, table: str, names: Sequence[str], where: Values, *, after: str = "", limit: int | None = None
    ) -> list[Values]:
        have = self.columns(table)
        shared = [name for name in names if name in have]
        if not shared or not where.keys() <= have:
            return []
        conditions = [f'"{name}" = ?' for name in where]
        values = list(where.values())
        if after:
            conditions.append("id > ?")
            values.append(after)
        columns = ", ".join(f'"{name}"' for name in shared)
        query = f'SELECT {columns} FROM "{table}"'  # noqa: S608 - names of this module
        query += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query += " ORDER BY id" if "id" in have else ""
        query += f" LIMIT {limit:d}" if limit is not None else ""
        return [dict(row) for row in self._connection.execute(query, values)]

    def size(self, table: str, column: str, key: str) -> int:
        query = f'SELECT length(CAST("{column}" AS BLOB)) FROM "{table}" WHERE id = ?'  # noqa: S608 - as above
        row = self._connection.execute(query, (key,)).fetchone()
        return int(row[0] or 0) if row else 0

    def count(self, table: str) -> int:
        if not self.columns(table):
            return 0
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608 - as above


class PostgresRows:
    """The rows of a PostgreSQL database."""

    json_is_text = False

    def __init__(self, address: str) -> None:
        try:
            self._connection = psycopg.connect(address, autocommit=True, connect_timeout=10)
            self._connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        except psycopg.Error as error:
            raise UnreadableSource(f"The PostgreSQL database cannot be read: {error}") from error
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        if table not in self._columns:
            rows = self._connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
                (f'"{table}"',),
            )
            self._columns[table] = frozenset(row[0] for row in rows)
        return self._columns[table]

    def select(
        self, table: str, names: Sequence[str], where: Values, *, after: str = "", limit: int | None = None
    ) -> list[Values]:
        have = self.columns(table)
        shared = [name for name in names if name in have]
        if not shared or not where.keys() <= have:
            return []
        conditions: list[sql.Composable] = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in where]
        values = list(where.values())
        if after:
            conditions.append(sql.SQL('id > %s COLLATE "C"'))
            values.append(after)
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, shared)), sql.Identifier(table)
        )
        if conditions:
            query += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)
        if "id" in have:
            query += sql.SQL(' ORDER BY id COLLATE "C"')
        if limit is not None:
            query += sql.SQL(" LIMIT {}").format(sql.Literal(limit))
        return [dict(zip(shared, row, strict=True)) for row in self._connection.execute(query, values)]

    def size(self, table: str, column: str, key: str) -> int:
        query = sql.SQL("SELECT octet_length({}::text) FROM {} WHERE id = %s").format(
            sql.Identifier(column), sql.Identifier(table)
        )
        row = self._connection.execute(query, (key,)).fetchone()
        return int(row[0] or 0) if row else 0

    def count(self, table: str) -> int:
        if not self.columns(table):
            return 0
        row = self._connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
        return int(row[0]) if row else 0


class OpenWebUIDatabase:
    """A workspace of Open WebUI (`MoveSource`). `uploads` is a copy of its folder `data/uploads`."""

    product = "Open WebUI"

    def __init__(self, database: str, uploads: Path | None = None) -> None:
        is_address = database.startswith(("postgresql://", "postgres://"))
        self._rows: Rows = PostgresRows(database) if is_address else SqliteRows(Path(database))
        self._uploads = uploads
        if not {"id", "email"} <= self._rows.columns("user") or "chat" not in self._rows.columns("chat"):
            raise UnreadableSource("This is not the database of Open WebUI: it has no tables “user” and “chat”.")

    def people(self) -> Iterator[ForeignPerson]:
        groups = self._groups
        for row in self._pages("user", ("id", "email", "name", "username", "role"), {}):
            key = as_text(row.get("id"))
            yield ForeignPerson(
                key=key,
                email=as_text(row.get("email")).strip(),
                name=as_text(row.get("name")).strip(),
                username=as_text(row.get("username")).strip(),
                is_admin=row.get("role") == "admin",
                waits=row.get("role") == "pending",
                groups=tuple(sorted(groups.get(key, ()))),
            )

    def rows_of(self, person: ForeignPerson) -> Iterator[MovedRow]:
        mine = {"user_id": person.key}
        folders = self._folders(person)
        tags = {as_text(row["id"]): as_text(row.get("name")) for row in self._pages("tag", ("id", "name"), mine)}
        yield from self._projects(person)
        for row in self._pages("memory", ("id", "content"), mine):
            yield openwebui.read_memory(dict(row))
        for row in self._pages("prompt", ("id", "command", "name", "title", "content"), mine):
            yield openwebui.read_prompt(dict(row))
        for row in self._pages("model", ("id", "name", "base_model_id", "params", "meta", "created_at"), mine):
            values = {**row, "params": _object(row.get("params")), "meta": _object(row.get("meta"))}
            try:
                yield openwebui.read_persona(values)
            except UnusableConversation as error:
                yield SkippedRow(as_text(row.get("name")), error.sentence)
        for row in self._pages("chat", ("id", "title"), mine):
            yield self._chat(as_text(row.get("id")), as_text(row.get("title")), folders, tags)

    def file(self, key: str) -> ForeignFile | None:
        if key not in self._file_rows(key):
            return None
        row = self._file_rows(key)[key]
        content = ""
        if self._rows.size("file", "data", key) <= MAX_FILE_TEXT:
            rows = self._rows.select("file", ("data",), {"id": key})
            content = as_text(_object(rows[0].get("data")).get("content")) if rows else ""
        return ForeignFile(as_text(row.get("filename")) or "file", content)

    def open_file(self, key: str) -> IO[bytes] | None:
        if self._uploads is None or not key:
            return None
        row = self._file_rows(key).get(key)
        if row is None:
            return None
        name = as_text(row.get("path")).replace("\\", "/").rpartition("/")[2]
        candidates = [name, f"{key}_{as_text(row.get('filename'))}"]
        for each in candidates:
            path = self._uploads / each
            if each and "/" not in each and path.is_file():
                return path.open("rb")
        return None

    def left_behind(self) -> list[Sentence]:
        counts = {table: self._rows.count(table) for table in _LEFT_BEHIND}
        return [_LEFT_BEHIND[table](count) for table, count in counts.items() if count]

    def _pages(self, table: str, names: Sequence[str], where: Values) -> Iterator[Values]:
        """Yield rows in the order of their ids. Each page is a query of its own. A table without ids is one page."""
        limit = PAGE if "id" in self._rows.columns(table) else None
        after = ""
        while page := self._rows.select(table, names, where, after=after, limit=limit):
            yield from page
            after = str(page[-1].get("id") or "")
            if limit is None or len(page) < limit:
                return

    def _file_rows(self, key: str) -> dict[str, Values]:
        return {as_text(row["id"]): row for row in self._rows.select("file", ("id", "filename", "path"), {"id": key})}

    @cached_property
    def _groups(self) -> dict[str, set[str]]:
        """The names of the groups by the id of a member. Older versions have the members in the group."""
        groups: dict[str, set[str]] = {}
        names: dict[str, str] = {}
        for row in self._pages("group", ("id", "name", "user_ids"), {}):
            names[as_text(row.get("id"))] = name = as_text(row.get("name")).strip()
            for member in _list(row.get("user_ids")):
                groups.setdefault(as_text(member), set()).add(name)
        for row in self._pages("group_member", ("id", "group_id", "user_id"), {}):
            if name := names.get(as_text(row.get("group_id")), ""):
                groups.setdefault(as_text(row.get("user_id")), set()).add(name)
        return groups

    def _folders(self, person: ForeignPerson) -> dict[str, str]:
        """Return the names of a person's folders by their ids, with those of the folders above."""
        rows = {
            as_text(row["id"]): row
            for row in self._pages("folder", ("id", "name", "parent_id"), {"user_id": person.key})
        }
        names: dict[str, str] = {}
        for key in rows:
            path: list[str] = []
            place: str = key
            while place in rows and len(path) < MAX_FOLDER_DEPTH:
                path.append(as_text(rows[place].get("name")))
                place = as_text(rows[place].get("parent_id"))
            names[key] = openwebui.folder_name(" / ".join(reversed(path)))
        return names

    def _projects(self, person: ForeignPerson) -> Iterator[ForeignProject]:
        folders = self._folders(person)
        for row in self._pages("folder", ("id", "data"), {"user_id": person.key}):
            data = _object(row.get("data"))
            files = [as_object(each) for each in as_list(data.get("files"))]
            instructions = as_text(data.get("system_prompt"))
            if instructions or files:
                keys = tuple(as_text(each.get("id")) for each in files if each.get("type", "file") == "file")
                yield ForeignProject(folders[as_text(row["id"])], instructions, keys)
        for row in self._pages("knowledge", ("id", "name", "description", "data"), {"user_id": person.key}):
            linked = self._pages("knowledge_file", ("id", "file_id"), {"knowledge_id": row["id"]})
            listed = [as_text(each) for each in as_list(_object(row.get("data")).get("file_ids"))]
            files_of = dict.fromkeys([*(as_text(each.get("file_id")) for each in linked), *listed])
            yield ForeignProject(openwebui.folder_name(as_text(row.get("name"))), "", tuple(filter(None, files_of)))

    def _chat(self, key: str, title: str, folders: Mapping[str, str], tags: Mapping[str, str]) -> MovedRow:
        """Read a chat. `folders` and `tags` are the names by their ids."""
        if self._rows.size("chat", "chat", key) > MAX_CHAT:
            most = MAX_CHAT // 1_000_000
            return SkippedRow(title, Sentence("It is larger than {most} MB.", most=most))
        names = ("id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id")
        stored = next(iter(self._rows.select("chat", (*names, "summary", "current_message_id"), {"id": key})), None)
        if stored is None:
            return SkippedRow(title, Sentence("It was deleted meanwhile."))
        row: JsonObject = {**stored, "meta": _object(stored.get("meta")), "chat": _object(stored.get("chat"))}
        row["meta"]["tags"] = [tags.get(as_text(each), each) for each in as_list(row["meta"].get("tags"))]
        if row["meta"].get("internal") is True:
            return SkippedRow(title, Sentence("Open WebUI uses it internally."))
        self._add_messages(row)
        try:
            conversation = openwebui.read_chat(row)
        except UnusableConversation as error:
            return SkippedRow(title, error.sentence)
        conversation.folder = folders.get(as_text(row.get("folder_id")), "")
        return conversation

    def _add_messages(self, row: JsonObject) -> None:
        """Take the messages from their own table where the chat has none."""
        history = as_object(row["chat"].get("history"))
        if as_object(history.get("messages")) or as_list(row["chat"].get("messages")):
            return
        names = ("id", "parent_id", "role", "content", "output", "model_id", "files", "sources", "created_at")
        messages: dict[str, Any] = {}
        for each in self._pages("chat_message", names, {"chat_id": row["id"]}):
            key = as_text(each.get("id")).removeprefix(f"{row['id']}-")
            values = {name: each.get(name) for name in ("content", "output", "files", "sources")}
            if self._rows.json_is_text:
                values = {name: _decoded(value) for name, value in values.items()}
            messages[key] = {
                **values,
                "parentId": each.get("parent_id"),
                "role": each.get("role"),
                "model": each.get("model_id"),
                "timestamp": each.get("created_at"),
            }
        row["chat"]["history"] = {"messages": messages, "currentId": history.get("currentId")}


def _decoded(value: Any) -> Any:
    """Return the value of a JSON column, which SQLite has as text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _object(value: Any) -> JsonObject:
    return as_object(_decoded(value))


def _list(value: Any) -> list[Any]:
    return as_list(_decoded(value))
