"""The hook of MkDocs. Links to folders, and to files outside of docs/, have no page in the site and become text."""

import posixpath
import re

from mkdocs.structure.pages import Page

LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the text of a page without the links that have no page in the site."""
    folder = posixpath.dirname(page.file.src_uri)
    return LINK.sub(lambda link: link[0] if _is_in_site(folder, link[2]) else link[1], markdown)


def _is_in_site(folder: str, target: str) -> bool:
    return not target.endswith("/") and not posixpath.normpath(posixpath.join(folder, target)).startswith("..")
