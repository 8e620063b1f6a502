"""Text that comes from elsewhere: without what cannot be stored, and of HTML what a reader sees.

Scripts are never run, nothing is fetched. HTML is scanned once from its beginning to its end and no tree is built, so
that none, however it is made, takes more than a time in proportion to its size. Parsers of trees have inputs for which
they need minutes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from types import MappingProxyType

# What is never seen. The end tags of these may not be left out.
_HIDDEN = frozenset({"template", "noscript", "svg", "math", "object", "select", "datalist"})
# What leads through a site rather than being part of what a page says.
_AROUND = frozenset({"dialog", "nav", "footer", "aside", "button"})
# Their content is not markup.
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "title", "textarea"})
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset"),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
        *("nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    }
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_APART = frozenset({"p", "table", "ul", "ol", "blockquote", "pre", *_HEADINGS})
_ENOUGH = 200  # characters; a main part with less is a frame that a script would fill
_MARKUP = re.compile(r"<(?=[!?]|/?[a-zA-Z])")
# A quote counts only after an equals sign. Possessive, so that what does not match is not tried in other ways.
_TAG = re.compile(r"""<(/?)([^\s/>]++)((?:[^>=]++|=\s*+"[^"]*+"|=\s*+'[^']*+'|=)*+)>""")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
# Control characters and lone surrogates: not text, and PostgreSQL stores none of them.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def unix_lines(text: str) -> str:
    """Browsers send line ends as CR LF, which no model needs to read."""
    return text.replace("\r\n", "\n")


def clean(text: str) -> str:
    return _NO_TEXT.sub("", text)


@dataclass(frozen=True, slots=True)
class HtmlText:
    """What a reader sees of HTML: blocks on lines of their own, list items after a dash.

    `parts` are the text in pieces; `main` are those of its first main element or its only article, if it has one.
    """

    title: str
    parts: list[str]
    main: list[str]


def html_text(source: str) -> HtmlText:
    """A document as it is: all of it, the cells of a table divided by tabs."""
    return _Scanner(source, hidden=_HIDDEN, cell="\t").scan()


def page_text(source: str) -> tuple[str, str]:
    """Title and text of a page of the web, with headings as in Markdown: its main part if it marks one, else all of
    it but what leads through the site."""
    page = _Scanner(source, hidden=_HIDDEN | _AROUND, cell=" | ", headings=_HEADINGS).scan()
    main = _tidy(page.main)
    return page.title, main if len(main) >= _ENOUGH else _tidy(page.parts)


def _tidy(parts: list[str]) -> str:
    return _BLANK_LINES.sub("\n\n", "".join(parts)).strip()


def _plain(text: str) -> str:
    try:
        return clean(unescape(text))
    except ValueError:  # a character reference with thousands of digits
        return text


class _Scanner:
    """`cell` stands after each cell of a table, a mark of `headings` before each heading."""

    def __init__(
        self, source: str, *, hidden: frozenset[str], cell: str, headings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._source = source
        self._hiding = hidden
        self._cell = cell
        self._headings = headings
        self._title = ""
        self._parts: list[str] = []
        self._hidden: tuple[str, int] = ("", 0)  # the element that hides what is inside, and how deep it is nested
        self._preformatted = 0
        self._at_line_start = True
        self._starts: dict[str, list[int]] = {"main": [], "article": []}  # as positions in `_parts`
        self._ends: dict[str, int] = {}

    def scan(self) -> HtmlText:
        position = 0
        while found := _MARKUP.search(self._source, position):
            self._text(self._source[position : found.start()])
            position = self._markup(found.start())
        self._text(self._source[position:])
        return HtmlText(self._title, self._parts, self._main())

    def _main(self) -> list[str]:
        for tag, starts in self._starts.items():
            if starts and (tag == "main" or len(starts) == 1):
                return self._parts[starts[0] : self._ends.get(tag)]
        return []

    def _markup(self, start: int) -> int:
        """Handles what begins here and returns where it ends; what never ends hides the rest, as in browsers."""
        if self._source.startswith("<!--", start):
            return self._after("-->", start + 2)
        if self._source[start + 1] in "!?":
            return self._after(">", start)
        found = _TAG.match(self._source, start)
        if found is None:
            return len(self._source)
        tag = found[2].lower()
        if found[1]:
            self._end(tag)
        elif tag in _RAW and not found[3].endswith("/"):
            return self._raw(tag, found.end())
        else:
            self._start(tag, closed=found[3].endswith("/"))
        return found.end()

    def _after(self, mark: str, start: int) -> int:
        found = self._source.find(mark, start)
        return len(self._source) if found < 0 else found + len(mark)

    def _raw(self, tag: str, start: int) -> int:
        found = re.compile(f"</{tag}(?=[\\s/>])", re.IGNORECASE).search(self._source, start)
        end = found.start() if found else len(self._source)
        if tag == "title" and not self._title and not self._hidden[1]:
            self._title = _SPACE.sub(" ", _plain(self._source[start:end])).strip()
        return end

    def _start(self, tag: str, *, closed: bool) -> None:
        hiding, depth = self._hidden
        if depth:
            self._hidden = (hiding, depth + (tag == hiding and not closed))
        elif tag in self._hiding:
            self._hidden = (tag, 0 if closed else 1)
        elif tag == "br":
            self._write("\n")
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted += tag == "pre"
            if tag in self._starts:
                self._starts[tag].append(len(self._parts))
            if mark := "- " if tag == "li" else self._headings.get(tag, ""):
                self._write(mark)
                self._at_line_start = True

    def _end(self, tag: str) -> None:
        hiding, depth = self._hidden
        if depth:
            self._hidden = (hiding, depth - (tag == hiding))
        elif tag in ("td", "th"):
            self._write(self._cell)
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted = max(0, self._preformatted - (tag == "pre"))
            if tag in self._starts:
                self._ends.setdefault(tag, len(self._parts))
            if tag in _APART:
                self._parts.append("\n")

    def _text(self, text: str) -> None:
        if self._hidden[1] or not text:
            return
        text = _plain(text)
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
            if self._at_line_start:
                text = text.lstrip(" ")
        if text:
            self._write(text)

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")
