"""Open zip archives of documents (DOCX, PPTX, XLSX, EPUB) safely."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from lxml import etree

from readers.formats.result import ReaderError

MAX_MEMBERS = 10_000
MAX_UNPACKED = 400_000_000  # bytes of all members together
MAX_RATIO = 200  # unpacked : packed; office documents stay below 50
SMALL = 20_000_000  # bytes; archives up to this unpacked size may have any ratio
# Members of an OpenDocument.
MANIFEST = "META-INF/manifest.xml"
PACKAGE = "encrypted-package"
_ENCRYPTED = 0x1
_HEAD = 4_096
_ENTITIES = re.compile(rb"<!(?:ENTITY|DOCTYPE[^>]*\[)")

Element = Any  # lxml's own class for elements is private


class Archive:
    """A checked archive. Raises `bomb` or `damaged`, and `encrypted` for members with ZIP's own encryption.

    `locked`: encrypted members are allowed.
    """

    def __init__(self, path: Path, *, locked: bool = False) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise ReaderError("damaged") from error
        self.members = self._zip.infolist()
        unpacked = sum(member.file_size for member in self.members)
        packed = sum(member.compress_size for member in self.members)
        if len(self.members) > MAX_MEMBERS or unpacked > MAX_UNPACKED:
            raise ReaderError("bomb")
        if unpacked > SMALL and unpacked > MAX_RATIO * min(max(packed, 1), path.stat().st_size):
            raise ReaderError("bomb")
        self.locked = {member.filename: member for member in self.members if member.flag_bits & _ENCRYPTED}
        if self.locked and not locked:
            raise ReaderError("encrypted")
        self.names = {member.filename for member in self.members}

    def open(self, name: str, password: bytes = b"") -> IO[bytes]:
        """Open a member.

        Python's reader returns no more bytes than the directory states, which the constructor has checked.
        """
        if name not in self.names:
            raise ReaderError("damaged")
        return self._zip.open(name, pwd=password or None)

    def head(self, name: str) -> bytes:
        with self.open(name) as member:
            return member.read(_HEAD)

    def is_open_document(self) -> bool:
        return MANIFEST in self.names and self.media_type().startswith("application/vnd.oasis.opendocument.")

    def media_type(self) -> str:
        """Return the media type that the archive names, or an empty string."""
        return self.head("mimetype").strip().decode("ascii", "replace") if "mimetype" in self.names else ""

    def refuse_entities(self) -> None:
        """Raise `bomb` for XML entities: no program writes them into documents, only attacks use them."""
        for name in self.names:
            if name.endswith((".xml", ".rels", ".opf")) and _ENTITIES.search(self.head(name)):
                raise ReaderError("bomb")

    def tree(self, name: str) -> Element:
        """Return a small member as an XML tree."""
        with self.open(name) as member:
            return etree.parse(member, parser()).getroot()


def relation_targets(archive: Archive, name: str) -> dict[str, str]:
    """Return the targets of a part's relationships by id (OPC, part 2, section 9): members or external links."""
    folder, _, file = name.rpartition("/")
    source = f"{folder}/_rels/{file}.rels"
    if source not in archive.names:
        return {}
    return {
        relation.get("Id", ""): relation.get("Target", "")
        if relation.get("TargetMode") == "External"
        else resolved(folder, relation.get("Target", ""))
        for relation in archive.tree(source)
    }


def resolved(folder: str, target: str) -> str:
    """Return the name of a member that a member of `folder` links to."""
    parts = [] if target.startswith("/") else [part for part in folder.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def parser() -> etree.XMLParser:
    return etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)


def events(source: IO[bytes]) -> "Iterator[tuple[str, Element]]":
    """Yield (`start` or `end`, element) while a member is read.

    The caller clears each element after use, so that memory stays bounded.
    """
    parsed = etree.iterparse(
        source, ("start", "end"), resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False
    )
    return cast("Iterator[tuple[str, Element]]", parsed)
