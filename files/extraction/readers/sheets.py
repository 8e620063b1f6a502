import io
import re
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import openpyxl
from defusedxml.common import DefusedXmlException
from openpyxl.utils.exceptions import InvalidFileException

from files.extraction.readers.archive import Archive
from files.extraction.readers.result import Extracted, ExtractionError, limited, paged

_WORKBOOK = "xl/workbook.xml"
_STRICT = b"http://purl.oclc.org/ooxml/"
_NAMESPACE = re.compile(re.escape(_STRICT) + rb"(\w+)/")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_BLANK_ROWS = 1_000  # so many in a row end a sheet: some programs save a million of them


def read(path: Path, media_type: str) -> Extracted:
    """One page a sheet: its name, then its rows as lines of cells divided by tabs, formulas by their last values."""
    archive = Archive(path)
    archive.refuse_entities()
    try:
        # openpyxl wants a suffix of a path, and blobs have none.
        with _transitional(archive) if _STRICT in archive.head(_WORKBOOK) else path.open("rb") as source:
            book = openpyxl.load_workbook(source, read_only=True, data_only=True)
            return paged(media_type, ("".join(limited(_sheet(sheet))) for sheet in book.worksheets))
    except DefusedXmlException as error:
        raise ExtractionError("bomb") from error
    except (InvalidFileException, KeyError) as error:
        raise ExtractionError("damaged") from error


def _transitional(archive: Archive) -> io.BytesIO:
    """A workbook in the strict form of the standard (ISO/IEC 29500-1) with the names that openpyxl knows."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as rewritten:
        for name in archive.names:
            if name.endswith((".xml", ".rels")):
                with archive.open(name) as member:
                    rewritten.writestr(name, _NAMESPACE.sub(_TRANSITIONAL, member.read()))
    return out


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
