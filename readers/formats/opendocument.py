"""Read LibreOffice files (OpenDocument 1.3) as a stream: texts as Markdown, sheets as rows, slides as pages."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import Archive, Element, events, resolved
from readers.formats.media_types import ODP, ODS
from readers.formats.result import Extracted, limited, paged, whole
from readers.text.numbering import BULLET, LEVELS, ListLevel, Numbering
from readers.text.tables import Cell, markdown

_CONTENT = "content.xml"
_STYLES = "styles.xml"
_BLOCKS = frozenset({"h", "p", "list", "table"})
_UNSEEN = frozenset({"tracked-changes", "sequence-decls", "forms", "ruby-text", "annotation-end", "desc", "title"})
_FORMATS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman", "": "none"}
_TITLES = {"Title": 1, "Subtitle": 2}
_LONGEST_TITLE = 120  # characters in the title of a slide
_MOST_REPEATED = 100  # copies of a repeated cell or row
_LONGEST_ROW = 10_000  # cells
_BLANK_ROWS = 1_000  # this many consecutive blank rows end a sheet
_MOST_DEPTH = 80


def read(path: Path, media_type: str) -> Extracted:
    """Return the text. A presentation has a page for each slide with its notes; a workbook has one for each sheet."""
    archive = Archive(path)
    archive.refuse_entities()
    reader = _OpenDocumentReader(archive)
    if media_type == ODS:
        return paged(media_type, reader.sheets())
    if media_type == ODP:
        return paged(media_type, reader.slides(), without_text="slides", left_out=reader.left_out)
    return whole(media_type, reader.text(), left_out=reader.left_out)


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _get(element: Element, name: str, default: str = "") -> str:
    """Return an attribute by its name without the namespace."""
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), default)


def _count(element: Element, name: str, default: int = 1) -> int:
    value = _get(element, name)
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 else default


def _is_title(blocks: list[str]) -> bool:
    return bool(blocks) and "\n" not in blocks[0] and len(blocks[0]) <= _LONGEST_TITLE and blocks[0][0] not in "#|-"


class _OpenDocumentReader:
    """Reader of one file. `left_out` counts the omitted pictures."""

    def __init__(self, archive: Archive) -> None:
        self.left_out: Counter[str] = Counter()
        self._archive = archive
        self._titles: dict[str, int] = {}  # heading level by paragraph style
        self._titled: set[str] = set()  # slide layouts with a title
        self._lists: dict[str, dict[int, ListLevel]] = {}
        self._outline = Numbering({level: ListLevel(format="none") for level in range(LEVELS)})
        self._counted: dict[str, Numbering] = {}
        self._notes: list[str] = []
        self._comments: list[str] = []
        if _STYLES in archive.names:
            self._learn(archive.tree(_STYLES))

    def _learn(self, tree: Element) -> None:
        """Store the title styles, list styles and heading numbering that this part defines."""
        for style in tree.iter("{*}style"):
            name = _get(style, "name")
            parent = _get(style, "parent-style-name")
            self._titles[name] = _TITLES.get(name) or _TITLES.get(parent) or self._titles.get(parent, 0)
        for layout in tree.iter("{*}presentation-page-layout"):
            if any(_get(place, "object") == "title" for place in layout):
                self._titled.add(_get(layout, "name"))
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
        lines: list[str] = []
        blank = 0
        for event, element in events(self._archive.open(_CONTENT)):
            name = _tag(element)
            if event == "start" or name not in ("table-row", "table"):
                continue
            if name == "table":
                filled = "\n".join(limited(lines))
                yield f"# {_get(element, 'name')}\n{filled}" if filled.strip() else ""
                lines = []
                blank = 0
            elif blank < _BLANK_ROWS:
                line = self._row_of_sheet(element)
                copies = min(_count(element, "number-rows-repeated"), _MOST_REPEATED if line else 1)
                lines += [line] * copies
                blank = 0 if line else blank + 1
            _discard(element)

    def _row_of_sheet(self, row: Element) -> str:
        cells: list[str] = []
        for cell in row:
            if _tag(cell) in ("table-cell", "covered-table-cell") and len(cells) < _LONGEST_ROW:
                text = " ".join(" ".join(self._inline(each, 0) for each in cell.iterfind("{*}p")).split())
                cells += [text] * min(_count(cell, "number-columns-repeated"), _MOST_REPEATED)
        return "\t".join(cells).rstrip("\t")

    def _blocks(self, kinds: frozenset[str]) -> Iterator[str]:
        """Yield the text of each outermost element of these kinds."""
        inside: list[Element] = []
        for event, element in events(self._archive.open(_CONTENT)):
            name = _tag(element)
            if event == "start":
                if inside or name in kinds or name in _UNSEEN:
                    inside.append(element)
                continue
            if name == "automatic-styles":
                self._learn(element)
            if inside:
                inside.pop()
            if not inside:
                if name in kinds and ((text := self._block(element, 0)) or name == "page"):
                    yield text
                if name in kinds or name in _UNSEEN:
                    _discard(element)

    def _block(self, element: Element, depth: int) -> str:
        """Return lines that end with `\\n`, or an empty text."""
        if depth > _MOST_DEPTH:
            return ""
        match _tag(element):
            case "h":
                level = _count(element, "outline-level")
                label = self._outline.next(min(level, LEVELS) - 1) if self._outline else ""
                text = " ".join(f"{label} {self._inline(element, 0)}".split())
                return f"{'#' * min(level, 6)} {text}\n" if text else ""
            case "p":
                text = self._inline(element, 0).strip()
                title = self._titles.get(_get(element, "style-name"), 0)
                text = f"{'#' * title} {' '.join(text.split())}" if text and title else text
                return f"{text}\n" if text else ""
            case "list":
                return self._list(element, "", 0)
            case "table":
                return markdown(self._rows(element))
            case "page":
                return self._slide(element)
            case name if name in _UNSEEN:
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
            cells += [parsed] * min(_count(cell, "number-columns-repeated"), _MOST_REPEATED if text else 1)
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
        if untitled and _get(page, "presentation-page-layout-name") in self._titled and _is_title(blocks):
            titles.append(f"# {blocks.pop(0)}")
        return "\n\n".join((*titles, *blocks, *([f"Notes:\n\n{notes}"] if notes else [])))

    def _shape(self, element: Element, depth: int) -> str:
        name = _tag(element)
        if name in _BLOCKS:
            return self._block(element, depth)
        if name == "image":
            return self._picture(element)
        if name == "object":
            return self._object(element)
        if depth > _MOST_DEPTH or name in _UNSEEN or name == "page-thumbnail":
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
        name = resolved("", f"{_get(element, 'href')}/{_CONTENT}")
        if name not in self._archive.names:
            return ""
        tree = self._archive.tree(name)
        if (annotation := tree.find(".//{*}annotation")) is not None:
            return f"`{' '.join((annotation.text or '').split())}`"
        table = tree.find(".//{*}table")
        return "" if table is None else f"\nChart:\n\n{markdown(self._rows(table))}"

    def _inline(self, element: Element, depth: int) -> str:
        if depth > _MOST_DEPTH:
            return ""
        parts = [element.text or ""]
        for child in element:
            parts += [self._piece(child, depth + 1), child.tail or ""]
        return "".join(parts)

    def _piece(self, element: Element, depth: int) -> str:
        match _tag(element):
            case "s":
                return " " * min(_count(element, "c"), _MOST_REPEATED)
            case "tab":
                return "\t"
            case "line-break":
                return "\n"
            case "note":
                return self._note(element)
            case "annotation":
                author = element.findtext("{*}creator") or ""
                text = self._flat(element)
                self._comments.append(f"{author}: {text}" if author else text)
                return ""
            case "a":
                text = self._inline(element, depth)
                target = _get(element, "href")
                is_link = target.startswith(("http:", "https:", "mailto:")) and target not in text and text.strip()
                return f"[{text}]({target})" if is_link else text
            case "frame" | "custom-shape" | "g" | "rect" | "ellipse":
                return self._shape(element, depth)
            case name if name in _UNSEEN:
                return ""
            case _:
                return self._inline(element, depth)

    def _note(self, element: Element) -> str:
        body = element.find("{*}note-body")
        self._notes.append("" if body is None else self._flat(body))
        return f"[^{len(self._notes)}]"

    def _flat(self, element: Element) -> str:
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


def _discard(element: Element) -> None:
    """Remove an element that was read, and all elements before it, so that memory use stays bounded."""
    element.clear(keep_tail=True)
    while (before := element.getprevious()) is not None:
        element.getparent().remove(before)
