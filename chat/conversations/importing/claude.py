"""Read a conversation of Claude, with `uuid`, `name` and `chat_messages`.

A message has `sender` (human, assistant), `text`, and in newer exports `content` in blocks and `parent_message_uuid`.
Without that the messages follow one another. A text that was pasted is in `attachments[].extracted_content`. An
artifact is a call of the tool `artifacts`.
"""

from dataclasses import dataclass, field
from typing import Any

from chat.conversations.importing.reading import (
    MAX_CONVERSATION,
    PASTED,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    checked,
    fenced,
    few_files,
    in_pairs,
    list_of,
    lose,
    moment,
    name_of,
    named_files,
    object_of,
    paragraphs,
    source_of,
    text_of,
    too_long,
)
from core.json_types import JsonObject

_CODE = "application/vnd.ant.code"
_LANGUAGES = {
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "application/vnd.ant.mermaid": "mermaid",
    "application/vnd.ant.react": "jsx",
}


@dataclass(slots=True)
class Artifact:
    """The newest version of an artifact."""

    title: str
    language: str
    content: str

    def shown(self) -> str:
        block = fenced(self.content, self.language)
        return paragraphs(f"**{self.title}**", block) if self.title else block


@dataclass(slots=True)
class _Reading:
    """Holds what the messages of one conversation share. `characters`: of all shown versions of artifacts."""

    losses: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    characters: int = 0


def claude(row: JsonObject) -> ImportedConversation:
    """Read a conversation of Claude."""
    source = source_of("claude", row.get("uuid"))
    reading = _Reading()
    spoken, places = _spoken(row["chat_messages"], reading)
    current = row.get("current_leaf_message_uuid")
    shown = places.get(current) if isinstance(current, str) else None
    messages, leaf = in_pairs(spoken, shown or (spoken[-1].id if spoken else None))
    return checked(
        ImportedConversation(
            source=source,
            title=text_of(row.get("name")),
            created=moment(row.get("created_at")),
            updated=moment(row.get("updated_at")),
            archived=False,
            pinned=row.get("is_starred") is True,
            messages=messages,
            leaf=leaf,
            losses=reading.losses,
        )
    )


def _spoken(rows: list[Any], reading: _Reading) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with words in the order of the export. A parent that does not come earlier is ignored.

    Also return, for each message, the nearest message with words, itself or above it.
    """
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    before: str | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            continue
        key = text_of(row.get("uuid")) or str(number)
        named = row.get("parent_message_uuid")
        above = places.get(named) if isinstance(named, str) else before
        message = _message(key, above, row, reading) if key not in places else None
        if message is not None:
            messages.append(message)
        before = places[key] = key if message else above
    return messages, places


def _message(key: str, above: str | None, row: JsonObject, reading: _Reading) -> ImportedMessage | None:
    if row.get("sender") not in ("human", "assistant"):
        return None
    texts: list[str] = []
    thoughts: list[str] = []
    for block in map(object_of, list_of(row.get("content"))):
        match block.get("type"):
            case "text" | "voice_note":
                texts.append(text_of(block.get("text")))
                lose(reading.losses, "sources", bool(list_of(block.get("citations"))))
            case "thinking":
                thoughts.append(text_of(block.get("thinking")))
            case "tool_use" if block.get("name") == "artifacts":
                texts.append(_artifact(object_of(block.get("input")), reading))
            case "tool_use":
                lose(reading.losses, "tools")
            case "image" | "document":
                lose(reading.losses, "others")
    text = paragraphs(*texts).strip() or text_of(row.get("text")).strip()
    pasted = [each for each in map(object_of, list_of(row.get("attachments"))) if _has_content(each)]
    files = few_files([*map(_attachment, pasted), *named_files(row.get("files"), "file_name")], reading.losses)
    reasoning = paragraphs(*thoughts).strip()
    if not text and not files and not reasoning:
        return None
    created = moment(row.get("created_at"))
    return ImportedMessage(key, above, row["sender"] == "human", text, created, files, reasoning)


def _has_content(attachment: JsonObject) -> bool:
    return bool(name_of(attachment.get("file_name")) or text_of(attachment.get("extracted_content")))


def _attachment(attachment: JsonObject) -> ImportedFile:
    return ImportedFile(
        name_of(attachment.get("file_name")) or PASTED, text=text_of(attachment.get("extracted_content"))
    )


def _artifact(call: JsonObject, reading: _Reading) -> str:
    """Return the artifact as it is after this call, as a block of Markdown; empty if that cannot be known."""
    key = text_of(call.get("id"))
    artifact = reading.artifacts.get(key)
    content = text_of(call.get("content"))
    if content:
        before = artifact or Artifact("", "", "")
        kind = text_of(call.get("type"))
        language = text_of(call.get("language")) if kind == _CODE else _LANGUAGES.get(kind, "")
        title = text_of(call.get("title")).strip() or before.title
        artifact = Artifact(title, language or before.language, content)
    elif artifact is not None and text_of(call.get("old_str")) in artifact.content:
        old, new = text_of(call.get("old_str")), text_of(call.get("new_str"))
        artifact = Artifact(artifact.title, artifact.language, artifact.content.replace(old, new, 1))
    else:
        lose(reading.losses, "artifacts")
        return ""
    reading.artifacts[key] = artifact
    reading.characters += len(artifact.content)
    if reading.characters > MAX_CONVERSATION:
        raise too_long()
    return artifact.shown()
