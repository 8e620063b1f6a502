"""The results of an import, and the parts of an export that are read one by one."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from chat.conversations.importing.reading import ImportedConversation
from core.json_types import JsonObject

Outcome = Literal["imported", "known", "skipped"]


class ImportResult(TypedDict):
    """The stored result for one conversation of the export, or for one list of an own export.

    `why` is a sentence: the reason for another outcome, or the parts that were left out. It is empty if there are none.
    """

    title: str
    outcome: Outcome
    why: str
    conversation: str | None


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """A conversation in an export: `foreign` or `own`, or the reason `why` it cannot be imported.

    `recognised`: its format is known. `own` is the JSON of a conversation of Glasshouse; it is not checked yet.
    """

    title: str
    recognised: bool
    why: str
    foreign: ImportedConversation | None = None
    own: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ListEntry:
    """A list of an own export, such as `personas`. Nothing in the rows is checked yet."""

    name: str
    rows: list[Any]


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The next bytes of a file of an own export; `last` ends the file."""

    file: str
    data: bytes
    last: bool


Entry = ExportEntry | ListEntry | FilePiece
