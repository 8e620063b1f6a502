"""Define the tool that opens a web page and returns its text."""

import asyncio
import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx2

from core.net.fetch import FetchedPage, Fetcher, Follow
from core.net.url_safety import FetchRefused
from core.sentences import Sentence
from core.text import clean
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput
from readers.api import page_text

MAX_URL = 4_000  # characters
MAX_TITLE = 300  # characters
_WEB_PAGES = ("text/html", "application/xhtml+xml")
MEDIA_TYPES = (*_WEB_PAGES, "text/plain", "text/markdown", "text/x-markdown", "application/json")
MAX_PAGE = 2_000_000  # bytes of text; the rest is cut off
MAX_FILE = 20_000_000  # bytes of a file; a part of a file is useless
PAGE_CUT_NOTE = f"\n[… The page is longer than {MAX_PAGE // 1_000_000} MB; only its beginning was fetched. …]"

_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# An allow-list: Python also has codecs that are not character sets, and some of those take quadratic time.
_CHARSETS = re.compile(r"utf-(?:8|16|32)|iso8859|cp\d|gb|big5|euc|shift|koi8|iso2022|ascii|tis|mac|johab|ptcp|kz")

_DEFINITION = ToolDefinition(
    "open_url",
    "Open a web page and return its text.",
    {
        "type": "object",
        "properties": {"url": {"type": "string", "description": "Such as https://example.org/page."}},
        "required": ["url"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page. `url`: the address after redirects.

    `partial`: the text is only the beginning, and a note at its end says so.
    """

    url: str
    title: str
    text: str
    partial: bool


class OpenUrlTool:
    """Tool that opens a page. `data["documents"]` of its output has one document: id, title, metadata (URL) and text.

    `readers`: functions that return the text of a file, by media type. They may block, and may raise `FetchRefused`.
    `follow`: decides whether a redirect is followed.
    """

    definition = _DEFINITION

    def __init__(
        self,
        fetcher: Fetcher | None = None,
        *,
        readers: Mapping[str, Callable[[bytes], str]] = MappingProxyType({}),
        follow: Follow | None = None,
    ) -> None:
        self._fetcher = fetcher or Fetcher()
        self._follow = follow
        self._readers = readers
        self._accepted = {**dict.fromkeys(MEDIA_TYPES, MAX_PAGE), **dict.fromkeys(readers, MAX_FILE)}
        self.timeout = self._fetcher.timeout + (50 if readers else 5)  # the extra seconds are for reading the page

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Opening {host}", host=_parse_url(arguments).host[:100])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        url = _parse_url(arguments)
        try:
            page = await self.open(url)
        except FetchRefused as refusal:
            return ToolOutput(str(refusal), error=True)
        document = {"id": page.url, "title": page.title, "metadata": page.url, "text": page.text}
        text = f"{page.title}\n{page.url}\n\n{page.text}"
        return ToolOutput(text, {"documents": [document]}, full_text=page.text, partial=page.partial)

    async def open(self, url: httpx2.URL) -> WebPage:
        """Fetch and read a page. Raises `FetchRefused`."""
        page = await self._fetcher.fetch(url, self._accepted, self._follow)
        # In a thread, since a large page takes up to a second, which would block the event loop.
        title, text = await asyncio.to_thread(self._read, page)
        if not text:
            raise FetchRefused("The page has no text. A script may create the text, but scripts are not run.")
        return WebPage(page.url, title[:MAX_TITLE] or page.url, text + (PAGE_CUT_NOTE if page.cut else ""), page.cut)

    def _read(self, page: FetchedPage) -> tuple[str, str]:
        """Return the title, which may be empty, and the text."""
        if reader := self._readers.get(page.media_type):
            if page.cut:
                raise FetchRefused(f"This file is larger than {MAX_FILE // 1_000_000} MB, which is the limit.")
            return "", clean(reader(page.body)).strip()
        source = _decode(page.body, page.charset)
        return page_text(source) if page.media_type in _WEB_PAGES else ("", source.strip())


def _parse_url(arguments: Mapping[str, Any]) -> httpx2.URL:
    url = arguments.get("url")
    if not isinstance(url, str) or not url.strip() or len(url) > MAX_URL:
        raise BadArguments(f'Call it with {{"url": "https://…"}}, at most {MAX_URL} characters.')
    try:
        return httpx2.URL(url.strip())
    except (httpx2.InvalidURL, ValueError) as error:
        raise BadArguments("This is not a URL. Check it and call again.") from error


def _decode(body: bytes, charset: str | None) -> str:
    """Decode a body with the first encoding that fits.

    The order is: byte order mark, the server's header, the page's own declaration, UTF-8, Windows-1252.
    """
    for mark, name in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return clean(body[len(mark) :].decode(name, "replace"))
    declared = _META_CHARSET.search(body[:2048])
    for candidate in (charset, declared and declared[1].decode("ascii", "replace")):
        if candidate and (codec := _find_codec(candidate)):
            return clean(body.decode(codec, "replace"))
    try:
        # Incremental, since the body may end within a character.
        return clean(codecs.getincrementaldecoder("utf-8")().decode(body))
    except UnicodeDecodeError:
        return clean(body.decode("cp1252", "replace"))


def _find_codec(name: str) -> str | None:
    """Return Python's codec for the name of a character set; None if the name is unknown."""
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return codec if _CHARSETS.match(codec) else None
