"""What is written in HTML: pages, the chapters of books, the words of letters."""

from collections.abc import Iterator, Sequence
from email import message_from_binary_file, policy
from email.message import EmailMessage
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from core.text import TableCell, html_text
from files.extraction.readers.archive import Archive, resolved
from files.extraction.readers.media_types import EPUB, MAIL
from files.extraction.readers.plain import decoded
from files.extraction.readers.result import Extracted, ExtractionError, limited, paged, whole
from files.extraction.text.tables import Cell, markdown

_HEADERS = ("From", "To", "Cc", "Date", "Subject")


def read(path: Path, media_type: str, encoding: str = "") -> Extracted:
    """Of a book one page a chapter. Of a letter the headers that people read, the plain text (else the HTML's), and
    the names of the attachments."""
    if media_type == EPUB:
        return paged(media_type, _chapters(Archive(path)))
    if media_type == MAIL:
        return whole(media_type, _letter(path))
    source, used = decoded(path, encoding)
    return whole(media_type, _readable(source), encoding=used)


def _readable(source: str, *, links: bool = True) -> list[str]:
    """What a reader sees of HTML, in pieces: its title, then its text."""
    found = html_text(source, _table, links=links)
    return [f"{found.title}\n\n", *found.parts] if found.title else found.parts


def _table(rows: Sequence[Sequence[TableCell]]) -> str:
    return markdown([Cell(*cell) for cell in row] for row in rows)


def _chapters(archive: Archive) -> Iterator[str]:
    """In the order of the book's spine (EPUB 3.3, section 5.7)."""
    archive.refuse_entities()
    root = archive.tree("META-INF/container.xml").find(".//{*}rootfile")
    if root is None:
        raise ExtractionError("damaged")
    package_name = root.get("full-path", "")
    package = archive.tree(package_name)
    folder = package_name.rpartition("/")[0]
    links = {item.get("id"): unquote(item.get("href", "")) for item in package.iterfind("{*}manifest/{*}item")}
    for reference in package.iterfind("{*}spine/{*}itemref"):
        if chapter := links.get(reference.get("idref"), ""):
            with archive.open(resolved(folder, chapter)) as member:
                yield "".join(limited(_readable(member.read().decode("utf-8-sig", "replace"))))


def _letter(path: Path) -> Iterator[str]:
    with path.open("rb") as source:
        message = message_from_binary_file(source, policy=policy.default)
    for name in _HEADERS:
        if value := message.get(name):
            yield f"{name}: {value}\n"
    yield "\n"
    body = message.get_body(("plain", "html"))
    if body is not None:
        content = _content(cast(EmailMessage, body))
        yield from _readable(content, links=False) if body.get_content_subtype() == "html" else [content]
    names = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    if names:
        yield "\n\nAttachments: " + ", ".join(names)


def _content(part: EmailMessage) -> str:
    try:
        return str(part.get_content())
    except LookupError:  # a charset that nobody knows
        data = part.get_payload(decode=True)
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
