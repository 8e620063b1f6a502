"""Read LibreOffice files (OpenDocument 1.3) as a stream: texts as Markdown, sheets as rows, slides as pages."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import Archive, Element, parse_events, resolve_target
from readers.formats.media_types import ODP, ODS
from readers.formats.result import Extracted, limit_characters, paged_result, unpaged_result
from readers.text import hidden
from readers.text.formulas import mathml_tree_to_latex
from readers.text.numbering import BULLET, LEVELS, ListLevel, Numbering
from readers.text.office_parts import comment_item
from readers.text.sheet_rows import SheetRow, SheetText, cell_reference, comment_list, one_line
from readers.text.tables import Cell, markdown

_CONTENT = "content.xml"
_STYLES = "styles.xml"
_BLOCKS = frozenset({"h", "p", "list", "table"})
_SKIPPED_ELEMENTS = frozenset(
    {"tracked-changes", "sequence-decls", "forms", "ruby-text", "annotation-end", "desc", "title"}
)
_FORMATS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman", "": "none"}
_TITLES = {"Title": 1, "Subtitle": 2}
_MAX_TITLE_LENGTH = 120  # characters in the title of a slide
_MAX_REPEATED = 100  # copies of a repeated cell or row
_MAX_ROW_LENGTH = 20_000  # cells; LibreOffice has 16,384
_HIDDEN_VISIBILITIES = ("collapse", "filter")  # values of the visibility of rows and columns
# Attributes with the value of a cell. They are used if the program did not write the text that the cell shows.
_VALUE_ATTRIBUTES = ("string-value", "date-value", "time-value", "boolean-value", "value")
_MAX_DEPTH = 80


def read(path: Path, media_type: str) -> Extracted:
    """Return the text. A presentation has a page for each slide with its notes; a workbook has one for each sheet."""
    archive = Archive(path)
    archive.refuse_entities()
    reader = _OpenDocumentReader(archive)
    if media_type == ODS:
        return paged_result(media_type, reader.sheets(), left_out=reader.left_out)
    if media_type == ODP:
        return paged_result(media_type, reader.slides(), without_text="slides", left_out=reader.left_out)
    return unpaged_result(media_type, reader.text(), left_out=reader.left_out)


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _get(element: Element, name: str, default: str = "") -> str:
    """Return an attribute by its name without the namespace."""
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), default)


def _count(element: Element, name: str, default: int = 1) -> int:
    value = _get(element, name)
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 else default


def _is_title(blocks: list[str]) -> bool:
    return bool(blocks) and "\n" not in blocks[0] and len(blocks[0]) <= _MAX_TITLE_LENGTH and blocks[0][0] not in "#|-"


class _OpenDocumentReader:
    """Reader of one file. `left_out` counts omitted pictures and hidden parts."""

    def __init__(self, archive: Archive) -> None:
        self.left_out: Counter[str] = Counter()
        self._archive = archive
        self._title_levels: dict[str, int] = {}  # heading level by paragraph style
        self._layouts_with_title: set[str] = set()  # slide layouts with a title
        self._lists: dict[str, dict[int, ListLevel]] = {}
        self._outline = Numbering({level: ListLevel(format="none") for level in range(LEVELS)})
        self._counted: dict[str, Numbering] = {}
        self._notes: list[str] = []
        self._comments: list[str] = []
        self._hidden_styles: set[str] = set()  # of text, tables and slides that are not shown
        if _STYLES in archive.names:
            self._collect_styles(archive.tree(_STYLES))

    def _collect_styles(self, tree: Element) -> None:
        """Store the title styles, list styles and heading numbering that this part defines."""
        for style in tree.iter("{*}style"):
            name = _get(style, "name")
            parent = _get(style, "parent-style-name")
            if any(_hides(properties) for properties in style) or parent in self._hidden_styles:
                self._hidden_styles.add(name)
            self._title_levels[name] = _TITLES.get(name) or _TITLES.get(parent) or self._title_levels.get(parent, 0)
        for layout in tree.iter("{*}presentation-page-layout"):
            if any(_get(place, "object") == "title" for place in layout):
                self._layouts_with_title.add(_get(layout, "name"))
        for style in tree.iter("{*}list-style", "{*}outline-style"):
            levels = {_count(each, "level") - 1: _level(each) for each in style}
            if _tag(style) == "list-style":
                self._lists[_get(style, "name")] = levels
            else:
                self._outline = Numbering(levels)

    def text(self) -> Iterator[str]:
        yield from (f"\n{block}" for block in self._blocks(_BLOCKS))
        for number, note in enumerate(self._notes, 1):
            yield f"{'' if number > 1 else chr(10)}[^{number}]: {note}\n"
        if self._comments:
            yield "\nComments:\n" + "".join(f"- {comment}\n" for comment in self._comments)

    def slides(self) -> Iterator[str]:
        return self._blocks(frozenset({"page"}))

    def sheets(self) -> Iterator[str]:
        """Yield `# name` and tab-separated rows for each sheet, as the Excel reader does."""
        stream = parse_events(self._archive.open(_CONTENT))
        for event, element in stream:
            name = _tag(element)
            if event == "start" and name == "table":
                yield "".join(limit_characters(self._sheet(element, stream)))
            elif event == "end" and name == "automatic-styles":
                self._collect_styles(element)

    def _sheet(self, table: Element, stream: Iterator[tuple[str, Element]]) -> Iterator[str]:
        is_hidden = _get(table, "style-name") in self._hidden_styles
        sheet = SheetText(_get(table, "name"), self.left_out, is_hidden=is_hidden)
        self._comments = []
        yield from sheet.text(self._sheet_rows(stream, sheet.hidden_columns), self._sheet_comments())

    def _sheet_comments(self) -> Iterator[str]:
        yield comment_list(self._comments)  # those of the rows that are read by now

    def _sheet_rows(self, stream: Iterator[tuple[str, Element]], hidden_columns: set[int]) -> Iterator[SheetRow]:
        """Yield the rows up to the end of the table. Adds the hidden columns, which stand before the rows."""
        depth = 0
        column = 0
        number = 1
        for event, element in stream:
            name = _tag(element)
            if name == "table":
                depth += 1 if event == "start" else -1
                if depth < 0:
                    return
            elif event == "start" or depth:
                continue
            elif name == "table-column":
                count = min(_count(element, "number-columns-repeated"), _MAX_ROW_LENGTH)
                if _get(element, "visibility") in _HIDDEN_VISIBILITIES:
                    hidden_columns.update(range(column, column + count))
                column += count
            elif name == "table-row":
                copies = _count(element, "number-rows-repeated")
                cells = self._sheet_cells(element, number)
                if copies > _MAX_REPEATED and cells:
                    self.left_out["copies"] += 1
                for copy in range(min(copies, _MAX_REPEATED) if cells else 0):
                    yield SheetRow(number + copy, dict(cells), _get(element, "visibility") in _HIDDEN_VISIBILITIES)
                number += copies
                _discard(element)

    def _sheet_cells(self, row: Element, number: int) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            if _tag(cell) not in ("table-cell", "covered-table-cell") or column >= _MAX_ROW_LENGTH:
                continue
            for note in cell.iterfind("{*}annotation"):
                self._comments.append(self._comment(note, cell_reference(column, number)))
            text = hidden.join_hidden(
                one_line(" ".join(self._inline(each, 0) for each in cell.iterfind("{*}p"))), self.left_out
            ) or next((value for name in _VALUE_ATTRIBUTES if (value := _get(cell, name))), "")
            copies = _count(cell, "number-columns-repeated")
            if text:
                if copies > _MAX_REPEATED:
                    self.left_out["copies"] += 1
                cells |= dict.fromkeys(range(column, column + min(copies, _MAX_REPEATED)), text)
            column += copies
        return cells

    def _comment(self, annotation: Element, place: str = "") -> str:
        """Return a comment as a list item, with its author and time."""
        text = one_line(" ".join(self._inline(each, 1) for each in annotation.iter("{*}p")))
        author = annotation.findtext("{*}creator") or ""
        return comment_item(text, f"{place} {author}".strip(), annotation.findtext("{*}date") or "")

    def _blocks(self, kinds: frozenset[str]) -> Iterator[str]:
        """Yield the text of each outermost element of these kinds."""
        inside: list[Element] = []
        hidden_sections = 0
        for event, element in parse_events(self._archive.open(_CONTENT)):
            name = _tag(element)
            if name == "section" and _get(element, "display") == "none":
                hidden_sections += 1 if event == "start" else -1
            if event == "start":
                if inside or name in kinds or name in _SKIPPED_ELEMENTS:
                    inside.append(element)
                continue
            if name == "automatic-styles":
                self._collect_styles(element)
            if inside:
                inside.pop()
            if not inside:
                if name in kinds and ((text := self._block(element, 0)) or name == "page"):
                    text = hidden.hidden_text(text) if hidden_sections else text
                    yield hidden.join_hidden(text, self.left_out)
                if name in kinds or name in _SKIPPED_ELEMENTS:
                    _discard(element)

    def _block(self, element: Element, depth: int) -> str:
        """Return lines that end with `\\n`, or an empty text."""
        if depth > _MAX_DEPTH:
            return ""
        match _tag(element):
            case "h":
                level = _count(element, "outline-level")
                label = self._outline.next(min(level, LEVELS) - 1) if self._outline else ""
                text = " ".join(f"{label} {self._inline(element, 0)}".split())
                return f"{'#' * min(level, 6)} {text}\n" if text else ""
            case "p":
                text = self._inline(element, 0).strip()
                if _get(element, "style-name") in self._hidden_styles:
                    text = hidden.hidden_text(text)
                title = self._title_levels.get(_get(element, "style-name"), 0)
                text = f"{'#' * title} {' '.join(text.split())}" if text and title else text
                return f"{text}\n" if text else ""
            case "list":
                return self._list(element, "", 0)
            case "table":
                return markdown(self._rows(element))
            case "page":
                return self._slide(element)
            case name if name in _SKIPPED_ELEMENTS:
                return ""
            case _:
                return "".join(self._block(child, depth + 1) for child in element)

    def _list(self, element: Element, style: str, level: int) -> str:
        if level >= LEVELS:
            return ""
        style = _get(element, "style-name") or style
        if level == 0 and _get(element, "continue-numbering") != "true" and not _get(element, "continue-list"):
            self._counted[style] = Numbering(self._lists.get(style, {}))
        numbering = self._counted.setdefault(style, Numbering(self._lists.get(style, {})))
        lines = []
        for item in element:
            labelled = _tag(item) == "list-header"
            for child in item:
                if _tag(child) == "list":
                    lines.append(self._list(child, style, level + 1))
                elif text := " ".join(self._block(child, level).split()):
                    label = "" if labelled else (numbering.next(level) if style in self._lists else "-")
                    lines.append(f"{'  ' * level}{f'{label} ' if label else ''}{text}\n")
                    labelled = True
        return "".join(lines)

    def _rows(self, table: Element) -> Iterator[list[Cell]]:
        for element in table:
            name = _tag(element)
            if name == "table-row":
                yield self._row(element)
            elif name in ("table-header-rows", "table-rows", "table-row-group"):
                yield from self._rows(element)

    def _row(self, row: Element) -> list[Cell]:
        cells = []
        for cell in row.iterfind("{*}table-cell"):
            text = "".join(self._block(each, 1) for each in cell)
            parsed = Cell(text, _count(cell, "number-columns-spanned"), _count(cell, "number-rows-spanned"))
            cells += [parsed] * min(_count(cell, "number-columns-repeated"), _MAX_REPEATED if text else 1)
        return cells

    def _slide(self, page: Element) -> str:
        titles: list[str] = []
        blocks: list[str] = []
        notes = ""
        for frame in page:
            if _tag(frame) == "notes":
                shown = (each for each in frame if _get(each, "class") != "page-number")
                notes = "\n".join(filter(None, (self._shape(each, 0).strip() for each in shown)))
            elif text := self._shape(frame, 0).strip():
                is_title = _get(frame, "class") == "title"
                (titles if is_title else blocks).append(f"# {' '.join(text.split())}" if is_title else text)
        untitled = not any(_get(frame, "class") == "title" for frame in page)
        # A title from PowerPoint has no mark of its own: it is the first shape on a slide whose layout has a title.
        if untitled and _get(page, "presentation-page-layout-name") in self._layouts_with_title and _is_title(blocks):
            titles.append(f"# {blocks.pop(0)}")
        parts = [*titles, *blocks, *([f"Notes:\n\n{notes}"] if notes else [])]
        if parts and _get(page, "style-name") in self._hidden_styles:
            self.left_out[hidden.HIDDEN_KEY] += 1
            parts.insert(0, hidden.SLIDE)
        return "\n\n".join(parts)

    def _shape(self, element: Element, depth: int) -> str:
        name = _tag(element)
        if name in _BLOCKS:
            return self._block(element, depth)
        if name == "image":
            return self._picture(element)
        if name == "object":
            return self._object(element)
        if depth > _MAX_DEPTH or name in _SKIPPED_ELEMENTS or name == "page-thumbnail":
            return ""
        objects = [each for each in element if _tag(each) in ("object", "table")]
        return "".join(self._shape(child, depth + 1) for child in objects or element)

    def _picture(self, image: Element) -> str:
        self.left_out["pictures"] += 1
        frame = image.getparent()
        description = " ".join((frame.findtext("{*}desc") or frame.findtext("{*}title") or "").split())
        return f"[Picture: {description}]" if description else ""

    def _object(self, element: Element) -> str:
        """Return a formula in LibreOffice notation, or the numbers of a chart."""
        name = resolve_target("", f"{_get(element, 'href')}/{_CONTENT}")
        if name not in self._archive.names:
            return ""
        tree = self._archive.tree(name)
        if (annotation := tree.find(".//{*}annotation")) is not None:
            return f"`{' '.join((annotation.text or '').split())}`"
        if _tag(tree) == "math":
            return f"${mathml_tree_to_latex(tree)}$"
        table = tree.find(".//{*}table")
        return "" if table is None else f"\nChart:\n\n{markdown(self._rows(table))}"

    def _inline(self, element: Element, depth: int) -> str:
        if depth > _MAX_DEPTH:
            return ""
        parts = [element.text or ""]
        for child in element:
            parts += [self._inline_part(child, depth + 1), child.tail or ""]
        return "".join(parts)

    def _inline_part(self, element: Element, depth: int) -> str:
        match _tag(element):
            case "s":
                return " " * min(_count(element, "c"), _MAX_REPEATED)
            case "tab":
                return "\t"
            case "line-break":
                return "\n"
            case "note":
                return self._note(element)
            case "annotation":
                author = element.findtext("{*}creator") or ""
                text = self._flat_text(element)
                self._comments.append(f"{author}: {text}" if author else text)
                return ""
            case "span" | "hidden-text" | "hidden-paragraph":
                return self._mark_if_hidden(element, depth)
            case "a":
                return self._link(element, depth)
            case "frame" | "custom-shape" | "g" | "rect" | "ellipse":
                return self._shape(element, depth)
            case name if name in _SKIPPED_ELEMENTS:
                return ""
            case _:
                return self._inline(element, depth)

    def _mark_if_hidden(self, element: Element, depth: int) -> str:
        text = self._inline(element, depth) or _get(element, "string-value")
        if _tag(element) == "span":
            is_hidden = _get(element, "style-name") in self._hidden_styles
        else:
            is_hidden = _get(element, "is-hidden", "true") == "true"
        return hidden.hidden_text(text) if is_hidden else text

    def _link(self, element: Element, depth: int) -> str:
        text = self._inline(element, depth)
        target = _get(element, "href")
        is_link = target.startswith(("http:", "https:", "mailto:")) and target not in text and text.strip()
        return f"[{text}]({target})" if is_link else text

    def _note(self, element: Element) -> str:
        body = element.find("{*}note-body")
        self._notes.append("" if body is None else self._flat_text(body))
        return f"[^{len(self._notes)}]"

    def _flat_text(self, element: Element) -> str:
        return " ".join(" ".join(self._inline(each, 1) for each in element.iter("{*}p")).split())


def _level(element: Element) -> ListLevel:
    """Return a list level or heading level. Its pattern, such as `%1.%2`, has as many numbers as the level shows."""
    if "bullet" in _tag(element) or "image" in _tag(element):
        return ListLevel(format=BULLET)
    level = _count(element, "level")
    form = _get(element, "num-format")
    shown = min(_count(element, "display-levels"), level)
    pattern = ".".join(f"%{each}" for each in range(level - shown + 1, level + 1) if each < LEVELS)
    pattern = f"{_get(element, 'num-prefix')}{pattern}{_get(element, 'num-suffix')}"
    return ListLevel(_count(element, "start-value"), _FORMATS.get(form, "decimal"), pattern)


def _hides(properties: Element) -> bool:
    """Return whether the properties of a style hide text (`none`), a table (`false`) or a slide (`hidden`)."""
    return _get(properties, "display") in ("none", "false") or (
        _tag(properties) == "drawing-page-properties" and _get(properties, "visibility") == "hidden"
    )


def _discard(element: Element) -> None:
    """Remove an element that was read, and all elements before it, so that memory use stays bounded."""
    element.clear(keep_tail=True)
    while (before := element.getprevious()) is not None:
        element.getparent().remove(before)
