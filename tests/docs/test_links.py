"""Links and anchors of the documentation lead somewhere, and code names documents that there are."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from config.help.rendering import PARSER, anchor_of, text_of
from tests.docs.files import DOCS, git, is_translation, markdown
from tests.product import ROOT

ADDRESS = re.compile(r"[a-z]+:")
DOCUMENT = re.compile(r"(?<![\w/])docs/(?:[\w/-]+\.md\b|decisions/\d{4}\b)")
IN_CODE = ("*.py", "*.html", "*.js", "*.css", "*.toml", "*.yaml", "*.cfg", "*.example", "Makefile", "*Containerfile")


def anchors(file: Path) -> set[str]:
    tokens = PARSER.parse(file.read_text())
    return {anchor_of(text_of(tokens[index + 1])) for index, token in enumerate(tokens) if token.type == "heading_open"}


def links(file: Path) -> list[str]:
    """Return the targets of its links and pictures within the repository."""
    children = [child for token in PARSER.parse(file.read_text()) for child in token.children or []]
    targets = [str(child.attrs.get("href") or child.attrs.get("src") or "") for child in children]
    return [unquote(target) for target in targets if target and not ADDRESS.match(target)]


def resolves(file: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (file.parent / path).resolve() if path else file
    return target.exists() and (not anchor or anchor in anchors(target))


@pytest.mark.parametrize("file", markdown(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_links_and_anchors_resolve(file: Path) -> None:
    assert [link for link in links(file) if not resolves(file, link)] == []


def test_each_page_can_be_reached_from_the_table_of_contents() -> None:
    reached, waiting = set[Path](), [DOCS / "index.md"]
    while waiting:
        file = waiting.pop()
        if file not in reached and file.suffix == ".md" and file.is_relative_to(DOCS):
            reached.add(file)
            waiting += [(file.parent / link.partition("#")[0]).resolve() for link in links(file)]
    pages = {file for file in DOCS.rglob("*.md") if file.parent.name != "decisions" and not is_translation(file)}
    assert pages - reached == set()


def test_code_names_documents_that_there_are() -> None:
    named = set(DOCUMENT.findall(git("grep", "-hF", "docs/", "--", *IN_CODE)))
    names = {path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")}
    numbers = {name[: len("docs/decisions/") + 4] for name in names if name.startswith("docs/decisions/")}
    assert named - names - numbers == set()
