"""Texts without the marks of Markdown, for titles and excerpts: one line of plain words."""

import re

from core.lines import first_line

# Characters of Markdown that are read for each character of a line, beginning at the first that is not blank.
READ = 8
_NOT_BLANK = re.compile(r"\S")
# Whole lines (fences, the rule below a table's head), the marks of headings, quotations and table cells, and pairs
# around words. A bounded length of pairs bounds the time of the search.
_LINES = re.compile(r"^[ \t]*+(?:(?:`{3}|~{3}).*|(?:\|[ \t]*+)?:?-{3}[-:| \t]*)$", re.MULTILINE)
_BEGINNINGS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|\|[ \t]*)|\|[ \t]*$", re.MULTILINE)
_LINKS = re.compile(r"!?\[([^\]\n]{1,200})\]\([^()\s]{1,500}\)")
_STRONG = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]{1,200})(?<=\S)\*\*(?![\w*])|`([^`\n]{1,200})`")
_EMPHASIS = re.compile(
    r"(?<![\w*])\*(?=\S)([^*\n]{1,200})(?<=\S)\*(?![\w*])|(?<!\w)_(?=\S)([^_\n]{1,200})(?<=\S)_(?!\w)"
)


def without_marks(text: str) -> str:
    """Return the text of a message without Markdown syntax. Dots separate the cells of a table."""
    text = _BEGINNINGS.sub("", _LINES.sub("", text))
    text = _STRONG.sub(r"\1\2", _LINKS.sub(r"\1", text))
    return _EMPHASIS.sub(r"\1\2", text).replace(" | ", " · ")


def plain_line(text: str, longest: int) -> str:
    """Return the beginning of a Markdown text as one line of plain words; its length is that of `first_line`."""
    begins = _NOT_BLANK.search(text)
    start = begins.start() if begins else 0
    return first_line(without_marks(text[start : start + READ * longest]), longest)
