"""Read PDFs page by page: their text, the values of their forms, and comments on them.

1. PDFium returns the letters of a page (`readers.pdfium`). Ruled lines and aligned columns reveal tables.
2. `text.running` drops lines at the head or foot that repeat earlier pages.
3. `text.headings` finds headings by the outline or the size of letters.
4. `text.words` joins words that a line end divides.
"""

import ctypes
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pypdfium2
from pypdfium2 import raw

from readers.formats.result import (
    MAX_CHARACTERS,
    MAX_PAGES,
    Extracted,
    ReaderError,
    limit_characters,
    paged_result,
)
from readers.pdfium.lines import boxes, glyphs, lines
from readers.pdfium.rules import is_scan, rules
from readers.text.grids import aligned, has_right_letters, is_right_to_left, mirror_segments, ruled
from readers.text.headings import PageLine, mark_headings, title_key
from readers.text.reading_order import move_into_gaps
from readers.text.running import remove_running_lines
from readers.text.words import join_divided_words

_HIDDEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_CHECKABLE_FIELDS = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_COMMENTS = (
    *(raw.FPDF_ANNOT_TEXT, raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_HIGHLIGHT, raw.FPDF_ANNOT_UNDERLINE),
    *(raw.FPDF_ANNOT_SQUIGGLY, raw.FPDF_ANNOT_STRIKEOUT, raw.FPDF_ANNOT_CARET, raw.FPDF_ANNOT_STAMP),
    *(raw.FPDF_ANNOT_SQUARE, raw.FPDF_ANNOT_CIRCLE, raw.FPDF_ANNOT_LINE, raw.FPDF_ANNOT_INK),
    *(raw.FPDF_ANNOT_POLYGON, raw.FPDF_ANNOT_POLYLINE),
)
_MAX_OUTLINE_DEPTH = 6
_MAX_ENTRIES = 5_000
_MAX_ANNOTATIONS = 2_000  # per page
_MAX_UNITS = 100_000  # UTF-16 code units per value


def read(path: Path, media_type: str, password: str = "") -> Extracted:
    """Return the text of a document.

    `password` is for an encrypted document. Raises `encrypted`, `wrong_password`, `damaged`, `too_large`.
    """
    try:
        document = pypdfium2.PdfDocument(path.read_bytes(), password=password or None)
    except pypdfium2.PdfiumError as error:
        locked = "wrong_password" if password else "encrypted"
        raise ReaderError(locked if error.err_code == raw.FPDF_ERR_PASSWORD else "damaged") from error
    if len(document) > MAX_PAGES:
        raise ReaderError("too_large")
    if document.get_formtype() != raw.FORMTYPE_NONE:
        logging.getLogger("pypdfium2").setLevel(logging.ERROR)  # a form may also have an XFA part, which is not read
        document.init_forms()
    pages = list(_pages(document))
    shown, repeated = remove_running_lines([page.lines for page in pages])
    for number, page in enumerate(pages):
        if page.lines and not shown[number] and not page.scan:  # a page with only repeated lines must not become empty
            shown[number] = page.lines
            repeated -= len(page.lines)
    with_headings = mark_headings(shown, _outline(document))
    texts = (text + page.below for text, page in zip(with_headings, pages, strict=True))
    left_out = {"repeated": repeated, "unmapped": sum(page.unmapped for page in pages)}
    extracted = paged_result(
        media_type, join_divided_words(list(limit_characters(texts))), without_text="scans", left_out=left_out
    )
    layered = [
        number
        for number, page in enumerate(pages)
        if page.scan and extracted.spans[number][0] < extracted.spans[number][1]
    ]
    return replace(extracted, layered=layered)


def _outline(document: pypdfium2.PdfDocument) -> dict[str, int]:
    """Return the levels of the titles in the document's outline, from 1."""
    entries = islice(document.get_toc(max_depth=_MAX_OUTLINE_DEPTH), _MAX_ENTRIES)
    titles = [(title_key(entry.get_title()), entry.level + 1) for entry in entries]
    return {title: level for title, level in titles if len(title) > 1}


@dataclass(slots=True)
class _Page:
    """The content of one page."""

    lines: list[PageLine]
    below: str  # form values and comments, below its text
    unmapped: bool  # its fonts do not map to letters
    scan: bool  # a picture covers it


def _pages(document: pypdfium2.PdfDocument) -> Iterator[_Page]:
    characters_left = MAX_CHARACTERS
    for number in range(len(document)):
        try:
            page = document[number]
        except pypdfium2.PdfiumError as error:
            raise ReaderError("damaged") from error
        content = page.get_textpage()
        page_lines, unmapped = lines(content)
        upright = page.get_rotation() in (0, 180)
        read_page = _Page(
            _with_tables(page, content, page_lines) if upright else page_lines, "", unmapped, is_scan(page)
        )
        content.close()
        read_page.below = _annotations(page, document.formenv)
        page.close()
        characters_left -= sum(len(line.text) for line in read_page.lines)
        if characters_left < 0:
            raise ReaderError("too_large")
        yield read_page


def _with_tables(page: pypdfium2.PdfPage, content: pypdfium2.PdfTextPage, page_lines: list[PageLine]) -> list[PageLine]:
    """Return the lines. One line of Markdown replaces the lines of each table.

    On a right-to-left page, lines without right-to-left letters are mirrored, so that the head of a table agrees with
    its rows.
    """
    remaining: list[PageLine | None] = list(page_lines)
    for grid in (*ruled(*rules(page)), *aligned(boxes(content))):
        inside = [number for number, line in enumerate(remaining) if line and line.box and grid.holds(line.box)]
        if len(inside) > 1 and (table := grid.table(list(glyphs(content, page_lines, inside)))):
            for number in inside:
                remaining[number] = None
            remaining[inside[0]] = PageLine(f"\n{table}", 0, False)
    if is_right_to_left("".join(line.text for line in page_lines)):
        for number, line in enumerate(remaining):
            if line and line.box and not has_right_letters(line.text) and len(line.text.split()) > 1:
                turned = mirror_segments(list(glyphs(content, page_lines, [number])))
                remaining[number] = line._replace(text=turned) if turned else line
    return move_into_gaps([line for line in remaining if line])


def _annotations(page: pypdfium2.PdfPage, forms: Any) -> str:
    """Return the form values and comments of a page, as lists below its text."""
    form_values: dict[str, str] = {}
    comments: list[str] = []
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if annotation and not raw.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            if kind == raw.FPDF_ANNOT_WIDGET and forms:
                _add_form_value(form_values, annotation, forms.raw)
            elif kind in _COMMENTS:
                comments.append(_value(raw.FPDFAnnot_GetStringValue, annotation, b"Contents"))
        raw.FPDFPage_CloseAnnot(annotation)
    lists = (
        ("Form fields:", [f"{name}: {value}" for name, value in form_values.items() if value]),
        ("Comments:", [comment for comment in comments if comment]),
    )
    return "".join(f"\n\n{title}" + "".join(f"\n- {line}" for line in lines) for title, lines in lists if lines)


def _add_form_value(form_values: dict[str, str], annotation: Any, form: Any) -> None:
    """Add the value of a form field. Of several boxes with one name the checked one counts."""
    name = _value(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or _value(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    if raw.FPDFAnnot_GetFormFieldType(form, annotation) in _CHECKABLE_FIELDS:
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = _value(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)
            form_values[name] = "checked" if value.lower() in ("", "on", "yes", "true", "1") else f"{value} (checked)"
    else:
        form_values[name] = form_values.get(name) or _value(raw.FPDFAnnot_GetFormFieldValue, form, annotation)


def _value(function: Any, *arguments: Any) -> str:
    """Return a string from PDFium. The first call of the function returns the string's size in bytes."""
    size = min(function(*arguments, None, 0), 2 * _MAX_UNITS)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return " ".join(buffer.raw.decode("utf-16-le", "replace").replace("\0", "").split())
