"""Read presentations of PowerPoint as Markdown, one page for each slide.

python-pptx is not used: it builds objects for everything first, which takes several times the memory and time.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import Archive, Element, main_part, related_members, relation_targets
from readers.formats.result import Extracted, paged_result
from readers.text import hidden
from readers.text.formulas import omml_to_latex
from readers.text.numbering import SlideNumbering
from readers.text.office_parts import chart, comment_item
from readers.text.tables import Cell, markdown

_PRESENTATION = "ppt/presentation.xml"  # the usual name of the main part
_RELATIONS = "relationships}"  # end of the namespace of relationships, in both variants of the standard
_TITLES = ("title", "ctrTitle")
_BODIES = ("body", "obj", "")
_WITHOUT_TEXT = ("sldNum", "sldImg")  # placeholders without text of the slide
# Kinds of parts with authors of comments, in older and newer files, with their usual names.
_AUTHORS = {"commentAuthors": "ppt/commentAuthors.xml", "authors": "ppt/authors.xml"}
_TRUE_VALUES = ("1", "true")
_FALSE_VALUES = ("0", "false")


def read(path: Path, media_type: str) -> Extracted:
    """Return each slide with its title as a heading, its text, then the speaker's notes and comments."""
    archive = Archive(path)
    archive.refuse_entities()
    left_out: Counter[str] = Counter()
    main = main_part(archive)
    presentation = main.name if main else archive.member_name(_PRESENTATION)
    authors = {
        author.get("id", ""): author.get("name", "")
        for part in related_members(archive, presentation, *_AUTHORS)
        or filter(archive.names.__contains__, _AUTHORS.values())
        for author in archive.tree(part)
    }
    pages = (_Slide(archive, name, authors, left_out).text() for name in _slides(archive, presentation))
    return paged_result(media_type, pages, without_text="slides", left_out=left_out)


def _slides(archive: Archive, presentation: str) -> list[str]:
    relations = relation_targets(archive, presentation)
    ids = [_relation(slide, "id") for slide in archive.tree(presentation).iterfind(".//{*}sldId")]
    return [relations[slide] for slide in ids if slide in relations]


def _relation(element: Element, name: str) -> str:
    values = (value for key, value in element.attrib.items() if key.endswith(f"{_RELATIONS}{name}"))
    return str(next(values, ""))


class _Slide:
    def __init__(self, archive: Archive, name: str, authors: dict[str, str], left_out: Counter[str]) -> None:
        self._archive = archive
        self._name = name
        self._authors = authors
        self._left_out = left_out
        self._relations = relation_targets(archive, name)

    def text(self) -> str:
        title: list[str] = []
        blocks: list[str] = []
        tree = self._archive.tree(self._name)
        for shape in _shapes(tree):
            kind = _placeholder(shape)
            if _is_hidden(shape):
                if text := self._shape(shape, bulleted=False).strip():
                    self._left_out[hidden.HIDDEN_KEY] += 1
                    blocks.append(hidden.hidden_text(text))
            elif kind in _TITLES:
                title += ["# " + " ".join(" ".join(_paragraphs(shape, bulleted=False)).split())]
            elif kind not in _WITHOUT_TEXT:
                blocks.append(self._shape(shape, bulleted=kind in _BODIES))
        parts = list(filter(None, (*(each for each in title if len(each) > 2), *blocks, *self._extras())))
        if parts and tree.get("show") in _FALSE_VALUES:
            self._left_out[hidden.HIDDEN_KEY] += 1
            parts.insert(0, hidden.SLIDE)
        return "\n\n".join(parts)

    def _shape(self, shape: Element, *, bulleted: bool) -> str:
        name = _tag(shape)
        if name == "pic":
            self._left_out["pictures"] += 1
            description = next((each.get("descr", "") for each in shape.iterfind(".//{*}cNvPr")), "")
            return f"[Picture: {' '.join(description.split())}]" if description.strip() else ""
        if name == "graphicFrame":
            return self._graphic(shape)
        return "\n".join(_paragraphs(shape, bulleted=bulleted))

    def _graphic(self, frame: Element) -> str:
        """Return a table, the numbers of a chart, or the words of a diagram (SmartArt)."""
        if (table := frame.find(".//{*}tbl")) is not None:
            return markdown([_row(row) for row in table.iterfind("{*}tr")])
        for each in frame.iter("{*}chart"):
            if (tree := self._part(_relation(each, "id"))) is not None:
                return chart(tree)
        for each in frame.iter("{*}relIds"):
            if (tree := self._part(_relation(each, "dm"))) is not None:
                points = (" ".join(_paragraphs(point, bulleted=False)).strip() for point in tree.iter("{*}pt"))
                return "\n".join(f"- {point}" for point in points if point)
        return ""

    def _part(self, relation: str) -> Element | None:
        target = self._relations.get(relation, "")
        return self._archive.tree(target) if target in self._archive.names else None

    def _extras(self) -> Iterator[str]:
        targets = [target for target in self._relations.values() if target in self._archive.names]
        for target in targets:
            if "/notesSlides/" in target:
                shapes = [
                    each for each in _shapes(self._archive.tree(target)) if _placeholder(each) not in _WITHOUT_TEXT
                ]
                if notes := "\n".join(line for each in shapes for line in _paragraphs(each, bulleted=False)):
                    yield f"Notes:\n\n{notes}"
        for target in targets:
            if "/comments/" in target and (lines := list(self._comments(self._archive.tree(target)))):
                yield "Comments:\n\n" + "\n".join(lines)

    def _comments(self, tree: Element) -> Iterator[str]:
        """Yield the comments with author and time. Replies are part of their comment."""
        for each in tree.iter("{*}cm", "{*}reply"):
            body = each.find("{*}text") if each.find("{*}txBody") is None else each.find("{*}txBody")
            if body is not None and (text := " ".join("".join(body.itertext()).split())):
                by = self._authors.get(each.get("authorId", ""), "")
                yield comment_item(text, by, each.get("dt", "") or each.get("created", ""))


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _shapes(tree: Element) -> Iterator[Element]:
    """Yield the shapes of a slide and its groups in the order of painting.

    `Fallback` repeats shapes, so it is skipped.
    """
    for element in tree:
        name = _tag(element)
        if name in ("sp", "pic", "graphicFrame", "cxnSp"):
            yield element
        elif name in ("cSld", "spTree", "grpSp", "AlternateContent", "Choice", "sld", "notes"):
            yield from _shapes(element)


def _is_hidden(shape: Element) -> bool:
    """Return whether the selection pane hides a shape."""
    properties = next((each for part in shape for each in part.iterfind("{*}cNvPr")), None)
    return properties is not None and properties.get("hidden") in _TRUE_VALUES


def _placeholder(shape: Element) -> str:
    """Return the kind of a placeholder, "" if it has no kind; `free` for any other shape."""
    element = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return "free" if element is None else element.get("type", "")


def _row(row: Element) -> list[Cell]:
    """Return the cells of a row. The file also has a cell in each place that a merged cell covers, with a mark."""
    cells = []
    for cell in row.iterfind("{*}tc"):
        if cell.get("hMerge") not in ("1", "true"):
            text = " ".join(_paragraphs(cell, bulleted=False))
            cells.append(Cell(text, _count(cell, "gridSpan"), continues=cell.get("vMerge") in ("1", "true")))
    return cells


def _count(element: Element, name: str) -> int:
    value = element.get(name, "1")
    return int(value) if value.isdigit() and len(value) < 6 else 1


def _paragraphs(shape: Element, *, bulleted: bool) -> list[str]:
    """Return the lines with their dashes or numbers. Paragraphs of a body have dashes by default."""
    texts = [(each, text) for each in shape.iter("{*}p") if (text := _inline(each).strip())]
    steps = SlideNumbering()
    lines = []
    for paragraph, text in texts:
        properties = paragraph.find("{*}pPr")
        level = 0 if properties is None else _count(properties, "lvl") if properties.get("lvl") else 0
        label = _label(properties, steps, level, bulleted=bulleted and len(texts) > 1)
        lines.append(f"{'  ' * min(level, 9)}{label} {text}" if label else text)
    return lines


def _label(properties: Element | None, steps: SlideNumbering, level: int, *, bulleted: bool) -> str:
    kinds = {} if properties is None else {_tag(each): each for each in properties}
    if (numbered := kinds.get("buAutoNum")) is not None:
        return steps.label(level, numbered.get("type", "arabicPeriod"), _count(numbered, "startAt"))
    steps.end(level)
    return "" if "buNone" in kinds else "-" if "buChar" in kinds or "buBlip" in kinds or bulleted else ""


def _inline(paragraph: Element) -> str:
    parts = []
    for element in paragraph.iter("{*}t", "{*}br", "{*}oMath"):
        name = _tag(element)
        if name == "oMath":
            parts.append(f"${omml_to_latex(element)}$")
        elif not any(_tag(each) in ("oMath", "Fallback") for each in element.iterancestors()):
            parts.append("\n" if name == "br" else element.text or "")
    return "".join(parts)
