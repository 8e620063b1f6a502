"""The sizes that keep the code readable in one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.sources import apps, modules
from tests.product import ROOT

MODULE, FUNCTION, PARAMETERS = 500, 50, 6
Function = ast.FunctionDef | ast.AsyncFunctionDef


def too_large(path: Path, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MODULE:
        yield f"{path} has {lines} lines; the most is {MODULE}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            yield from _function(path, node)


def _function(path: Path, node: Function) -> Iterator[str]:
    if _lines(node) > FUNCTION:
        yield f"{path}: {node.name} has {_lines(node)} lines; the most is {FUNCTION}"
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    counted = names[1:] if names[:1] in (["self"], ["cls"]) else names
    if len(counted) > PARAMETERS:
        yield f"{path}: {node.name} takes {len(counted)} parameters; the most is {PARAMETERS}"


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_module_or_function_is_too_large() -> None:
    checked = modules(*apps())
    assert len(checked) > 50
    found = [line for path in checked for line in too_large(path.relative_to(ROOT), path.read_text())]
    assert found == []


def test_no_module_of_tests_is_too_long() -> None:
    found = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in modules("tests")}
    assert {name: lines for name, lines in found.items() if lines > MODULE} == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n" * 501, "501 lines"),
        ("def f():\n" + "    x = 1\n" * 50, "f has 51 lines"),
        ("async def f(a, b, /, c, *, d, e, f, g): ...\n", "f takes 7 parameters"),
        ("class A:\n    def f(self, a, b, c, d, e, f, g): ...\n", "f takes 7 parameters"),
    ],
)
def test_what_is_too_large_is_found(text: str, said: str) -> None:
    found = list(too_large(Path("models.py"), text))
    assert len(found) == 1
    assert said in found[0]


def test_what_just_fits_is_left_alone() -> None:
    text = "def f(a, b, c, d, e, f):\n" + "    x = 1\n" * 49 + "class A:\n    def f(self, a, b, c, d, e, f): ...\n"
    assert not list(too_large(Path("models.py"), text))
