"""PDFs, page by page: their text, what was filled into their forms, and what was written on them."""

import ctypes
import logging
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pypdfium2
from pypdfium2 import raw

from files.extraction.readers.result import (
    MAX_CHARACTERS,
    MAX_PAGES,
    Extracted,
    ExtractionError,
    limited,
    paged,
)
from files.extraction.text.headings import Line, key, marked
from files.extraction.text.words import joined

_HIDDEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_BOXES = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_COMMENTS = (
    *(raw.FPDF_ANNOT_TEXT, raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_HIGHLIGHT, raw.FPDF_ANNOT_UNDERLINE),
    *(raw.FPDF_ANNOT_SQUIGGLY, raw.FPDF_ANNOT_STRIKEOUT, raw.FPDF_ANNOT_CARET, raw.FPDF_ANNOT_STAMP),
    *(raw.FPDF_ANNOT_SQUARE, raw.FPDF_ANNOT_CIRCLE, raw.FPDF_ANNOT_LINE, raw.FPDF_ANNOT_INK),
    *(raw.FPDF_ANNOT_POLYGON, raw.FPDF_ANNOT_POLYLINE),
)
_DEEPEST_OUTLINE, _MOST_ENTRIES = 6, 5_000
_BOLD = 600  # of 100 to 900
_BOLD_NAME = re.compile(rb"bold|black|heavy|(?:CM|SF)BX|medium|-Medi", re.I)
_LONGEST_NAME = 80  # bytes of a font's name
_MOST_ANNOTATIONS = 2_000  # of a page
_MOST_UNITS = 100_000  # of UTF-16, of one value


def read(path: Path, media_type: str) -> Extracted:
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        password = error.err_code == raw.FPDF_ERR_PASSWORD
        raise ExtractionError("encrypted" if password else "damaged") from error
    if len(document) > MAX_PAGES:
        raise ExtractionError("too_large")
    if document.get_formtype() != raw.FORMTYPE_NONE:
        logging.getLogger("pypdfium2").setLevel(logging.ERROR)  # of a form that is XFA too, the other half is read
        document.init_forms()
    pages = list(_pages(document))
    above = marked([lines for lines, _ in pages], _outline(document))
    texts = (text + below for text, (_, below) in zip(above, pages, strict=True))
    return paged(media_type, joined(list(limited(texts))), without_text="scans")


def _outline(document: pypdfium2.PdfDocument) -> dict[str, int]:
    """The levels of the titles in the document's outline, from 1; those that stand there more than once may be text."""
    entries = islice(document.get_toc(max_depth=_DEEPEST_OUTLINE), _MOST_ENTRIES)
    found = [(key(entry.get_title()), entry.level + 1) for entry in entries]
    return {title: level for title, level in found if len(title) > 1}


def _pages(document: pypdfium2.PdfDocument) -> Iterator[tuple[list[Line], str]]:
    """The lines of each page, and what stands below them."""
    left = MAX_CHARACTERS
    for number in range(len(document)):
        try:
            page = document[number]
        except pypdfium2.PdfiumError as error:
            raise ExtractionError("damaged") from error
        content = page.get_textpage()
        lines = _lines(content)
        content.close()
        below = _annotations(page, document.formenv)
        page.close()
        left -= sum(len(line.text) for line in lines)
        if left < 0:
            raise ExtractionError("too_large")
        yield lines, below


def _lines(content: pypdfium2.PdfTextPage) -> list[Line]:
    text = content.get_text_range()
    # PDFium counts the text in units of UTF-16.
    measured = max(text, default="") < "\U00010000"
    lines, start = [], 0
    for line in text.split("\r\n"):
        shown = [start + at for at, sign in enumerate(line) if sign.isalnum()] if measured and len(line) < 500 else []
        # The first, the middle and the last sign: a line of which only a part is bold is no heading.
        thirds = {shown[0], shown[len(shown) // 2], shown[-1]} if shown else set()
        places = {at for each in thirds if (at := raw.FPDFText_GetCharIndexFromTextIndex(content, each)) >= 0}
        sizes = [_size(content, at) for at in places]
        lines.append(Line(line, min(sizes, default=0), bool(places) and all(_is_bold(content, at) for at in places)))
        start += len(line) + 2
    return lines


def _size(content: pypdfium2.PdfTextPage, at: int) -> float:
    """How high the line of a letter is, whatever the page is scaled by; the font's size alone does not tell."""
    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(content, at, box)
    return abs(float(box.top - box.bottom))


def _is_bold(content: pypdfium2.PdfTextPage, at: int) -> bool:
    if raw.FPDFText_GetFontWeight(content, at) >= _BOLD:
        return True
    name = ctypes.create_string_buffer(_LONGEST_NAME)
    raw.FPDFText_GetFontInfo(content, at, name, _LONGEST_NAME, ctypes.c_int())
    return _BOLD_NAME.search(name.value) is not None


def _annotations(page: pypdfium2.PdfPage, forms: Any) -> str:
    """What people have filled in and written on a page, as lists below its text."""
    filled: dict[str, str] = {}
    comments: list[str] = []
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if annotation and not raw.FPDFAnnot_GetFlags(annotation) & _HIDDEN:
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            if kind == raw.FPDF_ANNOT_WIDGET and forms:
                _fill(filled, annotation, forms.raw)
            elif kind in _COMMENTS:
                comments.append(_value(raw.FPDFAnnot_GetStringValue, annotation, b"Contents"))
        raw.FPDFPage_CloseAnnot(annotation)
    lists = (
        ("Form fields:", [f"{name}: {value}" for name, value in filled.items() if value]),
        ("Comments:", [comment for comment in comments if comment]),
    )
    return "".join(f"\n\n{title}" + "".join(f"\n- {line}" for line in lines) for title, lines in lists if lines)


def _fill(filled: dict[str, str], annotation: Any, form: Any) -> None:
    """Of the boxes of one name the one that is checked counts; a field shown in several places is one."""
    name = _value(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or _value(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    if raw.FPDFAnnot_GetFormFieldType(form, annotation) in _BOXES:
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = _value(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)
            filled[name] = "checked" if value.lower() in ("", "on", "yes", "true", "1") else f"{value} (checked)"
    else:
        filled[name] = filled.get(name) or _value(raw.FPDFAnnot_GetFormFieldValue, form, annotation)


def _value(function: Any, *of: Any) -> str:
    """A string of PDFium, which is first asked how many bytes it takes."""
    size = min(function(*of, None, 0), 2 * _MOST_UNITS)
    buffer = ctypes.create_string_buffer(size)
    function(*of, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return " ".join(buffer.raw.decode("utf-16-le", "replace").replace("\0", "").split())
