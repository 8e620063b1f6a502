"""Find the headings of a page, by the outline of the document or else by the size and weight of its letters."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from readers.text.grids import Box

_HEADING_SIZE_FACTOR = 1.15  # times the size of the body text, above which a line is a heading
_BOLD_HEADING_SIZE_FACTOR = 0.95  # times the size of the body text, which a bold heading has at least
_SHORTEST = 2  # letters
_MAX_LENGTH = 160  # letters
_MAX_LINES = 4  # lines of one heading
_MAX_HEADING_SHARE = 0.4  # share of a page's letters in headings; a page with more is a cover or a list
_MAX_DEPTH = 6  # levels of Markdown
_SENTENCE_END = re.compile(r"[,;]$|(?<=[^\W\d_]{3})\.$|\.{3}|(?:\. ){3}|^\W*$|^[\d\W]+$")
_CAPTION = re.compile(r"(?:table|figure|fig|tabelle|abbildung|tableau|tabla|bảng|hình)\.? ?\d", re.I)


class PageLine(NamedTuple):
    """A line of a page. `size` is in points, or 0 if unknown, as for a table. `box`: its place, if that is known."""

    text: str
    size: float
    bold: bool
    box: Box | None = None


def title_key(title: str) -> str:
    """Return the form of a title that is used to compare the outline with the lines."""
    return "".join(filter(str.isalnum, title.lower()))


def mark_headings(pages: Sequence[Sequence[PageLine]], outline: Mapping[str, int]) -> Iterator[str]:
    """Yield the text of each page with `#` before its headings. `outline`: levels of titles by their `title_key`."""
    size, bold = body(pages)
    if not size:
        yield from ("\n".join(line.text for line in page) for page in pages)
        return
    sizes = sorted(
        {_size(line) for page in pages for line in page if line.size > size * _HEADING_SIZE_FACTOR}, reverse=True
    )
    levels = {size: level for level, size in enumerate(sizes[: _MAX_DEPTH - 1], 1)}
    for page in pages:
        page_levels = [_level(line, size, levels, bold=bold) for line in page]
        share = sum(len(line.text) for line, level in zip(page, page_levels, strict=True) if level)
        if share > _MAX_HEADING_SHARE * sum(len(line.text) for line in page):
            page_levels = [0] * len(page)
        yield "\n".join(_lines(page, page_levels, outline))


def body(pages: Sequence[Sequence[PageLine]]) -> tuple[float, bool]:
    """Return the size that most of the text has (0 if unknown), and whether that text is bold."""
    styles = Counter[tuple[float, bool]]()
    for page in pages:
        for line in page:
            if line.size:
                styles[_size(line), line.bold] += len(line.text)
    return styles.most_common(1)[0][0] if styles else (0.0, False)


def _size(line: PageLine) -> float:
    return round(line.size * 2) / 2


def _level(line: PageLine, body: float, levels: Mapping[float, int], *, bold: bool) -> int:
    """Return the level of a heading, or 0 for any other line."""
    text = line.text.strip()
    if (
        not line.size
        or not _SHORTEST <= len(title_key(text)) <= _MAX_LENGTH
        or _SENTENCE_END.search(text)
        or _CAPTION.match(text)
    ):
        return 0
    if line.size > body * _HEADING_SIZE_FACTOR:
        return levels.get(_size(line), _MAX_DEPTH)
    if line.bold and not bold and line.size >= body * _BOLD_HEADING_SIZE_FACTOR:
        return min(len(levels) + 1, _MAX_DEPTH)
    return 0


def _lines(page: Sequence[PageLine], levels: Sequence[int], outline: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a page. Consecutive lines in one style become one heading."""
    at = 0
    while at < len(page):
        end = at + 1
        while levels[at] and end < min(len(page), at + _MAX_LINES) and _continues(page, levels, at, end):
            end += 1
        text = " ".join(line.text.strip() for line in page[at:end])
        level = outline.get(title_key(text), 0) or levels[at]
        yield f"\n{'#' * min(level, _MAX_DEPTH)} {' '.join(text.split())}\n" if level else page[at].text
        at = end if level else at + 1


def _continues(page: Sequence[PageLine], levels: Sequence[int], at: int, end: int) -> bool:
    same = levels[end] == levels[at] and _size(page[end]) == _size(page[at]) and page[end].bold == page[at].bold
    return same and not re.match(r"\d+(?:\.\d+)*\.? |[A-Z]\. ", page[end].text)
