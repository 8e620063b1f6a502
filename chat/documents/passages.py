"""The passages of files that a search shows to a model: by what a question is searched, and how they are written."""

from collections.abc import Sequence
from uuid import UUID

from chat.context.types import Document
from core.lines import first_line, last_line
from files.index.search import Hit

HITS = 8
MAX_QUERY = 400  # characters of one phrasing
QUESTION_END, QUESTION_START = 300, 100  # characters of a long question that are searched along
BETWEEN = "\n[…]\n"


def phrasings_of(question: str) -> list[str]:
    """Return what to search for a person's question: the whole of it. Of a long one the end, where the question itself
    stands after a pasted text, and the start, where it stands before one; both cut between words where there are some.
    """
    text = first_line(question, MAX_QUERY)
    if len(text) <= MAX_QUERY:
        return [text] if text else []
    end, start = last_line(question, QUESTION_END), text[:QUESTION_START]
    return [end[_first_word(end) :], start[: len(start) - _first_word(start[::-1])]]


def _first_word(text: str) -> int:
    """Return where the first whole word begins; 0 where no blank is near, as in scripts without them."""
    return text.find(" ", 0, QUESTION_START // 2) + 1


def passages(pk: UUID, hits: Sequence[Hit]) -> Document:
    """A file's passages in the order in which they stand there, each below its headings and the head of its table."""
    ordered = sorted(hits, key=lambda hit: hit.start)
    pages = sorted({hit.page for hit in ordered if hit.page})
    metadata = f"pages {', '.join(map(str, pages))}" if pages else None
    return Document(str(pk), hits[0].name, BETWEEN.join(map(_shown, ordered)), metadata=metadata)


def _shown(hit: Hit) -> str:
    return "\n".join(filter(None, (f"[{hit.heading}]" if hit.heading else "", hit.table_head, hit.text)))
