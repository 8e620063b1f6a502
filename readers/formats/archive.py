"""Open zip archives of documents (DOCX, PPTX, XLSX, EPUB) safely, and follow the relations of their parts."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast
from urllib.parse import unquote

from lxml import etree

from readers.formats.result import ReaderError

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 400_000_000  # bytes of all members together
MAX_RATIO = 200  # unpacked : packed; office documents stay below 50
SMALL_ARCHIVE_BYTES = 20_000_000  # bytes; archives up to this unpacked size may have any ratio
# Members of an OpenDocument.
MANIFEST = "META-INF/manifest.xml"
ENCRYPTED_PACKAGE = "encrypted-package"
CONTENT_TYPES = "[Content_Types].xml"
# Kinds of relations that lead to the main part, in files of Office, Visio and XPS.
_MAIN_RELATION_KINDS = ("officeDocument", "document", "fixedrepresentation")
_ENCRYPTED_FLAG = 0x1
_HEAD_BYTES = 4_096
_BLOCK_BYTES = 1 << 15  # bytes
_ENTITIES = re.compile(rb"<!(?:ENTITY|DOCTYPE[^>]*\[)")

Element = Any  # lxml's own class for elements is private


class Archive:
    """An archive whose size has been checked. Raises `bomb`, `damaged`, and `encrypted` for encrypted members.

    `names`: the names of the members with `/` between folders; some programs write `\\`. `locked`: encrypted members
    are allowed.
    """

    def __init__(self, path: Path, *, locked: bool = False) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise ReaderError("damaged") from error
        self.members = self._zip.infolist()
        unpacked = sum(member.file_size for member in self.members)
        packed = sum(member.compress_size for member in self.members)
        if len(self.members) > MAX_MEMBERS or unpacked > MAX_UNPACKED_BYTES:
            raise ReaderError("bomb")
        if unpacked > SMALL_ARCHIVE_BYTES and unpacked > MAX_RATIO * min(max(packed, 1), path.stat().st_size):
            raise ReaderError("bomb")
        self._members = {_plain_name(member.filename): member for member in self.members}
        self.locked = {name: member for name, member in self._members.items() if member.flag_bits & _ENCRYPTED_FLAG}
        if self.locked and not locked:
            raise ReaderError("encrypted")
        self.names = set(self._members)
        self._by_folded_name = {name.lower(): name for name in self._members}

    def open(self, name: str, password: bytes = b"") -> IO[bytes]:
        """Open a member.

        Python's reader returns no more bytes than the directory states, which the constructor has checked.
        """
        if name not in self.names:
            raise ReaderError("damaged")
        return self._zip.open(self._members[name], pwd=password or None)

    def member_name(self, name: str) -> str:
        """Return the name of a part as the archive writes it: parts are named without case (OPC, section 6.2.2)."""
        return name if name in self.names else self._by_folded_name.get(name.lower(), name)

    def head(self, name: str) -> bytes:
        with self.open(name) as member:
            return member.read(_HEAD_BYTES)

    def media_type(self) -> str:
        """Return the media type from the member `mimetype` or the manifest; "" if the archive states none."""
        if "mimetype" in self.names:
            return self.head("mimetype").strip().decode("ascii", "replace")
        entries = self.tree(MANIFEST).iterfind("{*}file-entry") if MANIFEST in self.names else ()
        named = ({str(key).rpartition("}")[2]: value for key, value in each.attrib.items()} for each in entries)
        return str(next((each.get("media-type", "") for each in named if each.get("full-path") == "/"), ""))

    def refuse_entities(self) -> None:
        """Raise `entities` for XML entities: no program writes them into documents, only attacks use them."""
        for name in self.names:
            if name.endswith((".xml", ".rels", ".opf")) and _ENTITIES.search(self.head(name)):
                raise ReaderError("entities")

    def tree(self, name: str) -> Element:
        """Return a small member as an XML tree."""
        with self.open(name) as member:
            return etree.parse(member, safe_parser()).getroot()


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a part. `kind`: the last part of its type, such as `styles`. `target`: a member, or a link."""

    kind: str
    target: str
    external: bool = False


@dataclass(frozen=True, slots=True)
class MainPart:
    """The main part of an Office package. `content_type`: "" if the package does not state it."""

    name: str
    content_type: str


def relations(archive: Archive, name: str = "") -> dict[str, Relation]:
    """Return the relations of a part by id (OPC, part 2, section 9). Without a name, those of the package."""
    folder, _, file = name.rpartition("/")
    source = archive.member_name(f"{folder}/_rels/{file}.rels".lstrip("/"))
    if source not in archive.names:
        return {}
    targets: dict[str, Relation] = {}
    for each in archive.tree(source).iterfind("{*}Relationship"):
        target = each.get("Target", "").replace("\\", "/")
        external = each.get("TargetMode") == "External"
        targets[each.get("Id", "")] = Relation(
            each.get("Type", "").rpartition("/")[2],
            each.get("Target", "")
            if external
            else archive.member_name(resolve_target(folder, unquote(target).partition("#")[0])),
            external,
        )
    return targets


def relation_targets(archive: Archive, name: str) -> dict[str, str]:
    """Return the targets of a part's relations by id: members or external links."""
    return {each_id: each.target for each_id, each in relations(archive, name).items()}


def related_members(archive: Archive, name: str, *kinds: str) -> list[str]:
    """Return the members to which a part has relations of these kinds, in their order."""
    targets = [each.target for each in relations(archive, name).values() if each.kind in kinds and not each.external]
    return [target for target in dict.fromkeys(targets) if target in archive.names]


def main_part(archive: Archive) -> MainPart | None:
    """Return the main part of a package of Office (OPC, sections 6.2 and 6.5); None if the archive is none."""
    starts = [
        each
        for each in relations(archive).values()
        if each.kind in _MAIN_RELATION_KINDS and each.target in archive.names
    ]
    if not starts:
        return None
    name = starts[0].target
    types = archive.member_name(CONTENT_TYPES)
    content_type = _content_type(archive.tree(types), name) if types in archive.names else ""
    return MainPart(name, content_type)


def _content_type(types: Element, name: str) -> str:
    for each in types.iterfind("{*}Override"):
        if each.get("PartName", "").replace("\\", "/").lstrip("/").lower() == name.lower():
            return str(each.get("ContentType", ""))
    suffix = name.rpartition(".")[2].lower()
    defaults = (each for each in types.iterfind("{*}Default") if each.get("Extension", "").lower() == suffix)
    return str(next((each.get("ContentType", "") for each in defaults), ""))


def _plain_name(name: str) -> str:
    return name.replace("\\", "/").lstrip("/") or name


def resolve_target(folder: str, target: str) -> str:
    """Return the name of the member that `target` denotes in a member of `folder`."""
    parts = [] if target.startswith("/") else [part for part in folder.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def safe_parser() -> etree.XMLParser:
    """Return a parser that resolves nothing. It keeps no list of ids, since some programs write one id twice."""
    return etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, collect_ids=False)


def parse_events(
    source: IO[bytes], kinds: Sequence[Literal["start", "end"]] = ("start", "end"), tags: Sequence[str] | None = None
) -> "Iterator[tuple[str, Element]]":
    """Yield (`start` or `end`, element) while a member is read. `tags`: only these elements.

    The caller clears each element after use, so that memory stays bounded.
    """
    # `iterparse` would check ids in spite of `collect_ids=False`.
    pulled = etree.XMLPullParser(
        kinds,
        tag=tags,
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        collect_ids=False,
    )
    while block := source.read(_BLOCK_BYTES):
        pulled.feed(block)
        yield from cast("Iterator[tuple[str, Element]]", pulled.read_events())
    pulled.close()
    yield from cast("Iterator[tuple[str, Element]]", pulled.read_events())
