"""Types and helpers to read conversations of other products (`products` lists these).

A reader names what it leaves out: it counts each part in `ImportedConversation.losses`, under a key of
`storing.LOSSES`.
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
MAX_CONVERSATION = 10_000_000  # characters of one conversation
MAX_FILES = 50  # files of one message
MAX_NAME = 255  # characters of a file's name
MAX_TAGS = 20
MAX_FOLDER = 100  # characters
PASTED = "Pasted text.txt"  # the name of a text that was pasted without one
PICTURE = "picture"  # the name of a picture without one
# Products write times in seconds, milliseconds, microseconds or nanoseconds since 1970. The bound of each unit is a
# time after the year 5000 in the unit before it.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))

_FOREIGN_VARIABLE = re.compile(r"\{\{[ ]{0,3}[A-Za-z_][\w.]{0,60}[ ]{0,3}\}\}")


class Unusable(Exception):
    """The conversation cannot be imported. `sentence` says why."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence.english)
        self.sentence = sentence


@dataclass(slots=True)
class ImportedFile:
    """A file of a message, with its text or with its bytes in base64 (`data`). If both are empty, only its name came.

    `key` is its id in the other product. With it the bytes can be looked up beside the conversation.
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
    """A conversation of an export. `messages` have parents first; `leaf` is the `id` of the end of the branch on show.

    `source` identifies the conversation across imports. `folder` is the name of its folder, which becomes a project.
    `losses` counts the parts that are not in `messages`, by the keys of `storing.LOSSES`.
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
    """A row of another product that is no conversation, in the form of the own export's list `name`.

    Its member `lost` names the parts that do not come, such as `tools`.
    """

    name: str
    row: JsonObject


@dataclass(frozen=True, slots=True)
class TreePlace:
    """The place of a message in its conversation: its id, and that of the message above it, None for the first."""

    id: str
    parent: str | None


def text_of(value: Any) -> str:
    """Return a string without NUL and lone surrogates, which PostgreSQL cannot store; empty for other values."""
    return value.replace("\0", "").encode(errors="replace").decode() if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Return a time from a number since 1970, in seconds or a smaller unit, or from ISO 8601; None for other values."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            unit = next((unit for bound, unit in _UNITS if value >= bound), 1)
            return datetime.fromtimestamp(value / unit, UTC)
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def object_of(value: Any) -> JsonObject:
    """Return an object, an empty one for other values."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list, an empty one for other values."""
    return value if isinstance(value, list) else []


def name_of(value: Any) -> str:
    """Return the name of a file, of `MAX_NAME` characters at most."""
    return text_of(value).strip()[:MAX_NAME]


def named_files(rows: Any, key: str) -> list[ImportedFile]:
    """Return the files of which an export has only the names."""
    names = [name_of(row.get(key)) for row in list_of(rows) if isinstance(row, dict)]
    return [ImportedFile(name) for name in names if name]


def few_files(files: list[ImportedFile], losses: dict[str, int]) -> list[ImportedFile]:
    """Return `MAX_FILES` files at most. The others are counted as lost."""
    lose(losses, "others", len(files) - MAX_FILES)
    return files[:MAX_FILES]


def few_tags(names: list[str], losses: dict[str, int]) -> list[str]:
    """Return `MAX_TAGS` names of tags at most. The others are counted as lost."""
    lose(losses, "tags", len(names) - MAX_TAGS)
    return names[:MAX_TAGS]


def lose(losses: dict[str, int], key: str, count: int = 1) -> None:
    """Count a part that does not come."""
    if count > 0:
        losses[key] = losses.get(key, 0) + count


def paragraphs(*texts: str) -> str:
    """Return the texts that are not empty, as paragraphs."""
    return "\n\n".join(filter(None, texts))


def fenced(code: str, language: str = "") -> str:
    """Return code as a block of Markdown, with a fence that the code does not contain."""
    fence = "```"
    while fence in code:
        fence += "`"
    word = language if language.isalnum() else ""
    return f"{fence}{word}\n{code.strip(chr(10))}\n{fence}"


def literal_variables(text: str) -> str:
    """Return instructions in which the variables of another product are plain text, as they have no value here."""
    return _FOREIGN_VARIABLE.sub(r"\\\g<0>", text)


def in_tree_order(
    parents: Mapping[str, str | None], children: Mapping[str, Collection[str]] | None = None
) -> Iterator[TreePlace]:
    """Yield the ids of a tree, parents first. A parent that is not an id counts as none.

    `parents` maps each id to its parent. `children` may name the order of the ids below an id; the others come after
    these, in the order of `parents`. Ids in a cycle are never reached.
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
        raise too_many_messages()
    for message in conversation.messages:
        _bounded(message.text)
        _bounded(message.reasoning)
    if sum(len(message.text) + len(message.reasoning) for message in conversation.messages) > MAX_CONVERSATION:
        raise too_long()
    return conversation


def too_many_messages() -> Unusable:
    return Unusable(Sentence("It has more than {max_messages} messages.", max_messages=MAX_MESSAGES))


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
            joined[above.id] = replace(above, files=[*above.files])
            _join(above, message)
            place[message.id] = above.id
        else:
            before = joined[above.id]
            repeated += len(before.text) + len(before.reasoning)
            if repeated > MAX_CONVERSATION:
                raise too_long()
            message.parent = before.parent
            message.text = paragraphs(before.text, message.text)
            message.reasoning = paragraphs(before.reasoning, message.reasoning)
            message.files = [*before.files, *message.files]
            by_id[message.id] = message
            place[message.id] = message.id
    return list(by_id.values()), place.get(leaf or "")


def _join(above: ImportedMessage, message: ImportedMessage) -> None:
    above.text = _bounded(paragraphs(above.text, message.text))
    above.reasoning = _bounded(paragraphs(above.reasoning, message.reasoning))
    above.files = [*above.files, *message.files]
    above.model = above.model or message.model
