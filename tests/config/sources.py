"""The modules of the product, as files."""

from pathlib import Path

from tests.product import ROOT


def apps() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("*/apps.py"))


def modules(*directories: str) -> list[Path]:
    found = [path for name in directories for path in sorted((ROOT / name).rglob("*.py"))]
    return [path for path in found if "migrations" not in path.parts]
