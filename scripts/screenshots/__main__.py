"""`make screenshots`: fill an empty product, and write pictures of it into docs/pictures/."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.screenshots.documents import documents
from scripts.screenshots.film import record
from scripts.screenshots.office import DEFAULT, Office
from scripts.screenshots.pictures import OUT, Visitor, take
from scripts.services import Services, use_migrated_database
from tests.chromium import chromium
from tests.product import ROOT, Product, installed

PASSWORD = "for-screenshots-only"
ADMIN = "clara.brandt"
FONTS = Path(__file__).with_name("fonts.conf")


def run(product: Product, *arguments: str, **more: str) -> str:
    """Run a Python program in the product's environment, and return its output."""
    environment = {**product.environment, "DJANGO_SETTINGS_MODULE": "config.settings", **more}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def office() -> Iterator[tuple[Product, Office, dict[str, str], dict[str, bytes]]]:
    """Run a product with the workspace of a law office; give the paths of its pages and its files by name."""
    os.environ["ADMIN_PASSWORD"] = PASSWORD
    with chromium() as browser:
        files = documents(browser)
    services = Services()
    try:
        use_migrated_database(services.database)
        with installed(services.database, services.redis, DEFAULT, "Own server") as (product, caller):
            ids = json.loads(run(product, "-m", "scripts.screenshots.past", "people", ADMIN, product.model.openai_url))
            workspace = Office(caller, product.model.set_script, **ids)
            paths = workspace.fill(files) | {
                "admin-model": f"/admin/llm/model/{workspace.models['claude-sonnet-4-5']}/change/"
            }
            run(product, "-m", "scripts.screenshots.past", "days")
            yield product, workspace, paths, files
    finally:
        services.end()


def main() -> None:
    os.environ["FONTCONFIG_FILE"] = str(FONTS)
    with office() as (product, workspace, paths, files), chromium() as browser:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        visitor = Visitor(browser, product.url, ADMIN, PASSWORD)
        take(visitor, paths, files)
        record(visitor, workspace, paths["project"].split("/")[2])


if __name__ == "__main__":
    main()
