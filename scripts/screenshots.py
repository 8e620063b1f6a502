"""`make screenshots` saves every page at both sizes into docs/screenshots/, from a product with example rows."""

import os
import subprocess
import sys
from functools import partial
from io import BytesIO
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page

from scripts.services import Services
from tests.chromium import chromium
from tests.house import PROFILE, House
from tests.product import ROOT, installed

OUT = ROOT / "docs" / "screenshots"
SIZES: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2},
}
MODEL, PROVIDER = "mistral-small", "Own server"
PASSWORD = "for-screenshots-only"
# Pages that are part of another picture, or look like it.
LEFT_OUT = ("context", "context-first", "missing", "project-search", "message-menu")
COLOURS = 256  # of a picture; its file is a third as large, and pages have few colours


def sign_in(browser: Browser, url: str, **options: Any) -> Page:
    page = browser.new_context(reduced_motion="reduce", **options).new_page()
    page.goto(url + "/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url(lambda address: "/login" not in address)
    page.goto(url + "/")  # the first administrator is led to setting up
    page.wait_for_selector(".plan-line")
    return page


def shoot(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    picture = Image.open(BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(OUT / f"{name}.png", optimize=True)


def visit(page: Page, url: str, suffix: str, pages: dict[str, str]) -> None:
    for name, path in pages.items():
        if name in LEFT_OUT:
            continue
        page.goto(url + path)
        if name in ("answer", "run", "summary"):
            page.wait_for_selector(".plan-line")
        if name == "summary":
            page.locator("details.summary > summary").click()
            page.locator("details.summary").evaluate("(row) => row.scrollIntoView({block: 'center'})")
        shoot(page, f"{name}{suffix}")
        if name == "answer":
            page.get_by_role("link", name="What it saw").last.click()
            page.wait_for_selector("#panel-title")
            shoot(page, f"answer-context{suffix}")


def prepared(services: Services) -> tuple[str, str]:
    """Make a model that can call tools and a profile with a small window, as an admin would, and return their ids."""
    work = (
        "from llm.models import Model; from personas.models import BudgetProfile; Model.objects.update(tools=True);"
        f"print(Model.objects.get().pk, BudgetProfile.objects.create(**{PROFILE!r}).pk)"
    )
    environment = {**os.environ, "DATABASE_URL": services.database, "REDIS_URL": services.redis}
    command = [sys.executable, "manage.py", "shell", "-v0", "-c", work]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    model, profile = done.stdout.split()
    return model, profile


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ["ADMIN_PASSWORD"] = PASSWORD
    services = Services()
    try:
        with installed(services.database, services.redis, MODEL, PROVIDER) as (product, caller), chromium() as browser:
            visitors = {suffix: sign_in(browser, product.url, **options) for suffix, options in SIZES.items()}
            for suffix, page in visitors.items():
                shoot(page, f"first-run{suffix}")
            visitors[""].get_by_role("button", name="Dismiss").click()
            say = partial(product.model.set_script, MODEL)
            pages = House(caller, say, *prepared(services)).furnish()
            for suffix, page in visitors.items():
                visit(page, product.url, suffix, pages)
    finally:
        services.end()


if __name__ == "__main__":
    main()
