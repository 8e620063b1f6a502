"""Steps of a person with files."""

import base64
import re
from typing import Any

from playwright.sync_api import FilePayload, Locator, Page, expect

CARRY = """([kind, name, base, place]) => {
  const carried = new DataTransfer();
  const bytes = Uint8Array.from(atob(base), (each) => each.charCodeAt(0));
  carried.items.add(new File([bytes], name));
  const event = kind === "drop"
    ? new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true})
    : new ClipboardEvent("paste", {clipboardData: carried, bubbles: true, cancelable: true});
  document.querySelector(place).dispatchEvent(event);
}"""


def text_file(name: str, text: str) -> FilePayload:
    return FilePayload(name=name, mimeType="text/plain", buffer=text.encode())


def carry(page: Page, kind: str, name: str, content: bytes, place: str = "main") -> None:
    """Drops a file on a place of the page or pastes it."""
    page.evaluate(CARRY, [kind, name, base64.b64encode(content).decode(), place])


def choose(page: Page, *files: FilePayload) -> None:
    expect(page.get_by_text(re.compile("Drop (or paste )?files"))).to_be_visible()  # the script is there
    page.locator("#upload-files").set_input_files(list(files))


def row(page: Page, name: str) -> Locator:
    return page.locator("tbody tr, .place-files li").filter(has_text=name)


def chip(page: Page, name: str) -> Locator:
    return page.locator("#chips .chip").filter(has_text=name)


def attach(page: Page, *files: FilePayload) -> None:
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()  # the script is there
    page.locator("#attach-files").set_input_files(list(files))


def send_button(page: Page) -> Locator:
    return page.get_by_role("button", name="Send")


def go_to(page: Page, place: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=place).click()


def overflow(page: Page) -> Any:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
