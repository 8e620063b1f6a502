"""`python -m files.extraction PATH NAME`: writes the result (see `files.extraction.wire`) to its output.

The limits are set before the first byte of the file is read, and nobody can lift them again.
"""

import os
import signal
import sys
import zipfile
import zlib
from pathlib import Path

from lxml import etree

from files.extraction import images, mail, office, pdf, plain, sheets, web, wire
from files.extraction.confinement import confine
from files.extraction.media_types import media_type
from files.extraction.values import ExtractionError, Extracted

_TEXTUAL = ("text/", "application/json")
_READERS = {
    pdf.MEDIA_TYPE: pdf.read,
    office.DOCX: office.read_docx,
    office.PPTX: office.read_pptx,
    sheets.MEDIA_TYPE: sheets.read,
    web.EPUB: web.read_epub,
    web.HTML: lambda path: web.read_html(plain.decoded(path)),
    mail.MEDIA_TYPE: mail.read,
}
# What the parsers raise about a file that is not what it should be.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    etree.LxmlError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    NotImplementedError,
    RecursionError,
)
