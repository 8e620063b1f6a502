"""Find the media type of a file by its bytes. Names may be wrong, so they only decide between kinds of text.

To add a format:

1. Add its type here, with a mark that `media_type` finds.
2. Write a reader in `readers.formats`, and add it to `_READERS` of `readers.nested.dispatch`.
"""

import re
from pathlib import Path

from readers.formats.archive import MANIFEST, Archive
from readers.formats.result import ReaderError
from readers.text import encodings, rtf

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
DOC = "application/msword"
PPT = "application/vnd.ms-powerpoint"
XLS = "application/vnd.ms-excel"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
WORKBOOKS = (XLS, XLSB)
MSG = "application/vnd.ms-outlook"
ZIP = "application/zip"
EPUB = "application/epub+zip"
HTML = "text/html"
MAIL = "message/rfc822"
MBOX = "application/mbox"
NOTEBOOK = "application/x-ipynb+json"
RTF = "application/rtf"
ODT, ODS, ODP = OPEN_DOCUMENTS = tuple(
    f"application/vnd.oasis.opendocument.{kind}" for kind in ("text", "spreadsheet", "presentation")
)
SVG = "image/svg+xml"
IMAGES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}  # Pillow's names
CONVERTED = {"image/tiff": "TIFF", "image/bmp": "BMP", "image/avif": "AVIF"}  # converted for display
HEIC = "image/heic"

_HEAD = 4_096
_IMAGE_MARKS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"II\*\x00|MM\x00\*"), "image/tiff"),
    (re.compile(rb"BM.{4}\x00{4}", re.DOTALL), "image/bmp"),
    (re.compile(rb"....ftyp(?:avif|avis)", re.DOTALL), "image/avif"),
)
_PDF_MARK = re.compile(rb"%PDF-\d")  # readers accept it anywhere in the first 1,024 bytes (ISO 32000-1, annex H.3)
_ZIP = b"PK\x03\x04"
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # files of Word 97 and other old programs, and protected Office files
_PROTECTED = "EncryptedPackage".encode("utf-16-le")
_PARTS = {
    "word/document.xml": DOCX,
    "ppt/presentation.xml": PPTX,
    "xl/workbook.xml": XLSX,
    "xl/workbook.bin": XLSB,
}
# Marks of unsupported files, with their kinds in `result.KINDS`.
_UNREAD = (
    (re.compile(rb"....ftyp(?:heic|heix|heim|heis|hevc|hevx|mif1|msf1)", re.S), "heic"),
    (re.compile(rb"....ftypM4[AB]|ID3|\xff[\xfb\xf3\xf2]|OggS|fLaC|RIFF....WAVE|#!AMR|FORM....AIF", re.S), "audio"),
    (re.compile(rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI |\x00\x00\x01[\xb3\xba]|FLV\x01", re.S), "video"),
    (re.compile(rb"\x1f\x8b|BZh\d|\xfd7zXZ\x00|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x28\xb5\x2f\xfd", re.S), "archive"),
    (re.compile(rb"\x7fELF|MZ.{58}|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe", re.S), "program"),
)
# Streams of the compound files of old Office programs (MS-CFB), with the kind of the file.
_STREAMS = (
    ("__nameid_version1.0", "msg"),
    ("WordDocument", "doc"),
    ("PowerPoint Document", "ppt"),
    ("Workbook", "xls"),
    ("Book", "xls"),
)
_COMPOUNDS = {"doc": DOC, "ppt": PPT, "xls": XLS, "msg": MSG}
_HTML_MARK = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?(?:(?><!--.{0,2000}?-->)\s*+)*+<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_SVG_MARK = re.compile(rb"<(?:!DOCTYPE\s+)?svg\b", re.I)
_XML_MARK = re.compile(rb"\s*<(?:\?xml|!DOCTYPE|svg)\b", re.I)
_MAIL = re.compile(rb"^(?:Received|Return-Path|MIME-Version|Message-ID|From):[^\r\n]+", re.I | re.M)
_HEADER = re.compile(rb"[!-9;-~]+:[ \t\r\n]")
_MBOX = re.compile(rb"From [^\r\n]+\r?\n[!-9;-~]+:[ \t]")
_BY_NAME = {
    "c": "text/x-c",
    "cpp": "text/x-c++",
    "cs": "text/x-csharp",
    "css": "text/css",
    "csv": "text/csv",
    "go": "text/x-go",
    "h": "text/x-c",
    "html": HTML,
    "ipynb": NOTEBOOK,
    "htm": HTML,
    "java": "text/x-java",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "kt": "text/x-kotlin",
    "log": "text/plain",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "php": "text/x-php",
    "py": "text/x-python",
    "rb": "text/x-ruby",
    "rs": "text/x-rust",
    "sh": "text/x-shellscript",
    "sql": "text/x-sql",
    "toml": "text/x-toml",
    "ts": "text/x-typescript",
    "tsv": "text/tab-separated-values",
    "yaml": "text/x-yaml",
    "yml": "text/x-yaml",
}
PLAIN = "text/plain"
XML = "text/xml"
# All types that `media_type` returns, and the type of a stored HEIC picture.
KNOWN = tuple(
    sorted(
        {
            *(PDF, RTF, ZIP, EPUB, HTML, MAIL, MBOX, SVG, XML, PLAIN, HEIC),
            *(kind for _, kind in _IMAGE_MARKS),
            *_PARTS.values(),
            *_COMPOUNDS.values(),
            *OPEN_DOCUMENTS,
            *_BY_NAME.values(),
        }
    )
)


def media_type(path: Path, name: str) -> str:
    """Return the media type.

    Raises `unsupported` if no reader exists, `encrypted` for files protected by Office or LibreOffice.
    """
    with path.open("rb") as source:
        head = source.read(_HEAD)
    for pattern, kind in _IMAGE_MARKS:
        if pattern.match(head):
            return kind
    if _PDF_MARK.search(head[:1_024]):
        return PDF
    if rtf.is_rtf(head):
        return RTF
    if head.startswith(_ZIP):
        return _in_archive(path)
    if head.startswith(_COMPOUND):
        return _compound(path.read_bytes())
    if not encodings.is_text(head):
        raise ReaderError("unsupported", next((kind for mark, kind in _UNREAD if mark.match(head)), ""))
    return _of_text(head, name)


def _compound(content: bytes) -> str:
    if _PROTECTED in content:
        raise ReaderError("encrypted")
    kinds = (kind for stream, kind in _STREAMS if stream.encode("utf-16-le") + b"\0\0" in content)
    kind = next(kinds, "")
    if kind in _COMPOUNDS:
        return _COMPOUNDS[kind]
    raise ReaderError("unsupported", kind)


def _in_archive(path: Path) -> str:
    archive = Archive(path, locked=True)
    if archive.locked:
        return ZIP
    for part, kind in _PARTS.items():
        if part in archive.names:
            return kind
    declared_type = archive.media_type()
    if declared_type == EPUB:
        return EPUB
    for kind in OPEN_DOCUMENTS:
        if declared_type in (kind, f"{kind}-template"):
            if MANIFEST in archive.names and archive.tree(MANIFEST).find(".//{*}encryption-data") is not None:
                raise ReaderError("encrypted")
            return kind
    if "Index.zip" in archive.names or any(
        name.startswith("Index/") and name.endswith(".iwa") for name in archive.names
    ):
        raise ReaderError("unsupported", "iwork")
    return ZIP


def _of_text(head: bytes, name: str) -> str:
    if _MBOX.match(head):
        return MBOX
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if _HTML_MARK.match(head):
        return HTML
    if _XML_MARK.match(head):
        return SVG if _SVG_MARK.search(head) else XML
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if _HEADER.match(head) and (suffix == "eml" or len(_MAIL.findall(head)) > 1):
        return MAIL
    return PLAIN
