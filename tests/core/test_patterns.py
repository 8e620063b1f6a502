"""Every regular expression of the product takes a time in proportion to its text: callers choose the text."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.config.sources import modules, packages
from tests.core import pattern_inputs
from tests.core.pattern_inputs import TrialPattern, as_json
from tests.product import ROOT

pytestmark = pytest.mark.process

METHODS = ("search", "match", "fullmatch", "finditer")
SAME = {"sub": "finditer", "subn": "finditer", "split": "finditer", "findall": "finditer"}
# Patterns that are not linear, or need not be: what they are applied to has a greatest length, by the code beside them.
BOUNDS = {
    "readers.formats.archive._ENTITIES": 4_096,  # the head of a member of a document
}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def compiled_in(value: Any, name: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns that a value is or has in it, each with its name."""
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from compiled_in(key, f"{name}[{key!r}]")
            yield from compiled_in(each, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for number, each in enumerate(value):
            yield from compiled_in(each, f"{name}[{number}]")


def of_modules() -> dict[str, re.Pattern[Any]]:
    """Return the patterns of modules and of their classes, by their full names."""
    named: dict[str, re.Pattern[Any]] = {}
    for path in modules(*packages()):
        if not re.search(r"^(?:import re$|from re import)", path.read_text(), re.MULTILINE):
            continue
        module = importlib.import_module(module_name(path))
        for name, value in vars(module).items():
            named |= compiled_in(value, f"{module.__name__}.{name}")
            if isinstance(value, type) and value.__module__ == module.__name__:
                for member, each in list(vars(value).items()):
                    named |= compiled_in(each, f"{module.__name__}.{name}.{member}")
    return named


def calls() -> tuple[dict[str, set[str]], list[TrialPattern]]:
    """Return by which methods the product applies names of patterns, and the patterns written into calls of `re`."""
    methods: dict[str, set[str]] = defaultdict(set)
    inline = []
    for path in modules(*packages()):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            method = SAME.get(node.attr, node.attr)
            if method in METHODS and isinstance(node.value, ast.Name | ast.Attribute):
                name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                methods[f"{module_name(path)}.{name}" if name.startswith("_") else name].add(method)
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and SAME.get(node.func.attr, node.func.attr) in METHODS
                and isinstance(node.args[0], ast.Constant)
                and isinstance(source := node.args[0].value, str | bytes)
            ):
                flags = re.NOFLAG
                for option in (*node.args[2:], *(each.value for each in node.keywords)):
                    flags |= getattr(re, option.attr) if isinstance(option, ast.Attribute) else re.NOFLAG
                pattern: re.Pattern[Any] = re.compile(source, flags)
                method = SAME.get(node.func.attr, node.func.attr)
                inline.append(trial(f"{module_name(path)}:{source!r}", pattern, (method,)))
    return methods, inline


def trial(name: str, pattern: re.Pattern[Any], methods: tuple[str, ...], bound: int = 0) -> TrialPattern:
    is_bytes = isinstance(pattern.pattern, bytes)
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    flags = pattern.flags if is_bytes else pattern.flags & ~re.UNICODE
    return TrialPattern(name, text, int(flags), is_bytes, methods, bound)


def slow(patterns: list[TrialPattern]) -> list[str]:
    command = [sys.executable, "-m", pattern_inputs.__name__]
    done = subprocess.run(command, input=as_json(patterns), capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return names


def test_every_pattern_of_the_product_is_linear() -> None:
    methods, patterns = calls()
    named = of_modules()
    assert len(named) > 100
    for name, pattern in named.items():
        whole = name.partition("[")[0]
        last = whole.rpartition(".")[2]
        applied = methods.get(whole if last.startswith("_") else last, METHODS)
        patterns.append(trial(name, pattern, tuple(sorted(applied)), BOUNDS.get(name, 0)))
    assert slow(patterns) == []


@pytest.mark.parametrize(
    "source",
    [
        r"(a+)+b",
        r"(?:a|a)*b",
        r"a*a*a*b",
        r"x.*y.*z",
        r"<[^>]*>",
        r"\s+$",
        r"“(.*?)” is (.*?) not (.*?)\.",
        r"(\w+\s?)*!",
    ],
)
def test_a_pattern_that_is_not_linear_is_noticed(source: str) -> None:
    assert slow([trial("it", re.compile(source), METHODS)]) == ["it"]


@pytest.mark.parametrize("source", [r"a+b?", r"[0-9]{1,3}(?:,[0-9]{3})+", r"(?<!\s)\s++(?=x)", r"“[^”]{0,40}”"])
def test_a_pattern_that_is_linear_is_not(source: str) -> None:
    assert slow([trial("it", re.compile(source), METHODS)]) == []
