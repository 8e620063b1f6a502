"""The product's packages: declared if they are imported, locked, and exported for pip."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from config.embedded.paths import PROJECT_ROOT
from tests.config.sources import modules, packages

UV = str(Path(sys.executable).with_name("uv"))
PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
APPS = PYPROJECT["tool"]["importlinter"]["root_packages"]
OWN_PACKAGES = {*APPS, "tests", "scripts"}
DEVELOPMENT = [
    PROJECT_ROOT / folder
    for folder in ("tests", "scripts", "docs/examples", "contrib/bench", "contrib/cluster", "readers/tests")
]
OWNERS = metadata.packages_distributions()
PEER = PROJECT_ROOT / "contrib/bench/peers/chainlit_app.py"  # runs in the environment of another product
PYTHON_FILES = (".py", "/__init__.py")
EXPORTS = {
    "requirements.txt": (),
    "requirements-embedded.txt": ("--only-group", "embedded"),
    "requirements-node.txt": ("--only-group", "node"),
    "requirements-dev.txt": ("--only-group", "dev"),
}


def declared_names(*groups: str) -> set[str]:
    """Return the normalised names of the product's dependencies and of the dependency groups."""
    lists = [PYPROJECT["project"]["dependencies"], *(PYPROJECT["dependency-groups"][group] for group in groups)]
    return {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}


def imported_modules(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name imported from it or "") for each import of a package that is not ours nor Python's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imports = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in imports:
            top = module.partition(".")[0]
            if top not in OWN_PACKAGES and top not in sys.stdlib_module_names:
                yield module, name


def find_distributions(module: str, name: str) -> set[str]:
    """Return the normal names of the distributions that may hold a module. A namespace has several owners."""
    owners = OWNERS.get(module.partition(".")[0], [])
    if len(owners) > 1:
        paths = [f"{each.replace('.', '/')}{end}" for each in (module, f"{module}.{name}") for end in PYTHON_FILES]
        owners = [owner for owner in owners if any(str(file) in paths for file in metadata.files(owner) or ())]
    return {canonicalize_name(owner) for owner in owners}


def undeclared_imports(paths: Iterator[Path], declared: set[str]) -> set[str]:
    return {
        f"{path.relative_to(PROJECT_ROOT)}: {module}"
        for path in paths
        for module, name in imported_modules(path)
        if not find_distributions(module, name) & declared
    }


def test_the_product_declares_every_package_that_it_imports() -> None:
    embedded = PROJECT_ROOT / "config" / "embedded"
    served = (path for path in modules(*packages()) if embedded not in path.parents)
    assert undeclared_imports(served, declared_names()) == set()
    assert undeclared_imports(embedded.rglob("*.py"), declared_names("embedded")) == set()


def test_tests_and_scripts_declare_every_package_that_they_import() -> None:
    paths = (path for folder in DEVELOPMENT for path in folder.rglob("*.py"))
    checked = (path for path in paths if path != PEER and "node_modules" not in path.parts)
    assert undeclared_imports(checked, declared_names("embedded", "dev")) == set()


def test_the_lock_is_of_the_declared_packages() -> None:
    done = subprocess.run([UV, "lock", "--check", "--offline"], cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"Run make lock.\n{done.stderr}"


def test_the_lock_names_the_public_index_alone() -> None:
    """A mirror that uv is set up for would get into the lock, and others cannot reach it."""
    text = (PROJECT_ROOT / "uv.lock").read_text()
    packages = tomllib.loads(text)["package"]
    sources = {package["source"].get("registry") for package in packages if package["name"] != "glasshouse"}
    assert sources == {"https://pypi.org/simple"}
    assert set(re.findall(r"\w+://[^/\"]+", text)) == {"https://pypi.org", "https://files.pythonhosted.org"}


@pytest.mark.parametrize("name", EXPORTS)
def test_pip_installs_what_is_locked(name: str) -> None:
    command = [UV, "export", "--frozen", "--offline", "--quiet", "--no-default-groups", "--no-emit-project"]
    command += ["--no-header", "--format", "requirements.txt", *EXPORTS[name]]
    locked = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    exported = (PROJECT_ROOT / name).read_text()
    assert re.sub(r"\A(#.*\n)+", "", exported) == locked, "Run make lock."
    assert "://" not in exported


def test_every_export_is_checked() -> None:
    assert {path.name for path in PROJECT_ROOT.glob("requirements*.txt")} == set(EXPORTS)
