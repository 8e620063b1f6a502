"""Read workbooks of Excel 2 to 2003 (XLS) with xlrd: cells as their number formats show them, and comments."""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xlrd
from xlrd.biffh import error_text_from_code

from readers.formats.result import Extracted, ReaderError, limit_characters, paged_result
from readers.text.number_formats import GENERAL, format_number, format_text
from readers.text.office_parts import comment_item
from readers.text.sheet_rows import SheetRow, SheetText, cell_reference, comment_list, merged_cell, one_line

_ENCRYPTED = "encrypted"  # in the message of xlrd


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, its rows, then its comments.

    Raises `encrypted`, and the errors of xlrd for a workbook that xlrd cannot parse.
    """
    left_out: Counter[str] = Counter()
    try:
        book = xlrd.open_workbook(
            file_contents=path.read_bytes(),
            logfile=io.StringIO(),
            formatting_info=True,
            ragged_rows=True,
            on_demand=True,
        )
    except xlrd.XLRDError as error:
        if _ENCRYPTED in str(error):
            raise ReaderError("encrypted") from error
        raise
    pages = ("".join(limit_characters(_sheet(book, number, left_out))) for number in range(book.nsheets))
    return paged_result(media_type, pages, left_out=left_out)


def _sheet(book: Any, number: int, left_out: Counter[str]) -> Iterator[str]:
    sheet = book.sheet_by_index(number)
    text = SheetText(
        sheet.name,
        left_out,
        is_hidden=bool(sheet.visibility),
        hidden_columns=(column for column, info in sheet.colinfo_map.items() if info.hidden),
        merged=(
            merged_cell(left, top + 1, right - 1, bottom)
            for top, bottom, left, right in sheet.merged_cells
            if right > left and bottom > top
        ),
    )
    yield from text.text(_rows(book, sheet), [comment_list(list(_comments(sheet)))])
    book.unload_sheet(number)


def _rows(book: Any, sheet: Any) -> Iterator[SheetRow]:
    for row in range(sheet.nrows):
        kinds = sheet.row_types(row)
        if not any(kind not in (xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK) for kind in kinds):
            continue
        values = sheet.row_values(row)
        cells = {
            column: text
            for column, kind in enumerate(kinds)
            if kind not in (xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK)
            and (text := _cell_text(book, sheet, row, column, kind, values[column]))
        }
        info = sheet.rowinfo_map.get(row)
        yield SheetRow(row + 1, cells, bool(info and info.hidden))


def _cell_text(book: Any, sheet: Any, row: int, column: int, kind: int, value: Any) -> str:
    if kind == xlrd.XL_CELL_BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == xlrd.XL_CELL_ERROR:
        return str(error_text_from_code.get(value, ""))
    code = _number_format(book, sheet.cell_xf_index(row, column))
    if kind == xlrd.XL_CELL_TEXT:
        return one_line(format_text(value, code) if ";" in code or code not in ("@", GENERAL) else value)
    return one_line(format_number(value, code, since_1904=bool(book.datemode)))


def _number_format(book: Any, style: int) -> str:
    """Return the number format of a style."""
    if not 0 <= style < len(book.xf_list):
        return GENERAL
    number_format = book.format_map.get(book.xf_list[style].format_key)
    return str(number_format.format_str) if number_format else GENERAL


def _comments(sheet: Any) -> Iterator[str]:
    for (row, column), note in sorted(sheet.cell_note_map.items()):
        if text := one_line(note.text or ""):
            author = one_line(note.author or "")
            # Excel repeats the author at the beginning of the text.
            text = text.removeprefix(f"{author}:").strip() if author else text
            yield comment_item(text, f"{cell_reference(column, row + 1)} {author}".strip())
