"""The modules of the product, as files."""

from pathlib import Path

from tests.product import ROOT


def apps() -> list[str]:
    """Return the top-level packages that are Django apps."""
    return sorted(path.parent.name for path in ROOT.glob("*/apps.py"))


def packages() -> list[str]:
    """Return the top-level packages of the product: its apps, and those that are none."""
    return sorted([*apps(), "readers"])


def modules(*directories: str) -> list[Path]:
    found = [path for name in directories for path in sorted((ROOT / name).rglob("*.py"))]
    return [path for path in found if not {"migrations", "tests"} & set(path.parts)]
