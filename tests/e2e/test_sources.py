"""Citations in the browser: the card at a number, the panel of sources, and the text copied as it was written."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from llm.models import Model
from readers.tests.samples import pdf
from tests.conftest import Person
from tests.e2e.conftest import PHONE, OpenBrowser, answer, ask, expect_complete, field, ready
from tests.product import until

pytestmark = [pytest.mark.browser, pytest.mark.product]

CLAUSE = "Clause 7: the fee is limited to 500 euros a year."
ANSWER = "The fee is **limited** [1]. What exceeds it is free [1]."


@pytest.fixture
def place(person: Person) -> Iterator[str]:
    """Yield the path of a conversation in a project with a file whose text is in the prompt."""
    caller = person.caller
    file = caller.http.post("files/", files={"file": ("contract.txt", CLAUSE.encode())}).json()["id"]
    until(lambda: caller.get(f"files/{file}/")["status"] == "ready", "the file has been read")
    project = caller.post("projects/", {"name": "Contracts"}, expect=201)["id"]
    caller.post(f"projects/{project}/files/", {"file": file, "pinned": True}, expect=201)
    yield f"/c/{caller.post('conversations/', {'project': project}, expect=201)['id']}/"


def cited(page: Page, person: Person, place: str) -> None:
    page.goto(person.caller.url + place)
    ready(page)
    ask(page, "Which clause?", text=ANSWER)
    expect_complete(page)
    expect(answer(page)).to_contain_text("What exceeds it is free")
    expect(answer(page).locator(".citation")).to_have_count(2)


@pytest.mark.smoke
def test_a_citation_shows_its_source_to_whoever_points_or_tabs_to_it(page: Page, person: Person, place: str) -> None:
    cited(page, person, place)
    card = page.locator("#citation-preview")
    first = answer(page).locator(".citation").first
    first.hover()
    expect(card).to_be_visible()
    expect(card).to_contain_text(CLAUSE)
    expect(card.get_by_role("link", name="contract.txt")).to_have_attribute("href", re.compile("^/files/"))
    expect(first).to_have_attribute("aria-describedby", "citation-preview")
    field(page).hover()
    expect(card).to_be_hidden()
    page.locator("#transcript").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.citation')"):
            break
    expect(card).to_be_visible()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(first).to_have_attribute("title", "contract.txt")
    first.click()  # no new tab: the panel, at the passage
    source = page.locator("#panel #source-1")
    expect(source).to_be_focused()
    expect(source).to_contain_text(CLAUSE)
    expect(source).to_have_attribute("aria-current", "true")


def test_a_sentence_that_its_passage_does_not_carry_is_shown_beside_it(page: Page, person: Person, place: str) -> None:
    page.goto(person.caller.url + place)
    ready(page)
    ask(page, "Which clause?", text="By clause 7 the fee is limited to 900 euros a year [1].")
    expect_complete(page)
    answer(page).locator(".doubt").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="Sentence and passage")).to_be_focused()
    expect(panel).to_contain_text("The passage does not have the number “900” for this.")
    expect(panel).to_contain_text(CLAUSE)


def test_the_panel_lists_the_sources_and_where_they_are_cited(page: Page, person: Person, place: str) -> None:
    cited(page, person, place)
    answer(page).get_by_role("link", name="1 source").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="Sources of this answer")).to_be_focused()
    expect(panel).to_contain_text(CLAUSE)
    panel.get_by_text("Cited 2 times").click()
    panel.get_by_role("link", name="The fee is limited [1].").first.click()
    expect(answer(page)).to_be_focused()
    panel.get_by_role("link", name="Context").click()
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_visible()
    expect(panel.get_by_role("link", name="Context")).to_be_focused()
    panel.get_by_role("link", name="Sources", exact=True).click()
    panel.get_by_role("link", name="Those of the whole conversation").click()
    expect(panel.get_by_role("heading", name="Sources of this conversation")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_a_source_opens_from_the_panel_without_scripts(visit: OpenBrowser, person: Person, place: str) -> None:
    page = visit(java_script_enabled=False).sign_in()
    page.goto(person.caller.url + place)
    ask(page, "Which clause?", text=ANSWER)
    while answer(page).get_attribute("data-status") == "pending":
        page.reload()
    answer(page).get_by_role("link", name="1 source").click()
    expect(page.get_by_role("heading", name="Sources of this answer")).to_be_visible()
    page.get_by_text("Cited 2 times").click()
    page.get_by_role("link", name="The fee is limited [1].").first.click()
    expect(answer(page)).to_contain_text("The fee is limited")


def test_on_a_phone_a_tap_shows_the_card_and_its_title_opens_the_source(
    visit: OpenBrowser, person: Person, place: str
) -> None:
    opened = visit(viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark")
    page = opened.sign_in()
    cited(page, person, place)
    answer(page).locator(".citation").first.tap()
    card = page.locator("#citation-preview")
    expect(card).to_contain_text(CLAUSE)
    box = card.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    with opened.context.expect_page() as source:
        card.get_by_role("link", name="contract.txt").tap()
    expect(source.value.get_by_role("heading", name="contract.txt")).to_be_visible()
    answer(page).get_by_role("link", name="1 source").tap()
    expect(page.locator("#panel")).to_contain_text(CLAUSE)


def test_an_answer_is_copied_as_markdown(visit: OpenBrowser, person: Person, place: str) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"]).sign_in()
    cited(page, person, place)
    answer(page).get_by_role("button", name="Copy").click()
    expect(answer(page).get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == ANSWER


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


def report() -> bytes:
    """Return a PDF of five pages, each about a day."""
    return pdf(
        [
            "\n".join(
                f"On {day} crane {number} lifted {number * 7} containers at berth {number}." for number in range(1, 30)
            )
            for day in DAYS
        ]
    )


def test_a_citation_opens_card_panel_and_page_at_its_sentence(page: Page, person: Person, model: Model) -> None:
    caller = person.caller
    file = caller.http.post("files/", files={"file": ("report.pdf", report())}).json()["id"]
    until(lambda: caller.get(f"files/{file}/")["searchable"], "the file can be searched")
    project = caller.post("projects/", {"name": "Harbour"}, expect=201)["id"]
    caller.post(f"projects/{project}/files/", {"file": file}, expect=201)
    place = caller.post("conversations/", {"project": project}, expect=201)["id"]
    search = {
        "name": "search_files",
        "arguments": {"query": "crane 23", "variants": [f"{day} crane 23" for day in DAYS]},
    }
    sentence = "On Thursday crane 23 lifted 161 containers at berth 23."
    text = f"On Tuesday crane 23 lifted 161 containers [1]. {sentence.removesuffix('.')} [1]."
    page.goto(f"{caller.url}/c/{place}/")
    ready(page)
    ask(page, "Which?", steps=[{"tool_calls": [search]}, {"text": text}])
    expect_complete(page)
    second = answer(page).locator(".citation").nth(1)
    expect(second).to_have_attribute("data-place", re.compile(r"^\d+\.1$"))
    second.hover()
    card = page.locator("#citation-preview")
    expect(card.locator("mark")).to_have_text(sentence)
    expect(card).to_contain_text("page 4")
    second.click()
    panel = page.locator("#panel #source-1")
    expect(panel.locator("mark")).to_have_text(sentence)
    with page.expect_popup() as opened:
        panel.get_by_role("link", name="report.pdf").click()
    source = opened.value
    expect(source.locator("#page-4 mark#passage")).to_have_text(sentence)
    expect(source.locator("#passage")).to_be_in_viewport()
    expect(source.locator("mark.around").first).to_be_attached()
