"""Blocks of answers beside the conversation, and what a shared page draws of them."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete

pytestmark = [pytest.mark.browser, pytest.mark.product]

AWAY = "https://leads-away.example/?d=SECRET"
PAGE = f"""<!doctype html><html><head><title>Offer</title>
<meta http-equiv="refresh" content="0;url={AWAY}"><link rel="dns-prefetch" href="{AWAY}">
<style>h1 {{ color: rgb(1, 2, 3) }}</style></head>
<body class="warm" onload="parent.hacked = 1"><h1>An offer</h1><p>Text <a href="{AWAY}">a link</a></p>
<form action="{AWAY}"><input value="typed"><button>Go</button></form><img src="{AWAY}">
<script>parent.hacked = 1; document.title = "ran"; location = "{AWAY}"</script></body></html>"""
TABLE = 'name,price\n"Boat, small",12\n"Said ""yes""",7\n'
FLOW = "flowchart LR\n  A[Ask] --> B[Answer]"


def block(language: str, source: str) -> str:
    return f"```{language}\n{source}\n```"


def open_preview(page: Page, number: int = -1, at: int = -1) -> None:
    answer(page, number).get_by_role("button", name="Preview").nth(at).click()
    expect(page.locator("#panel .block-preview")).to_be_visible()


def test_a_page_is_shown_still_and_reaches_nothing(visit: OpenBrowser) -> None:
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    opened.expected.append("Content Security Policy")  # which the frame is tried against
    page = opened.sign_in()
    ask(page, "Make a page", text=block("html", PAGE))
    expect_complete(page)
    open_preview(page)
    frame = page.locator("#panel iframe")
    expect(frame).to_have_attribute("sandbox", "allow-scripts")
    inside = frame.content_frame
    expect(inside.get_by_role("heading", name="An offer")).to_have_css("color", "rgb(1, 2, 3)")
    expect(inside.locator("body")).to_have_class("warm")
    expect(inside.locator("input")).to_have_value("typed")
    assert inside.locator("a, form, script, meta[http-equiv], link, [onload], [src], [href]").count() == 0
    inside.get_by_text("a link").click()
    inside.get_by_role("button", name="Go").click()
    handle = page.frames[-1]
    assert handle.evaluate("[origin, document.title]") == ["null", "Offer"]
    assert handle.evaluate("fetch('/').then(() => 'asked', () => 'refused')") == "refused"
    assert handle.evaluate("() => { try { return typeof localStorage } catch { return 'refused' } }") == "refused"
    assert page.evaluate("window.hacked") is None
    assert len(page.context.pages) == 1
    page.locator("#panel").get_by_role("button", name="Copy").click()
    expect(page.locator("#panel").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").strip() == PAGE
    with page.expect_download() as download:
        page.locator("#panel").get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "preview.html"
    assert Path(download.value.path()).read_text().strip() == PAGE


def test_tables_documents_pictures_and_diagrams_have_versions_and_a_full_size(page: Page) -> None:
    picture = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="3"/></svg>'
    blocks = [
        block("csv", TABLE),
        block("svg", picture),
        block("markdown", "# Plan\n\n**bold**"),
        block("mermaid", FLOW),
    ]
    ask(page, "Make all", text="\n\n".join([*blocks, block("python", "print()")]))
    expect_complete(page)
    expect(answer(page).get_by_role("button", name="Preview")).to_have_count(4)
    ask(page, "Once more", text=block("csv", "name,price\nRaft,3\n"))
    expect_complete(page)
    open_preview(page)
    panel = page.locator("#panel")
    expect(panel.get_by_text("Version 2 of 2")).to_be_visible()
    expect(panel.locator("iframe").content_frame.get_by_role("cell", name="Raft")).to_be_visible()
    panel.get_by_role("button", name="Earlier version").click()
    expect(panel.get_by_text("Version 1 of 2")).to_be_visible()
    cells = panel.locator("iframe").content_frame.locator("td")
    expect(cells).to_have_text(["Boat, small", "12", 'Said "yes"', "7"])
    narrow = panel.bounding_box()
    panel.get_by_role("button", name="Full size").click()
    expect(panel.get_by_role("button", name="Full size")).to_have_attribute("aria-pressed", "true")
    wide = panel.bounding_box()
    assert narrow and wide and narrow["width"] < wide["width"] == 1280
    panel.get_by_role("button", name="Close the panel").click()
    open_preview(page, 0, 1)
    expect(panel.locator("iframe").content_frame.locator("svg circle")).to_be_visible()
    open_preview(page, 0, 2)
    expect(panel.locator(".prose strong")).to_have_text("bold")
    open_preview(page, 0, 3)
    expect(panel.locator("iframe").content_frame.locator("svg")).to_contain_text("Ask")


def test_a_shared_page_draws_diagrams_and_shows_wide_tables(page: Page, visit: OpenBrowser) -> None:
    head = "| " + " | ".join(f"a long heading {number}" for number in range(12)) + " |"
    table = f"{head}\n|{'---|' * 12}\n{head}"
    ask(page, "Draw", text=f"{block('mermaid', FLOW)}\n\n{table}")
    expect_complete(page)
    place = re.search(r"/c/([0-9a-f-]+)/", page.url)
    assert place
    page.goto(page.url.rstrip("/") + "/share/")
    page.get_by_role("button", name="Make a link").click()
    address = page.get_by_label("Link", exact=True).input_value()
    stranger = visit().page
    stranger.goto(address)
    expect(stranger.locator("iframe").content_frame.locator("svg")).to_contain_text("Ask")
    text, wide = stranger.locator(".part.prose").bounding_box(), stranger.locator(".table").bounding_box()
    assert text and wide and wide["width"] > text["width"]
    assert stranger.evaluate("document.documentElement.scrollWidth <= innerWidth")
