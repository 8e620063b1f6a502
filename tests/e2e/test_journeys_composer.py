"""Whole ways through writing a message and looking at what was sent, each in four looks."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import override_settings
from playwright.sync_api import expect

from config.management.commands.seed import Command
from llm.models import Model
from personas.models import BudgetProfile, Persona
from tests.chat.conversations import past
from tests.conftest import Person
from tests.e2e.conftest import (
    Screen,
    answer,
    ask,
    choose_models,
    expect_complete,
    field,
    in_thread,
    ready,
    scripted,
    who_answers,
)
from tests.e2e.file_steps import attach, carry, chip, text_file
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

# Ends when the browser has told the page what lies under the pointer now.
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
def crowded(person: Person) -> str:
    """The path of a conversation that its model's window does not hold."""

    def make() -> str:
        name = f"crowded {uuid4().hex[:8]}"
        profile = BudgetProfile.objects.create(name=name, window=4_096, summaries=False)
        persona = Persona.objects.create(owner=person.user, name="Brief", budget_profile=profile)
        return f"/c/{past(person.user, 12, words=100, persona=persona).pk}/"

    return in_thread(make)


@dataclass(frozen=True)
class Desk:
    """What somebody has at hand who writes a message: ids, the code of a task, the name of a second model."""

    persona: str
    task: str
    model: str


@pytest.fixture
def desk(person: Person, second_model: str) -> Desk:
    caller = person.caller
    persona = caller.post("personas/", {"name": "Pirate", "instructions": "Talk like a pirate."}, expect=201)
    caller.post("prompts/", {"name": "Rhyme", "text": "Say it in rhyme."}, expect=201)
    task = caller.post("tasks/", {"title": "Buy cacao", "level": "task"}, expect=201)
    uploaded(caller, "recipe.txt", "Cacao, milk and sugar.")
    return Desk(persona["id"], task["code"], second_model)


def fill_the_field(screen: Screen, desk: Desk) -> None:
    """With a saved prompt, a task and a file that were offered, and many lines."""
    page = screen.page
    prompts, things = (page.get_by_role("listbox", name=name) for name in ("Prompts", "Tasks and files"))
    field(page).press_sequentially("/rhy")
    screen.check(prompts)
    screen.press(prompts.get_by_role("option", name="Rhyme"))
    expect(field(page)).to_have_value("Say it in rhyme.")
    height = field(page).evaluate("each => each.offsetHeight")
    field(page).press("End")
    field(page).press_sequentially(" @caca")
    screen.check(things)
    screen.press(things.get_by_role("option", name="Buy cacao"))
    expect(field(page)).to_have_value(re.compile(f"@{desk.task} $"))
    field(page).press_sequentially("@reci")
    screen.press(things.get_by_role("option", name="recipe.txt"))
    expect(chip(page, "recipe.txt")).to_have_attribute("data-status", "ready")
    field(page).fill(field(page).input_value() + "\n" * 8 + "And so on.")
    assert field(page).evaluate("each => each.offsetHeight") > 2 * height


def test_a_message_is_put_together_and_sent(screen: Screen, desk: Desk) -> None:
    page = screen.page
    fill_the_field(screen, desk)
    carry(page, "drop", "dropped.txt", b"some words")
    carry(page, "paste", "pasted.txt", b"other words")
    attach(page, text_file("chosen.txt", "more words"))
    for name in ("dropped.txt", "pasted.txt", "chosen.txt"):
        expect(chip(page, name)).to_have_attribute("data-status", "ready")
    screen.press(page.get_by_role("button", name="Remove pasted.txt"))
    expect(page.locator("#chips .chip")).to_have_count(3)
    screen.check(page.locator("#composer"))
    draft = field(page).input_value()
    page.reload()
    expect(field(page)).to_have_value(draft)
    expect(page.locator("#chips .chip")).to_have_count(3)

    choose_models(page, desk.model)
    who_answers(page).get_by_label("Persona").select_option(desk.persona)
    screen.check(who_answers(page))
    page.keyboard.press("Escape")
    expect(page.locator(".who-opener")).to_contain_text(desk.model)
    expect(page.locator("#plan-bar .group-persona")).to_have_count(1)
    screen.press(page.locator(".plan-line"))
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model will see")).to_be_visible()
    for group in ("Instructions", "Persona and project", "Files", "This question"):
        expect(panel.get_by_role("region", name=group)).to_be_visible()
    expect(panel).to_contain_text("chosen.txt")
    screen.check(panel)
    screen.press(panel.get_by_role("button", name="Close the panel"))

    screen.press(page.get_by_role("button", name="Send"))
    expect(answer(page)).to_contain_text("From the second.")
    expect_complete(page)
    expect(answer(page).locator(".by")).to_have_text(desk.model)
    question = page.locator("article.question")
    expect(question.get_by_role("link", name=f"@{desk.task}")).to_be_visible()
    expect(question.locator(".chip")).to_have_count(3)
    expect(field(page)).to_have_value("")
    screen.check(question.locator(".bubble"))


def test_an_answer_opens_into_what_its_model_saw_and_what_it_did_not(screen: Screen, crowded: str) -> None:
    page = screen.page
    screen.go(crowded)
    ready(page)
    expect(page.locator(".plan-line")).to_contain_text("left out")
    ask(page, "First question", text="First answer.")
    expect_complete(page)
    ask(page, "Second question", text="Second answer.")
    expect(answer(page)).to_contain_text("Second answer.")
    expect_complete(page)
    page.evaluate("document.querySelector('#messages > .more-link')?.scrollIntoView()")  # its sight begins further up
    expect(page.get_by_role("link", name="Earlier messages")).to_have_count(0)
    link = answer(page).get_by_role("link", name="What it saw")
    expect(link).to_contain_text("left out")
    screen.press(link)
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_focused()
    expect(panel.get_by_role("img", name=re.compile(r"\d+ % of what the model can read at once"))).to_be_visible()
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
    prompt = panel.locator(".prompt pre")
    expect(prompt.first).to_contain_text("You are being tested.")
    expect(prompt.last).to_contain_text("Second question")
    screen.check(panel)
    with screen.visit.context.expect_page() as raw:
        screen.press(panel.get_by_role("link", name="The report as JSON"))
    raw.value.wait_for_load_state()
    assert json.loads(raw.value.locator("body").inner_text())["sections"]["system"]
    raw.value.close()
    screen.press(panel.get_by_role("button", name="Close the panel"))
    expect(panel).to_be_hidden()


@pytest.fixture
def demo(product: Product, person: Person) -> None:
    """The person has what the first one of a workspace gets."""

    def make() -> None:
        with override_settings(MEDIA_ROOT=Path(product.environment["DATA_DIR"]) / "files"):
            Command().demo_project(person.user)

    in_thread(make)


@pytest.mark.usefixtures("demo")
def test_who_begins_sees_what_to_do_and_a_project_to_look_at(screen: Screen) -> None:
    page = screen.page
    ready(page)
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    steps = page.get_by_role("list", name="To begin with")
    expect(steps.get_by_role("link")).to_have_count(4)
    screen.check()
    screen.press(steps.get_by_role("link", name="Ask something"))
    expect(field(page)).to_have_value(re.compile("^Explain in three sentences"))
    field(page).fill("")

    screen.press(steps.get_by_role("link", name="A look at Glasshouse"))
    expect(page.get_by_role("heading", name="A look at Glasshouse")).to_be_visible()
    expect(page.locator("#entries tbody tr[data-status=ready]")).to_have_count(3)
    screen.check()
    screen.press(page.locator("main").get_by_role("link", name="New conversation"))
    ready(page)
    screen.press(page.get_by_role("link", name="What is a window?"))
    expect(field(page)).to_have_value("What is a window?")
    field(page).fill(scripted("What is a window?", text="It holds what is sent [1]."))
    screen.press(page.get_by_role("button", name="Send"))
    expect_complete(page)
    screen.press(answer(page).get_by_role("link", name="What it saw"))
    panel = page.locator("#panel")
    expect(panel).to_contain_text("1-how-glasshouse-decides.md")
    screen.check(panel)
    screen.press(panel.get_by_role("button", name="Close the panel"))
    screen.press(screen.side().get_by_role("link", name="New conversation"))
    expect(field(page)).to_be_visible()
    expect(steps).to_have_count(0)
