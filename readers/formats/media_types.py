"""Find the media type of a file by its bytes. Names may be wrong, so they only decide between kinds of text.

To add a format:

1. Add its type here, with a mark that `media_type` finds.
2. Write a reader in `readers.formats`, and add it to `_READERS` of `readers.nested.dispatch`.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path

from readers.formats.archive import MANIFEST, Archive, main_part
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
# Sound, which no reader reads: the product has a server transcribe it.
SOUNDS = ("audio/mpeg", "audio/mp4", "audio/wav", "audio/ogg", "audio/flac", "audio/webm")

HEAD_BYTES = 4_096  # bytes at the beginning of a file that tell its type
_IMAGE_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"II\*\x00|MM\x00\*"), "image/tiff"),
    (re.compile(rb"BM.{4}\x00{4}", re.DOTALL), "image/bmp"),
    (re.compile(rb"....ftyp(?:avif|avis)", re.DOTALL), "image/avif"),
)
_PDF_SIGNATURE = re.compile(rb"%PDF-\d")  # readers accept it anywhere in the first 1,024 bytes (ISO 32000-1, annex H.3)
# Archives with members, empty archives, and archives that were split into several files.
_ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK")
_COMPOUND_SIGNATURE = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # files of Word 97 and other old programs, and protected Office files
)
_DIRECTORY_ENTRY_BYTES = 128  # bytes of an entry in the directory of a compound file
# Media types by a part of the main part's content type, and by the name of the main part if it has no content type.
_MAIN_TYPES = (
    ("ms-excel.sheet.binary", XLSB),
    ("wordprocessingml", DOCX),
    ("ms-word.", DOCX),
    ("presentationml", PPTX),
    ("ms-powerpoint.", PPTX),
    ("spreadsheetml", XLSX),
    ("ms-excel.", XLSX),
)
_MAIN_NAMES = {
    "word/document.xml": DOCX,
    "ppt/presentation.xml": PPTX,
    "xl/workbook.xml": XLSX,
    "xl/workbook.bin": XLSB,
}
_OTHER_PACKAGES = (("visio", "visio"), ("xps", "xps"), ("package.dwfx", "xps"))
# Formats as which files of LibreOffice are read, by the last part of their media type.
_OPEN_TYPES = {
    "text": ODT,
    "text-master": ODT,
    "text-web": ODT,
    "spreadsheet": ODS,
    "presentation": ODP,
    "graphics": ODP,
    "writer": ODT,
    "writer.global": ODT,
    "calc": ODS,
    "impress": ODP,
    "draw": ODP,
}
_OPEN_TYPE = re.compile(r"application/vnd\.(?:oasis\.opendocument|sun\.xml)\.([\w.-]+?)(?:-template|\.template)?$")
# Marks of unsupported files, with their kinds in `result.KINDS`.
_UNSUPPORTED_SIGNATURES = (
    (re.compile(rb"....ftyp(?:heic|heix|heim|heis|hevc|hevx|mif1|msf1)", re.S), "heic"),
    (re.compile(rb"....ftypM4[AB]|ID3|\xff[\xfb\xf3\xf2]|OggS|fLaC|RIFF....WAVE|#!AMR|FORM....AIF", re.S), "audio"),
    (re.compile(rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI |\x00\x00\x01[\xb3\xba]|FLV\x01", re.S), "video"),
    (re.compile(rb"\x1f\x8b|BZh\d|\xfd7zXZ\x00|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x28\xb5\x2f\xfd", re.S), "archive"),
    (re.compile(rb"\x7fELF|MZ.{58}|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe", re.S), "program"),
)
_SOUND_SIGNATURES = (
    (re.compile(rb"....ftypM4[AB]", re.S), "audio/mp4"),
    (re.compile(rb"ID3|\xff[\xfa\xfb\xf2\xf3]"), "audio/mpeg"),
    (re.compile(rb"RIFF....WAVE", re.S), "audio/wav"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"\x1a\x45\xdf\xa3.{0,60}webm", re.S), "audio/webm"),
)
_CONTAINER = re.compile(rb"....ftyp", re.S)  # of sound and of videos, which only the name tells apart
# Entries in the root of compound files (MS-CFB), in lower case, with the kind of the file. A protected file of Office
# has the whole document in one stream.
_ROOT_ENTRY_KINDS = (
    ("encryptedpackage", "encrypted"),
    ("\tdrmcontent", "protected"),
    ("__properties_version1.0", MSG),
    ("__nameid_version1.0", MSG),
    ("worddocument", DOC),
    ("powerpoint document", PPT),
    ("workbook", XLS),
    ("book", XLS),
    ("visiodocument", "visio"),
    ("quill", "publisher"),
    ("pp40", "powerpoint"),
    ("mm", "works"),
    ("matoscontents", "works"),
)
# First bytes of Office files from before compound files: Excel 2 to 4, Word 1 and 2, Write.
_OLD_SHEET_SIGNATURE = re.compile(
    rb"\x09\x00\x04\x00..[\x10\x20\x40]\x00|\x09[\x02\x04]\x06\x00..(?:[\x10\x20\x40]\x00|\x00\x01)"
    rb"|\x09\x08[\x08\x10]\x00\x00[\x05\x06]",
    re.S,
)
_OLD_WORD_SIGNATURE = re.compile(rb"[\x9b\xdb]\xa5|[\x31\x32]\xbe\x00\x00|\xfe[\x32\x34\x37]\x00[\x00\x1c\x23]")
_HTML_MARK = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?(?:(?><!--.{0,2000}?-->)\s*+)*+<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_SVG_MARK = re.compile(rb"<(?:!DOCTYPE\s+)?svg\b", re.I)
_XML_MARK = re.compile(rb"\s*<(?:\?xml|!DOCTYPE|svg)\b", re.I)
_MAIL = re.compile(rb"^(?:Received|Return-Path|MIME-Version|Message-ID|From):[^\r\n]+", re.I | re.M)
_HEADER = re.compile(rb"[!-9;-~]+:[ \t\r\n]")
_MBOX = re.compile(rb"From [^\r\n]+\r?\n[!-9;-~]+:[ \t]")
_TYPES_BY_SUFFIX = {
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
# All types that `media_type` and `sound_type` return, and HEIC, for which `media_type` raises `unsupported`.
KNOWN_TYPES = tuple(
    sorted(
        {
            *(PDF, RTF, ZIP, EPUB, HTML, MAIL, MBOX, SVG, XML, PLAIN, HEIC),
            *(kind for _, kind in _IMAGE_SIGNATURES),
            *(DOC, DOCX, PPT, PPTX, XLS, XLSX, XLSB, MSG),
            *OPEN_DOCUMENTS,
            *SOUNDS,
            *_TYPES_BY_SUFFIX.values(),
        }
    )
)


def media_type(path: Path, name: str) -> str:
    """Return the media type of a file. A ZIP archive that is no document is `ZIP`, also if its members are encrypted.

    Raises `unsupported` if no reader exists, `encrypted` for a document with a password, `protected` for an Office file
    whose rights are managed, and `damaged` for a broken container.
    """
    with path.open("rb") as source:
        head = source.read(HEAD_BYTES)
    for pattern, kind in _IMAGE_SIGNATURES:
        if pattern.match(head):
            return kind
    if _PDF_SIGNATURE.search(head[:1_024]):
        return PDF
    if rtf.is_rtf(head):
        return RTF
    if head.startswith(_ZIP_SIGNATURES):
        return _archive_type(path)
    if head.startswith(_COMPOUND_SIGNATURE):
        return _compound_type(path.read_bytes())
    if _OLD_SHEET_SIGNATURE.match(head):
        return XLS
    if _OLD_WORD_SIGNATURE.match(head):
        raise ReaderError("unsupported", "doc")
    if not encodings.is_text(head):
        raise ReaderError(
            "unsupported", next((kind for signature, kind in _UNSUPPORTED_SIGNATURES if signature.match(head)), "")
        )
    return _text_type(head, name)


def sound_type(head: bytes, name: str) -> str:
    """Return the media type of a recording by its first `HEAD_BYTES` bytes; "" for another file.

    `name` decides between sound and video in an MP4 container, which browsers also record to.
    """
    if encodings.is_text(head):  # a text may begin with “ID3”
        return ""
    kind = next((kind for signature, kind in _SOUND_SIGNATURES if signature.match(head)), "")
    if not kind and name.lower().endswith((".m4a", ".m4b")) and _CONTAINER.match(head):
        return "audio/mp4"
    return kind


def is_compound(path: Path) -> bool:
    """Return whether a file is a compound file (MS-CFB)."""
    with path.open("rb") as source:
        return source.read(len(_COMPOUND_SIGNATURE)) == _COMPOUND_SIGNATURE


def _compound_type(content: bytes) -> str:
    """Return the type of a compound file by the entries in its root. Files that are embedded deeper do not count."""
    names = _root_entries(content)
    kind = next((kind for name, kind in _ROOT_ENTRY_KINDS if name in names), "")
    if kind in (DOC, PPT, XLS, MSG):
        return kind
    if kind in ("encrypted", "protected"):
        raise ReaderError(kind)
    raise ReaderError("unsupported", kind)


def _root_entries(content: bytes) -> set[str]:
    """Return the names of the streams and storages in the root, in lower case."""
    import olefile  # noqa: PLC0415 - the product imports this module and opens no file

    try:
        with olefile.OleFileIO(io.BytesIO(content)) as file:
            return {entry[0].lower() for entry in file.listdir(streams=True, storages=True) if len(entry) == 1}
    except Exception as error:  # olefile raises errors of many kinds for a damaged file
        names = set(_stray_entries(content))
        if not names:
            raise ReaderError("damaged") from error
        return names


def _stray_entries(content: bytes) -> Iterator[str]:
    """Yield the names of all entries in a damaged directory. A reader may still be able to open such a file."""
    for at in range(512, len(content) - _DIRECTORY_ENTRY_BYTES + 1, _DIRECTORY_ENTRY_BYTES):
        size = int.from_bytes(content[at + 64 : at + 66], "little")
        if content[at + 66] in (1, 2) and 4 <= size <= 64 and not size % 2 and not any(content[at + size : at + 64]):
            yield content[at : at + size - 2].decode("utf-16-le", "replace").lower()


def _archive_type(path: Path) -> str:
    archive = Archive(path, locked=True)
    if archive.locked:
        return ZIP
    if kind := _package_type(archive):
        return kind
    declared_type = archive.media_type()
    if declared_type == EPUB or ("META-INF/container.xml" in archive.names and _is_book(archive)):
        return EPUB
    if (match := _OPEN_TYPE.match(declared_type)) and match[1] in _OPEN_TYPES:
        if MANIFEST in archive.names and archive.tree(MANIFEST).find(".//{*}encryption-data") is not None:
            raise ReaderError("encrypted")
        return _OPEN_TYPES[match[1]]
    if "Index.zip" in archive.names or any(
        name.startswith("Index/") and name.endswith(".iwa") for name in archive.names
    ):
        raise ReaderError("unsupported", "iwork")
    return ZIP


def _package_type(archive: Archive) -> str:
    """Return the type of a package of Office by its main part; "" for another archive."""
    main = main_part(archive)
    if main is None:
        return next((kind for name, kind in _MAIN_NAMES.items() if archive.member_name(name) in archive.names), "")
    content_type = main.content_type.lower()
    for words, kind in _MAIN_TYPES:
        if words in content_type:
            return kind
    for words, kind in _OTHER_PACKAGES:
        if words in content_type:
            raise ReaderError("unsupported", kind)
    return next((kind for name, kind in _MAIN_NAMES.items() if main.name.lower().startswith(name[:-4])), "")


def _is_book(archive: Archive) -> bool:
    """Return whether an archive without a media type is a book (EPUB)."""
    files = archive.tree("META-INF/container.xml").iterfind(".//{*}rootfile")
    return any(each.get("media-type") == "application/oebps-package+xml" for each in files)


def _text_type(head: bytes, name: str) -> str:
    if _MBOX.match(head):
        return MBOX
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if _HTML_MARK.match(head):
        return HTML
    if _XML_MARK.match(head):
        return SVG if _SVG_MARK.search(head) else XML
    if suffix in _TYPES_BY_SUFFIX:
        return _TYPES_BY_SUFFIX[suffix]
    if _HEADER.match(head) and (suffix == "eml" or len(_MAIL.findall(head)) > 1):
        return MAIL
    return PLAIN
