"""Stylesheets: distances, sizes of type and colours are tokens, and shared elements are styled in one place."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product import ROOT

CSS = ROOT / "static" / "css"
TOKENS = "tokens.css"
WHOLE = ("app.css", "admin.css")  # what the pages of the workspace and those of the admin have
MAX_LENGTH = 500  # lines
SPACING = re.compile(r"(scroll-)?(margin|padding)(-[a-z-]+)?|(row-|column-)?gap|border-spacing")
# `em` follows the text around it, and hairlines are hairlines at every size of type.
RAW_LENGTH = re.compile(r"(?<![\w.-])-?(?!0px|1px|2px)\d*\.?\d+(rem|px|ch|pt|cm|mm|in)\b")
RAW_COLOUR = re.compile(r"#[0-9a-f]{3,8}\b|\b(rgb|hsl|hwb|lab|lch|oklab|oklch)a?\(", re.IGNORECASE)
DECLARATION = re.compile(r"(?<![\w-])([\w-]+):\s*([^;{}]+);")


def stylesheets() -> list[Path]:
    return sorted(CSS.glob("*.css"))


def bare(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def raw(text: str) -> Iterator[str]:
    """Yield the declarations with raw lengths or colours in place of tokens."""
    for name, value in DECLARATION.findall(bare(text)):
        lengths = SPACING.fullmatch(name) or name in ("font-size", "font")
        mixed = re.sub(r"color-mix\(in oklab,", "(", value)
        if (lengths and RAW_LENGTH.search(value)) or RAW_COLOUR.search(mixed):
            yield f"{name}: {value}"


def test_only_tokens_say_distances_sizes_of_type_and_colours() -> None:
    raw_values = {path.name: list(raw(path.read_text())) for path in stylesheets() if path.name != TOKENS}
    assert len(raw_values) > 10
    assert {name: lines for name, lines in raw_values.items() if lines} == {}


@pytest.mark.parametrize(
    "declaration",
    [
        "margin: 0 3px;",
        "padding-inline: var(--space-8) 0.4rem;",
        "row-gap: calc(var(--space-8) + 0.25rem);",
        "font-size: 0.9rem;",
        "color: #fff;",
        "border: 1px solid rgb(0 0 0 / 40%);",
    ],
)
def test_what_is_said_in_numbers_is_found(declaration: str) -> None:
    assert list(raw(f".a {{\n  &:hover {{ {declaration} }}\n}}")) == [declaration.rstrip(";")]


@pytest.mark.parametrize(
    "declaration",
    [
        "margin: 0 auto;",
        "padding: 0.1em var(--space-4) 1px max(var(--space-8), env(safe-area-inset-bottom));",
        "gap: calc(-1 * var(--space-8)) clamp(0px, 5vw, 10%);",
        "inline-size: 20rem;",
        "color: color-mix(in oklab, var(--accent), var(--text) 14%);",
    ],
)
def test_what_needs_no_token_is_left_alone(declaration: str) -> None:
    assert list(raw(f".a {{ {declaration} }}")) == []


def test_every_token_is_used_and_every_one_that_is_used_is_there() -> None:
    texts = [bare(path.read_text()) for path in stylesheets()]
    set_ = {name for text in texts for name in re.findall(r"(--[\w-]+):", text)}
    used = {name for text in texts for name in re.findall(r"var\((--[\w-]+)", text)}
    of_unfold = {name for name in used if name.startswith("--color-")}  # from UNFOLD["COLORS"], on pages of the admin
    assert set_ == used - of_unfold


def test_no_property_is_registered() -> None:
    """WebKit computes a registered length in container units to nothing, and drops values computed from it."""
    assert [path.name for path in stylesheets() if "@property" in bare(path.read_text())] == []


def test_every_stylesheet_is_part_of_one_that_pages_have() -> None:
    imported = {name: re.findall(r'^@import "([^"]+)";$', (CSS / name).read_text(), re.MULTILINE) for name in WHOLE}
    assert sorted([*imported["app.css"], *WHOLE]) == [path.name for path in stylesheets()]
    assert imported["admin.css"] == [TOKENS]


def test_a_class_by_itself_is_styled_in_one_file() -> None:
    places = defaultdict(set)
    for path in stylesheets():
        for name in re.findall(r"(?<!,)\n +(\.[\w-]+) \{\n", path.read_text()):
            places[name].add(path.name)
    shared = {name for name, files in places.items() if "components.css" in files}
    assert {".row", ".line", ".said", ".cards"} <= shared
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_stylesheet_is_too_long() -> None:
    lengths = {path.name: path.read_text().count("\n") for path in stylesheets()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LENGTH} == {}
