"""The packages that keep the code findable: few modules each, and imports in one direction."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.config.sources import modules
from tests.config.sources import packages as ours
from tests.product import ROOT

GROUND = "core"  # its modules are what every package stands on, those in it too
DJANGOS = ("management", "templatetags")  # folders that Django asks for belong to the package that holds them


# An app may have rooms on several floors: the layers of the first contract that have a dot stand by themselves.
_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ROOMS = [name for layer in _CONTRACTS[0]["layers"] for name in layer.replace(":", "|").split(" | ") if "." in name]


def room(package: str) -> str:
    """The package's name, with the name of its room as the first part."""
    own = next((each for each in ROOMS if package == each or package.startswith(f"{each}.")), None)
    return package if own is None else own.replace(".", "/") + package.removeprefix(own)


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module


def home(module: str, packages: set[str]) -> str:
    """The package a module is in; a package's own `__init__` is in that package."""
    parts = (module if module in packages else module.rpartition(".")[0]).split(".")
    end = next((number for number, part in enumerate(parts) if part in DJANGOS), len(parts))
    return ".".join(parts[:end])


def edges() -> dict[tuple[str, str], str]:
    """(package, package it imports from) with an example of such an import."""
    paths = {dotted(path): path for path in modules(*ours())}
    packages = {dotted(path.parent / "__init__.py") for path in paths.values()}
    names, examples = set(paths) | packages, {}
    for name, path in paths.items():
        for target in imported(ast.parse(path.read_text()), names):
            pair = room(home(name, packages)), room(home(target, packages))
            if target in names and pair[0] != pair[1]:
                examples[pair] = f"{name} imports {target}"
    return examples


def wrong(imports: dict[tuple[str, str], str]) -> list[str]:
    """Return sentences about imports of a parent's modules, and about packages that import each other, at any depth.

    A package in `core` may import the modules of `core`, unless one of those imports it.
    """
    sentences, links = [], defaultdict(str)
    for (package, other), example in imports.items():
        if other == GROUND and package.startswith(f"{other}.") and (other, package) not in imports:
            continue
        if package.startswith(f"{other}."):
            sentences.append(f"{package} imports its parent: {example}")
        elif not other.startswith(f"{package}."):
            ours, theirs = package.split("."), other.split(".")
            depth = next(number for number, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1])
            links[".".join(ours[: depth + 1]), ".".join(theirs[: depth + 1])] = example
    sentences += [
        f"they import each other: {links[pair]}, {links[pair[::-1]]}" for pair in links if pair[::-1] in links
    ]
    return sentences


def test_packages_import_in_one_direction() -> None:
    imports = edges()
    assert len(imports) > 100
    assert wrong(imports) == []


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([("chat.turns", "chat")], "imports its parent"),
        ([("chat.turns", "chat.runs"), ("chat.runs.deep", "chat.turns")], "import each other"),
        ([("core.api", "core"), ("core", "core.api")], "imports its parent"),
    ],
)
def test_what_goes_both_ways_is_found(pairs: list[tuple[str, str]], sentence: str) -> None:
    sentences = wrong(dict.fromkeys(pairs, "an example"))
    assert sentences
    assert all(sentence in each for each in sentences)


def test_one_way_is_allowed() -> None:
    allowed = [
        ("chat", "chat.turns"),
        ("core.api", "core"),
        *pairwise(("config", "chat.web", "chat.turns", "chat.models", "core")),
    ]
    assert wrong(dict.fromkeys(allowed, "an example")) == []
