"""HTML as Markdown."""

from collections.abc import Sequence

from core.text import TableCell, html_text
from readers.text.tables import Cell, markdown


def readable(source: str, *, links: bool = True) -> list[str]:
    """What a reader sees of a document, in pieces: its title, then its text."""
    found = html_text(source, _table, links=links)
    return [f"{found.title}\n\n", *found.parts] if found.title else found.parts


def _table(rows: Sequence[Sequence[TableCell]]) -> str:
    return markdown([Cell(*cell) for cell in row] for row in rows)
