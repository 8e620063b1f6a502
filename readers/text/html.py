"""Read the visible text of HTML.

No script runs, and nothing is fetched. HTML is scanned once, from beginning to end, without building a tree. So the
time is linear in the size for any input. Parsers that build a tree need minutes for some inputs.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import unescape

from readers.text import hidden
from readers.text.formulas import mathml_to_latex, strip_style
from readers.text.tables import Cell, markdown

# Elements without text that a person may see. Their end tags are mandatory.
_HIDDEN = frozenset({"template", "noscript", "svg", "object", "select", "datalist"})
# Elements of navigation, which are not part of a page's text.
_NAVIGATION = frozenset({"dialog", "nav", "footer", "aside", "button"})
# Elements whose content is not markup.
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "title", "textarea"})
_BLOCKS = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "caption",
            "dd",
            "details",
            "dialog",
            "div",
            "dl",
            "dt",
            "fieldset",
        ),
        *("figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li"),
        *("main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    }
)
# Elements without content and end tag.
_VOID = frozenset(
    (
        *(
            "area",
            "base",
            "br",
            "col",
            "embed",
            "hr",
            "img",
            "input",
            "link",
            "meta",
            "param",
            "source",
            "track",
            "wbr",
        ),
        *("frame", "keygen"),
    )
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS_OF_TEXT = frozenset({"p", "table", "ul", "ol", "blockquote", "pre", *_HEADINGS})
_ENOUGH_CHARACTERS = 200  # characters; a shorter main part is only a container that a script fills
_MARKUP = re.compile(r"<(?=[!?]|/?[a-zA-Z])")
# A quote counts only after an equals sign. Possessive quantifiers prevent backtracking.
_TAG = re.compile(r"""<(/?)([^\s/>]++)((?:[^>=]++|=\s*+"[^"]*+"|=\s*+'[^']*+'|=)*+)>""")
# The lookbehind lets a match start only where a name can begin, so that it is not tried from each letter of a name.
_ATTRIBUTE = re.compile(r"""(?<![\w:-])([\w:-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""")
_MAX_ATTRIBUTES_LENGTH = 4_000  # characters of a tag; the attributes of a longer tag are ignored
_MAX_DEPTH = 40  # nested tables, quotations and links; a deeper one is read as plain content
_MAX_CELL_LENGTH = 400  # characters of a cell in a table with headings or tables; a longer one means a layout table
_BLOCK_MARKS = re.compile(r"^#{1,6} |^\|(?: --- \|)+$|\|", re.M)
# Attributes and style declarations that hide an element.
_MAY_HIDE = re.compile(r"hidden|none|opacity|font-size", re.I)
_QUOTED = re.compile(r"""=\s*+(?:"[^"]*+"|'[^']*+')""")
_HIDDEN_ATTRIBUTE = re.compile(r"(?<![\w:-])hidden(?![\w:-])", re.I)
_HIDING = re.compile(
    r"(?<![\w-])(?:display\s*+:\s*+none|visibility\s*+:\s*+(?:hidden|collapse)"
    r"|opacity\s*+:\s*+0(?:\.0{1,9})?+\s*+(?:;|!|$)|font-size\s*+:\s*+0(?:px|pt|em|rem|%)?+\s*+(?:;|!|$))",
    re.I,
)
# Style sheets: a selector of one class or id.
_BRACE = re.compile(r"[{};]")
_CLASS_OR_ID = re.compile(r"(?:[a-z]{1,20})?([.#][\w-]{1,100})$", re.I)
_MAX_HIDING = 10_000  # classes and ids that a page hides
# Elements whose end tag may be missing: the starts that end them, and the elements that they are part of.
_ENDED_BY = {
    "p": _BLOCKS,
    "dt": frozenset(("dt", "dd")),
    "dd": frozenset(("dt", "dd")),
    "li": frozenset(("li",)),
    "td": frozenset(("td", "th", "tr")),
    "th": frozenset(("td", "th", "tr")),
    "tr": frozenset(("tr",)),
}
_PART_OF = {"dt": ("dl",), "dd": ("dl",), "li": ("ul", "ol"), **dict.fromkeys(("td", "th", "tr"), ("table",))}
# Classes of formulas that a script has drawn (MathJax 2, KaTeX), and of pictures of formulas.
_DRAWN_FORMULA_CLASSES = frozenset(
    ("MathJax", "MathJax_SVG", "MathJax_CHTML", "MathJax_Preview", "MathJax_Display", "mjx-chtml")
)
_DRAWN_BY_KATEX = "katex-html"
_DRAWING = re.compile(r"MathJax|mjx-chtml|katex-html")
_FORMULA_PICTURE = re.compile(r"(?<![\w-])(?:mwe-math[\w-]*+|latex|tex|math|wp-katex-eq|formula)(?![\w-])", re.I)
_TEX = re.compile(r"math/(tex|latex|asciimath|mml)", re.I)
_MATH_END = re.compile(r"</math\s*+>", re.I)
_ADDRESSES = ("http:", "https:", "mailto:")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
# Control characters and lone surrogates. They are not text, and PostgreSQL does not store all of them.
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class HtmlText:
    """The visible text of HTML. Each block is on its own line, and list items begin with a dash.

    `parts`: the text in pieces. `main`: the pieces of the first main element or the only article of a web page, if any.
    """

    title: str
    parts: list[str]
    main: list[str]


def html_to_markdown(source: str, *, links: bool = True, left_out: Counter[str] | None = None) -> list[str]:
    """Return a document as Markdown, in pieces: its title, then its whole text.

    The text has headings, lists, quotations, code, tables, descriptions of pictures and, with `links`, addresses. Text
    that a browser does not show is marked. `left_out` counts it, and the pictures.
    """
    counts: Counter[str] = Counter() if left_out is None else left_out
    document = _DocumentScanner(source, counts, links=links).scan()
    text = hidden.join_hidden("".join(document.parts), counts)
    return [f"{document.title}\n\n", text] if document.title else [text]


def page_text(source: str) -> tuple[str, str]:
    """Return the title and the text of a web page, with headings as in Markdown.

    The text is the page's main part, if the page has one that is long enough, else the whole text without navigation.
    """
    page = _HtmlScanner(source, hiding=_HIDDEN | _NAVIGATION).scan()
    main = _tidy(page.main)
    return page.title, main if len(main) >= _ENOUGH_CHARACTERS else _tidy(page.parts)


def _tidy(parts: list[str]) -> str:
    return hidden.join_hidden(_BLANK_LINES.sub("\n\n", "".join(parts)), Counter()).strip()


def _unescape(text: str) -> str:
    try:
        return _CONTROL_CHARACTERS.sub("", unescape(text))
    except ValueError:  # a character reference with thousands of digits
        return text


class _HtmlScanner:
    """Scanner of a web page. It separates cells with bars and begins list items with a dash."""

    def __init__(self, source: str, *, hiding: frozenset[str]) -> None:
        self._source = source
        self._hiding = hiding
        self._title = ""
        self._parts: list[str] = []
        self._hidden: tuple[str, int] = ("", 0)  # the current invisible element, and its nesting depth
        self._preformatted = 0
        self._at_line_start = True
        self._starts: dict[str, list[int]] = {"main": [], "article": []}  # positions in `_parts`
        self._ends: dict[str, int] = {}
        self._unseen: tuple[str, int] = ("", 0)  # the current element that a style hides, and its nesting depth
        self._nested = 0  # open lists or tables in that element
        self._hiding_rules: set[str] = set()  # classes and ids that the page's own styles hide, with their sign
        self._has_tex = bool(_TEX.search(source))  # whether scripts have the LaTeX of formulas
        self._has_math_end = True  # whether the rest of the source may have an end tag of a formula
        self._formula = ""  # the last formula
        self._replaceable: tuple[int, int] = (0, 0)  # the list and length of parts that end with a converted formula

    def scan(self) -> HtmlText:
        position = 0
        while match := _MARKUP.search(self._source, position):
            self._text(self._source[position : match.start()])
            position = self._markup(match.start())
        self._text(self._source[position:])
        return HtmlText(self._title, self._parts, self._main())

    def _main(self) -> list[str]:
        for tag, starts in self._starts.items():
            if starts and (tag == "main" or len(starts) == 1):
                return self._parts[starts[0] : self._ends.get(tag)]
        return []

    def _markup(self, start: int) -> int:
        """Handle the markup at `start`, and return its end. Unclosed markup hides the rest, as in browsers."""
        if self._source.startswith("<!--", start):
            return self._end_after("-->", start + 2)
        if self._source[start + 1] in "!?":
            return self._end_after(">", start)
        match = _TAG.match(self._source, start)
        if match is None:
            return len(self._source)
        tag = match[2].lower()
        closed = match[3].endswith("/")
        if match[1]:
            self._leave(tag)
            self._end(tag)
        elif tag in _RAW and not closed:
            return self._raw(tag, match[3], match.end())
        elif tag == "math" and not closed:
            return self._mathml(start, match.end())
        else:
            self._enter(tag, match[3], closed=closed)
            if not self._is_drawn(tag, match[3], closed=closed):
                self._start(tag, match[3], closed=closed)
        return match.end()

    def _enter(self, tag: str, attributes: str, *, closed: bool) -> None:
        """Track the start of an element that a style hides, or that is inside such an element."""
        name, depth = self._unseen
        if depth and not self._nested and tag in _ENDED_BY.get(name, ()):
            depth = 0
        if depth:
            depth += tag == name and not closed
            self._nested += tag in _PART_OF.get(name, ())
        elif not closed and tag not in _VOID and self._is_unseen(tag, attributes):
            name, depth = tag, 1
            self._nested = 0
        self._unseen = (name, depth)

    def _leave(self, tag: str) -> None:
        name, depth = self._unseen
        if not depth:
            return
        if tag == name:
            self._unseen = (name, depth - 1)
        elif tag in _PART_OF.get(name, ()):
            if not self._nested:  # its own end tag is missing
                self._unseen = (name, 0)
            self._nested = max(self._nested - 1, 0)

    def _is_unseen(self, tag: str, text: str) -> bool:
        if tag in ("html", "body"):  # hidden until a script has run
            return False
        if tag == "dialog":
            return not re.search(r"(?<![\w-])open(?![\w-])", _QUOTED.sub("", text), re.I)
        if _MAY_HIDE.search(text):
            if _HIDDEN_ATTRIBUTE.search(_QUOTED.sub("", text)):
                return True
            if _HIDING.search(_attributes(text).get("style", "")):
                return True
        if self._hiding_rules and ("class" in text or "id" in text):
            attributes = _attributes(text)
            names = {f".{each}" for each in attributes.get("class", "").split()} | {f"#{attributes.get('id', '')}"}
            return not names.isdisjoint(self._hiding_rules)
        return False

    def _collect_hiding_rules(self, styles: str) -> None:
        """Store the classes and ids that a style sheet hides. Other selectors are not understood."""
        if len(self._hiding_rules) < _MAX_HIDING and _HIDING.search(styles):
            for selectors, declarations in _rules(styles):
                if _HIDING.search(declarations):
                    names = (_CLASS_OR_ID.match(each.strip()) for each in selectors.split(","))
                    self._hiding_rules.update(each[1] for each in names if each)

    def _is_drawn(self, tag: str, text: str, *, closed: bool) -> bool:
        """Skip the drawing of a formula if the page has the formula's source. Return whether the element is skipped."""
        if closed or self._hidden[1] or tag not in ("span", "div") or not _DRAWING.search(text):
            return False
        attributes = _attributes(text)
        classes = set(attributes.get("class", "").split())
        source = mathml_to_latex(attributes.get("data-mathml", "")) if _DRAWN_FORMULA_CLASSES & classes else ""
        if source:
            self._write_formula(source, replaceable=True)
        elif not (_DRAWN_FORMULA_CLASSES & classes and self._has_tex) and not (
            _DRAWN_BY_KATEX in classes and self._formula
        ):
            return False
        self._hidden = (tag, 1)
        return True

    def _mathml(self, start: int, inner: int) -> int:
        """Write a formula in MathML as LaTeX, and return its end."""
        match = _MATH_END.search(self._source, inner) if self._has_math_end else None
        self._has_math_end = match is not None
        end = match.end() if match else inner
        if match and not self._hidden[1]:
            self._write_formula(mathml_to_latex(self._source[start:end]), replaceable=True)
        return end

    def _write_formula(self, source: str, *, replaceable: bool = False) -> None:
        """Write a formula. It is not marked as hidden, since pages hide the source of a formula and show a drawing.

        `replaceable`: the formula was converted. If its LaTeX follows, the LaTeX replaces it.
        """
        if self._replaceable == (id(self._parts), len(self._parts)):
            if replaceable:
                return
            self._parts.pop()
        if source:
            self._formula = source
            self._write(f"${source}$")
            if replaceable:
                self._replaceable = (id(self._parts), len(self._parts))

    def _end_after(self, mark: str, start: int) -> int:
        end = self._source.find(mark, start)
        return len(self._source) if end < 0 else end + len(mark)

    def _raw(self, tag: str, attributes: str, start: int) -> int:
        match = re.compile(f"</{tag}(?=[\\s/>])", re.IGNORECASE).search(self._source, start)
        end = match.start() if match else len(self._source)
        if tag == "title" and not self._title and not self._hidden[1]:
            self._title = _SPACE.sub(" ", _unescape(self._source[start:end])).strip()
        elif tag == "style":
            self._collect_hiding_rules(self._source[start:end])
        elif tag == "script" and not self._hidden[1] and (kind := _TEX.search(attributes)):
            source = self._source[start:end]
            self._write_formula(mathml_to_latex(source) if kind[1].lower() == "mml" else strip_style(_unescape(source)))
        return end

    def _start(self, tag: str, attributes: str, *, closed: bool) -> None:
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
                self._ends.setdefault(tag, len(self._parts))
            if tag in _BLOCKS_OF_TEXT:
                self._parts.append("\n")

    def _text(self, text: str) -> None:
        if self._hidden[1] or not text:
            return
        text = _unescape(text)
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
            if self._at_line_start:
                text = text.lstrip(" ")
        if text:
            self._write(hidden.hidden_text(text) if self._unseen[1] else text)

    def _write(self, text: str) -> None:
        self._parts.append(text)
        self._at_line_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")


@dataclass(slots=True)
class _Frame:
    """An open quotation, table, cell or link. Its text is written when it ends."""

    tag: str
    attributes: dict[str, str]
    outer: list[str]  # the pieces before it
    rows: list[list[Cell]] = field(default_factory=list)
    is_layout: bool = False  # a table with headings or other tables in it


class _DocumentScanner(_HtmlScanner):
    """Scanner of a document. Its text includes the elements of navigation."""

    def __init__(self, source: str, left_out: Counter[str], *, links: bool) -> None:
        super().__init__(source, hiding=_HIDDEN)
        self._left_out = left_out
        self._framed = {"blockquote", "table", *(("a",) if links else ())}
        self._frames: list[_Frame] = []
        self._items: list[int | None] = []  # the next number of each open list, None for dashes

    def scan(self) -> HtmlText:
        page = super().scan()
        while self._frames:
            self._close(self._frames[-1].tag)
        return HtmlText(page.title, self._parts, [])

    def _start(self, tag: str, attributes: str, *, closed: bool) -> None:
        if not self._hidden[1]:
            if tag in ("img", "area", "input"):
                self._picture(tag, _attributes(attributes))
            if tag in ("td", "th", "tr") and self._is_open("table"):
                self._start_cell(tag, attributes)
                return
            if tag in self._framed and len(self._frames) < _MAX_DEPTH:
                self._open(tag, attributes)
            if tag in ("ol", "ul"):
                start = _attributes(attributes).get("start", "1") if tag == "ol" else ""
                self._items.append(None if tag == "ul" else int(start) if start.isdecimal() and len(start) < 9 else 1)
            if tag in ("table", *_HEADINGS):
                for frame in self._frames[: -1 if tag == "table" else None]:
                    frame.is_layout = frame.is_layout or frame.tag == "table"
        before = len(self._parts)
        super()._start(tag, attributes, closed=closed)
        if tag == "li" and self._items and len(self._parts) > before:
            self._parts[-1] = self._item()
        if tag == "pre" and not self._hidden[1] and not self._is_open("table"):
            self._write("```\n")

    def _picture(self, tag: str, attributes: dict[str, str]) -> None:
        """Write the description of a picture, or the LaTeX of a picture of a formula."""
        if tag == "input" and attributes.get("type", "").lower() != "image":
            return
        self._left_out["pictures"] += tag == "img"
        text = " ".join(attributes.get("alt", "").split())
        if not text:
            return
        if _FORMULA_PICTURE.search(attributes.get("class", "")):
            if strip_style(text) != self._formula:
                self._write_formula(strip_style(text))
        else:
            self._write(hidden.hidden_text(text) if self._unseen[1] else f"[Picture: {text}]")

    def _item(self) -> str:
        number = self._items[-1]
        if number is not None:
            self._items[-1] = number + 1
        return "  " * min(len(self._items) - 1, 9) + ("- " if number is None else f"{number}. ")

    def _end(self, tag: str) -> None:
        if not self._hidden[1]:
            if tag in ("td", "th", "tr") and self._is_open("table"):
                self._close_cell()
                return
            if tag == "pre" and self._preformatted and not self._is_open("table"):
                self._end_line()
                self._write("```\n")
            if tag in ("ol", "ul") and self._items:
                self._items.pop()
            if tag in self._framed and self._is_open(tag):
                while self._frames[-1].tag != tag:
                    self._close(self._frames[-1].tag)
                self._close(tag)
        super()._end(tag)

    def _is_open(self, tag: str) -> bool:
        return any(frame.tag == tag for frame in self._frames)

    def _open(self, tag: str, attributes: str) -> None:
        if tag == "a" and self._is_open("a"):
            self._end("a")
        if tag != "a":
            self._end_line()
        self._frames.append(_Frame(tag, _attributes(attributes), self._parts))
        self._parts = []

    def _start_cell(self, tag: str, attributes: str) -> None:
        """Begin a cell or row. Ends the previous one first, since its end tag may be missing."""
        self._close_cell()
        table = self._frames[-1]
        if tag == "tr" or not table.rows:
            table.rows.append([])
        if tag != "tr":
            self._open("td", attributes)

    def _close_cell(self) -> None:
        while self._frames[-1].tag != "table":
            self._close(self._frames[-1].tag)

    def _close(self, tag: str) -> None:
        frame = self._frames.pop()
        text = "".join(self._parts)
        self._parts = frame.outer
        if tag == "td":
            columns, rows = (_number(frame.attributes.get(name, "")) for name in ("colspan", "rowspan"))
            self._frames[-1].rows[-1].append(Cell(text.strip(), columns, rows))
        elif tag == "table":
            # Text outside of the cells is a caption, or misplaced.
            caption = " ".join(text.split())
            self._write(f"\n{caption}\n\n" if caption else "\n")
            self._write(self._rows(frame))
        elif tag == "blockquote":
            self._write("\n" + "".join(f"> {line}\n" for line in text.strip().split("\n")))
        else:
            self._link(text, frame.attributes.get("href", ""))

    def _rows(self, table: _Frame) -> str:
        """Return a table as Markdown. A layout table with long cells becomes one paragraph per cell."""
        texts = [cell.text for row in table.rows for cell in row if cell.text]
        if not table.is_layout:
            return markdown(table.rows)
        if any(len(text) > _MAX_CELL_LENGTH for text in texts):
            return "".join(f"{text}\n\n" for text in texts)
        flat = [[replace(cell, text=_BLOCK_MARKS.sub(" ", cell.text)) for cell in row] for row in table.rows]
        return markdown(flat)

    def _link(self, text: str, target: str) -> None:
        words = text.strip()
        if words and "\n" not in words and target.startswith(_ADDRESSES) and target not in words:
            text = text.replace(words, f"[{words}]({target})", 1)
        if text:
            self._write(text)


def _rules(styles: str) -> Iterator[tuple[str, str]]:
    """Yield the selectors and the declarations of each rule of a style sheet. Those in `@media` are left out."""
    first, *others = styles.split("/*")
    plain = first + "".join(each.partition("*/")[2] for each in others)
    start = depth = 0
    selectors = ""
    for match in _BRACE.finditer(plain):
        if match[0] == "{":
            depth += 1
            if depth == 1:
                selectors = plain[start : match.start()].strip()
        elif match[0] == "}":
            if depth == 1 and not selectors.startswith("@"):
                yield selectors, plain[start : match.start()]
            depth = max(depth - 1, 0)
        elif depth:
            continue
        start = match.end()


def _attributes(text: str) -> dict[str, str]:
    if len(text) > _MAX_ATTRIBUTES_LENGTH:
        return {}
    return {
        name.lower(): _unescape(one or other or bare).strip() for name, one, other, bare in _ATTRIBUTE.findall(text)
    }


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1
