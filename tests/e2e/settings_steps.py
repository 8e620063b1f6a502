"""Steps of a person between the pages of settings."""

from playwright.sync_api import Locator, Page

GROUPS = ("You", "Security", "Programs")


def settings_link(page: Page, name: str) -> Locator:
    """Return the link to a page of settings. On a phone its group is opened first."""
    places = page.get_by_role("navigation", name="Settings")
    link = places.locator("li").get_by_role("link", name=name)
    for group in GROUPS:
        if link.count():
            break
        places.get_by_role("link", name=group, exact=True).click()
        page.wait_for_load_state()
    return link
