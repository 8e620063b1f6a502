"""Prepare searches in files for a model: the queries for a question, and the text of the passages that match."""

from collections.abc import Sequence
from uuid import UUID

from chat.context.types import Document
from core.lines import first_line, last_line
from files.index.search import ChunkHit

HITS = 8
MAX_QUERY = 400  # characters per phrasing
QUESTION_END = 300  # searched characters at the end of a long question
QUESTION_START = 100  # searched characters at its start
SEPARATOR = "\n[…]\n"


def search_queries(question: str) -> list[str]:
    """Return the phrasings to search for a question: the question, or the end and the start of a long one.

    A long question usually contains a pasted text, and the question itself comes before or after it. Both parts are cut
    between words, if the text has blanks.
    """
    text = first_line(question, MAX_QUERY)
    if len(text) <= MAX_QUERY:
        return [text] if text else []
    end = last_line(question, QUESTION_END)
    start = text[:QUESTION_START]
    return [end[_first_word(end) :], start[: len(start) - _first_word(start[::-1])]]


def _first_word(text: str) -> int:
    """Return the index of the first whole word; 0 if no blank is near, as in scripts without blanks."""
    return text.find(" ", 0, QUESTION_START // 2) + 1


def passages_document(pk: UUID, hits: Sequence[ChunkHit]) -> Document:
    """Return the hits of one file as a document, in the order of the file, each under its headings and table head."""
    ordered = sorted(hits, key=lambda hit: hit.start)
    pages = sorted({hit.page for hit in ordered if hit.page})
    metadata = f"pages {', '.join(map(str, pages))}" if pages else None
    return Document(str(pk), hits[0].name, SEPARATOR.join(map(_passage_text, ordered)), metadata=metadata)


def _passage_text(hit: ChunkHit) -> str:
    return "\n".join(filter(None, (f"[{hit.heading}]" if hit.heading else "", hit.table_head, hit.text)))
