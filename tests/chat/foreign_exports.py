"""Exports of Open WebUI and LibreChat in their real shapes, and a reader that shares no code with the importer."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chat.models import Conversation, Message

START = 1_700_000_000


@dataclass
class Branch:
    """A message with the messages below it, in order."""

    role: str
    text: str
    created: datetime
    below: list["Branch"] = field(default_factory=list)


def webui_message(key: str, parent: str | None, role: str, content: Any, second: int, **more: Any) -> dict[str, Any]:
    """A message as Open WebUI stores it in `chat.history.messages`."""
    return {
        "id": key,
        "parentId": parent,
        "childrenIds": [],
        "role": role,
        "content": content,
        "timestamp": START + second,
        **({"models": ["llama3.1:8b"]} if role == "user" else {"model": "llama3.1:8b", "modelIdx": 0, "done": True}),
        **more,
    }


def webui_chat(own: str, messages: list[dict[str, Any]], current: str, **fields: Any) -> dict[str, Any]:
    """A chat as `GET /api/v1/chats/all` returns it: the history, and the branch on show once more."""
    by_key = {each["id"]: each for each in messages}
    for each in messages:
        if each["parentId"] in by_key:
            by_key[each["parentId"]]["childrenIds"].append(each["id"])
    shown: list[dict[str, Any]] = []
    place: str | None = current
    while place is not None:
        shown.insert(0, by_key[place])
        place = by_key[place]["parentId"]
    title = fields.pop("title", "Tea")
    chat = {
        "id": "",
        "title": title,
        "models": ["llama3.1:8b"],
        "params": fields.pop("params", {}),
        "history": {"messages": by_key, "currentId": current},
        "messages": shown,
        "tags": [],
        "timestamp": START * 1000,
        "files": [],
    }
    return {
        "id": own,
        "user_id": "11111111-0000-4000-8000-000000000001",
        "title": title,
        "chat": chat,
        "updated_at": START + 900,
        "created_at": START,
        "share_id": None,
        "archived": False,
        "pinned": False,
        "meta": {"tags": []},
        "folder_id": None,
        **fields,
    }


def tea(own: str = "owui-1", **fields: Any) -> dict[str, Any]:
    """A question to two models at the same second, and a follow-up to the second answer."""
    return webui_chat(
        own,
        [
            webui_message("q1", None, "user", "Which tea?", 0),
            webui_message("a1", "q1", "assistant", "Green.", 5),
            webui_message("a2", "q1", "assistant", "Black.", 5, model="gpt-4o", modelIdx=1),
            webui_message("q2", "a2", "user", "Why?", 60),
            webui_message("a3", "q2", "assistant", "It is strong.", 65),
        ],
        "a3",
        **fields,
    )


def webui_branches(chat: dict[str, Any]) -> list[Branch]:
    """Return the tree of a chat, read from its history alone."""
    messages = chat["chat"]["history"]["messages"]

    def read(key: str) -> Branch:
        each = messages[key]
        created = datetime.fromtimestamp(each["timestamp"], UTC)
        return Branch(each["role"], each["content"], created, [read(child) for child in each["childrenIds"]])

    return [read(key) for key, each in messages.items() if each["parentId"] is None]


def libre_message(key: str, parent: str | None, question: bool, text: str, minute: int, **more: Any) -> dict[str, Any]:
    """A message as LibreChat stores and exports it."""
    return {
        "messageId": key,
        "conversationId": "libre-1",
        "parentMessageId": parent or "00000000-0000-0000-0000-000000000000",
        "isCreatedByUser": question,
        "sender": "User" if question else "GPT-4o",
        "text": text,
        "model": None if question else "gpt-4o",
        "endpoint": "openAI",
        "error": False,
        "unfinished": False,
        "createdAt": f"2024-05-28T18:{minute:02}:55.014Z",
        "updatedAt": f"2024-05-28T18:{minute:02}:59.014Z",
        **more,
    }


def libre_story() -> list[dict[str, Any]]:
    """Two first questions, since the first was edited, and two answers to the second."""
    return [
        libre_message("m1", None, True, "A story", 1),
        libre_message("m2", "m1", False, "Once.", 2),
        libre_message("m3", None, True, "A long story", 3),
        libre_message("m4", "m3", False, "", 4, content=[{"type": "text", "text": "Once upon a time."}]),
        libre_message("m5", "m3", False, "", 5, content=[{"type": "text", "text": {"value": "Long ago."}}]),
    ]


def libre_export(messages: list[dict[str, Any]], *, recursive: bool = False, **fields: Any) -> dict[str, Any]:
    """A conversation as the page of LibreChat exports it."""
    export = {
        "conversationId": "libre-1",
        "endpoint": "openAI",
        "title": "Stories",
        "exportAt": "08:12:16 GMT-0400 (Eastern Daylight Time)",
        "branches": True,
        "recursive": recursive,
        "options": {"presetId": None, "model": "gpt-4o", "promptPrefix": None, "endpoint": "openAI"},
        **fields,
    }
    if not recursive:
        return {**export, "messages": messages}
    nodes = {each["messageId"]: {**each, "children": []} for each in messages}
    top: list[dict[str, Any]] = []
    for node in nodes.values():
        above = nodes.get(node["parentMessageId"])
        (above["children"] if above else top).append(node)
    return {**export, "messagesTree": top}


def libre_branches(messages: list[dict[str, Any]]) -> list[Branch]:
    """Return the tree of a conversation, read from its flat messages."""

    def words(each: dict[str, Any]) -> str:
        texts = [part["text"] for part in each.get("content") or () if part["type"] == "text"]
        return each["text"] or "".join(text if isinstance(text, str) else text["value"] for text in texts)

    def below(parent: str) -> list[Branch]:
        return [
            Branch(
                "user" if each["isCreatedByUser"] else "assistant",
                words(each),
                datetime.fromisoformat(each["createdAt"]),
                below(each["messageId"]),
            )
            for each in messages
            if each["parentMessageId"] == parent
        ]

    return below("00000000-0000-0000-0000-000000000000")


def branches_here(conversation: Conversation) -> list[Branch]:
    """Return the tree of a conversation as it is stored here. Siblings are in the order in which pages show them."""
    rows = list(Message.objects.filter(conversation=conversation).order_by("id"))

    def below(parent: object) -> list[Branch]:
        return [Branch(row.role, row.text, row.created, below(row.pk)) for row in rows if row.parent_id == parent]

    return below(None)


def as_lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
