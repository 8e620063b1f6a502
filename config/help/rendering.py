"""Render the Markdown of the guide as HTML. The guide is part of the product, so its texts are trusted.

`chat.rendering.markdown` renders the untrusted texts of models and users.
"""

import posixpath
import re
from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from chat.rendering.highlighting import Colours, highlight
from config.help import guide
from config.help.guide import ENGLISH, GuidePage, GuidePlace, resolve_link

ADDRESS = re.compile(r"[a-z]+:")
NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading by GitHub's rules."""
    return NOT_IN_ANCHORS.sub("", heading.lower()).replace(" ", "-")


def address_of(target: GuidePlace) -> str:
    """Return the product's address for a place in the guide."""
    if target.path == "examples" or target.path.startswith("examples/"):
        return reverse("examples")
    path = "" if target.path in (".", "index") else target.path
    address = reverse("help:page", args=[path]) if path else reverse("help:index")
    return f"{address}#{target.anchor}" if target.anchor else address


class GuideRenderer(RendererHTML):
    """Render highlighted code, tables that scroll, and headings with anchors."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        language = tokens[idx].info.split(" ")[0]
        return self._code(highlight(tokens[idx].content, "bash" if language == "sh" else language, Colours()))

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        return self._code(escape(tokens[idx].content, quote=False))

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        original = tokens[idx].meta.get("original")
        return self.renderToken(tokens, idx, options, env) + (f'<span id="{original}"></span>' if original else "")

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        return '<div class="table" tabindex="0" role="group"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        return "</table></div>"

    @staticmethod
    def _code(html: str) -> str:
        return f'<div class="code"><pre tabindex="0"><code>{html}</code></pre></div>'


PARSER = MarkdownIt("commonmark", {"html": False}, renderer_cls=GuideRenderer).enable("table")


def text_of(inline: Token) -> str:
    """Return the text of a line of Markdown without the markup."""
    return "".join(each.content for each in inline.children or [] if each.type in ("text", "code_inline"))


def render(page: GuidePage) -> SafeString:
    """Return the page without its title, each top-level block in its own element.

    A translated heading also has the anchor of the original heading, since links from other pages use it.
    """
    tokens = PARSER.parse(page.text)
    original = guide.page(page.path, ENGLISH)
    originals = _anchors(PARSER.parse(original.text)) if original and page.language != ENGLISH else []
    headings = (token for token in tokens if token.type == "heading_open")
    for heading, anchor, anchor_of_original in zip_longest(headings, _anchors(tokens), originals):
        if heading is not None:
            heading.attrSet("id", anchor)
            heading.meta["original"] = anchor_of_original
    for child in (child for token in tokens for child in token.children or []):
        if child.type == "link_open":
            _set_address(child, page.folder)
        elif child.type == "image":
            _show(child, page.folder)
    return SafeString("".join(f'<div class="block">{html}</div>' for html in _blocks(_below_title(tokens))))


def _anchors(tokens: Sequence[Token]) -> list[str]:
    """Return the anchors of the headings; a second heading with the same words gets a number, as on GitHub."""
    names = [
        anchor_of(text_of(tokens[index + 1])) for index, token in enumerate(tokens) if token.type == "heading_open"
    ]
    before = (names[:index].count(name) for index, name in enumerate(names))
    return [f"{name}-{count}" if count else name for name, count in zip(names, before, strict=True)]


def _set_address(link: Token, folder: str) -> None:
    """Point a link into the guide. A link to a file outside of docs/ becomes text: the file may not be installed."""
    href = str(link.attrs["href"])
    if ADDRESS.match(href):
        return
    target = resolve_link(href, folder)
    if target.outside:
        del link.attrs["href"]
    elif href.startswith("#"):
        link.attrs["href"] = href
    else:
        link.attrs["href"] = address_of(target)


def _show(image: Token, folder: str) -> None:
    """Point a picture to its address in the product. Browsers load it when it comes into view."""
    name = posixpath.basename(resolve_link(str(image.attrs["src"]), folder).path)
    size = guide.pictures()[name]
    image.attrs |= {"src": reverse("help:picture", args=[name]), "loading": "lazy"}
    image.attrs |= {"width": size.width, "height": size.height}


def _below_title(tokens: list[Token]) -> list[Token]:
    return tokens[3:] if tokens and tokens[0].tag == "h1" else tokens


def _blocks(tokens: list[Token]) -> list[str]:
    blocks = []
    start = 0
    for index, token in enumerate(tokens):
        if token.level == 0 and token.nesting != 1:
            blocks.append(PARSER.renderer.render(tokens[start : index + 1], PARSER.options, {}))
            start = index + 1
    return blocks
