"""Writing a message and looking at its plan, on a desktop and on a phone.

The tests of one thing at a time (`test_composer.py`, `test_files.py`, `test_inspector.py`, ...) hold the rest.
"""

import re
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import override_settings
from playwright.sync_api import expect

from llm.models import Model
from personas.models import BudgetProfile, Persona
from projects.sample import create_sample_project
from tests.chat.conversations import past
from tests.conftest import Person
from tests.e2e.conftest import (
    Screen,
    answer,
    choose_models,
    expect_complete,
    field,
    in_thread,
    ready,
    who_answers,
)
from tests.e2e.file_steps import carry, chip
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

# Resolves when the browser has told the page which element is under the pointer now.
SCROLLED_BENEATH_THE_POINTER = """() => new Promise((resolve) => {
  addEventListener("pointerover", () => resolve(), { once: true });
  document.querySelector("#transcript").scrollTop -= 100;
})"""


@pytest.fixture
def second_model(product: Product, committed: None) -> str:
    name = product.model.set_script("second", {"text": "From the second."})
    provider = in_thread(lambda: Model.objects.get(name="scripted").provider)
    in_thread(lambda: provider.models.get_or_create(name=name, context_window=64_000))
    return name


@pytest.fixture
def long_conversation(person: Person) -> str:
    """Return the path of a conversation that is longer than its model's window, with two answers with reports."""

    def make() -> str:
        profile = BudgetProfile.objects.create(name=f"small {uuid4().hex[:8]}", window=4_096, summaries=False)
        persona = Persona.objects.create(owner=person.user, name="Brief", budget_profile=profile)
        return str(past(person.user, 12, words=100, persona=persona).pk)

    place = in_thread(make)
    for number in ("First", "Second"):
        turn = person.caller.ask(f"{number} question", {"text": f"{number} answer."}, place)
        person.caller.ended(turn["id"])
    return f"/c/{place}/"


@pytest.fixture
def composer_data(person: Person, second_model: str) -> str:
    """A persona, a saved prompt, a task and a file of the person; returns the code of the task."""
    caller = person.caller
    caller.post("personas/", {"name": "Pirate", "instructions": "Talk like a pirate."}, expect=201)
    caller.post("prompts/", {"name": "Rhyme", "text": "Say it in rhyme."}, expect=201)
    uploaded(caller, "recipe.txt", "Cacao, milk and sugar.")
    return str(caller.post("tasks/", {"title": "Buy cacao", "level": "task"}, expect=201)["code"])


def test_a_message_is_put_together_and_sent(composer_data: str, second_model: str, screen: Screen) -> None:
    page = screen.page
    prompts, things = (page.get_by_role("listbox", name=name) for name in ("Prompts", "Tasks, files and conversations"))
    field(page).press_sequentially("/rhy")
    screen.check(prompts)
    screen.press(prompts.get_by_role("option", name="Rhyme"))
    expect(field(page)).to_have_value("Say it in rhyme.")
    height = field(page).evaluate("each => each.offsetHeight")
    field(page).press("End")
    field(page).press_sequentially(" @caca")
    screen.check(things)
    screen.press(things.get_by_role("option", name="Buy cacao"))
    expect(field(page)).to_have_value(re.compile(f"@{composer_data} $"))
    field(page).press_sequentially("@reci")
    screen.press(things.get_by_role("option", name="recipe.txt"))
    for name in ("dropped.txt", "removed.txt"):
        carry(page, "drop", name, f"words of {name}".encode())
        expect(chip(page, name)).to_have_attribute("data-status", "ready")
    screen.press(page.get_by_role("button", name="Remove removed.txt"))
    expect(page.locator("#chips .chip")).to_have_count(2)
    field(page).fill(field(page).input_value() + "\n" * 8 + "And so on.")
    assert field(page).evaluate("each => each.offsetHeight") > 2 * height
    screen.check(page.locator("#composer"))

    choose_models(page, second_model)
    who_answers(page).get_by_label("Persona").select_option(label="Pirate")
    screen.check(who_answers(page))
    page.keyboard.press("Escape")
    expect(page.locator(".who-opener")).to_contain_text(second_model)
    expect(page.locator("#plan-bar .group-persona")).to_have_count(1)
    screen.press(page.locator(".plan-line"))
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model will see")).to_be_visible()
    for group in ("Instructions", "Persona, project and memory", "Files", "This question"):
        expect(panel.get_by_role("region", name=group)).to_be_visible()
    expect(panel).to_contain_text("dropped.txt")
    screen.check(panel)
    screen.press(panel.get_by_role("button", name="Close the panel"))

    screen.press(page.get_by_role("button", name="Send"))
    question = page.locator("article.question")
    expect(question.get_by_role("link", name=f"@{composer_data}")).to_be_visible()
    expect(question.locator(".chip")).to_have_count(2)
    screen.check(question.locator(".bubble"))
    expect(answer(page).locator(".by")).to_have_text(second_model)
    expect_complete(page)


def test_an_answer_opens_into_what_its_model_saw_and_what_it_did_not(long_conversation: str, screen: Screen) -> None:
    page = screen.page
    screen.go(long_conversation)
    ready(page)
    expect(page.locator(".plan-line")).to_contain_text("left out")
    page.evaluate("document.querySelector('#messages > .more-link')?.scrollIntoView()")  # its sight begins further up
    expect(page.get_by_role("link", name="Earlier messages")).to_have_count(0)
    link = answer(page).get_by_role("link", name="What it saw")
    expect(link).to_contain_text("left out")
    screen.press(link)
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_focused()
    expect(panel.get_by_role("img", name=re.compile(r"\d+ % of the room that messages have"))).to_be_visible()
    expect(panel.get_by_role("region", name="Instructions")).to_contain_text(re.compile(r"\d+ tokens"))
    expect(panel.locator(".fate")).to_contain_text(re.compile(r"\d+ older messages left out: no room"))
    expect(panel.locator(".source[data-state=left_out]").first).to_contain_text("there was no room")
    sight = page.locator("#messages > .sight")
    expect(sight).to_contain_text("The model saw from here on")
    colours = [
        each.evaluate("each => getComputedStyle(each).color")
        for each in (page.locator("#messages > .message").first, answer(page))
    ]
    assert colours[0] != colours[1]
    panel.locator(".source[data-lights]").last.get_by_role("link").focus()
    lit = page.locator(".message.lit")
    expect(lit).to_have_count(1)
    if not screen.phone:
        page.evaluate(SCROLLED_BENEATH_THE_POINTER)
        expect(lit).to_have_count(1)
        page.mouse.move(0, 0)
        expect(lit).to_have_count(0)
    screen.check(panel)
    screen.press(panel.get_by_text("For the curious"))
    screen.press(panel.get_by_text("Changed since the turn before"))
    expect(panel.locator("#panel-changes")).to_contain_text("First answer.")
    screen.press(panel.get_by_text("Show the prompt"))
    expect(panel.locator(".prompt pre").last).to_contain_text("Second question")
    screen.check(panel)


@pytest.fixture
def demo(product: Product, person: Person) -> None:
    """Give the person the project that the first person of a workspace gets."""

    def make() -> None:
        with override_settings(MEDIA_ROOT=Path(product.environment["DATA_DIR"]) / "files"):
            create_sample_project(user=person.user)

    in_thread(make)


def test_the_home_page_leads_to_a_project_to_look_at(demo: None, screen: Screen) -> None:
    page = screen.page
    steps = page.get_by_role("list", name="To begin with")
    expect(steps.get_by_role("link")).to_have_count(3)
    screen.check()
    screen.press(steps.get_by_role("link", name="A look at Glasshouse"))
    expect(page.get_by_role("heading", name="A look at Glasshouse")).to_be_visible()
    expect(page.locator("#entries li[data-status=ready]")).to_have_count(3)
    screen.check()
    ready(page)
    screen.press(page.get_by_role("link", name="What is a window?"))
    expect(field(page)).to_have_value("What is a window?")
    screen.press(page.locator(".plan-line"))
    panel = page.locator("#panel")
    expect(panel).to_contain_text("1-how-glasshouse-decides.md")
    screen.check(panel)
