"""Exports in the formats of other products."""

import io
import json
import zipfile
from typing import Any

START = 1_700_000_000.0


def node(key: str, parent: str | None, role: str, *parts: Any, **message: Any) -> dict[str, Any]:
    content = {"content_type": message.pop("content_type", "text"), "parts": list(parts)}
    return {
        "id": key,
        "parent": parent,
        "children": [],
        "message": {
            "id": key,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": START + len(key),
            "update_time": None,
            "content": content,
            "status": "finished_successfully",
            "end_turn": True,
            "weight": 1.0,
            "metadata": message.pop("metadata", {}),
            "recipient": message.pop("recipient", "all"),
            **message,
        },
    }


def chatgpt(own: str, nodes: list[dict[str, Any]], current: str, **fields: Any) -> dict[str, Any]:
    """A conversation with the empty root that every one has."""
    root: dict[str, Any] = {"id": "root", "message": None, "parent": None, "children": []}
    mapping = {each["id"]: each for each in [root, *nodes]}
    for each in nodes:
        if each["parent"] in mapping:
            mapping[each["parent"]]["children"].append(each["id"])
    return {
        "title": "From elsewhere",
        "create_time": START,
        "update_time": START + 100,
        "mapping": mapping,
        "moderation_results": [],
        "current_node": current,
        "conversation_id": own,
        "id": own,
        "is_archived": False,
        **fields,
    }


def branched(own: str = "gpt-1") -> dict[str, Any]:
    """A question, answered with a tool and once more, and a follow-up to the first answer."""
    return chatgpt(
        own,
        [
            node("s", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
            node("q1", "s", "user", "Thời tiết?", metadata={"attachments": [{"id": "f", "name": "map.png"}]}),
            node("a1", "q1", "assistant", "Let me look."),
            node("call", "a1", "assistant", "search('weather')", recipient="browser", content_type="code"),
            node("tool", "call", "tool", "sunny, 30 degrees"),
            node("a1-end", "tool", "assistant", "It is sunny."),
            node("a2", "q1", "assistant", "The other answer."),
            node("q2", "a1-end", "user", {"content_type": "image_asset_pointer"}, "And tomorrow?"),
            node("a3", "q2", "assistant", "Rain."),
        ],
        "a3",
    )


def claude(own: str = "claude-1", **fields: Any) -> dict[str, Any]:
    def message(number: int, sender: str, text: str, **more: Any) -> dict[str, Any]:
        return {
            "uuid": f"{own}-{number}",
            "text": text,
            "content": [{"type": "text", "text": text, "citations": []}],
            "sender": sender,
            "created_at": f"2024-05-01T10:0{number}:00.000000Z",
            "updated_at": f"2024-05-01T10:0{number}:00.000000Z",
            "attachments": [],
            "files": [],
            **more,
        }

    tool = [{"type": "tool_use", "name": "x", "input": {}}, {"type": "text", "text": "Found it."}]
    return {
        "uuid": own,
        "name": "With Claude",
        "created_at": "2024-05-01T10:00:00.000000Z",
        "updated_at": "2024-05-01T10:09:00.000000Z",
        "account": {"uuid": "account"},
        "chat_messages": [
            message(1, "human", "Look.", attachments=[{"file_name": "notes.txt", "extracted_content": "private"}]),
            message(2, "assistant", "ignored", content=tool),
            message(3, "human", "Thanks.", content=[]),
        ],
        **fields,
    }


def as_json(*rows: Any) -> bytes:
    return json.dumps(list(rows)).encode()


def as_zip(content: bytes, name: str = "conversations.json") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr(name, content)
    return buffer.getvalue()
