"""Read HTML pages, and EPUB books, whose chapters are HTML."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from readers.formats.archive import Archive, resolve_target
from readers.formats.media_types import EPUB
from readers.formats.plain import decode_file
from readers.formats.result import Extracted, ReaderError, limit_characters, paged_result, unpaged_result
from readers.text.html import html_to_markdown


def read(path: Path, media_type: str, encoding: str = "") -> Extracted:
    """Return the text of a page or a book. A book has one page per chapter."""
    left_out: Counter[str] = Counter()
    if media_type == EPUB:
        return paged_result(media_type, _chapters(Archive(path), left_out), left_out=left_out)
    source, used = decode_file(path, encoding)
    return unpaged_result(media_type, html_to_markdown(source, left_out=left_out), encoding=used, left_out=left_out)


def _chapters(archive: Archive, left_out: Counter[str]) -> Iterator[str]:
    """Yield the chapters in the order of the book's spine (EPUB 3.3, section 5.7)."""
    archive.refuse_entities()
    root = archive.tree("META-INF/container.xml").find(".//{*}rootfile")
    if root is None:
        raise ReaderError("damaged")
    package_name = root.get("full-path", "")
    package = archive.tree(package_name)
    folder = package_name.rpartition("/")[0]
    links = {item.get("id"): unquote(item.get("href", "")) for item in package.iterfind("{*}manifest/{*}item")}
    for reference in package.iterfind("{*}spine/{*}itemref"):
        if chapter := links.get(reference.get("idref"), ""):
            with archive.open(resolve_target(folder, chapter)) as member:
                chapter_source = member.read().decode("utf-8-sig", "replace")
                yield "".join(limit_characters(html_to_markdown(chapter_source, left_out=left_out)))
