"""`make screenshots`: every page at both sizes, into docs/screenshots/, from a product set up for the purpose."""

import os
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.product import ROOT, Caller, Product, installed, until
from tests.services import Services

OUT = ROOT / "docs" / "screenshots"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SIZES: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2},
}
MODEL = "scripted:assistant"
PASSWORD = "for-screenshots-only"
CONTRACT = """Service agreement

Clause 5. The provider answers within one working day.

Clause 7. The fee is limited to 500 euros a year; what exceeds it is free of charge.

Clause 9. Either party may end the agreement with a notice of three months.
"""
ANSWER = """The fee is limited by **clause 7** [1]: at most 500 euros a year, and what exceeds it is free of charge.

| clause | rules |
|---|---|
| 5 | answers within one working day |
| 7 | the limit of the fee |
| 9 | three months' notice |

```python
def owed(fee: float) -> float:
    return min(fee, 500.0)
```
"""


def furnish(product: Product, caller: Caller) -> tuple[str, str, str]:
    """A project with a file and a conversation in it; returns their ids as (project, file, conversation)."""
    upload = caller.http.post("files/", files={"file": ("contract.txt", CONTRACT.encode())}).json()["id"]
    until(lambda: caller.get(f"files/{upload}/")["status"] == "ready", "the file has been read")
    body = {"name": "Contracts", "instructions": "Name the clause you rely on. Keep it short."}
    project = caller.post("projects/", body, expect=201)["id"]
    caller.post(f"projects/{project}/files/", {"file": upload, "pinned": True}, expect=201)
    place = caller.post("conversations/", {"project": project}, expect=201)["id"]
    for question, answer in (
        ("Which rules does our service agreement have?", "Five, seven and nine: response time, fee limit, notice [1]."),
        ("Which clause limits the fee?", ANSWER),
    ):
        product.model.set_script("assistant", {"text": answer})
        turn = caller.post(f"conversations/{place}/turns/", {"text": question})
        caller.ended(turn["turns"][0]["id"])
    return project, upload, place


def sign_in(browser: Browser, url: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(url + "/")
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_selector("#text")
    return page


def shoot(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=OUT / f"{name}.png")


def visit(page: Page, url: str, suffix: str, ids: tuple[str, str, str]) -> None:
    project, file, place = ids
    page.wait_for_selector(".plan-line")
    shoot(page, f"home{suffix}")
    page.goto(f"{url}/c/{place}/")
    page.wait_for_selector(".plan-line")
    shoot(page, f"answer{suffix}")
    page.locator(".context-link").last.click()
    page.wait_for_selector("#panel-title")
    shoot(page, f"answer-context{suffix}")
    for path, name in ((f"/projects/{project}/", "project"), ("/files/", "files"), (f"/files/{file}/", "file")):
        page.goto(url + path)
        shoot(page, f"{name}{suffix}")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ["ADMIN_PASSWORD"] = PASSWORD
    services = Services()
    try:
        with installed(services.database, services.redis, MODEL) as (product, caller), sync_playwright() as playwright:
            ids = furnish(product, caller)
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            for suffix, options in SIZES.items():
                visit(sign_in(browser, product.url, **options), product.url, suffix, ids)
            browser.close()
    finally:
        services.end()


if __name__ == "__main__":
    main()
