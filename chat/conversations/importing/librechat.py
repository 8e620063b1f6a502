"""Read rows of LibreChat: conversations and presets.

An exported conversation has `conversationId`, `title`, `options` and its messages: a list `messages`, or the tree
`messagesTree`, in which a message has its `children`. A message has `messageId`, `parentMessageId`, `isCreatedByUser`,
`text`, `createdAt` and `model`. Newer answers have `content` instead of `text`: parts with words, thoughts, calls of
tools, pictures and errors. `manage.py import_librechat` makes rows of the same shape from a copy of the database.
"""

from typing import Any

from chat.conversations.importing.reading import (
    PICTURE_NAME,
    ImportedConversation,
    ImportedFile,
    ImportedListRow,
    ImportedMessage,
    as_file_name,
    as_list,
    as_object,
    as_text,
    check_conversation,
    count_loss,
    escape_variables,
    in_tree_order,
    join_consecutive_answers,
    join_paragraphs,
    limit_files,
    limit_tags,
    make_source,
    parse_time,
    too_many_messages_error,
    without_blank,
)
from core.json_types import JsonObject

PRODUCT = "librechat"
MAX_NODES = 100_000  # messages of one export, also those without words
MAX_PARTS = 5_000  # of one message
_ROOT_ID = "00000000-0000-0000-0000-000000000000"
_THINKING_START = ":::thinking"
_THINKING_END = "\n:::"


def is_conversation(row: JsonObject) -> bool:
    messages = row.get("messagesTree") if "messagesTree" in row else row.get("messages")
    return "conversationId" in row and isinstance(messages, list | dict)


def read_librechat(row: JsonObject) -> ImportedConversation:
    """Read a conversation. The export does not name the displayed branch, so the newest message ends it."""
    losses: dict[str, int] = {}
    nodes = _read_nodes(row)
    options = as_object(row.get("options"))
    model = as_text(options.get("model")) or as_text(row.get("model"))
    messages_with_text = _read_messages(nodes, model, losses)
    messages, _ = join_consecutive_answers(messages_with_text, None)
    has_instructions = any(as_text(each.get(name)) for each in (row, options) for name in ("promptPrefix", "system"))
    count_loss(losses, "instructions", has_instructions)
    times = [message.created for message in messages if message.created is not None]
    return check_conversation(
        ImportedConversation(
            source=make_source(PRODUCT, row.get("conversationId")),
            title=as_text(row.get("title")),
            created=parse_time(row.get("createdAt")) or min(times, default=None),
            updated=parse_time(row.get("updatedAt")) or max(times, default=None),
            archived=row.get("isArchived") is True,
            pinned=row.get("pinned") is True,
            messages=messages,
            leaf=None,
            losses=losses,
            tags=limit_tags([as_text(tag).strip() for tag in as_list(row.get("tags")) if as_text(tag).strip()], losses),
        )
    )


def _read_nodes(row: JsonObject) -> dict[str, JsonObject]:
    """Return the messages by id, each with its parent's id. Raises `UnusableConversation` for too many."""
    top = row["messagesTree"] if "messagesTree" in row else row["messages"]
    nodes: dict[str, JsonObject] = {}
    pending: list[tuple[Any, str | None]] = [(each, None) for each in reversed(top if isinstance(top, list) else [top])]
    while pending:
        node, above = pending.pop()
        if not isinstance(node, dict):
            continue
        key = as_text(node.get("messageId")) or f"message {len(nodes)}"
        if key in nodes:
            continue
        nodes[key] = node if above is None else {**node, "parentMessageId": above}
        if len(nodes) > MAX_NODES:
            raise too_many_messages_error()
        pending += [(child, key) for child in reversed(as_list(node.get("children")))]
    return nodes


def _read_messages(nodes: dict[str, JsonObject], model: str, losses: dict[str, int]) -> list[ImportedMessage]:
    """Return the messages with words, parents first."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for key, node in nodes.items():
        # In an export without parents, a message follows the previous one.
        parents[key] = as_text(node["parentMessageId"]) if "parentMessageId" in node else before
        before = key
    parents = {key: None if parent == _ROOT_ID else parent for key, parent in parents.items()}
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents):
        above = places[place.parent] if place.parent is not None else None
        message = _read_message(place.id, above, nodes[place.id], losses)
        if message is not None:
            message.model = "" if message.question else message.model or model
            messages.append(message)
        places[place.id] = place.id if message else above
    count_loss(losses, "unreachable", len(nodes) - len(places))
    return messages


def _read_message(key: str, above: str | None, node: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    question = node.get("isCreatedByUser") is True
    message = ImportedMessage(
        key, above, question, "", parse_time(node.get("createdAt")), model=as_text(node.get("model"))
    )
    if node.get("error") is True:
        count_loss(losses, "errors")
        return None
    message.files = _read_files(node, losses)
    content = as_list(node.get("content"))
    count_loss(losses, "others", len(content) - MAX_PARTS)
    _read_parts(message, content[:MAX_PARTS], losses)
    message.files = limit_files(message.files, losses)
    if not message.text:
        message.text = _split_thinking(message, as_text(node.get("text")))
    quotes = [as_text(each).strip() for each in as_list(node.get("quotes"))]
    quoted = ["\n".join(f"> {line}" for line in quote.splitlines()) for quote in quotes]
    message.text = join_paragraphs(*quoted, without_blank(message.text))
    count_loss(losses, "ratings", bool(as_object(node.get("feedback")).get("rating")))
    return message if message.text or message.files or message.reasoning else None


def _read_parts(message: ImportedMessage, parts: list[Any], losses: dict[str, int]) -> None:
    texts: list[str] = []
    thoughts: list[str] = []
    for part in map(as_object, parts):
        match part.get("type"):
            case "text" | "text_delta":
                text = part.get("text")
                texts.append(as_text(as_object(text).get("value") if isinstance(text, dict) else text))
            case "think":
                think = part.get("think")
                thoughts.append(as_text(as_object(think).get("value") if isinstance(think, dict) else think))
            case "tool_call":
                count_loss(losses, "tools")
            case "image_file":
                message.files.append(_read_file(as_object(part.get("image_file")), PICTURE_NAME))
            case "image_url":
                url = as_text(as_object(part.get("image_url")).get("url"))
                data = url.partition(";base64,")[2] if url.startswith("data:") else ""
                message.files.append(ImportedFile(f"{PICTURE_NAME}.png" if data else PICTURE_NAME, data=data))
            case "error":
                count_loss(losses, "errors")
            case "agent_update" | None:
                pass
            case _:
                count_loss(losses, "others")
    message.text = without_blank(texts[0]) if len(texts) == 1 else join_paragraphs(*(text.strip() for text in texts))
    message.reasoning = join_paragraphs(*(text.strip() for text in thoughts))


def _split_thinking(message: ImportedMessage, text: str) -> str:
    """Return the text without the reasoning that older versions put before it. Set the reasoning of the message."""
    if not text.startswith(_THINKING_START):
        return text
    thoughts, end, rest = text.removeprefix(_THINKING_START).partition(_THINKING_END)
    if end:
        message.reasoning = thoughts.strip()
    return rest.strip() if end else text


def _read_files(node: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the uploaded files and those of tools. Attachments without a name are search sources, which are lost."""
    files: list[ImportedFile] = []
    for name in ("files", "attachments"):
        for each in map(as_object, as_list(node.get(name))):
            if as_file_name(each.get("filename")):
                files.append(_read_file(each, "file"))
            else:
                count_loss(losses, "sources")
    return files


def _read_file(row: JsonObject, name: str) -> ImportedFile:
    return ImportedFile(
        as_file_name(row.get("filename")) or name, text=as_text(row.get("text")), key=as_text(row.get("file_id"))
    )


def read_preset(row: JsonObject) -> ImportedListRow:
    """Read a preset, which becomes a persona."""
    instructions = join_paragraphs(
        as_text(row.get("promptPrefix")), as_text(row.get("system")), as_text(row.get("instructions"))
    )
    return ImportedListRow(
        "personas",
        {
            "name": as_text(row.get("title")) or as_text(row.get("modelLabel")) or as_text(row.get("chatGptLabel")),
            "instructions": escape_variables(instructions),
            "model": as_text(row.get("model")),
            "lost": ["tools"] if as_list(row.get("tools")) else [],
        },
    )


def read_agent(row: JsonObject) -> ImportedListRow:
    """Read an agent, which becomes a persona."""
    starters = [as_text(each) for each in as_list(row.get("conversation_starters"))]
    resources = [each for each in as_object(row.get("tool_resources")).values() if as_object(each).get("file_ids")]
    lost = [("tools", row.get("tools")), ("knowledge", resources), ("other agents", row.get("edges"))]
    return ImportedListRow(
        "personas",
        {
            "name": as_text(row.get("name")),
            "description": as_text(row.get("description")),
            "instructions": escape_variables(as_text(row.get("instructions"))),
            "model": as_text(row.get("model")),
            "starter_messages": [text for text in starters if text],
            "lost": [name for name, value in lost if as_list(value)],
        },
    )
