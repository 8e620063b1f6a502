"""Read Word documents as Markdown from a stream of XML: paragraph by paragraph, table by table.

python-docx is not used: it builds the whole tree first, which takes several times the memory and time.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from readers.formats.archive import Archive, Element, main_part, parse_events, related_members, relation_targets
from readers.formats.result import Extracted, unpaged_result
from readers.text import hidden
from readers.text.formulas import omml_to_latex
from readers.text.numbering import BULLET, LEVELS, ListLevel, Numbering
from readers.text.office_parts import chart
from readers.text.tables import Cell, markdown

_DOCUMENT = "word/document.xml"  # the usual name of the main part
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes"}  # by kind of the part
_FALSE_VALUES = ("0", "false", "off")
_HEADING = re.compile(r"heading ([1-9])$", re.I)
_QUOTE = re.compile(r"quote", re.I)
_CODE = re.compile(r"\bcode\b|html preformatted|source|listing", re.I)
_SKIPPED_ELEMENTS = frozenset({"del", "moveFrom", "instrText", "rPr", "pPr", "Fallback", "txbxContent", "rt"})
_CHARACTER_ELEMENTS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_MAX_DEPTH = 60


def read(path: Path, media_type: str) -> Extracted:
    """Return a text without pages: headings, lists, tables; then notes, comments, headers and footers."""
    archive = Archive(path)
    archive.refuse_entities()
    document = _WordDocument(archive)
    return unpaged_result(media_type, document.parts(), left_out=document.left_out)


@dataclass(frozen=True, slots=True)
class _ParagraphStyle:
    """The style of a paragraph. `list`: number of the list, and level."""

    heading: int = 0
    quote: bool = False
    code: bool = False
    list: tuple[str, int] | None = None
    hidden: bool = False


@dataclass(slots=True)
class _OpenTable:
    """A table that is being read."""

    rows: list[list[Cell]] = field(default_factory=list)
    cell: list[str] = field(default_factory=list)  # the paragraphs of the cell that is being read


def _value(element: Element | None, name: str = "val", default: str = "") -> str:
    """Return an attribute by its name without the namespace."""
    if element is not None:
        for key, value in element.attrib.items():
            if key.rpartition("}")[2] == name:
                return str(value)
    return default


def _number(text: str, default: int = 0) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else default


class _WordDocument:
    """A document that is being read. `left_out` counts its omitted pictures."""

    def __init__(self, archive: Archive) -> None:
        self.left_out: Counter[str] = Counter()
        self._archive = archive
        main = main_part(archive)
        self._name = main.name if main else archive.member_name(_DOCUMENT)
        self._relations = relation_targets(archive, self._name)
        self._lists, self._restarts = self._numberings()
        tree = self._tree("styles")
        self._defined = {} if tree is None else {_value(each, "styleId"): each for each in tree.iterfind("{*}style")}
        self._styles: dict[str, _ParagraphStyle] = {}
        self._notes: list[tuple[str, str]] = []  # (element of the reference, id), in their order
        self._previous = ""  # kind of the previous block
        self._hidden_style = False  # whether the style of the current paragraph hides its text

    def parts(self) -> Iterator[str]:
        yield from self._blocks(self._archive.open(self._name))
        yield from self._footnotes()
        yield from self._comments_and_headers()

    # The parts of the package with styles and lists

    def _tree(self, kind: str) -> Element | None:
        """Return the part of this kind, such as `styles`; None if the document has none."""
        parts = related_members(self._archive, self._name, kind) or [self._archive.member_name(f"word/{kind}.xml")]
        return self._archive.tree(parts[0]) if parts[0] in self._archive.names else None

    def _numberings(self) -> tuple[dict[str, Numbering], dict[str, dict[int, int]]]:
        """Return the lists by number, and the numbers at which they restart.

        Lists with the same definition share one count.
        """
        tree = self._tree("numbering")
        if tree is None:
            return {}, {}
        definitions = {_value(each, "abstractNumId"): _levels(each) for each in tree.iterfind("{*}abstractNum")}
        shared = {name: Numbering(levels) for name, levels in definitions.items()}
        lists: dict[str, Numbering] = {}
        restarts: dict[str, dict[int, int]] = {}
        for each in tree.iterfind("{*}num"):
            name = _value(each, "numId")
            definition = _value(each.find("{*}abstractNumId"))
            lists[name] = shared.get(definition) or Numbering({})
            restarts[name] = {
                _number(_value(override, "ilvl")): _number(_value(start), 1)
                for override in each.iterfind("{*}lvlOverride")
                if (start := override.find("{*}startOverride")) is not None
            }
        return lists, restarts

    def _style(self, name: str) -> _ParagraphStyle:
        """Return the style with this id. It is read at the first use, since a document uses few of its styles."""
        if name not in self._styles:
            chain: list[Element] = []
            based_on = name
            while based_on in self._defined and self._defined[based_on] not in chain:
                chain.append(self._defined[based_on])
                based_on = _value(chain[-1].find("{*}basedOn"))
            self._styles[name] = _style(chain) if chain else _ParagraphStyle()
        return self._styles[name]

    # The text

    def _blocks(self, source: IO[bytes]) -> Iterator[str]:
        """Yield the text of each paragraph and of each table that is not nested in another table."""
        tables: list[_OpenTable] = []
        depths: Counter[str] = Counter()
        for event, element in parse_events(source):
            name = _name(element)
            depths[name] += 1 if event == "start" else -1
            if event == "start":
                if name == "tbl":
                    tables.append(_OpenTable())
                continue
            yield from self._end_element(name, element, tables, hidden=bool(depths["Fallback"]))
            apart = not (depths["p"] or tables)
            if apart or name in ("p", "tr", "tbl"):
                element.clear(keep_tail=True)
                while (apart or name == "tr") and (before := element.getprevious()) is not None:
                    element.getparent().remove(before)

    def _end_element(self, name: str, element: Element, tables: list[_OpenTable], *, hidden: bool) -> Iterator[str]:
        if name == "p":
            text = "" if hidden else self._paragraph(element, in_table=bool(tables))
            if tables:
                tables[-1].cell.append(text)
            elif text:
                yield text
        elif name in ("tc", "tr", "tbl") and tables:
            yield from self._part_of_table(name, element, tables)
        elif name in ("footnote", "endnote"):
            yield f"\0{_value(element, 'id')}\0"

    def _part_of_table(self, name: str, element: Element, tables: list[_OpenTable]) -> Iterator[str]:
        table = tables[-1]
        if name == "tc":
            properties = element.find("{*}tcPr")
            merged = None if properties is None else properties.find("{*}vMerge")
            span = _number(_value(None if properties is None else properties.find("{*}gridSpan")), 1)
            continues = merged is not None and _value(merged, default="continue") == "continue"
            separator = "\n" if tables[0] is table else " "
            cell = Cell(separator.join(filter(None, table.cell)), span, continues=continues)
            table.cell = []
            if not table.rows:
                table.rows.append([])
            table.rows[-1].append(cell)
        elif name == "tr" and table.rows:
            if (row := table.rows[-1]) and element.find("{*}trPr/{*}hidden") is not None:
                row[0].text = f"{hidden.ROW} {row[0].text}"
                self.left_out[hidden.HIDDEN_KEY] += 1
            table.rows.append([])
        elif name == "tbl":
            tables.pop()
            if tables:
                tables[-1].cell.append(" ".join(cell.text for row in table.rows for cell in row if cell.text))
            elif text := markdown(table.rows):
                yield self._block("table", text)

    def _paragraph(self, element: Element, *, in_table: bool = False) -> str:
        style = self._paragraph_style(element)
        self._hidden_style = style.hidden
        text = hidden.join_hidden(self._inline(element, 0), self.left_out)
        self._hidden_style = False
        if not text.strip():
            return ""
        if in_table:
            return text.strip()
        label, level = self._label(style)
        if style.heading:
            return self._block("heading", f"{'#' * style.heading} {' '.join(f'{label} {text}'.split())}\n")
        if style.code:
            return self._block("code", f"{text}\n")
        if style.quote:
            return self._block("quote", "".join(f"> {line}\n" for line in text.split("\n")))
        if label:
            return self._block("list", f"{'  ' * level}{label} {text.strip()}\n")
        return self._block("text", f"{text}\n")

    def _block(self, kind: str, text: str) -> str:
        """Return the text with a blank line before it, and with fences around code."""
        before = self._previous
        self._previous = kind
        fence = "```\n" if "code" in (kind, before) and kind != before else ""
        if kind == before and kind in ("list", "code", "quote"):
            return text
        return f"{fence if before == 'code' else ''}\n{fence if kind == 'code' else ''}{text}"

    def _paragraph_style(self, element: Element) -> _ParagraphStyle:
        properties = element.find("{*}pPr")
        if properties is None:
            return self._style("Normal")
        style = self._style(_value(properties.find("{*}pStyle")))
        own = _direct_style(properties)
        return replace(style, heading=own.heading or style.heading, list=own.list or style.list)

    def _label(self, style: _ParagraphStyle) -> tuple[str, int]:
        """Return the number or dash before a paragraph, and its level from 0."""
        if style.list is None or style.list[0] not in self._lists:
            return "", 0
        name, level = style.list
        numbering = self._lists[name]
        if (start := self._restarts[name].pop(level, None)) is not None:
            numbering.restart(level, start)
        return numbering.next(level), level

    def _inline(self, element: Element, depth: int) -> str:
        if depth > _MAX_DEPTH:
            return ""
        return "".join(self._inline_part(child, depth + 1) for child in element)

    def _inline_part(self, element: Element, depth: int) -> str:
        name = _name(element)
        if name in _CHARACTER_ELEMENTS:
            return _CHARACTER_ELEMENTS[name]
        if name in _SKIPPED_ELEMENTS:
            return ""
        match name:
            case "t":
                return element.text or ""
            case "r":
                text = self._inline(element, depth)
                return hidden.hidden_text(text) if text and self._is_hidden(element) else text
            case "hyperlink":
                return self._link(element, depth)
            case "oMath":
                return f"${omml_to_latex(element)}$"
            case "oMathPara":
                return "".join(f"$${omml_to_latex(each)}$$" for each in element.iterfind("{*}oMath"))
            case "footnoteReference" | "endnoteReference":
                self._notes.append((name, _value(element, "id")))
                return f"[^{len(self._notes)}]"
            case "drawing" | "pict" | "object":
                return self._drawing(element)
            case _:
                return self._inline(element, depth)

    def _is_hidden(self, run: Element) -> bool:
        """Return whether a run is hidden text, by its own properties, its style or the style of its paragraph."""
        properties = run.find("{*}rPr")
        if properties is None:
            return self._hidden_style
        own = properties.find("{*}vanish")
        if own is not None:
            return _value(own) not in _FALSE_VALUES
        return self._hidden_style or self._style(_value(properties.find("{*}rStyle"))).hidden

    def _link(self, element: Element, depth: int) -> str:
        text = self._inline(element, depth)
        target = self._relations.get(_value(element, "id"), "")
        if not target.startswith(("http:", "https:", "mailto:")) or target in text or not text.strip():
            return text
        return f"[{text}]({target})"

    def _drawing(self, element: Element) -> str:
        """Return the numbers of a chart, else the description of a picture."""
        for each in element.iter("{*}chart"):
            target = self._relations.get(_value(each, "id"), "")
            if target in self._archive.names:
                return f"\n{chart(self._archive.tree(target))}\n"
        if next(element.iter("{*}blip", "{*}imagedata"), None) is None:
            return ""
        self.left_out["pictures"] += 1
        description = next((_value(each, "descr") for each in element.iter("{*}docPr") if _value(each, "descr")), "")
        return f"[Picture: {' '.join(description.split())}]" if description else ""

    # Notes, comments, headers and footers

    def _footnotes(self) -> Iterator[str]:
        texts: dict[tuple[str, str], str] = {}
        notes = self._notes
        self._notes = []
        for reference, kind in _NOTES.items():
            parts = related_members(self._archive, self._name, kind) or [self._archive.member_name(f"word/{kind}.xml")]
            part = parts[0]
            if part in self._archive.names and any(each == reference for each, _ in notes):
                self._relations = relation_targets(self._archive, part)
                pieces: list[str] = []
                for piece in self._blocks(self._archive.open(part)):
                    if piece.startswith("\0"):
                        texts[reference, piece.strip("\0")] = " ".join("".join(pieces).split())
                        pieces = []
                    else:
                        pieces.append(piece)
        self._previous = ""
        lines = [f"[^{number}]: {texts.get(note, '')}\n" for number, note in enumerate(notes, 1)]
        yield from ("\n", *lines) if lines else ()

    def _comments_and_headers(self) -> Iterator[str]:
        """Yield comments, headers and footers, each under its name."""
        tree = self._tree("comments")
        comments = (
            []
            if tree is None
            else [(_value(each, "author"), self._flat_text(each)) for each in tree.iterfind("{*}comment")]
        )
        yield from _titled_list(
            "Comments", [f"{author}: {text}" if author else text for author, text in comments if text]
        )
        for title, kind in (("Headers", "header"), ("Footers", "footer")):
            names = sorted(related_members(self._archive, self._name, kind)) or sorted(
                name for name in self._archive.names if re.fullmatch(rf"word/{kind}\d*\.xml", name)
            )
            texts = (self._flat_text(self._archive.tree(name)) for name in names)
            yield from _titled_list(title, list(dict.fromkeys(filter(None, texts))))

    def _flat_text(self, tree: Element) -> str:
        lines = (self._inline(each, 0) for each in tree.iter("{*}p") if not _within(each, "Fallback"))
        return hidden.join_hidden(" ".join(" ".join(lines).split()), self.left_out)


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _within(element: Element, name: str) -> bool:
    return any(_name(each) == name for each in element.iterancestors())


def _titled_list(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"\n{title}:\n"
        yield from (f"- {line}\n" for line in lines)


def _levels(definition: Element) -> dict[int, ListLevel]:
    return {
        _number(_value(each, "ilvl")): ListLevel(
            _number(_value(each.find("{*}start")), 1),
            _value(each.find("{*}numFmt"), default="decimal"),
            "" if _value(each.find("{*}numFmt")) == BULLET else _value(each.find("{*}lvlText")),
        )
        for each in definition.iterfind("{*}lvl")
    }


def _style(chain: list[Element]) -> _ParagraphStyle:
    """Return the style for a chain of definitions: its own definition, then the definitions that it is based on."""
    name = _value(chain[0].find("{*}name"))
    names = " ".join(_value(each.find("{*}name")) for each in chain)
    own = [_direct_style(properties) for each in chain if (properties := each.find("{*}pPr")) is not None]
    headings = [int(match[1]) for each in chain if (match := _HEADING.match(_value(each.find("{*}name"))))]
    heading = 1 if name.lower() == "title" else min(*headings[:1], 6) if headings else 0
    levels = [each.heading for each in own if each.heading]
    lists = [each.list for each in own if each.list]
    return _ParagraphStyle(
        heading or (levels[0] if levels else 0),
        bool(_QUOTE.search(name)),
        bool(_CODE.search(names)),
        lists[0] if lists else None,
        next((_value(each) not in _FALSE_VALUES for each in _hiding_properties(chain)), False),
    )


def _hiding_properties(chain: list[Element]) -> Iterator[Element]:
    """Yield the properties of a style that hide its text, those of its own first."""
    for each in chain:
        if (properties := each.find("{*}rPr")) is not None and (own := properties.find("{*}vanish")) is not None:
            yield own


def _direct_style(properties: Element) -> _ParagraphStyle:
    """Return the style that a paragraph's own properties set: its level in the outline and its list."""
    outline = _number(_value(properties.find("{*}outlineLvl")), LEVELS)
    numbered = properties.find("{*}numPr")
    place = None
    if numbered is not None and numbered.find("{*}numId") is not None:
        place = (_value(numbered.find("{*}numId")), _number(_value(numbered.find("{*}ilvl"))))
    return _ParagraphStyle(min(outline + 1, 6) if outline < 9 else 0, list=place)
