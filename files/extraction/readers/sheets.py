from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import openpyxl
from defusedxml.common import DefusedXmlException
from openpyxl.utils.exceptions import InvalidFileException

from files.extraction.readers.archive import Archive
from files.extraction.readers.result import Extracted, ExtractionError, limited, paged

_BLANK_ROWS = 1_000  # so many in a row end a sheet: some programs save a million of them


def read(path: Path, media_type: str) -> Extracted:
    """One page a sheet: its name, then its rows as lines of cells divided by tabs, formulas by their last values."""
    Archive(path).refuse_entities()
    try:
        with path.open("rb") as source:  # openpyxl wants a suffix of a path, and blobs have none
            book = openpyxl.load_workbook(source, read_only=True, data_only=True)
            return paged(media_type, ("".join(limited(_sheet(sheet))) for sheet in book.worksheets))
    except DefusedXmlException as error:
        raise ExtractionError("bomb") from error
    except (InvalidFileException, KeyError) as error:
        raise ExtractionError("damaged") from error


def _sheet(sheet: Any) -> Iterator[str]:
    sheet.reset_dimensions()  # what a file says of its size may be wrong, and openpyxl would make cells for all of it
    name = f"# {sheet.title}\n"
    blank = 0
    for row in sheet.iter_rows(values_only=True):
        line = "\t".join(map(_shown, row)).rstrip("\t")
        blank = 0 if line else blank + 1
        if blank == _BLANK_ROWS:
            return
        if line and name:
            yield name  # a sheet without cells is a page without text
            name = ""
        yield line + "\n"


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
        case _:
            return " ".join(str(value).split())
