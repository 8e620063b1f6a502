"""Describe a whole workspace of another product: its people and groups, and the rows of each person.

To add a product: write a class with the methods of `MoveSource`, and a command that calls `moving.move`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from chat.conversations.importing.reading import ImportedConversation, ImportedListRow
from core.sentences import Sentence


class UnreadableSource(Exception):
    """The database or dump cannot be read. Its text says why, and what to do."""


class WrongChoice(Exception):
    """An option of the command names something that is not here. Its text says what to do."""


@dataclass(frozen=True, slots=True)
class ForeignPerson:
    """A person of the other product. `key` is their id there. `waits`: an administrator has not let them in yet."""

    key: str
    email: str
    name: str = ""
    username: str = ""
    is_admin: bool = False
    waits: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that cannot be moved."""

    title: str
    why: Sentence


@dataclass(frozen=True, slots=True)
class ForeignProject:
    """A folder with instructions, or a collection of files, which becomes a project. `files`: the ids of its files."""

    name: str
    instructions: str = ""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class ForeignFile:
    """A file of the other product: its name, and its extracted text, which comes if the bytes cannot be read."""

    name: str
    text: str = ""


MovedRow = ImportedConversation | ImportedListRow | ForeignProject | SkippedRow


class MoveSource(Protocol):
    """A workspace of another product."""

    product: str

    def people(self) -> Iterator[ForeignPerson]:
        """Yield the people, in the order of their ids."""
        ...

    def rows_of(self, person: ForeignPerson) -> Iterator[MovedRow]:
        """Yield the rows of a person, one by one: projects first, conversations last."""
        ...

    def file(self, key: str) -> ForeignFile | None:
        """Return a file by its id; None if there is none."""
        ...

    def open_file(self, key: str) -> IO[bytes] | None:
        """Open the bytes of a file; None if they are not here."""
        ...

    def left_behind(self) -> list[Sentence]:
        """Return a sentence for each kind of rows that has no counterpart here, with its number."""
        ...
