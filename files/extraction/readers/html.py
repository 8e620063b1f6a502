"""HTML: the text that a reader sees. Scripts are never run, nothing is fetched."""

import re
from html.parser import HTMLParser
from pathlib import Path

from files.extraction.readers.plain import decoded
from files.extraction.readers.result import Extracted, whole

_HIDDEN = frozenset(
    ("script", "style", "template", "noscript", "svg", "math", "iframe", "object", "select", "datalist")
)
# fmt: off
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main",
    "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul",
))
# fmt: on
_SPACE = re.compile(r"[ \t\r\n\f]+")


def read(path: Path, media_type: str) -> Extracted:
    return whole(media_type, readable(decoded(path)))


def readable(source: str) -> list[str]:
    """The visible text of HTML in pieces: blocks on lines of their own, cells of a table divided by tabs."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return reader.parts


class _Reader(HTMLParser):
    """Collects text as it comes; there is no tree, so depth costs nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: list[str] = []
        self._preformatted = 0
        self._at_line_start = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden:
            # The parser reads script and style as text, so only others can be nested.
            if tag == self._hidden[-1]:
                self._hidden.append(tag)
            return
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag == "br":
            self._add("\n")
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted += tag == "pre"
            if tag == "li":
                self._add("- ")
                self._at_line_start = True

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:  # <script/> of XHTML hides nothing
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag in ("td", "th"):
            self._add("\t")
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted -= tag == "pre" and self._preformatted > 0
            if tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "blockquote", "pre"):
                self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._preformatted:
            data = _SPACE.sub(" ", data)
            if self._at_line_start:
                data = data.lstrip(" ")
        if data:
            self._add(data)

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._add("\n")
