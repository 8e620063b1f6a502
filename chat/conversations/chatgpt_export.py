"""Export the conversations of a person as ChatGPT does, for other products that read this shape.

The zip has `conversations.json`, a list of conversations. Each has a `mapping` of nodes by id, with parents and
children, and `current_node`, the end of the branch on show. Times are seconds. The attached files stand beside the
list; their names begin with their ids. `chat.conversations.importing.chatgpt` reads this shape.
"""

import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from typing import TypedDict

from accounts.models import User
from chat.conversations.export import BATCH_ROWS, ZipSink, iterate_async, zip_files
from chat.models import Attachment, Conversation, Message
from chat.models.tree import with_rows
from core.json_types import JsonObject
from files.models import File

ROOT = "client-created-root"
CONTENTS = """\
conversations.json has your conversations in the shape of an export of ChatGPT: all branches, times, models, reasoning
and the names of files. Beside it are the files that are attached to messages and are yours.

What is not in it: calls of tools and their results, sources of citations, context reports, summaries, marks, tags,
projects, personas, saved prompts, tasks, what is remembered about you, and files that are in no message. The complete
export has them.
"""


class ChatGPTNode(TypedDict):
    """A node of a mapping. The root has no message."""

    id: str
    message: JsonObject | None
    parent: str | None
    children: list[str]


async def zip_for_others(user: User) -> AsyncIterator[bytes]:
    """Yield the zip of a person. It is written while it is sent, and never stored."""
    async for piece in iterate_async(_zip(user)):
        yield piece


def _zip(user: User) -> Iterator[bytes]:
    sink = ZipSink()
    rows = Conversation.objects.listed_for(user).order_by("pk")
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", CONTENTS)
        with archive.open("conversations.json", "w", force_zip64=True) as listed:
            before = b"["
            last = None
            while batch := list(rows.filter(pk__gt=last)[:BATCH_ROWS] if last else rows[:BATCH_ROWS]):
                for conversation in batch:
                    listed.write(before + json.dumps(to_chatgpt(conversation), ensure_ascii=False).encode())
                    before = b",\n"
                    yield sink.take()
                last = batch[-1].pk
            listed.write(b"[]" if last is None else b"]")
        attached = Attachment.objects.filter(message__conversation__owner=user, message__conversation__deleted=None)
        files = File.objects.filter(owner=user, pk__in=attached.values("file"))
        yield from zip_files(files, archive, sink, lambda file: f"{_file_id(file)}-{file.name}")
    yield sink.take()


def to_chatgpt(conversation: Conversation) -> JsonObject:
    """Return a conversation with all its branches as ChatGPT exports it."""
    root: ChatGPTNode = {"id": ROOT, "message": None, "parent": None, "children": []}
    mapping: dict[str, ChatGPTNode] = {ROOT: root}
    rows = with_rows(Message.objects.filter(conversation=conversation)).order_by("depth", "id")
    for message in rows.iterator(500):
        above = str(message.parent_id) if message.parent_id else ROOT
        for node in _nodes(message, above):
            mapping[node["id"]] = node
            mapping[node["parent"] or ROOT]["children"].append(node["id"])
    return {
        "id": str(conversation.pk),
        "conversation_id": str(conversation.pk),
        "title": conversation.title,
        "create_time": conversation.created.timestamp(),
        "update_time": conversation.updated.timestamp(),
        "mapping": mapping,
        "moderation_results": [],
        "current_node": str(conversation.leaf_id) if conversation.leaf_id else ROOT,
        "is_archived": conversation.archived,
        "is_starred": conversation.pinned is not None,
    }


def _nodes(message: Message, above: str) -> Iterator[ChatGPTNode]:
    """Yield the nodes of a message: its reasoning, if it has some, and below it the text with the files."""
    role = "user" if message.role == Message.Role.USER else "assistant"
    reasoning = [part["text"] for part in message.parts if part["type"] == "reasoning" and part["text"]]
    if reasoning:
        key = f"{message.pk}-thoughts"
        thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "", "content": text} for text in reasoning]}
        yield _node(key, above, _message(message, key, role, thoughts))
        above = key
    content: JsonObject = {"content_type": "text", "parts": [message.text]}
    own = _message(message, str(message.pk), role, content)
    own["metadata"]["attachments"] = [_attachment(each) for each in message.attachments.all()]
    yield _node(str(message.pk), above, own)


def _node(key: str, above: str, message: JsonObject) -> ChatGPTNode:
    return {"id": key, "message": message, "parent": above, "children": []}


def _message(message: Message, key: str, role: str, content: JsonObject) -> JsonObject:
    metadata: JsonObject = {"model_slug": message.model.name} if message.model and role == "assistant" else {}
    return {
        "id": key,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": message.created.timestamp(),
        "update_time": None,
        "content": content,
        "status": "finished_successfully",
        "end_turn": True,
        "weight": 1.0,
        "metadata": metadata,
        "recipient": "all",
        "channel": None,
    }


def _attachment(attachment: Attachment) -> JsonObject:
    """Return an attached file. Without an id its bytes are not in the zip."""
    file = attachment.file
    if file is None:
        return {"name": attachment.name}
    return {"name": attachment.name, "id": _file_id(file), "size": file.size}


def _file_id(file: File) -> str:
    return f"file-{file.pk.hex}"
