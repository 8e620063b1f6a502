"""Types and helpers to read conversations of other products (`products` lists these).

A reader counts each part that it leaves out in `ImportedConversation.losses`, under a key of `storing.LOSS_SENTENCES`.
"""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from core.json_types import JsonObject
from core.sentences import Sentence

MAX_MESSAGES = 50_000  # messages of one conversation
MAX_TITLE = 200  # characters
MAX_TEXT = 1_000_000  # characters of one message, as for a message that is typed here
MAX_CONVERSATION_LENGTH = 10_000_000  # characters of one conversation
MAX_FILES = 50  # files of one message
MAX_FILE_NAME = 255  # characters of a file's name
MAX_TAGS = 20
MAX_FOLDER_NAME = 100  # characters
PASTED_NAME = "Pasted text.txt"  # the name of a text that was pasted without one
PICTURE_NAME = "picture"  # the name of a picture without one
# Products write times in seconds, milliseconds, microseconds or nanoseconds since 1970: (lowest value, divisor). The
# lowest value of a unit would be a time after the year 5000 in the next larger unit.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))

_FOREIGN_VARIABLE = re.compile(r"\{\{[ ]{0,3}[A-Za-z_][\w.]{0,60}[ ]{0,3}\}\}")


class UnusableConversation(Exception):
    """Raised for a conversation that cannot be imported. `sentence` says why."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(slots=True)
class ImportedFile:
    """A file of a message, with its text or with its bytes in base64 (`data`). Without both, only the name is known.

    `key` is its id in the other product, by which the bytes may be in the zip of the export.
    """

    name: str
    text: str = ""
    data: str = ""
    key: str = ""


@dataclass(slots=True)
class ImportedMessage:
    """A message of an export. `parent` is the `id` of the message above it; None for the first.

    `model` is the name of the model that wrote it, as the other product calls it.
    """

    id: str
    parent: str | None
    question: bool
    text: str
    created: datetime | None
    files: list[ImportedFile] = field(default_factory=list)
    reasoning: str = ""
    model: str = ""


@dataclass(slots=True)
class ImportedConversation:
    """A conversation of an export.

    `messages` have parents first. `leaf` is the `id` of the last message of the displayed branch. `source` identifies
    the conversation across imports. `folder` is the name of its folder, which becomes a project. `losses` counts the
    parts that are not in `messages`, by the keys of `storing.LOSS_SENTENCES`.
    """

    source: str
    title: str
    created: datetime | None
    updated: datetime | None
    archived: bool
    messages: list[ImportedMessage]
    leaf: str | None
    losses: dict[str, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    folder: str = ""
    pinned: bool = False


@dataclass(slots=True)
class ImportedListRow:
    """A row of another product that is not a conversation, in the form of the own export's list `name`.

    Its member `lost` names the parts that are not imported, such as `tools`.
    """

    name: str
    row: JsonObject


@dataclass(frozen=True, slots=True)
class TreePlace:
    """The place of a message in its conversation: its id, and that of the message above it, None for the first."""

    id: str
    parent: str | None


def as_text(value: Any) -> str:
    """Return a string without NUL and lone surrogates, which PostgreSQL cannot store; empty for another type."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else ""


def parse_time(value: Any) -> datetime | None:
    """Return a time from a number since 1970, in seconds or a smaller unit, or from ISO 8601; None for other values."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            unit = next((unit for bound, unit in _UNITS if value >= bound), 1)
            return datetime.fromtimestamp(value / unit, UTC)
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def as_object(value: Any) -> JsonObject:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_file_name(value: Any) -> str:
    """Return the name of a file, cut to `MAX_FILE_NAME` characters."""
    return as_text(value).strip()[:MAX_FILE_NAME]


def named_files(rows: Any, key: str) -> list[ImportedFile]:
    """Return the files in `rows`, of which the export has only the names. `key`: the member with the name."""
    names = [as_file_name(row.get(key)) for row in as_list(rows) if isinstance(row, dict)]
    return [ImportedFile(name) for name in names if name]


def limit_files(files: list[ImportedFile], losses: dict[str, int]) -> list[ImportedFile]:
    """Return the first `MAX_FILES` files. The others are counted as lost."""
    count_loss(losses, "others", len(files) - MAX_FILES)
    return files[:MAX_FILES]


def limit_tags(names: list[str], losses: dict[str, int]) -> list[str]:
    """Return the first `MAX_TAGS` names of tags. The others are counted as lost."""
    count_loss(losses, "tags", len(names) - MAX_TAGS)
    return names[:MAX_TAGS]


def count_loss(losses: dict[str, int], key: str, count: int = 1) -> None:
    """Count parts that are not imported. A `count` of 0 or less changes nothing."""
    if count > 0:
        losses[key] = losses.get(key, 0) + count


def join_paragraphs(*texts: str) -> str:
    """Return the texts that are not empty, as paragraphs."""
    return "\n\n".join(filter(None, texts))


def without_blank(text: str) -> str:
    """Return the text unchanged, or an empty one if it is blank. Spaces before the first word may indent code."""
    return text if text.strip() else ""


def code_block(code: str, language: str = "") -> str:
    """Return code as a block of Markdown, with a fence that the code does not contain."""
    fence = "```"
    while fence in code:
        fence += "`"
    word = language if language.isalnum() else ""
    return f"{fence}{word}\n{code.strip(chr(10))}\n{fence}"


def escape_variables(text: str) -> str:
    """Return the text with a backslash before each variable of another product, which has no value here."""
    return _FOREIGN_VARIABLE.sub(r"\\\g<0>", text)


def in_tree_order(
    parents: Mapping[str, str | None], children: Mapping[str, Collection[str]] | None = None
) -> Iterator[TreePlace]:
    """Yield the ids of a tree, parents first. A parent that is not an id counts as none.

    `parents` maps each id to its parent. `children` may set the order of the ids below an id. Other ids follow in the
    order of `parents`. Ids in a cycle are left out.
    """
    below: dict[str | None, list[str]] = {}
    for key, parent in parents.items():
        below.setdefault(parent if parent in parents and parent != key else None, []).append(key)
    waiting: deque[TreePlace] = deque(TreePlace(key, None) for key in below.get(None, ()))
    while waiting:
        place = waiting.popleft()
        yield place
        unordered = below.get(place.id, [])
        if len(unordered) > 1 and children is not None:
            own = set(unordered)
            ordered = [key for key in children.get(place.id, ()) if key in own]
            unordered = list(dict.fromkeys([*ordered, *unordered]))
        waiting.extend(TreePlace(key, place.id) for key in unordered)


def make_source(product: str, own: Any) -> str:
    """Return the conversation's `source`. Raises `UnusableConversation` for a conversation without an id."""
    if not as_text(own):
        raise UnusableConversation(Sentence("It has no id, so the import cannot tell whether it is here already."))
    return f"{product}:{as_text(own)[:150]}"


def check_conversation(conversation: ImportedConversation) -> ImportedConversation:
    """Return the conversation. Raises `UnusableConversation` if it is empty or too large."""
    if not conversation.messages:
        raise UnusableConversation(Sentence("It has no message with text."))
    if len(conversation.messages) > MAX_MESSAGES:
        raise too_many_messages_error()
    for message in conversation.messages:
        _check_length(message.text)
        _check_length(message.reasoning)
    if sum(len(message.text) + len(message.reasoning) for message in conversation.messages) > MAX_CONVERSATION_LENGTH:
        raise too_long_error()
    return conversation


def too_many_messages_error() -> UnusableConversation:
    return UnusableConversation(Sentence("It has more than {max_messages} messages.", max_messages=MAX_MESSAGES))


def too_long_error() -> UnusableConversation:
    return UnusableConversation(
        Sentence("It has more than {max_conversation} characters.", max_conversation=MAX_CONVERSATION_LENGTH)
    )


def _check_length(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise UnusableConversation(
            Sentence("One of its messages has more than {max_text} characters.", max_text=MAX_TEXT)
        )
    return text


def join_consecutive_answers(
    messages: list[ImportedMessage], leaf: str | None
) -> tuple[list[ImportedMessage], str | None]:
    """Join consecutive answers into one, since other products store a message for each use of a tool.

    If several answers follow one answer, the first is joined to it. The others become its siblings and repeat its text.
    Also return the id of the message that contains `leaf`.
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
            joined[above.id] = replace(above, files=[*above.files])
            _append_answer(above, message)
            place[message.id] = above.id
        else:
            before = joined[above.id]
            repeated += len(before.text) + len(before.reasoning)
            if repeated > MAX_CONVERSATION_LENGTH:
                raise too_long_error()
            message.parent = before.parent
            message.text = join_paragraphs(before.text, message.text)
            message.reasoning = join_paragraphs(before.reasoning, message.reasoning)
            message.files = [*before.files, *message.files]
            by_id[message.id] = message
            place[message.id] = message.id
    return list(by_id.values()), place.get(leaf or "")


def _append_answer(above: ImportedMessage, message: ImportedMessage) -> None:
    above.text = _check_length(join_paragraphs(above.text, message.text))
    above.reasoning = _check_length(join_paragraphs(above.reasoning, message.reasoning))
    above.files = [*above.files, *message.files]
    above.model = above.model or message.model
