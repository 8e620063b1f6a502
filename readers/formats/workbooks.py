"""Read workbooks with calamine when the format's own reader fails.

Calamine is less strict, but returns values without their number formats.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

from readers.formats.result import Extracted, ReaderError, limit_characters, paged_result
from readers.text.number_formats import GENERAL, format_number
from readers.text.sheet_rows import SheetRow, SheetText, one_line

_PANIC = "PanicException"  # raised if the Rust library crashes; not an `Exception`, and not exported
_ONE_DAY = timedelta(days=1)


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, then its rows as lines of tab-separated cells."""
    left_out = Counter({"formats": 1})
    try:
        book = CalamineWorkbook.from_path(str(path))
        pages = (
            "".join(
                limit_characters(
                    _sheet(book, sheet.name, left_out, is_hidden=sheet.visible != SheetVisibleEnum.Visible)
                )
            )
            for sheet in book.sheets_metadata
            if sheet.typ == SheetTypeEnum.WorkSheet
        )
        return paged_result(media_type, pages, left_out=left_out)
    except PasswordError as error:
        raise ReaderError("encrypted") from error
    except (CalamineError, ValueError) as error:
        raise ReaderError("damaged") from error
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise ReaderError("damaged") from error
        raise


def _sheet(book: CalamineWorkbook, name: str, left_out: Counter[str], *, is_hidden: bool) -> Iterator[str]:
    rows = (
        SheetRow(number, {column: text for column, value in enumerate(row) if (text := _cell_text(value))})
        for number, row in enumerate(book.get_sheet_by_name(name).iter_rows(), 1)
    )
    yield from SheetText(name, left_out, is_hidden=is_hidden).text(rows)


def _cell_text(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return format_number(value, GENERAL)
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return format_number(value / _ONE_DAY, "[h]:mm:ss")
        case _:
            return one_line(str(value))
