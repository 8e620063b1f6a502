"""Conversations on a desktop and on a phone: the parts of an answer, its menus, and the way by keys alone.

The tests of one thing at a time (`test_branches.py`, `test_conversation.py`, `test_sources.py`, ...) hold what the
controls do. Conversations are made through the API, so that a browser only visits them.
"""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from llm.models import Model
from personas.tools import TASK_TOOLS
from tests.conftest import Person
from tests.e2e.axe_steps import violations
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
from tests.e2e.file_steps import chip, text_file
from tests.e2e.key_steps import FOCUSED, Keys
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

CODE = "def answer(question):\n    return 42  # " + "and a long line of words " * 6 + "\n"
COLUMNS = [f"a rather long column {number}" for number in range(12)]
CLAUSE = "Clause 7: the fee is limited to 500 euros a year."
CITED = "The fee is **limited** [1]. What exceeds it is free [1]."
ALL = f"""# A heading

{CITED}

```python
{CODE}```

| {" | ".join(COLUMNS)} |
|{"---|" * len(COLUMNS)}
| {" | ".join(COLUMNS)} |

It is $E = mc^2$.

$$\\frac{{1}}{{2}}$$

- [x] done
- [ ] open"""
CALL = {"tool_calls": [{"name": "list_tasks", "arguments": {}}]}


@pytest.fixture
def contracts(person: Person) -> str:
    """Return the id of a project with a file whose text is in the prompt."""
    caller = person.caller
    file = uploaded(caller, "contract.txt", CLAUSE)["id"]
    project = str(caller.post("projects/", {"name": "Contracts"}, expect=201)["id"])
    caller.post(f"projects/{project}/files/", {"file": file, "pinned": True}, expect=201)
    return project


@pytest.fixture
def answered(product: Product, person: Person, contracts: str) -> str:
    """The path of a conversation with an answer of all kinds of content."""

    def model() -> str:
        provider = Model.objects.get(name="scripted").provider
        return str(provider.models.get_or_create(name="with tools", context_window=64_000, tools=True)[0].pk)

    caller = person.caller
    caller.post("tasks/", {"title": "Buy cacao", "level": "task"}, expect=201)
    body = {"name": "Helper", "instructions": "Help.", "tools": [TASK_TOOLS], "model": in_thread(model)}
    persona = caller.post("personas/", body, expect=201)["id"]
    place = caller.post("conversations/", {"persona": persona, "project": contracts}, expect=201)["id"]
    thinking = {"reasoning": "First this, then that.", **CALL}
    caller.ended(caller.ask("Show me everything", {"steps": [thinking, {"text": ALL}]}, place)["id"])
    return f"/c/{place}/"


@pytest.fixture
def three(product: Product, committed: None) -> list[str]:
    """Return names of models with different answers: "From a.", "From b.", "From c."."""
    names = [product.model.set_script(f"journey-{each}", {"text": f"From {each}."}) for each in "abc"]

    def make() -> None:
        provider = Model.objects.get(name="scripted").provider
        for name in names:
            provider.models.get_or_create(name=name, context_window=8192)

    in_thread(make)
    return names


def test_an_answer_and_all_that_opens_on_it_fit(answered: str, screen: Screen) -> None:
    page = screen.page
    screen.go(answered)
    ready(page)
    shown = answer(page)
    for fold, inside in ((".thinking", "First this, then that."), (".call details", "Buy cacao")):
        folded = shown.locator(fold)
        expect(folded.get_by_text(inside).first).to_be_hidden()
        screen.press(folded.locator("summary"))
        expect(folded.get_by_text(inside).first).to_be_visible()
    expect(shown.locator("math")).to_have_count(2)
    for wide in (shown.locator(".table"), shown.locator(".code pre")):
        assert wide.evaluate("each => each.scrollWidth > each.clientWidth") or not screen.phone  # in itself
    screen.check(shown.locator(".code"), shown.locator("th").first, page.locator("#composer"))
    good = shown.get_by_role("button", name="Good answer")
    screen.press(good)
    expect(good).to_have_attribute("aria-pressed", "true")

    screen.press(page.locator("article.question").first.get_by_role("link", name="Edit"))
    screen.check(page.get_by_label("Your message, in other words"))
    screen.press(page.get_by_role("link", name="Cancel"))
    screen.press(shown.get_by_role("button", name="Answer again with another model"))
    screen.check(page.get_by_role("form", name="Answer again with"))
    page.keyboard.press("Escape")
    sources_open(screen)
    stopped_and_continued(screen)


def sources_open(screen: Screen) -> None:
    """The card of a citation and the panel of sources."""
    page, shown = screen.page, answer(screen.page)
    citation, card = shown.locator(".citation").first, page.locator("#citation-preview")
    if screen.phone:
        citation.tap()
    else:
        citation.hover()
    expect(card).to_contain_text(CLAUSE)
    expect(card).to_be_in_viewport(ratio=1)
    screen.check(card)
    with screen.visit.context.expect_page() as source:
        screen.press(card.get_by_role("link", name="contract.txt"))
    expect(source.value.locator("main")).to_contain_text(CLAUSE)
    source.value.close()
    screen.press(shown.get_by_role("link", name="1 source"))
    panel = page.locator("#panel")
    expect(panel).to_contain_text(CLAUSE)
    screen.check(panel)
    screen.press(panel.get_by_text("Cited 2 times"))
    screen.press(panel.get_by_role("link", name="The fee is limited [1].").first)
    expect(shown).to_be_focused()
    expect(panel).to_be_visible(visible=not screen.phone)  # on a phone it would cover what is quoted


def stopped_and_continued(screen: Screen) -> None:
    page = screen.page
    field(page).fill(scripted("Go on for long", tokens=4_000, interval=0.02))
    screen.press(page.get_by_role("button", name="Send"))
    for number in (1, 2):
        expect(answer(page, number).locator(".prose")).to_contain_text("t5")
        screen.press(page.get_by_role("button", name="Stop the answer"))
        expect(answer(page, number)).to_contain_text("Stopped. The text so far is kept.")
        screen.check()
        if number == 1:
            screen.press(answer(page).get_by_role("button", name="Continue"))
            expect(page.get_by_text("You asked to continue.")).to_be_visible()


def test_answers_side_by_side_fit(three: list[str], screen: Screen) -> None:
    page = screen.page
    choose_models(page, *three)
    expect(who_answers(page)).to_contain_text("Three answer at once at most.")
    expect(who_answers(page).get_by_role("checkbox", name="scripted", checked=False).first).to_be_disabled()
    screen.check(who_answers(page))
    page.keyboard.press("Escape")
    expect(page.locator(".who-opener")).to_contain_text("and 2 more")
    ask(page, f"All three {uuid4().hex}")
    columns, tabs = page.locator(".columns article"), page.get_by_role("tab")
    expect(columns).to_have_text([re.compile(f"From {each}") for each in "abc"])
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    if screen.phone:
        screen.press(tabs.nth(1))
    else:
        expect(tabs.filter(visible=True)).to_have_count(0)
        places = [each.bounding_box() for each in columns.all()]
        assert len({place["x"] for place in places if place}) == 3
    screen.check(columns.nth(1))
    screen.press(columns.nth(1).get_by_role("button", name="Go on with this one"))
    expect(columns.nth(1)).to_contain_text("The conversation goes on from here.")
    field(page).fill("Onwards")
    screen.press(page.get_by_role("button", name="Send"))
    expect(page.locator(".columns")).to_have_count(0)
    expect_complete(page)
    versions = answer(page, 0).get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/3")
    screen.check()
    screen.press(versions.get_by_role("button", name="Previous version"))
    expect(answer(page, 0)).to_contain_text("From a.")


def test_a_conversation_is_led_by_keys_alone(contracts: str, three: list[str], screen: Screen) -> None:
    page, keys, caller = screen.page, Keys(screen.page), screen.visit.person.caller
    place = caller.post("conversations/", {"project": contracts}, expect=201)["id"]
    screen.go(f"/c/{place}/")
    ready(page)
    attached_by_keys(screen, keys)

    keys.to("Your message", back=True)
    keys.press("Control+a")
    keys.write(scripted("Go on for long", tokens=4_000, interval=0.02))
    keys.open("Send")
    expect(answer(page).locator(".prose")).to_contain_text("t5")
    if screen.phone:
        keys.to("Your message")
    keys.open("Stop the answer")
    expect(answer(page)).to_have_attribute("data-status", "stopped")
    keys.open("Continue", back=True)
    expect(answer(page)).to_be_focused()
    expect(answer(page).locator(".prose")).to_contain_text("t5")
    keys.press("Escape")
    expect(answer(page)).to_have_attribute("data-status", "stopped")

    keys.open("Edit", back=True)  # of the first question; the one that asks to go on has none
    expect(page.get_by_label("Your message, in other words")).to_be_focused()
    keys.open("Cancel")
    expect(page.locator("[data-edit-question]")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_label("Your message, in other words")).to_be_focused()
    keys.press("Control+a")
    keys.write(scripted("Which clause?", text=CITED))
    keys.open("Send")
    expect(answer(page)).to_contain_text("The fee is limited")
    expect_complete(page)
    read_by_keys(screen, keys)
    moved_by_keys(screen, keys)
    screen.check()


def attached_by_keys(screen: Screen, keys: Keys) -> None:
    """A file of the machine is attached and removed, and the sheet of models opened and left."""
    page = screen.page
    if screen.phone:
        keys.to("Your message")
    expect(field(page)).to_be_focused()
    keys.open("Attach files")
    with page.expect_file_chooser() as chooser:
        keys.open("Upload…")
    chooser.value.set_files([text_file("memo.txt", "A memo.")])
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    expect(chip(page, "memo.txt")).to_have_attribute("data-status", "ready")
    keys.open("Remove memo.txt", back=True)
    expect(chip(page, "memo.txt")).to_have_count(0)
    keys.open("Attach files")
    keys.open("From your files…")
    picker = page.get_by_role("dialog", name="Choose from your files")
    expect(picker.get_by_label("Search your files")).to_be_focused()
    expect(picker.locator(".pick-name")).to_have_text(["memo.txt", "contract.txt"])
    keys.open("Choose")
    expect(picker.get_by_role("button", name="Chosen")).to_be_disabled()
    keys.press("Escape")
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    keys.open("Model and persona")
    expect(who_answers(page)).to_be_visible()
    keys.press("Escape")
    expect(page.locator(".who-opener")).to_be_focused()


def read_by_keys(screen: Screen, keys: Keys) -> None:
    """Open the citations and the report under an answer by keys."""
    page, panel = screen.page, screen.page.locator("#panel")
    page.locator(".answer").last.focus()
    keys.open("1")
    expect(panel.locator("#source-1")).to_be_focused()
    keys.press("Escape")
    expect(panel).to_be_hidden()
    assert page.evaluate(FOCUSED), "the focus is where it was before"
    keys.open("What the model saw")
    expect(panel.get_by_role("heading", name="What the model saw")).to_be_focused()
    keys.open("Leave out: Which clause?")
    expect(panel.get_by_role("button", name="Bring back: Which clause?")).to_be_focused()
    keys.press("Enter")
    expect(panel.get_by_role("button", name="Pin: Which clause?")).to_be_focused()
    assert violations(page) == []
    keys.press("Escape")
    expect(answer(page).get_by_role("link", name="What it saw")).to_be_focused()
    question, menu = page.locator("article.question").last, page.locator("#message-menu")
    keys.open("Options of this message", back=True)  # of the question
    expect(menu.get_by_role("button", name="Always send this to the model")).to_be_focused()
    keys.press("Enter")
    expect(question).to_contain_text("Always sent")
    expect(question.get_by_role("link", name="Options of this message")).to_be_focused()
    keys.open("Undo", back=True)
    expect(question).not_to_contain_text("Always sent")
    assert page.evaluate(FOCUSED), "the focus is somewhere"
    keys.open("Answer again with another model")
    expect(page.get_by_role("form", name="Answer again with").get_by_role("button").first).to_be_focused()
    keys.press("Escape")
    expect(answer(page).get_by_role("button", name="Answer again with another model")).to_be_focused()


def moved_by_keys(screen: Screen, keys: Keys) -> None:
    """The conversation leaves its project."""
    page, menu = screen.page, screen.page.locator("#menu")
    opener = page.get_by_role("link", name="Options of this conversation")
    keys.open("Options of this conversation", back=True)
    expect(menu.get_by_label("Title")).to_be_focused()
    keys.open("Project")
    keys.open("In no project")
    expect(menu).to_be_hidden()
    keys.open("Options of this conversation", back=True)
    expect(menu.get_by_label("Title")).to_be_focused()
    keys.open("Project")
    expect(menu.get_by_role("button", name="In no project")).to_have_attribute("aria-current", "true")
    keys.press("Escape")
    expect(opener).to_be_focused()
