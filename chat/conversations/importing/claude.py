"""Read a conversation of Claude, with `uuid`, `name` and `chat_messages`.

A message has `sender` (human, assistant), `text`, and in newer exports `content` in blocks and `parent_message_uuid`.
Without it, each message follows the previous one. A pasted text is in `attachments[].extracted_content`. An artifact is
a call of the tool `artifacts`.
"""

from dataclasses import dataclass, field
from typing import Any

from chat.conversations.importing.reading import (
    MAX_CONVERSATION_LENGTH,
    PASTED_NAME,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
    as_file_name,
    as_list,
    as_object,
    as_text,
    check_conversation,
    code_block,
    count_loss,
    join_consecutive_answers,
    join_paragraphs,
    limit_files,
    make_source,
    named_files,
    parse_time,
    too_long_error,
)
from core.json_types import JsonObject

_CODE_TYPE = "application/vnd.ant.code"
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

    def to_markdown(self) -> str:
        """Return the artifact as a code block below its title."""
        block = code_block(self.content, self.language)
        return join_paragraphs(f"**{self.title}**", block) if self.title else block


@dataclass(slots=True)
class _ConversationState:
    """State that the messages of one conversation share. `characters`: the length of all versions of its artifacts."""

    losses: dict[str, int] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    characters: int = 0


def read_claude(row: JsonObject) -> ImportedConversation:
    """Read a conversation of Claude."""
    source = make_source("claude", row.get("uuid"))
    state = _ConversationState()
    messages_with_text, places = _read_messages(row["chat_messages"], state)
    current = row.get("current_leaf_message_uuid")
    leaf_id = places.get(current) if isinstance(current, str) else None
    messages, leaf = join_consecutive_answers(
        messages_with_text, leaf_id or (messages_with_text[-1].id if messages_with_text else None)
    )
    return check_conversation(
        ImportedConversation(
            source=source,
            title=as_text(row.get("name")),
            created=parse_time(row.get("created_at")),
            updated=parse_time(row.get("updated_at")),
            archived=False,
            pinned=row.get("is_starred") is True,
            messages=messages,
            leaf=leaf,
            losses=state.losses,
        )
    )


def _read_messages(rows: list[Any], state: _ConversationState) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with content in the order of the export. A parent that comes later is ignored.

    Also return, for each message, the nearest message with content: itself or one above it.
    """
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    before: str | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            continue
        key = as_text(row.get("uuid")) or str(number)
        parent_id = row.get("parent_message_uuid")
        above = places.get(parent_id) if isinstance(parent_id, str) else before
        message = _read_message(key, above, row, state) if key not in places else None
        if message is not None:
            messages.append(message)
        before = places[key] = key if message else above
    return messages, places


def _read_message(key: str, above: str | None, row: JsonObject, state: _ConversationState) -> ImportedMessage | None:
    if row.get("sender") not in ("human", "assistant"):
        return None
    texts: list[str] = []
    thoughts: list[str] = []
    for block in map(as_object, as_list(row.get("content"))):
        match block.get("type"):
            case "text" | "voice_note":
                texts.append(as_text(block.get("text")))
                count_loss(state.losses, "sources", bool(as_list(block.get("citations"))))
            case "thinking":
                thoughts.append(as_text(block.get("thinking")))
            case "tool_use" if block.get("name") == "artifacts":
                texts.append(_read_artifact(as_object(block.get("input")), state))
            case "tool_use":
                count_loss(state.losses, "tools")
            case "image" | "document":
                count_loss(state.losses, "others")
    text = join_paragraphs(*texts).strip() or as_text(row.get("text")).strip()
    pasted = [each for each in map(as_object, as_list(row.get("attachments"))) if _has_content(each)]
    files = limit_files([*map(_read_attachment, pasted), *named_files(row.get("files"), "file_name")], state.losses)
    reasoning = join_paragraphs(*thoughts).strip()
    if not text and not files and not reasoning:
        return None
    created = parse_time(row.get("created_at"))
    return ImportedMessage(key, above, row["sender"] == "human", text, created, files, reasoning)


def _has_content(attachment: JsonObject) -> bool:
    return bool(as_file_name(attachment.get("file_name")) or as_text(attachment.get("extracted_content")))


def _read_attachment(attachment: JsonObject) -> ImportedFile:
    return ImportedFile(
        as_file_name(attachment.get("file_name")) or PASTED_NAME, text=as_text(attachment.get("extracted_content"))
    )


def _read_artifact(call: JsonObject, state: _ConversationState) -> str:
    """Return the artifact as it is after this call, as a block of Markdown; empty if its text is unknown."""
    key = as_text(call.get("id"))
    artifact = state.artifacts.get(key)
    content = as_text(call.get("content"))
    if content:
        before = artifact or Artifact("", "", "")
        kind = as_text(call.get("type"))
        language = as_text(call.get("language")) if kind == _CODE_TYPE else _LANGUAGES.get(kind, "")
        title = as_text(call.get("title")).strip() or before.title
        artifact = Artifact(title, language or before.language, content)
    elif artifact is not None and as_text(call.get("old_str")) in artifact.content:
        old, new = as_text(call.get("old_str")), as_text(call.get("new_str"))
        artifact = Artifact(artifact.title, artifact.language, artifact.content.replace(old, new, 1))
    else:
        count_loss(state.losses, "artifacts")
        return ""
    state.artifacts[key] = artifact
    state.characters += len(artifact.content)
    if state.characters > MAX_CONVERSATION_LENGTH:
        raise too_long_error()
    return artifact.to_markdown()
