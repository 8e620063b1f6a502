"""Steps of a person on the pages of tasks."""

from urllib.parse import urljoin

from playwright.sync_api import Locator, Page, expect

DAY = "/tasks/day/2024-11-21/"  # a Thursday in the past, so that no test runs on it


def go(page: Page, path: str = DAY) -> None:
    page.goto(urljoin(page.url, path))
    expect(page.locator("#keys-opener:not([hidden])")).to_have_count(1)  # the script is there


def add(page: Page, *lines: str) -> None:
    for line in lines:
        page.get_by_label("Add a task").fill(line)
        page.get_by_role("button", name="Add", exact=True).last.click()
        expect(page.locator("form.htmx-request")).to_have_count(0)
        expect(announcement(page)).to_contain_text("Added")
        expect(page.get_by_label("Add a task")).to_have_value("")


def row(page: Page, title: str) -> Locator:
    return page.locator("[data-row]").filter(has=page.locator(".row-title", has_text=title)).last


def titles(page: Page) -> list[str]:
    return page.locator(".lines > li > .row-line .row-title").all_inner_texts()


def announcement(page: Page) -> Locator:
    return page.locator("#said")


def selected(page: Page, title: str) -> None:
    expect(row(page, title).locator(".row-title").first).to_be_focused()


def run_of(page: Page) -> Locator:
    return page.locator("section.run")
