"""A person creates a persona, sees its size, and talks to it, in a browser."""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, ready, who_answers
from tests.e2e.file_steps import go_to, overflow
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]


def make(page: Page, name: str, instructions: str, **fields: str) -> None:
    """Fill the form of a new persona. `fields` are the texts by label, with _ for a space."""
    go_to(page, "Personas")
    page.get_by_role("link", name="New persona").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Instructions", exact=True).fill(instructions)
    for part in page.locator("details.form-part:not([open]) > summary").all():
        part.click()
    for label, text in fields.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(text)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def tried(page: Page, message: str) -> None:
    page.get_by_label("A sample message").fill(message)
    page.get_by_role("button", name="Preview its prompt").click()
    expect(page.locator("#tried .context")).to_contain_text(message)


def test_the_count_follows_what_is_written(page: Page) -> None:
    go_to(page, "Personas")
    page.get_by_role("link", name="New persona").click()
    count = page.locator("#count")
    expect(count).to_contain_text("≈ 0 tokens")
    page.get_by_label("Instructions", exact=True).fill("word " * 500)
    expect(count).to_contain_text("≈ 500 tokens · under 1 % of what scripted can read at once")
    page.get_by_label("Instructions", exact=True).fill("One")
    expect(count).to_contain_text("≈ 1 token ·")


def test_what_is_tried_is_what_the_model_then_gets(product: Product, page: Page) -> None:
    mark = uuid4().hex
    make(page, "Pirate", f"Talk like {mark}.", Reminder="Say ahoy.", Starter_messages="Where is the ship?\nWho sails?")
    tried(page, "Where is the gold?")
    panel = page.locator("#tried")
    expect(panel.get_by_role("region", name="Persona, project and memory")).to_contain_text(re.compile(r"\d+ tokens"))
    panel.get_by_text("For the curious").click()
    panel.get_by_text("Show the prompt").click()
    shown = panel.locator("pre").all_inner_texts()
    page.get_by_role("link", name="Start a conversation with it").click()
    ready(page)
    expect(page.locator(".who-opener")).to_contain_text("Pirate")
    expect(who_answers(page).get_by_label("Persona")).to_have_value(re.compile("-"))
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Who sails?").click()
    expect(field(page)).to_be_focused()
    expect(field(page)).to_have_value("Who sails?")
    page.get_by_role("link", name="Where is the ship?").click()
    expect(field(page)).to_have_value("Where is the ship?")
    field(page).fill("Where is the gold?")
    page.get_by_role("button", name="Send").click()
    expect_complete(page)
    expect(page.locator("[data-starter]")).to_have_count(0)
    sent = [message["content"] for message in product.model.finished(mark)[0].body["messages"]]
    assert "\n".join(sent).split() == "\n".join(shown).split()
    assert f"# Persona “Pirate”\nTalk like {mark}." in sent
    assert sent[-1].endswith("Say ahoy.")


def test_in_the_system_prompts_place_means_that_it_is_not_sent(product: Product, page: Page) -> None:
    mark = uuid4().hex
    make(page, "Monk", f"Say only {mark}.")
    tried(page, "Speak")
    expect(page.locator("#tried")).to_contain_text("You are being tested.")
    page.get_by_text("Fine tuning").click()
    page.get_by_label("In place of the workspace's instructions").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("version 2", exact=True)).to_be_visible()
    expect(page.get_by_label("In place of the workspace's instructions")).to_be_checked()
    tried(page, "Speak")
    expect(page.locator("#tried")).not_to_contain_text("You are being tested.")
    page.get_by_role("link", name="Start a conversation with it").click()
    ready(page)
    ask(page, "Speak")
    expect_complete(page)
    messages = product.model.finished(mark)[0].body["messages"]
    assert messages[0]["content"].startswith(f"Say only {mark}.")
    assert not any("You are being tested." in message["content"] for message in messages)


@pytest.mark.smoke
def test_choosing_another_persona_changes_what_it_offers(page: Page) -> None:
    make(page, "Cook", "Cook.", Starter_messages="What is for dinner?")
    make(page, "Sailor", "Sail.", Starter_messages="How is the wind?", Description="Knows the sea.")
    page.get_by_role("link", name="Start a conversation with it").click()
    ready(page)
    expect(page.get_by_text("Knows the sea.")).to_be_visible()
    field(page).fill("Tell me:")
    who_answers(page).get_by_label("Persona").select_option(label="Cook")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="How is the wind?")).to_have_count(0)
    page.get_by_role("link", name="What is for dinner?").click()
    expect(field(page)).to_have_value("Tell me:\nWhat is for dinner?")
    who_answers(page).get_by_label("Persona").select_option(label="No persona")
    expect(page.get_by_role("link", name="What is for dinner?")).to_have_count(0)
    expect(page.locator("[data-starter]")).to_have_count(4)  # the workspace's suggestions


def test_a_persona_is_shared_copied_and_deleted_after_a_question(page: Page) -> None:
    make(page, f"Guide {uuid4().hex[:6]}", "Guide.")
    page.get_by_label("Everyone in the workspace").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("version 2", exact=True)).to_be_visible()
    page.get_by_role("button", name="Duplicate").click()
    expect(page.get_by_role("heading", name="Copy of Guide")).to_be_visible()
    expect(page.get_by_label("Only me")).to_be_checked()
    page.get_by_role("link", name="Start a conversation with it").click()
    ready(page)
    ask(page, "Hello", text="Good day.")
    expect_complete(page)
    go_to(page, "Personas")
    page.get_by_role("link", name=re.compile("^Copy of Guide")).click()
    page.get_by_role("link", name="Delete…").click()
    expect(page.get_by_text("1 conversation uses it")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Personas")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("^Copy of Guide"))).to_have_count(0)


def test_who_saves_over_somebody_elses_change_keeps_what_was_written(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected += ["412 (Precondition Failed)"]
    make(page, "Draft", "First.")
    other = opened.tab(page.url.removeprefix(opened.product.url))
    other.get_by_label("Instructions", exact=True).fill("Theirs.")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_text("version 2", exact=True)).to_be_visible()
    page.get_by_label("Instructions", exact=True).fill("Mine.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody saved version 2 while you were writing")
    expect(page.get_by_label("Instructions", exact=True)).to_have_value("Mine.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("version 3", exact=True)).to_be_visible()


def test_personas_work_without_scripts(product: Product, visit: OpenBrowser) -> None:
    mark = uuid4().hex
    page = visit(java_script_enabled=False).sign_in()
    make(page, "Plain", f"Be {mark}.", Starter_messages="How plain?")
    page.get_by_label("A sample message").fill("Tell me")
    page.get_by_role("button", name="Preview its prompt").click()
    expect(page.get_by_role("heading", name="What the model will see")).to_be_visible()
    page.get_by_role("link", name="Plain").click()
    page.get_by_role("link", name="Start a conversation with it").click()
    page.get_by_role("link", name="How plain?").click()
    expect(field(page)).to_have_value("How plain?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("article.question")).to_contain_text("How plain?")
    while answer(page).get_attribute("data-status") == "pending":
        page.reload()
    assert f"# Persona “Plain”\nBe {mark}." in [
        message["content"] for message in product.model.finished(mark)[0].body["messages"]
    ]


def test_a_persona_is_made_tried_and_talked_to_on_a_phone(product: Product, phone: Page) -> None:
    mark = uuid4().hex
    phone.get_by_role("button", name="Conversations").click()
    name = "A-name-without-any-place-to-break-it" * 2
    make(phone, name, f"Talk like {mark}. " + "x" * 200, Starter_messages="A-starter-without-a-place-to-break-it" * 3)
    assert overflow(phone) == 0
    tried(phone, "y" * 60)
    assert overflow(phone) == 0
    phone.get_by_role("link", name="Start a conversation with it").tap()
    ready(phone)
    phone.get_by_role("link", name="A-starter").tap()
    expect(field(phone)).to_have_value(re.compile("^A-starter"))
    assert overflow(phone) == 0
    phone.get_by_role("button", name="Send").tap()
    expect_complete(phone)
    assert product.model.finished(mark)
