"""Presentations of PowerPoint as Markdown, a page a slide.

python-pptx builds objects for everything first, which takes several times the memory and the time to start.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import Archive, Element, relation_targets
from readers.formats.result import Extracted, paged
from readers.text.beside import chart, remark
from readers.text.formulas import latex
from readers.text.numbering import Steps
from readers.text.tables import Cell, markdown

_PRESENTATION = "ppt/presentation.xml"
_RELATIONS = "relationships}"  # what the namespace of relations ends with, in both forms of the standard
_TITLES, _BODIES = ("title", "ctrTitle"), ("body", "obj", "")
_APART = ("sldNum", "sldImg")  # placeholders of what is no text
_AUTHORS = ("ppt/commentAuthors.xml", "ppt/authors.xml")  # of comments, in older and newer files


def read(path: Path, media_type: str) -> Extracted:
    """Title as heading, then what is on it; the speaker's notes and comments stand below."""
    archive = Archive(path)
    archive.refuse_entities()
    left_out: Counter[str] = Counter()
    pages = (_Slide(archive, name, left_out).text() for name in _slides(archive))
    return paged(media_type, pages, without_text="slides", left_out=left_out)


def _slides(archive: Archive) -> list[str]:
    relations = relation_targets(archive, _PRESENTATION)
    ids = [_relation(slide, "id") for slide in archive.tree(_PRESENTATION).iterfind(".//{*}sldId")]
    return [relations[slide] for slide in ids if slide in relations]


def _relation(element: Element, name: str) -> str:
    found = (value for key, value in element.attrib.items() if key.endswith(f"{_RELATIONS}{name}"))
    return str(next(found, ""))


class _Slide:
    def __init__(self, archive: Archive, name: str, left_out: Counter[str]) -> None:
        self._archive = archive
        self._name = name
        self._left_out = left_out
        self._relations = relation_targets(archive, name)

    def text(self) -> str:
        title: list[str] = []
        blocks: list[str] = []
        for shape in _shapes(self._archive.tree(self._name)):
            kind = _placeholder(shape)
            if kind in _TITLES:
                title += ["# " + " ".join(" ".join(_paragraphs(shape, bulleted=False)).split())]
            elif kind not in _APART:
                blocks.append(self._shape(shape, bulleted=kind in _BODIES))
        return "\n\n".join(filter(None, (*(each for each in title if len(each) > 2), *blocks, *self._beside())))

    def _shape(self, shape: Element, *, bulleted: bool) -> str:
        name = _tag(shape)
        if name == "pic":
            self._left_out["pictures"] += 1
            said = next((each.get("descr", "") for each in shape.iterfind(".//{*}cNvPr")), "")
            return f"[Picture: {' '.join(said.split())}]" if said.strip() else ""
        if name == "graphicFrame":
            return self._graphic(shape)
        return "\n".join(_paragraphs(shape, bulleted=bulleted))

    def _graphic(self, frame: Element) -> str:
        """A table, the numbers of a chart, or the words of a diagram (SmartArt)."""
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

    def _beside(self) -> Iterator[str]:
        targets = [target for target in self._relations.values() if target in self._archive.names]
        for target in targets:
            if "/notesSlides/" in target:
                shapes = [each for each in _shapes(self._archive.tree(target)) if _placeholder(each) not in _APART]
                if notes := "\n".join(line for each in shapes for line in _paragraphs(each, bulleted=False)):
                    yield f"Notes:\n\n{notes}"
        for target in targets:
            if "/comments/" in target and (lines := list(self._comments(self._archive.tree(target)))):
                yield "Comments:\n\n" + "\n".join(lines)

    def _comments(self, tree: Element) -> Iterator[str]:
        """Who said what, and when; the answers to a comment are in it."""
        authors = {
            author.get("id", ""): author.get("name", "")
            for part in _AUTHORS
            if part in self._archive.names
            for author in self._archive.tree(part)
        }
        for each in tree.iter("{*}cm", "{*}reply"):
            body = each.find("{*}text") if each.find("{*}txBody") is None else each.find("{*}txBody")
            if body is not None and (text := " ".join("".join(body.itertext()).split())):
                by, when = authors.get(each.get("authorId", ""), ""), each.get("dt", "") or each.get("created", "")
                yield remark(text, by, when)


def _tag(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _shapes(tree: Element) -> Iterator[Element]:
    """Of a slide and its groups, in the order in which they are painted; `Fallback` repeats what stands beside it."""
    for element in tree:
        name = _tag(element)
        if name in ("sp", "pic", "graphicFrame", "cxnSp"):
            yield element
        elif name in ("cSld", "spTree", "grpSp", "AlternateContent", "Choice", "sld", "notes"):
            yield from _shapes(element)


def _placeholder(shape: Element) -> str:
    """Its kind; empty for one without, `free` for a shape that is none."""
    found = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
    return "free" if found is None else found.get("type", "")


def _row(row: Element) -> list[Cell]:
    """What a merged cell covers is there, too, and says so."""
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
    """Lines with dashes or numbers where they have some; a body's paragraphs have, if it does not say otherwise."""
    found = [(each, text) for each in shape.iter("{*}p") if (text := _inline(each).strip())]
    steps = Steps()
    lines = []
    for paragraph, text in found:
        properties = paragraph.find("{*}pPr")
        level = 0 if properties is None else _count(properties, "lvl") if properties.get("lvl") else 0
        label = _label(properties, steps, level, bulleted=bulleted and len(found) > 1)
        lines.append(f"{'  ' * min(level, 9)}{label} {text}" if label else text)
    return lines


def _label(properties: Element | None, steps: Steps, level: int, *, bulleted: bool) -> str:
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
            parts.append(f"${latex(element)}$")
        elif not any(_tag(each) in ("oMath", "Fallback") for each in element.iterancestors()):
            parts.append("\n" if name == "br" else element.text or "")
    return "".join(parts)
