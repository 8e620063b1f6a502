"""`make lint` runs import-linter; here, that its contracts leave no package of ours out."""

import re
import tomllib
from typing import Any

from django.conf import settings

from tests.config.sources import apps, packages
from tests.product import ROOT


def contracts() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def test_every_app_is_installed_and_every_package_under_the_import_contracts() -> None:
    assert set(apps()) <= set(settings.INSTALLED_APPS)
    ours = {name.partition(".")[0] for name in packages()}
    assert ours == set(contracts()["root_packages"])
    layers = next(contract["layers"] for contract in contracts()["contracts"] if contract["type"] == "layers")
    layers = [name for layer in layers for name in re.split(r" [|:] ", layer)]
    assert ours == {layer.strip("()").partition(".")[0] for layer in layers}
    # An optional layer, in parentheses, is one that may be missing; an app that is there is not optional.
    assert not [layer for layer in layers if layer.startswith("(") and layer.strip("()") in ours]


def test_make_lint_checks_the_contracts() -> None:
    assert "lint-imports" in (ROOT / "Makefile").read_text()
