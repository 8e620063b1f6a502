"""Read the pages of the guide from docs/, and map pages of the product to pages of the guide."""

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from PIL import Image

DOCS: Path = settings.BASE_DIR / "docs"
PICTURES = DOCS / "pictures"
PIXELS = 2  # picture pixels per CSS pixel
ENGLISH = "en"
PAGES_OF_PRODUCT = "use/pages"  # its table maps pages of the product to pages of the guide
FILE = re.compile(r"(?P<path>.+?)(?:\.(?P<language>[a-z]{2}))?\.md")
TITLE = re.compile(r"^# +(.+)$", re.MULTILINE)
COMMENT = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
PARAMETER = re.compile(r"<[^<>]*>")
ROW = re.compile(r"^\| [^|]+ \| `/([^`]*)` \| \[[^\]]*\]\(([^)]+)\) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GuidePage:
    """A page in one language. `path` is relative to docs/ and has no suffix, such as `use/sharing`."""

    path: str
    language: str
    title: str
    text: str

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


class PictureSize(NamedTuple):
    """Size of a picture on a page, in CSS pixels."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class GuidePlace:
    """The target of a link in the guide. `path` begins with `..` if the target is outside of docs/."""

    path: str
    anchor: str

    @property
    def outside(self) -> bool:
        return self.path.startswith("..")


def page(path: str, language: str) -> GuidePage | None:
    """Return the page in that language, else in English. None if there is no such page."""
    return _pages().get((path, language)) or _pages().get((path, ENGLISH))


def pages(language: str) -> list[GuidePage]:
    """Return each page once, in that language if it is translated, else in English."""
    each = (page(path, language) for path in dict.fromkeys(path for path, _ in _pages()))
    return [row for row in each if row is not None]


def pages_in(folder: str, language: str) -> list[GuidePage]:
    return [row for row in pages(language) if row.folder == folder]


def resolve_link(target: str, folder: str) -> GuidePlace:
    """Return the target of a relative link in a page of `folder`."""
    file, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(folder, file))
    match = FILE.fullmatch(path)
    return GuidePlace(match["path"] if match else path, anchor)


def place_of_page(route: str) -> GuidePlace:
    """Return the place in the guide about a page of the product. `route`: the route of Django's resolver.

    The row of the table with the longest matching prefix of the route decides.
    """
    parts = _parts(route)
    rows = _rows()
    size = next(size for size in range(len(parts), -1, -1) if parts[:size] in rows)
    return rows[parts[:size]]


@cache
def pictures() -> dict[str, PictureSize]:
    """Return the sizes of the guide's pictures, by file name."""
    return {file.name: _size(file) for file in PICTURES.iterdir()}


def _size(file: Path) -> PictureSize:
    with Image.open(file) as image:
        return PictureSize(image.width // PIXELS, image.height // PIXELS)


@cache
def _rows() -> dict[tuple[str, ...], GuidePlace]:
    table = page(PAGES_OF_PRODUCT, ENGLISH)
    rows = ROW.findall(table.text) if table else []
    return {(): GuidePlace("index", ""), **{_parts(address): resolve_link(target, "use") for address, target in rows}}


def _parts(route: str) -> tuple[str, ...]:
    return tuple(PARAMETER.sub("<>", route).strip("/").split("/")) if route.strip("/") else ()


@cache
def _pages() -> dict[tuple[str, str], GuidePage]:
    """Read every page. Cached, since pages change only with the version of the product."""
    guide_pages = (_page(file.relative_to(DOCS).as_posix(), file.read_text()) for file in sorted(DOCS.rglob("*.md")))
    return {(row.path, row.language): row for row in guide_pages}


def _page(name: str, text: str) -> GuidePage:
    match = FILE.fullmatch(name)
    path, language = (match["path"], match["language"]) if match else (name, None)
    title = TITLE.search(text)
    return GuidePage(path, language or ENGLISH, title[1] if title else path, COMMENT.sub("", text))
