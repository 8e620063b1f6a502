"""Read rows of LibreChat: conversations and presets.

An exported conversation has `conversationId`, `title`, `options` and its messages: a list `messages`, or the tree
`messagesTree`, in which a message has its `children`. A message has `messageId`, `parentMessageId`, `isCreatedByUser`,
`text`, `createdAt` and `model`. Newer answers have `content` instead of `text`: parts with words, thoughts, calls of
tools, pictures and errors. `manage.py import_librechat` makes rows of the same shape from a copy of the database.
"""

from typing import Any

from chat.conversations.importing.reading import (
    PICTURE,
    ImportedConversation,
    ImportedFile,
    ImportedListRow,
    ImportedMessage,
    checked,
    few_files,
    few_tags,
    in_pairs,
    in_tree_order,
    list_of,
    literal_variables,
    lose,
    moment,
    name_of,
    object_of,
    paragraphs,
    source_of,
    text_of,
    too_many_messages,
)
from core.json_types import JsonObject

PRODUCT = "librechat"
MAX_NODES = 100_000  # messages of one export, also those without words
MAX_PARTS = 5_000  # of one message
_ROOT = "00000000-0000-0000-0000-000000000000"
_THINKING = ":::thinking"
_THINKING_END = "\n:::"


def is_conversation(row: JsonObject) -> bool:
    messages = row.get("messagesTree") if "messagesTree" in row else row.get("messages")
    return "conversationId" in row and isinstance(messages, list | dict)


def librechat(row: JsonObject) -> ImportedConversation:
    """Read a conversation. The export does not say which branch was on show; the newest message is."""
    losses: dict[str, int] = {}
    nodes = _nodes(row)
    options = object_of(row.get("options"))
    model = text_of(options.get("model")) or text_of(row.get("model"))
    spoken = _spoken(nodes, model, losses)
    messages, _ = in_pairs(spoken, None)
    system = [row, options]
    lose(losses, "instructions", any(text_of(each.get(name)) for each in system for name in ("promptPrefix", "system")))
    times = [message.created for message in messages if message.created is not None]
    return checked(
        ImportedConversation(
            source=source_of(PRODUCT, row.get("conversationId")),
            title=text_of(row.get("title")),
            created=moment(row.get("createdAt")) or min(times, default=None),
            updated=moment(row.get("updatedAt")) or max(times, default=None),
            archived=row.get("isArchived") is True,
            pinned=row.get("pinned") is True,
            messages=messages,
            leaf=None,
            losses=losses,
            tags=few_tags([text_of(tag).strip() for tag in list_of(row.get("tags")) if text_of(tag).strip()], losses),
        )
    )


def _nodes(row: JsonObject) -> dict[str, JsonObject]:
    """Return the messages by id, each with its parent's id. Raises `Unusable` for too many."""
    top = row["messagesTree"] if "messagesTree" in row else row["messages"]
    nodes: dict[str, JsonObject] = {}
    waiting: list[tuple[Any, str | None]] = [(each, None) for each in reversed(top if isinstance(top, list) else [top])]
    while waiting:
        node, above = waiting.pop()
        if not isinstance(node, dict):
            continue
        key = text_of(node.get("messageId")) or f"message {len(nodes)}"
        if key in nodes:
            continue
        nodes[key] = node if above is None else {**node, "parentMessageId": above}
        if len(nodes) > MAX_NODES:
            raise too_many_messages()
        waiting += [(child, key) for child in reversed(list_of(node.get("children")))]
    return nodes


def _spoken(nodes: dict[str, JsonObject], model: str, losses: dict[str, int]) -> list[ImportedMessage]:
    """Return the messages with words, parents first."""
    parents: dict[str, str | None] = {}
    before: str | None = None
    for key, node in nodes.items():
        # A message of an export without parents follows the one before it.
        parents[key] = text_of(node["parentMessageId"]) if "parentMessageId" in node else before
        before = key
    parents = {key: None if parent == _ROOT else parent for key, parent in parents.items()}
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    for place in in_tree_order(parents):
        above = places[place.parent] if place.parent is not None else None
        message = _message(place.id, above, nodes[place.id], losses)
        if message is not None:
            message.model = "" if message.question else message.model or model
            messages.append(message)
        places[place.id] = place.id if message else above
    lose(losses, "unreachable", len(nodes) - len(places))
    return messages


def _message(key: str, above: str | None, node: JsonObject, losses: dict[str, int]) -> ImportedMessage | None:
    question = node.get("isCreatedByUser") is True
    message = ImportedMessage(key, above, question, "", moment(node.get("createdAt")), model=text_of(node.get("model")))
    if node.get("error") is True:
        lose(losses, "errors")
        return None
    message.files = _files(node, losses)
    content = list_of(node.get("content"))
    lose(losses, "others", len(content) - MAX_PARTS)
    _read_parts(message, content[:MAX_PARTS], losses)
    message.files = few_files(message.files, losses)
    if not message.text:
        message.text = _without_thinking(message, text_of(node.get("text")))
    quotes = [text_of(each).strip() for each in list_of(node.get("quotes"))]
    quoted = ["\n".join(f"> {line}" for line in quote.splitlines()) for quote in quotes]
    message.text = paragraphs(*quoted, message.text.strip())
    lose(losses, "ratings", bool(object_of(node.get("feedback")).get("rating")))
    return message if message.text or message.files or message.reasoning else None


def _read_parts(message: ImportedMessage, parts: list[Any], losses: dict[str, int]) -> None:
    texts: list[str] = []
    thoughts: list[str] = []
    for part in map(object_of, parts):
        match part.get("type"):
            case "text" | "text_delta":
                text = part.get("text")
                texts.append(text_of(object_of(text).get("value") if isinstance(text, dict) else text))
            case "think":
                think = part.get("think")
                thoughts.append(text_of(object_of(think).get("value") if isinstance(think, dict) else think))
            case "tool_call":
                lose(losses, "tools")
            case "image_file":
                message.files.append(_file(object_of(part.get("image_file")), PICTURE))
            case "image_url":
                url = text_of(object_of(part.get("image_url")).get("url"))
                data = url.partition(";base64,")[2] if url.startswith("data:") else ""
                message.files.append(ImportedFile(f"{PICTURE}.png" if data else PICTURE, data=data))
            case "error":
                lose(losses, "errors")
            case "agent_update" | None:
                pass
            case _:
                lose(losses, "others")
    message.text = paragraphs(*(text.strip() for text in texts))
    message.reasoning = paragraphs(*(text.strip() for text in thoughts))


def _without_thinking(message: ImportedMessage, text: str) -> str:
    """Return the text without the thoughts that older versions have put before it. These become its reasoning."""
    if not text.startswith(_THINKING):
        return text
    thoughts, end, rest = text.removeprefix(_THINKING).partition(_THINKING_END)
    if end:
        message.reasoning = thoughts.strip()
    return rest.strip() if end else text


def _files(node: JsonObject, losses: dict[str, int]) -> list[ImportedFile]:
    """Return the uploaded files, and those that tools made. Attachments without a name are the sources of a search."""
    files: list[ImportedFile] = []
    for name in ("files", "attachments"):
        for each in map(object_of, list_of(node.get(name))):
            if name_of(each.get("filename")):
                files.append(_file(each, "file"))
            else:
                lose(losses, "sources")
    return files


def _file(row: JsonObject, name: str) -> ImportedFile:
    return ImportedFile(
        name_of(row.get("filename")) or name, text=text_of(row.get("text")), key=text_of(row.get("file_id"))
    )


def preset(row: JsonObject) -> ImportedListRow:
    """Read a preset, which becomes a persona."""
    instructions = paragraphs(
        text_of(row.get("promptPrefix")), text_of(row.get("system")), text_of(row.get("instructions"))
    )
    return ImportedListRow(
        "personas",
        {
            "name": text_of(row.get("title")) or text_of(row.get("modelLabel")) or text_of(row.get("chatGptLabel")),
            "instructions": literal_variables(instructions),
            "model": text_of(row.get("model")),
            "lost": ["tools"] if list_of(row.get("tools")) else [],
        },
    )


def agent(row: JsonObject) -> ImportedListRow:
    """Read an agent, which becomes a persona."""
    starters = [text_of(each) for each in list_of(row.get("conversation_starters"))]
    resources = [each for each in object_of(row.get("tool_resources")).values() if object_of(each).get("file_ids")]
    lost = [("tools", row.get("tools")), ("knowledge", resources), ("other agents", row.get("edges"))]
    return ImportedListRow(
        "personas",
        {
            "name": text_of(row.get("name")),
            "description": text_of(row.get("description")),
            "instructions": literal_variables(text_of(row.get("instructions"))),
            "model": text_of(row.get("model")),
            "starter_messages": [text for text in starters if text],
            "lost": [name for name, value in lost if list_of(value)],
        },
    )
