"""From the bytes of a page to the text that a reader sees. Scripts are never run, nothing is fetched.

The page is scanned once from its beginning to its end and no tree is built, so that no page, however it is made,
takes more than a time in proportion to its size. Parsers of trees have inputs for which they need minutes.
"""

import codecs
import re
from html import unescape

# What is not part of what a page says. The end tags of these may not be left out.
_HIDDEN = frozenset(
    {
        *("template", "noscript", "svg", "math", "object", "select", "datalist", "dialog"),
        *("nav", "footer", "aside", "button"),
    }
)
# Their content is not markup.
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "title", "textarea"})
_BLOCKS = frozenset(
    {
        *("address", "article", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"),
        *("figure", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre"),
        *("section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
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
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Python knows codecs that are not character sets, some of them quadratic.
_CHARSETS = re.compile(r"utf-(?:8|16|32)|iso8859|cp\d|gb|big5|euc|shift|koi8|iso2022|ascii|tis|mac|johab|ptcp|kz")


def clean(text: str) -> str:
    return _NO_TEXT.sub("", text)


def decoded(body: bytes, charset: str | None) -> str:
    """By byte order mark, the server's word, the page's own, UTF-8, Windows-1252: the first that holds."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return clean(body[len(mark) :].decode(name, "replace"))
    found = _META_CHARSET.search(body[:2048])
    for candidate in (charset, found and found[1].decode("ascii", "replace")):
        if candidate and (known := _known_charset(candidate)):
            return clean(body.decode(known, "replace"))
    try:
        # Incremental, as the last character may have been cut.
        return clean(codecs.getincrementaldecoder("utf-8")().decode(body))
    except UnicodeDecodeError:
        return clean(body.decode("cp1252", "replace"))


def _known_charset(name: str) -> str | None:
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return known if _CHARSETS.match(known) else None


def readable(source: str) -> tuple[str, str]:
    """Title and text of an HTML page: its main part if it marks one, headings and list items as in Markdown."""
    scanner = _Scanner(source)
    scanner.scan()
    main = _tidy(scanner.main_part())
    return scanner.title, main if len(main) >= _ENOUGH else _tidy(scanner.parts)


def _tidy(parts: list[str]) -> str:
    return _BLANK_LINES.sub("\n\n", "".join(parts)).strip()


def _plain(text: str) -> str:
    try:
        return clean(unescape(text))
    except ValueError:  # a character reference with thousands of digits
        return text


class _Scanner:
    """Text piece by piece: blocks on lines of their own, cells of a row divided by a bar."""

    def __init__(self, source: str) -> None:
        self.title = ""
        self.parts: list[str] = []
        self._source = source
        self._hidden: tuple[str, int] = ("", 0)  # the element that hides what is inside, and how deep it is nested
        self._preformatted = 0
        self._at_line_start = True
        self._starts: dict[str, list[int]] = {"main": [], "article": []}  # as positions in `parts`
        self._ends: dict[str, int] = {}

    def scan(self) -> None:
        position = 0
        while found := _MARKUP.search(self._source, position):
            self._text(self._source[position : found.start()])
            position = self._markup(found.start())
        self._text(self._source[position:])

    def main_part(self) -> list[str]:
        """What is inside the first main element or the only article; empty if there is neither."""
        for tag, starts in self._starts.items():
            if starts and (tag == "main" or len(starts) == 1):
                return self.parts[starts[0] : self._ends.get(tag)]
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
        if tag == "title" and not self.title and not self._hidden[1]:
            self.title = _SPACE.sub(" ", _plain(self._source[start:end])).strip()
        return end

    def _start(self, tag: str, *, closed: bool) -> None:
        hiding, depth = self._hidden
        if depth:
            self._hidden = (hiding, depth + (tag == hiding and not closed))
        elif tag in _HIDDEN:
            self._hidden = (tag, 0 if closed else 1)
        elif tag == "br":
            self._write("\n")
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted += tag == "pre"
            if tag in self._starts:
                self._starts[tag].append(len(self.parts))
            if mark := "- " if tag == "li" else _HEADINGS.get(tag, ""):
                self._write(mark)
                self._at_line_start = True

    def _end(self, tag: str) -> None:
        hiding, depth = self._hidden
        if depth:
            self._hidden = (hiding, depth - (tag == hiding))
        elif tag in ("td", "th"):
            self._write(" | ")
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted = max(0, self._preformatted - (tag == "pre"))
            if tag in self._starts:
                self._ends.setdefault(tag, len(self.parts))
            if tag in _APART:
                self.parts.append("\n")

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
        self.parts.append(text)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")
