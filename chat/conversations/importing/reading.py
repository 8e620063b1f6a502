"""Read a conversation from another product's export.

To add a product: 1. write a function that reads a row of its export and returns `checked(ImportedConversation(...))`;
2. return it in `reader_of` for rows of its shape; 3. add the keys that it reads to `stream._KEPT`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.json_types import JsonObject
from core.sentences import Sentence

MAX_MESSAGES = 50_000  # messages of one conversation
MAX_TITLE = 200  # characters
MAX_TEXT = 1_000_000  # characters of one message, as for a message that is typed here
MAX_CONVERSATION = 10_000_000  # characters of one conversation
SPOKEN = ("text", "multimodal_text")  # content types of ChatGPT with words; others are code, thoughts, results


class Unusable(Exception):
    """The conversation cannot be imported. `sentence` says why."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(slots=True)
class ImportedMessage:
    """A message of an export. `parent` is the `id` of the message above it; None for the first. `files` are names."""

    id: str
    parent: str | None
    question: bool
    text: str
    created: datetime | None
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ImportedConversation:
    """A conversation of an export. `messages` have parents first; `leaf` is the `id` of the end of the branch on show.

    `source` identifies the conversation across imports.
    """

    source: str
    title: str
    created: datetime | None
    updated: datetime | None
    archived: bool
    messages: list[ImportedMessage]
    leaf: str | None


def text_of(value: Any) -> str:
    """Return a string without NUL and lone surrogates, which PostgreSQL cannot store; empty for other values."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Return a time from seconds since 1970 or ISO 8601; None for other values."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def names(files: Any, key: str) -> list[str]:
    """Return the names of at most 50 files."""
    rows: Iterable[Any] = files if isinstance(files, list) else ()
    texts = [text_of(row.get(key)).strip()[:255] for row in rows if isinstance(row, dict)]
    return [name for name in texts if name][:50]


def source_of(product: str, own: Any) -> str:
    """Return the conversation's `source`. Raises `Unusable` for a conversation without an id."""
    if not text_of(own):
        raise Unusable(Sentence("It has no id, so the import cannot tell whether it is here already."))
    return f"{product}:{text_of(own)[:150]}"


def checked(conversation: ImportedConversation) -> ImportedConversation:
    """Check the size of a conversation. Raises `Unusable` if it is empty or too large."""
    if not conversation.messages:
        raise Unusable(Sentence("It has no message with text."))
    if len(conversation.messages) > MAX_MESSAGES:
        raise Unusable(Sentence("It has more than {max_messages} messages.", max_messages=MAX_MESSAGES))
    for message in conversation.messages:
        _bounded(message.text)
    if sum(len(message.text) for message in conversation.messages) > MAX_CONVERSATION:
        raise too_long()
    return conversation


def too_long() -> Unusable:
    return Unusable(Sentence("It has more than {max_conversation} characters.", max_conversation=MAX_CONVERSATION))


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise Unusable(Sentence("One of its messages has more than {max_text} characters.", max_text=MAX_TEXT))
    return text


def in_pairs(messages: list[ImportedMessage], leaf: str | None) -> tuple[list[ImportedMessage], str | None]:
    """Join consecutive answers into one, since other products store a message for each use of a tool.

    If several answers follow one answer, the first joins it. The others become its siblings and repeat its text.
    """
    by_id: dict[str, ImportedMessage] = {}
    place: dict[str, str] = {}  # by the id of a message: the id of the message that contains it
    joined: dict[str, ImportedMessage] = {}  # by id: the answer before another answer joined it
    repeated = 0  # characters
    for message in messages:
        above = by_id.get(place.get(message.parent or "", ""))
        message.parent = above.id if above else None
        if above is None or message.question or above.question:
            by_id[message.id] = message
            place[message.id] = message.id
        elif above.id not in joined:
            joined[above.id] = ImportedMessage(above.id, above.parent, False, above.text, above.created, [*above.files])
            _join(above, message)
            place[message.id] = above.id
        else:
            before = joined[above.id]
            repeated += len(before.text)
            if repeated > MAX_CONVERSATION:
                raise too_long()
            message.parent = before.parent
            message.text = f"{before.text}\n\n{message.text}"
            message.files = [*before.files, *message.files]
            by_id[message.id] = message
            place[message.id] = message.id
    return list(by_id.values()), place.get(leaf or "")


def _join(above: ImportedMessage, message: ImportedMessage) -> None:
    above.text = _bounded(f"{above.text}\n\n{message.text}")
    above.files = [*above.files, *message.files]


def reader_of(row: Any) -> Callable[[JsonObject], ImportedConversation] | None:
    """Return the function that reads a row of an export, which may raise `Unusable`; None for an unknown shape."""
    if isinstance(row, dict) and isinstance(row.get("mapping"), dict):
        return chatgpt
    if isinstance(row, dict) and isinstance(row.get("chat_messages"), list):
        return claude
    return None


def chatgpt(row: JsonObject) -> ImportedConversation:
    """Read a conversation of ChatGPT: a `mapping` of nodes by id.

    A node has `parent`, `children` and `message`, which has `author.role`, `content` (`content_type`, and `parts` of
    text and other content), `create_time` in seconds and `metadata`. `current_node` is the end of the branch on show.
    Between question and answer there are nodes without words: the root, system messages, calls of tools and their
    results.
    """
    source = source_of("chatgpt", row.get("conversation_id") or row.get("id"))
    spoken, places = _chatgpt_spoken(row["mapping"])
    current = row.get("current_node")
    messages, leaf = in_pairs(spoken, places.get(current) if isinstance(current, str) else None)
    return checked(
        ImportedConversation(
            source=source,
            title=text_of(row.get("title")),
            created=moment(row.get("create_time")),
            updated=moment(row.get("update_time")),
            archived=row.get("is_archived") is True,
            messages=messages,
            leaf=leaf,
        )
    )


def _chatgpt_spoken(mapping: JsonObject) -> tuple[list[ImportedMessage], dict[str, str | None]]:
    """Return the messages with words, parents first, and for every node the nearest such message at or above it.

    It walks down from the roots, so nodes in a cycle are never reached.
    """
    below: dict[str | None, list[str]] = {}
    for key, node in mapping.items():
        parent = node.get("parent") if isinstance(node, dict) else None
        has_parent = isinstance(parent, str) and parent in mapping and parent != key
        below.setdefault(parent if has_parent else None, []).append(key)
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}
    waiting: deque[tuple[str, str | None]] = deque((key, None) for key in below.get(None, ()))
    while waiting:
        key, above = waiting.popleft()
        message = _chatgpt_message(key, above, mapping[key])
        if message is not None:
            messages.append(message)
        places[key] = key if message else above
        waiting.extend((child, places[key]) for child in below.get(key, ()))
    return messages, places


def _chatgpt_message(key: str, above: str | None, node: Any) -> ImportedMessage | None:
    """Return the message of a node; None if it is neither a question nor an answer."""
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return None
    author, content, metadata = (_object(message.get(name)) for name in ("author", "content", "metadata"))
    role = author.get("role")
    hidden = metadata.get("is_visually_hidden_from_conversation") is True
    # An answer with a recipient is a call of a tool.
    called = message.get("recipient") not in (None, "all")
    if role not in ("user", "assistant") or hidden or called or content.get("content_type", "text") not in SPOKEN:
        return None
    parts = content.get("parts")
    text = "\n\n".join(filter(None, map(_text, parts if isinstance(parts, list) else ()))).strip()
    files = names(metadata.get("attachments"), "name")
    if not text and not files:
        return None
    return ImportedMessage(key, above, role == "user", text, moment(message.get("create_time")), files)


def _text(part: Any) -> str:
    if isinstance(part, dict):  # speech comes with its transcript; pictures without one
        return text_of(part.get("text"))
    return text_of(part)


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def claude(row: JsonObject) -> ImportedConversation:
    """Read a conversation of Claude, with `uuid`, `name` and `chat_messages`.

    A message has `sender` (human, assistant), `text`, and in newer exports `content` in blocks and
    `parent_message_uuid`. Without that the messages follow one another.
    """
    source = source_of("claude", row.get("uuid"))
    spoken = _claude_spoken(row["chat_messages"])
    current = text_of(row.get("current_leaf_message_uuid")) or (spoken[-1].id if spoken else None)
    messages, leaf = in_pairs(spoken, current)
    return checked(
        ImportedConversation(
            source=source,
            title=text_of(row.get("name")),
            created=moment(row.get("created_at")),
            updated=moment(row.get("updated_at")),
            archived=False,
            messages=messages,
            leaf=leaf,
        )
    )


def _claude_spoken(rows: list[Any]) -> list[ImportedMessage]:
    """Return the messages with words in the order of the export. A parent that does not come earlier is ignored."""
    messages: list[ImportedMessage] = []
    places: dict[str, str | None] = {}  # by message: the nearest message with words, itself or above it
    before: str | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            continue
        key = text_of(row.get("uuid")) or str(number)
        named = row.get("parent_message_uuid")
        above = places.get(named) if isinstance(named, str) else before
        message = _claude_message(key, above, row) if key not in places else None
        if message is not None:
            messages.append(message)
        before = places[key] = key if message else above
    return messages


def _claude_message(key: str, above: str | None, row: JsonObject) -> ImportedMessage | None:
    if row.get("sender") not in ("human", "assistant"):
        return None
    blocks = row.get("content")
    spoken = [
        text_of(block.get("text"))
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block.get("type") == "text"
    ]
    text = "\n\n".join(filter(None, spoken)).strip() or text_of(row.get("text")).strip()
    files = names(row.get("attachments"), "file_name") + names(row.get("files"), "file_name")
    if not text and not files:
        return None
    return ImportedMessage(key, above, row["sender"] == "human", text, moment(row.get("created_at")), files)
