"""Pictures of the pages of the law office."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, FilePayload, Page, ViewportSize

from tests.product import ROOT

OUT = ROOT / "docs" / "pictures"
QUALITY = 80  # of WebP: text stays sharp
SCALE = 2  # device pixels for each pixel of a page
WAIT = 30_000  # milliseconds
DESK: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
ATTACHED = ("Lease Nordhafen 14.pdf", "Expert opinion Nyberg.pdf", "Temperatures October.xlsx")
OFFERED = "How long was zone 4 too warm, and whose sensors count?"


@dataclass(frozen=True)
class Visitor:
    """A browser of the office's lawyer."""

    browser: Browser
    url: str
    username: str
    password: str

    def sign_in(
        self,
        viewport: ViewportSize = DESK,
        color_scheme: Literal["light", "dark"] = "light",
        scale: float = SCALE,
        has_touch: bool = False,
    ) -> Page:
        context = self.browser.new_context(
            viewport=viewport,
            color_scheme=color_scheme,
            device_scale_factor=scale,
            has_touch=has_touch,
            is_mobile=has_touch,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="Europe/Berlin",
        )
        context.set_default_timeout(WAIT)
        page = context.new_page()
        page.goto(self.url + "/")
        page.fill("[name=username]", self.username)
        page.fill("[name=password]", self.password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda address: "/login" not in address)
        page.goto(self.url + "/")  # the first administrator is led to setting up
        page.wait_for_selector(".plan-line")
        return page


def open_report(page: Page) -> None:
    page.get_by_role("link", name="What it saw").last.click()
    page.wait_for_selector("#panel-title")


def open_plan(page: Page) -> None:
    page.locator("textarea[name=text]").fill("Write the claim letter, with every amount and its evidence.")
    page.wait_for_load_state("networkidle")
    page.locator(".plan-line").click()
    page.wait_for_selector("#panel-title")


def open_summary(page: Page) -> None:
    page.locator("details.summary > summary").click()
    page.locator("details.summary").evaluate("row => row.scrollIntoView({block: 'center'})")


def open_doubt(page: Page) -> None:
    doubt = page.locator(".doubt").first
    doubt.evaluate("sign => sign.scrollIntoView({block: 'center'})")
    doubt.click()
    page.get_by_role("heading", name="Sentence and passage").wait_for()


def open_citation(page: Page) -> None:
    address = page.locator(".citation").first.get_attribute("href")
    assert address
    page.goto(re.sub(r"^/", page.url.partition("/readings")[0] + "/", address))
    page.locator("#" + address.partition("#")[2]).evaluate("place => place.scrollIntoView({block: 'start'})")


def choose_who_answers(page: Page) -> None:
    page.locator(".who-opener").click()
    page.locator("[data-compare]").check()
    for name in ("mistral-medium", "claude-sonnet-4-5"):
        page.locator("#who label").filter(has_text=name).first.click()


def open_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("lease", delay=60)
    page.locator(".palette-row").first.wait_for()
    page.wait_for_timeout(800)


def fill_link(page: Page) -> None:
    page.locator("select[name=days]").select_option(index=2)
    page.locator("input[name=password]").fill("Kaistrasse-2026")
    page.locator("input[name=shows_context]").check()


def nothing(page: Page) -> None:
    """Show the page as it opens."""


@dataclass(frozen=True)
class GuidePicture:
    """`page` is a key of the office's paths, or a path. `prepare` acts on the page before the picture is taken."""

    name: str
    page: str
    prepare: Callable[[Page], None] = nothing
    device: Literal["desk", "dark", "phone", "dark-phone"] = "desk"


PICTURES = (
    GuidePicture("answer-and-what-the-model-saw", "case", open_report),
    GuidePicture("citation-that-is-not-confirmed", "case", open_doubt),
    GuidePicture("citation-on-its-page", "reading", open_citation),
    GuidePicture("line-and-summary", "summarised", open_summary),
    GuidePicture("models-side-by-side", "compared"),
    GuidePicture("who-answers", "/", choose_who_answers),
    GuidePicture("palette", "case", open_palette),
    GuidePicture("project", "project"),
    GuidePicture("question-over-whole-files", "reading"),
    GuidePicture("personas", "personas"),
    GuidePicture("persona-shared", "persona-shares"),
    GuidePicture("tasks-of-a-day", "tasks"),
    GuidePicture("run-that-waits", "run"),
    GuidePicture("share-by-a-link", "case-share", fill_link),
    GuidePicture("my-usage", "usage"),
    GuidePicture("admin-overview", "/admin/"),
    GuidePicture("admin-prompt-texts", "/admin/personas/prompttext/"),
    GuidePicture("admin-model", "admin-model"),
    GuidePicture("admin-audit", "/admin/audit/entry/"),
    GuidePicture("plan-of-a-question", "case", open_plan),
    GuidePicture("conversation-dark", "case", device="dark"),
    GuidePicture("conversation-phone", "case", device="phone"),
    GuidePicture("plan-phone", "case", open_plan, device="dark-phone"),
)


def save(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.save(OUT / f"{name}.webp", quality=QUALITY, method=6)


def take_offers(page: Page, files: dict[str, bytes]) -> None:
    """Attach more than the model can read, and show what the plan offers."""
    page.locator("textarea[name=text]").fill(OFFERED)
    kind = "application/octet-stream"
    attached: list[FilePayload] = [{"name": name, "mimeType": kind, "buffer": files[name]} for name in ATTACHED]
    page.locator("#attach-files").set_input_files(attached)
    page.locator(".plan-line.danger").wait_for()
    page.locator(".plan-line").click()
    page.wait_for_selector("#panel-title")
    save(page, "plan-with-offers")


def take(visitor: Visitor, paths: dict[str, str], files: dict[str, bytes]) -> None:
    """Write all pictures of pages."""
    pages = {
        "desk": visitor.sign_in(),
        "dark": visitor.sign_in(color_scheme="dark"),
        "phone": visitor.sign_in(PHONE, has_touch=True),
        "dark-phone": visitor.sign_in(PHONE, "dark", has_touch=True),
    }
    pages["desk"].get_by_role("button", name="Dismiss").click()
    pages["desk"].wait_for_load_state("networkidle")
    for picture in PICTURES:
        page = pages[picture.device]
        page.goto(visitor.url + paths.get(picture.page, picture.page))
        page.wait_for_load_state("networkidle")
        picture.prepare(page)
        save(page, picture.name)
    pages["desk"].goto(visitor.url + "/")
    take_offers(pages["desk"], files)
