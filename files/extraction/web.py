"""HTML and EPUB: the text that a reader sees. Scripts are never run, nothing is fetched."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

from files.extraction.archive import Archive, resolved
from files.extraction.pages import paged, whole
from files.extraction.values import ExtractionError, Extracted

HTML = "text/html"
EPUB = "application/epub+zip"

_HIDDEN = frozenset("script style template noscript svg math iframe object select datalist title".split())
_BLOCKS = frozenset(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5"
    " h6 header hr li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_SPACE = re.compile(r"[ \t\r\n\f]+")
_PIECE = 65_536  # characters fed at once


def read_html(source: str) -> Extracted:
    return whole(HTML, readable(source))


def read_epub(path: Path) -> Extracted:
    """One page a chapter, in the order of the book's spine (EPUB 3.3, section 5.7)."""
    archive = Archive(path)
    container = archive.tree("META-INF/container.xml")
    root = container.find(".//{*}rootfile")
    if root is None:
        raise ExtractionError("damaged")
    package_name = root.get("full-path", "")
    package = archive.tree(package_name)
    folder = package_name.rpartition("/")[0]
    items = {item.get("id"): unquote(item.get("href", "")) for item in package.iterfind(".//{*}manifest/{*}item")}
    chapters = [items.get(reference.get("idref"), "") for reference in package.iterfind(".//{*}spine/{*}itemref")]
    return paged(EPUB, ("".join(_chapter(archive, resolved(folder, chapter))) for chapter in chapters if chapter))


def _chapter(archive: Archive, name: str) -> Iterator[str]:
    with archive.open(name) as member:
        return readable(member.read().decode("utf-8-sig", "replace"))


def readable(source: str) -> Iterator[str]:
    """The visible text of HTML: blocks on lines of their own, cells of a table divided by tabs."""
    reader = _Reader()
    for start in range(0, len(source), _PIECE):
        reader.feed(source[start : start + _PIECE])
        yield from reader.taken()
    reader.close()
    yield from chain(reader.taken(), "\n")


class _Reader(HTMLParser):
    """Collects text as it comes; there is no tree, so depth costs nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._hidden: list[str] = []
        self._preformatted = 0
        self._at_line_start = True

    def taken(self) -> list[str]:
        parts, self._parts = self._parts, []
        return parts

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
                self._parts.append("\n")

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
        self._parts.append(text)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._add("\n")
