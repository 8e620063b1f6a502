"""Open WebUI: one process on SQLite, as `open-webui serve` runs it, without its model calls for titles and tags."""

import base64
import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from contrib.bench.peers.client import AnswerExchange, frame, http, upgrade
from contrib.bench.peers.products import Ask, Product, program

SECRET = "only-for-the-bench-only-for-the-bench"
OFF = ("TITLE_GENERATION", "FOLLOW_UP_GENERATION", "TAGS_GENERATION", "OLLAMA_API", "VERSION_UPDATE_CHECK")


class OpenWebUI(Product):
    name = "Open WebUI"
    health = "/health"

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.paths = {"Open WebUI": self._saved}
        self.lengths = {"Open WebUI": self._long}
        self._tokens: list[str] = []
        self._next = 0

    def command(self) -> list[str]:
        return [program("open-webui"), "serve", "--host", "127.0.0.1", "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        return {
            **{f"ENABLE_{name}": "false" for name in OFF},
            "DATA_DIR": str(self.directory),
            "WEBUI_SECRET_KEY": SECRET,
            "OPENAI_API_BASE_URL": self.model_url,
            "OPENAI_API_KEY": "a key",
            "RAG_EMBEDDING_ENGINE": "openai",  # the packages of the built-in embedding model are not installed
            "OFFLINE_MODE": "true",
            "ANONYMIZED_TELEMETRY": "false",
        }

    def prepare(self) -> None:
        if not self._tokens:
            person = {"name": "Bench", "email": "bench@example.org", "password": "only-for-the-bench"}
            self._tokens = [self.http.post("/api/v1/auths/signup", json=person).raise_for_status().json()["token"]]
        self.http.get("/api/models", headers=_bearer(self._tokens[0])).raise_for_status()

    def people(self, count: int) -> None:
        """Create accounts until `count` exist, one for each answer: a socket gets all answers of its account.

        The accounts are copies of the first row in the database, since a sign-up takes a third of a second.
        """
        missing = range(len(self._tokens), count)
        with sqlite3.connect(self.directory / "webui.db", timeout=60) as database:
            for number in missing:
                person = f"bench-{number}"
                for table in ("user", "auth"):
                    _copy_first(database, table, id=person, email=f"{person}@example.org", username=None)
                self._tokens.append(_token_of(person, self._tokens[0]))
        database.close()

    def _post(self, path: str, body: Any, token: str) -> Any:
        return self.http.post(path, json=body, headers=_bearer(token)).raise_for_status().json()

    def _saved(self, text: str) -> AnswerExchange:
        """Ask in a new chat as the page does: by a request whose events come on the socket."""
        token = self._tokens[self._next % len(self._tokens)]
        self._next += 1
        chat = {"chat": {"title": "Bench", "models": ["scripted"], "history": {"messages": {}, "currentId": None}}}
        return self._exchange(token, self._post("/api/v1/chats/new", chat, token)["id"], text, None)[0]

    def _exchange(self, token: str, chat: str, text: str, parent: str | None) -> tuple[AnswerExchange, str]:
        """Return the exchange and the id of the answer's message."""
        answer, question = str(uuid4()), str(uuid4())
        message = {"id": question, "role": "user", "content": text, "models": ["scripted"], "parentId": parent}
        body = {
            "model": "scripted",
            "stream": True,
            "params": {},
            "features": {},
            "variables": {},
            "chat_id": chat,
            "id": answer,
            "parent_id": parent,
            "user_message": {**message, "childrenIds": [], "timestamp": int(time.time())},
            "session_id": secrets.token_hex(10),
            "background_tasks": {},
        }
        request = http("POST", "/api/chat/completions", _bearer(token), json.dumps(body).encode())
        opening = (
            (upgrade("/ws/socket.io/?EIO=4&transport=websocket"), rb'0\{"sid"'),
            (frame("40" + json.dumps({"token": token})), rb'40\{"sid"'),
        )
        refused = rb"chat:message:error|chat:tasks:cancel"
        return AnswerExchange(self.port, request, rb'"done": ?true', refused, opening, apart=True), answer

    def _long(self, count: int) -> Ask:
        messages = {
            f"m{number}-{count}": {
                "id": f"m{number}-{count}",
                "parentId": f"m{number - 1}-{count}" if number else None,
                "childrenIds": [f"m{number + 1}-{count}"] if number + 1 < count else [],
                "role": "assistant" if number % 2 else "user",
                "content": f"Said as number {number} of many.",
                "model": "scripted",
                "done": True,
                "timestamp": int(time.time()),
            }
            for number in range(count)
        }
        last = f"m{count - 1}-{count}"
        chat = {"title": f"{count} messages", "models": ["scripted"]}
        history = {"messages": messages, "currentId": last}
        imported = {"chats": [{"chat": {**chat, "history": history}}]}
        [chat_row] = self._post("/api/v1/chats/import", imported, self._tokens[0])

        def ask(text: str) -> AnswerExchange:
            nonlocal last
            exchange, last = self._exchange(self._tokens[0], chat_row["id"], text, last)
            return exchange

        return ask


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _copy_first(database: sqlite3.Connection, table: str, **changed: str | None) -> None:
    cursor = database.execute(f'SELECT * FROM "{table}" ORDER BY rowid LIMIT 1')  # noqa: S608 - a name of ours
    names = [column[0] for column in cursor.description]
    row = {
        **dict(zip(names, cursor.fetchone(), strict=True)),
        **{name: changed[name] for name in changed if name in names},
    }
    columns, places = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    database.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({places})', list(row.values()))  # noqa: S608 - names of theirs


def _token_of(person: str, example: str) -> str:
    """Return another person's session token in Open WebUI's format: a JSON web token with HS256."""
    head, claims, _ = example.split(".")
    payload = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    claims = _base64(json.dumps({**payload, "id": person, "jti": str(uuid4())}).encode())
    signature = hmac.new(SECRET.encode(), f"{head}.{claims}".encode(), hashlib.sha256).digest()
    return f"{head}.{claims}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
