"""Documents as the model sees them, and their numbers (docs/context.md, “Order” and “Files and projects”)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from chat.context.room import floored
from chat.context.types import Document

PREFIX = "Here are some documents provided for context, they may not all be relevant:"
INLINE_SHARE = Decimal("0.6")


class Numbers:
    """The number to cite for each document of a conversation: given once, in order of appearance, and kept.

    `known` are the numbers given before, by document id; new ones continue after the largest.
    """

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(known or {})
        self._last = max(self._numbers.values(), default=0)

    @property
    def known(self) -> dict[str, int]:
        """All numbers given so far, by document id, for whoever keeps them with the conversation."""
        return dict(self._numbers)

    def of(self, document_id: str) -> int:
        number = self._numbers.get(document_id)
        if number is None:
            self._last += 1
            number = self._numbers[document_id] = self._last
        return number


def number_documents(documents: Sequence[Document]) -> Numbers:
    """Numbers for `documents` in their order; those that carry a number keep it."""
    numbers = Numbers({document.id: document.number for document in documents if document.number is not None})
    for document in documents:
        numbers.of(document.id)
    return numbers


def documents_json(documents: Iterable[Document], numbers: Numbers) -> str:
    """The JSON a model reads: fixed key order, no indentation, absent metadata left out. Search results are sent so."""
    return json.dumps({"documents": [_entry(document, numbers) for document in documents]}, ensure_ascii=False)


def documents_text(documents: Iterable[Document], numbers: Numbers) -> str:
    """The text of a message of files (P and F): the prefix line, then the JSON."""
    return f"{PREFIX}\n{documents_json(documents, numbers)}"


def split_project_files(
    files: Sequence[Document], *, room: int, pinned: frozenset[str] = frozenset(), share: Decimal = INLINE_SHARE
) -> tuple[list[Document], list[Document]]:
    """Which project files are sent inline and which are reached by search, each in the given order.

    `room`: window − reserved output − system prompt − persona prompt. All are inline when their sum is below `share`
    of it; otherwise the pinned ones that fit whole below that line. A file without a token count is never inline.
    """
    line = floored(max(room, 0), share)
    inline: set[str] = set()
    used = 0
    everything = sum(_known(file, line) for file in files) < line
    for file in files:
        if everything or (file.id in pinned and used + _known(file, line) < line):
            inline.add(file.id)
            used += _known(file, line)
    return [file for file in files if file.id in inline], [file for file in files if file.id not in inline]


def _known(file: Document, line: int) -> int:
    """The file's tokens; an unknown count is taken to be as large as the whole line, so that it blocks."""
    return line if file.tokens is None else file.tokens


def _entry(document: Document, numbers: Numbers) -> dict[str, int | str]:
    entry: dict[str, int | str] = {"document": numbers.of(document.id), "title": document.title}
    if document.metadata is not None:
        entry["metadata"] = document.metadata
    entry["contents"] = document.text or ""
    return entry
