"""Remove the syntax of Markdown from texts, for titles and excerpts."""

import re

from core.lines import first_line

# Characters of Markdown that `plain_line` reads per character of the line, from the first character that is not blank.
READ_FACTOR = 8
_NOT_BLANK = re.compile(r"\S")
# Whole lines (fences, the rule below a table's head), the marks of headings, quotations and table cells, and marks
# around words. The text between two marks has a maximum length, which bounds the time of the search.
_LINES = re.compile(r"^[ \t]*+(?:(?:`{3}|~{3}).*|(?:\|[ \t]*+)?:?-{3}[-:| \t]*)$", re.MULTILINE)
_BEGINNINGS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|\|[ \t]*)|\|[ \t]*$", re.MULTILINE)
_LINKS = re.compile(r"!?\[([^\]\n]{1,200})\]\([^()\s]{1,500}\)")
_STRONG = re.compile(r"(?<![\w*])\*\*(?=\S)([^*\n]{1,200})(?<=\S)\*\*(?![\w*])|`([^`\n]{1,200})`")
_EMPHASIS = re.compile(
    r"(?<![\w*])\*(?=\S)([^*\n]{1,200})(?<=\S)\*(?![\w*])|(?<!\w)_(?=\S)([^_\n]{1,200})(?<=\S)_(?!\w)"
)


def without_marks(text: str) -> str:
    """Return the text of a message without Markdown syntax. Middle dots separate the cells of a table."""
    text = _BEGINNINGS.sub("", _LINES.sub("", text))
    text = _STRONG.sub(r"\1\2", _LINKS.sub(r"\1", text))
    return _EMPHASIS.sub(r"\1\2", text).replace(" | ", " · ")


def plain_line(text: str, longest: int) -> str:
    """Return the beginning of a Markdown text as one line without syntax. Its length is that of `first_line`."""
    first_character = _NOT_BLANK.search(text)
    start = first_character.start() if first_character else 0
    return first_line(without_marks(text[start : start + READ_FACTOR * longest]), longest)
