"""A conversation of another product, in the terms of this one. What is wrong with it is said in a sentence."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.sentences import Sentence

MAX_MESSAGES = 50_000  # of one conversation
MAX_TITLE = 200  # characters
MAX_TEXT = 1_000_000  # characters of one message, as for one that is written here
MAX_CONVERSATION = 10_000_000  # characters of one conversation
SPOKEN = ("text", "multimodal_text")  # of ChatGPT's content; other types are code for tools, thoughts, results


class Unusable(Exception):
    """A conversation that cannot be imported, and the sentence that says why."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(slots=True)
class Said:
    """A message. `parent` is the `id` of the one above it, None for a first one. `files` are names."""

    id: str
    parent: str | None
    question: bool
    text: str
    created: datetime | None
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Foreign:
    """`messages` in an order in which parents come first; `leaf` is the `id` of the end of the branch on show."""

    source: str
    title: str
    created: datetime | None
    updated: datetime | None
    archived: bool
    messages: list[Said]
    leaf: str | None


def text_of(value: Any) -> str:
    """What PostgreSQL can store of a string, empty for anything else: neither NUL nor half a character."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Seconds since 1970, or ISO 8601; None for what is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def names(files: Any, key: str) -> list[str]:
    rows: Iterable[Any] = files if isinstance(files, list) else ()
    found = [text_of(row.get(key)).strip()[:255] for row in rows if isinstance(row, dict)]
    return [name for name in found if name][:50]


def source_of(product: str, own: Any) -> str:
    """What tells the conversation from all others; raises `Unusable` for one without an id of its own."""
    if not text_of(own):
        raise Unusable(Sentence("It has no id, so it could not be told from one that is here already."))
    return f"{product}:{text_of(own)[:150]}"


def checked(found: Foreign) -> Foreign:
    """Raises `Unusable` for a conversation that is empty or too large."""
    if not found.messages:
        raise Unusable(Sentence("It holds no message with text."))
    if len(found.messages) > MAX_MESSAGES:
        raise Unusable(Sentence("It has more than {max_messages} messages.", max_messages=MAX_MESSAGES))
    for said in found.messages:
        _bounded(said.text)
    if sum(len(said.text) for said in found.messages) > MAX_CONVERSATION:
        raise too_long()
    return found


def too_long() -> Unusable:
    return Unusable(Sentence("It has more than {max_conversation} characters.", max_conversation=MAX_CONVERSATION))


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise Unusable(Sentence("One of its messages has more than {max_text} characters.", max_text=MAX_TEXT))
    return text


def in_pairs(messages: list[Said], leaf: str | None) -> tuple[list[Said], str | None]:
    """Answers that follow an answer become one with it: elsewhere each use of a tool makes a message of its own.

    Where several follow one answer, the first joins it, and the others stand beside it with its text repeated.
    """
    kept: dict[str, Said] = {}
    place: dict[str, str] = {}  # the id under which a message is kept
    joined: dict[str, Said] = {}  # the answer's own text, before another joined it
    repeated = 0  # characters
    for said in messages:
        above = kept.get(place.get(said.parent or "", ""))
        said.parent = above.id if above else None
        if above is None or said.question or above.question:
            kept[said.id], place[said.id] = said, said.id
        elif above.id not in joined:
            joined[above.id] = Said(above.id, above.parent, False, above.text, above.created, [*above.files])
            _join(above, said)
            place[said.id] = above.id
        else:
            before = joined[above.id]
            repeated += len(before.text)
            if repeated > MAX_CONVERSATION:
                raise too_long()
            said.parent, said.text = before.parent, f"{before.text}\n\n{said.text}"
            said.files = [*before.files, *said.files]
            kept[said.id], place[said.id] = said, said.id
    return list(kept.values()), place.get(leaf or "")


def _join(above: Said, said: Said) -> None:
    above.text = _bounded(f"{above.text}\n\n{said.text}")
    above.files = [*above.files, *said.files]


def reader_of(row: Any) -> Callable[[dict[str, Any]], Foreign] | None:
    """What makes a conversation of this row of an export, or raises `Unusable`; None for a row of an unknown shape."""
    if isinstance(row, dict) and isinstance(row.get("mapping"), dict):
        return chatgpt
    if isinstance(row, dict) and isinstance(row.get("chat_messages"), list):
        return claude
    return None


def chatgpt(row: dict[str, Any]) -> Foreign:
    """One of ChatGPT's: a `mapping` of nodes by id.

    A node has `parent`, `children` and `message`, which has `author.role`, `content` (`content_type`, and `parts` of
    text and other things), `create_time` in seconds and `metadata`. `current_node` is the end of the branch on show.
    Between question and answer there are nodes without words: the root, system messages, calls of tools and what they
    return.
    """
    source = source_of("chatgpt", row.get("conversation_id") or row.get("id"))
    said, places = _chatgpt_spoken(row["mapping"])
    current = row.get("current_node")
    messages, leaf = in_pairs(said, places.get(current) if isinstance(current, str) else None)
    return checked(
        Foreign(
            source=source,
            title=text_of(row.get("title")),
            created=moment(row.get("create_time")),
            updated=moment(row.get("update_time")),
            archived=row.get("is_archived") is True,
            messages=messages,
            leaf=leaf,
        )
    )


def _chatgpt_spoken(mapping: dict[str, Any]) -> tuple[list[Said], dict[str, str | None]]:
    """The messages with words, parents first; and for every node the nearest such message, itself or above it.

    Goes down from the roots, so nodes in a circle, which no export has, are never reached.
    """
    below: dict[str | None, list[str]] = {}
    for key, node in mapping.items():
        parent = node.get("parent") if isinstance(node, dict) else None
        known = isinstance(parent, str) and parent in mapping and parent != key
        below.setdefault(parent if known else None, []).append(key)
    found: list[Said] = []
    places: dict[str, str | None] = {}
    waiting: deque[tuple[str, str | None]] = deque((key, None) for key in below.get(None, ()))
    while waiting:
        key, above = waiting.popleft()
        said = _chatgpt_said(key, above, mapping[key])
        if said is not None:
            found.append(said)
        places[key] = key if said else above
        waiting.extend((child, places[key]) for child in below.get(key, ()))
    return found, places


def _chatgpt_said(key: str, above: str | None, node: Any) -> Said | None:
    """None for what was not said to or by the person."""
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
    return Said(key, above, role == "user", text, moment(message.get("create_time")), files)


def _text(part: Any) -> str:
    if isinstance(part, dict):  # speech comes with its transcript; pictures without one
        return text_of(part.get("text"))
    return text_of(part)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def claude(row: dict[str, Any]) -> Foreign:
    """One of Claude's, with `uuid`, `name` and `chat_messages`.

    A message has `sender` (human, assistant), `text`, and in newer exports `content` in blocks and
    `parent_message_uuid`. Without that they follow one another.
    """
    source, said = source_of("claude", row.get("uuid")), _claude_spoken(row["chat_messages"])
    current = text_of(row.get("current_leaf_message_uuid")) or (said[-1].id if said else None)
    messages, leaf = in_pairs(said, current)
    return checked(
        Foreign(
            source=source,
            title=text_of(row.get("name")),
            created=moment(row.get("created_at")),
            updated=moment(row.get("updated_at")),
            archived=False,
            messages=messages,
            leaf=leaf,
        )
    )


def _claude_spoken(rows: list[Any]) -> list[Said]:
    """In the order of the export, in which parents come first; a parent that is not there or not yet is none."""
    found: list[Said] = []
    places: dict[str, str | None] = {}  # of each message the nearest one with words, itself or above it
    before: str | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            continue
        key = text_of(row.get("uuid")) or str(number)
        named = row.get("parent_message_uuid")
        above = places.get(named) if isinstance(named, str) else before
        said = _claude_said(key, above, row) if key not in places else None
        if said is not None:
            found.append(said)
        before = places[key] = key if said else above
    return found


def _claude_said(key: str, above: str | None, row: dict[str, Any]) -> Said | None:
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
    return Said(key, above, row["sender"] == "human", text, moment(row.get("created_at")), files)
