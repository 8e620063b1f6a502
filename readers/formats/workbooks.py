"""Read workbooks of Excel 97 to 2003 (XLS), and binary workbooks (XLSB)."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum

from readers.formats.result import Extracted, ReaderError, limited, paged

_PANIC = "PanicException"  # raised if the Rust library crashes; not an `Exception`, and not exported
_BLANK_ROWS = 1_000  # consecutive blank rows that end a sheet


def read(path: Path, media_type: str) -> Extracted:
    """Return one page for each sheet: its name, then its rows as lines of tab-separated cells."""
    try:
        book = CalamineWorkbook.from_path(str(path))
        names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        return paged(media_type, ("".join(limited(_sheet(book, name))) for name in names))
    except PasswordError as error:
        raise ReaderError("encrypted") from error
    except (CalamineError, ValueError) as error:
        raise ReaderError("damaged") from error
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise ReaderError("damaged") from error
        raise


def _sheet(book: CalamineWorkbook, name: str) -> Iterator[str]:
    heading = f"# {name}\n"
    blank = 0
    for row in book.get_sheet_by_name(name).iter_rows():
        line = "\t".join(map(_shown, row)).rstrip("\t")
        blank = 0 if line else blank + 1
        if blank == _BLANK_ROWS:
            return
        if line and heading:
            yield heading
            heading = ""
        yield line + "\n"


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case _:
            return " ".join(str(value).split())
