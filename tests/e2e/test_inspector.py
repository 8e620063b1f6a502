"""The report of an answer, call by call, and the tools and thoughts of a growing answer."""

import json

import pytest
from playwright.sync_api import Page, expect

from llm.models import Model
from personas.tools import TASK_TOOLS
from tests.conftest import Person
from tests.e2e.conftest import PHONE, OpenBrowser, answer, ask, expect_complete, field, ready
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

CALL = {"tool_calls": [{"name": "list_tasks", "arguments": {}}]}
BAD = {"tool_calls": [{"name": "no_such_tool", "arguments": {}}]}


@pytest.fixture
def place(product: Product, person: Person, model: Model) -> str:
    """Return the address of a conversation whose persona works on tasks, with a model that can call tools."""
    body = {"name": "Helper", "instructions": "Help.", "tools": [TASK_TOOLS]}
    persona = person.caller.post("personas/", body, expect=201)["id"]
    return f"{product.url}/c/{person.caller.post('conversations/', {'persona': persona}, expect=201)['id']}/"


def test_every_call_of_a_turn_can_be_looked_at(page: Page, place: str) -> None:
    page.goto(place)
    ready(page)
    ask(page, "What is there to do?", steps=[CALL, {"text": "Nothing."}])
    expect_complete(page)
    answer(page).get_by_role("link", name="What it saw").click()
    panel = page.locator("#panel")
    calls = panel.get_by_role("navigation", name="Model calls of this turn").get_by_role("link")
    panel.get_by_text("For the curious").click()
    expect(calls).to_have_count(2)
    expect(calls.nth(1)).to_have_attribute("aria-current", "true")
    expect(panel.get_by_text("Changed since the call before")).to_be_visible()
    expect(panel.locator(".curious")).to_contain_text("list_tasks")
    panel.get_by_text("Show the prompt").click()
    expect(panel.locator(".prompt h4", has_text="tool")).to_have_count(1)
    calls.nth(0).click()
    expect(calls.nth(0)).to_have_attribute("aria-current", "true")
    expect(panel.locator(".prompt pre").last).to_contain_text("What is there to do?")
    expect(panel.locator(".prompt h4", has_text="tool")).to_have_count(0)
    expect(panel.get_by_text("The model's window")).to_be_visible()
    expect(panel).to_contain_text("Definitions of tools")


def test_the_report_opens_as_json(visit: OpenBrowser, person: Person) -> None:
    opened = visit()
    page = opened.sign_in()
    ask(page, "One", text="First answer.")
    expect_complete(page)
    answer(page).get_by_role("link", name="What it saw").click()
    with opened.context.expect_page() as raw:
        page.get_by_text("For the curious").click()
        page.get_by_role("link", name="The report as JSON").click()
    raw.value.wait_for_load_state()
    report = json.loads(raw.value.locator("body").inner_text())
    assert report["cycle"] == 1
    assert report["messages"]


def test_the_plan_and_the_answer_show_the_same_number(page: Page, place: str) -> None:
    page.goto(place)
    ready(page)
    field(page).fill("How many?")
    page.locator(".plan-line").click()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model will see")).to_be_visible()
    planned = panel.locator(".figures").inner_text()
    page.locator("[data-close-panel]").click()
    page.get_by_role("button", name="Send").click()
    expect_complete(page)
    answer(page).get_by_role("link", name="What it saw").click()
    expect(panel.locator(".figures")).to_have_text(planned, use_inner_text=True)


def test_calls_and_thoughts_say_how_they_stand(page: Page, place: str) -> None:
    page.goto(place)
    ready(page)
    thinking = {"reasoning": "First this, then that. " * 10, "interval": 0.05, **CALL}
    ask(page, "Think, call, fail", steps=[thinking, BAD, {"text": "Done."}])
    expect(answer(page).locator(".thinking[data-state=running] > summary")).to_contain_text("at work…")
    expect_complete(page)
    calls = answer(page).locator(".call summary")
    expect(calls.nth(0)).to_contain_text("done")
    expect(calls.nth(1)).to_contain_text("failed")
    expect(answer(page).locator(".thinking > summary").get_by_text("at work…")).to_be_hidden()
    states = answer(page).locator("[data-state]").evaluate_all("all => all.map(each => each.dataset.state)")
    page.reload()
    assert answer(page).locator("[data-state]").evaluate_all("all => all.map(each => each.dataset.state)") == states


def test_on_a_phone_the_panel_is_a_sheet_of_the_whole_width(visit: OpenBrowser) -> None:
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark").sign_in()
    ask(page, "One", text="First answer.")
    expect_complete(page)
    answer(page).get_by_role("link", name="What it saw").tap()
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_visible()
    box = panel.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] == PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    panel.get_by_role("button", name="Close the panel").tap()
    expect(panel).to_be_hidden()
