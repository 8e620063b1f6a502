"""The modules of the product, as files."""

from pathlib import Path

from tests.product import ROOT


def apps() -> list[str]:
    """Return the packages that are Django apps, as INSTALLED_APPS names them."""
    paths = (*ROOT.glob("*/apps.py"), *ROOT.glob("contrib/*/apps.py"))
    return sorted(".".join(path.parent.relative_to(ROOT).parts) for path in paths)


def packages() -> list[str]:
    """Return the packages of the product: its apps, and the one that is none."""
    return sorted([*apps(), "readers"])


def modules(*directories: str) -> list[Path]:
    paths = [path for name in directories for path in sorted((ROOT / name.replace(".", "/")).rglob("*.py"))]
    return [path for path in paths if not {"migrations", "tests"} & set(path.parts)]
