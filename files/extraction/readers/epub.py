from pathlib import Path
from urllib.parse import unquote

from files.extraction.readers.archive import Archive, resolved
from files.extraction.readers.html import readable
from files.extraction.readers.result import Extracted, ExtractionError, limited, paged


def read(path: Path, media_type: str) -> Extracted:
    """One page a chapter, in the order of the book's spine (EPUB 3.3, section 5.7)."""
    archive = Archive(path)
    archive.refuse_entities()
    root = archive.tree("META-INF/container.xml").find(".//{*}rootfile")
    if root is None:
        raise ExtractionError("damaged")
    package_name = root.get("full-path", "")
    package = archive.tree(package_name)
    folder = package_name.rpartition("/")[0]
    links = {item.get("id"): unquote(item.get("href", "")) for item in package.iterfind("{*}manifest/{*}item")}
    chapters = [links.get(reference.get("idref"), "") for reference in package.iterfind("{*}spine/{*}itemref")]
    return paged(media_type, (_chapter(archive, resolved(folder, chapter)) for chapter in chapters if chapter))


def _chapter(archive: Archive, name: str) -> str:
    with archive.open(name) as member:
        return "".join(limited(readable(member.read().decode("utf-8-sig", "replace"))))
