"""Steps of a person on the pages of projects."""

from playwright.sync_api import Page, expect

from tests.e2e.file_steps import go_to


def make(page: Page, name: str) -> None:
    go_to(page, "Projects")
    page.get_by_label("Name of a new project").fill(name)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def search(page: Page, query: str) -> None:
    page.get_by_label("Search in the files").fill(query)
    page.get_by_role("button", name="Search").click()


def unfold(page: Page, part: str) -> None:
    """Open a part of the project's page that may be folded."""
    fold = page.locator("details.place-part", has=page.get_by_role("heading", name=part, exact=True))
    if fold.get_attribute("open") is None:
        fold.locator(":scope > summary").click()
