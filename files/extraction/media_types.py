"""What a file is, from its bytes. Its name only tells kinds of text apart: a name is free to lie."""

import re
from pathlib import Path

from files.extraction import mail, office, pdf, plain, sheets, web
from files.extraction.archive import Archive
from files.extraction.values import ExtractionError

_HEAD = 4_096
_IMAGES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
_PDF = re.compile(rb"%PDF-\d")  # readers accept it anywhere in the first 1,024 bytes (ISO 32000-1, annex H.3)
_ZIP = b"PK\x03\x04"
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Word 97 and its kin; and what Office wraps a protected file in
_PROTECTED = "EncryptedPackage".encode("utf-16-le")
_PARTS = {
    "word/document.xml": office.DOCX,
    "ppt/presentation.xml": office.PPTX,
    "xl/workbook.xml": sheets.MEDIA_TYPE,
}
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
_SVG = re.compile(rb"<(?:!DOCTYPE\s+)?svg\b", re.I)
_XML = re.compile(rb"\s*<(?:\?xml|!DOCTYPE|svg)\b", re.I)
_MAIL = re.compile(rb"^(?:Received|Return-Path|MIME-Version|Message-ID|From):[^\r\n]+", re.I | re.M)
_HEADER = re.compile(rb"[!-9;-~]+:[ \t]")
_BY_NAME = {
    "c": "text/x-c",
    "cpp": "text/x-c++",
    "cs": "text/x-csharp",
    "css": "text/css",
    "csv": "text/csv",
    "go": "text/x-go",
    "h": "text/x-c",
    "html": "text/html",
    "htm": "text/html",
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


def media_type(path: Path, name: str) -> str:
    """Raises `unsupported` for what no extractor reads, `encrypted` for a protected Office file."""
    with path.open("rb") as source:
        head = source.read(_HEAD)
    for pattern, kind in _IMAGES:
        if pattern.match(head):
            return kind
    if _PDF.search(head[:1_024]):
        return pdf.MEDIA_TYPE
    if head.startswith(_ZIP):
        return _in_archive(path)
    if head.startswith(_COMPOUND):
        raise ExtractionError("encrypted" if _PROTECTED in path.read_bytes() else "unsupported")
    if not plain.marked(head) and _BINARY.search(head):
        raise ExtractionError("unsupported")
    return _of_text(head, name)


def _in_archive(path: Path) -> str:
    archive = Archive(path)
    for part, kind in _PARTS.items():
        if part in archive.names:
            return kind
    if "mimetype" in archive.names and archive.head("mimetype").strip() == web.EPUB.encode():
        return web.EPUB
    raise ExtractionError("unsupported")


def _of_text(head: bytes, name: str) -> str:
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if _HTML.match(head):
        return web.HTML
    if _XML.match(head):
        return "image/svg+xml" if _SVG.search(head) else "text/xml"
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if _HEADER.match(head) and (suffix == "eml" or len(_MAIL.findall(head)) > 1):
        return mail.MEDIA_TYPE
    return "text/plain"
