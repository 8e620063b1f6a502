"""Whole ways through a conversation, each in four looks: desktop and phone, light and dark."""

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from llm.models import Model
from personas.tools import TASKS
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
    status,
    who_answers,
)
from tests.e2e.conversation_steps import model_to_answer_again
from tests.e2e.file_steps import chip, text_file
from tests.e2e.key_steps import FOCUSED, Keys
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

CODE = "def answer(question):\n    return 42  # " + "and a long line of words " * 6 + "\n"
COLUMNS = [f"a rather long column {number}" for number in range(12)]
ALL = f"""# A heading

Some **bold** words.

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
CLAUSE = "Clause 7: the fee is limited to 500 euros a year."
CITED = "The fee is **limited** [1]. What exceeds it is free [1]."
# Notes every length that an answer has while it is being written.
WATCH = """() => {
  const seen = (window.lengths = new Set());
  new MutationObserver(() => {
    const growing = document.querySelector("article.answer[data-status=pending] .prose");
    if (growing) seen.add(growing.textContent.length);
  }).observe(document.getElementById("messages"), { childList: true, subtree: true, characterData: true });
}"""


@pytest.fixture
def helper(product: Product, person: Person) -> str:
    """The path of a conversation whose persona works on tasks, with a model that can."""

    def model() -> str:
        provider = Model.objects.get(name="scripted").provider
        return str(provider.models.get_or_create(name="with tools", context_window=64_000, tools=True)[0].pk)

    person.caller.post("tasks/", {"title": "Buy cacao", "level": "task"}, expect=201)
    body = {"name": "Helper", "instructions": "Help.", "tools": [TASKS], "model": in_thread(model)}
    persona = person.caller.post("personas/", body, expect=201)["id"]
    return f"/c/{person.caller.post('conversations/', {'persona': persona}, expect=201)['id']}/"


@pytest.fixture
def contracts(person: Person) -> str:
    """The path of a conversation in a project with a file whose text is in the prompt."""
    caller = person.caller
    file = uploaded(caller, "contract.txt", CLAUSE)["id"]
    project = caller.post("projects/", {"name": "Contracts"}, expect=201)["id"]
    caller.post(f"projects/{project}/files/", {"file": file, "pinned": True}, expect=201)
    return f"/c/{caller.post('conversations/', {'project': project}, expect=201)['id']}/"


@pytest.fixture
def three(product: Product, committed: None) -> list[str]:
    """Names of models, each with an answer of its own: "From a.", "From b.", "From c."."""
    names = [product.model.set_script(f"journey-{each}", {"text": f"From {each}."}) for each in "abc"]

    def make() -> None:
        provider = Model.objects.get(name="scripted").provider
        for name in names:
            provider.models.get_or_create(name=name, context_window=8192)

    in_thread(make)
    return names


def copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_an_answer_grows_shows_all_it_holds_is_copied_and_judged(screen: Screen, helper: str) -> None:
    page = screen.page
    screen.go(helper)
    ready(page)
    page.evaluate(WATCH)
    thinking = {"reasoning": "First this, then that.", **CALL}
    ask(page, "Show me everything", steps=[thinking, {"text": ALL, "interval": 0.008}])
    expect_complete(page)
    assert page.evaluate("lengths.size") > 2
    expect(status(page)).to_contain_text("Answer complete")

    for fold, inside in ((".thinking", "First this, then that."), (".call details", "Buy cacao")):
        folded = answer(page).locator(fold)
        expect(folded.get_by_text(inside).first).to_be_hidden()
        screen.press(folded.locator("summary"))
        expect(folded.get_by_text(inside).first).to_be_visible()
    expect(answer(page).locator(".call summary")).to_contain_text("done")
    expect(answer(page).locator("math")).to_have_count(2)
    boxes = answer(page).get_by_role("checkbox")
    expect(boxes.nth(0)).to_be_checked()
    expect(boxes.nth(1)).not_to_be_checked()
    for wide in (answer(page).locator(".table"), answer(page).locator(".code pre")):
        assert wide.evaluate("each => each.scrollWidth > each.clientWidth") or not screen.phone  # in itself
    screen.check(answer(page).locator(".code"), answer(page).locator("th").first, page.locator("#composer"))

    screen.press(answer(page).locator(".code").get_by_role("button", name="Copy"))
    expect(answer(page).locator(".code").get_by_role("button", name="Copied")).to_be_visible()
    assert copied(page) == CODE
    screen.press(answer(page).locator("[data-copy-answer]"))
    expect(answer(page).locator("[data-copy-answer]")).to_contain_text("Copied")
    assert copied(page) == ALL

    good = answer(page).get_by_role("button", name="Good answer")
    screen.press(good)
    expect(good).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(good).to_have_attribute("aria-pressed", "true")
    expect(answer(page).locator("math")).to_have_count(2)


def test_a_citation_leads_over_its_card_and_the_panel_to_its_source(screen: Screen, contracts: str) -> None:
    page = screen.page
    screen.go(contracts)
    ready(page)
    ask(page, "Which clause?", text=CITED)
    expect_complete(page)
    citation, card = answer(page).locator(".citation").first, page.locator("#citation-preview")
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

    screen.press(answer(page).get_by_role("link", name="1 source"))
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="Sources of this answer")).to_be_focused()
    expect(panel).to_contain_text(CLAUSE)
    screen.check(panel)
    screen.press(panel.get_by_text("Cited 2 times"))
    screen.press(panel.get_by_role("link", name="The fee is limited [1].").first)
    expect(answer(page)).to_be_focused()
    expect(panel).to_be_visible(visible=not screen.phone)  # there it covers what is quoted
    if screen.phone:
        screen.press(answer(page).get_by_role("link", name="1 source"))
    screen.press(panel.get_by_role("link", name="Those of the whole conversation"))
    expect(panel.get_by_role("heading", name="Sources of this conversation")).to_be_visible()
    screen.press(panel.get_by_role("button", name="Close the panel"))
    expect(panel).to_be_hidden()


def test_an_answer_is_stopped_continued_edited_and_written_again(screen: Screen, three: list[str]) -> None:
    page = screen.page
    page.reload()  # the page knows the models from now on
    ready(page)
    ask(page, "Go on for long", tokens=4_000, interval=0.02)
    for number in (0, 1):
        expect(answer(page, number).locator(".prose")).to_contain_text("t5")
        screen.press(page.get_by_role("button", name="Stop the answer"))
        expect(answer(page, number)).to_have_attribute("data-status", "stopped")
        expect(answer(page, number)).to_contain_text("Stopped. What was written is kept.")
        if number == 0:
            screen.press(answer(page).get_by_role("button", name="Continue"))
            expect(page.get_by_text("You asked to continue.")).to_be_visible()

    question = page.locator("article.question").first
    screen.press(question.get_by_role("link", name="Edit"))
    box = page.get_by_label("Your message, in other words")
    expect(box).to_have_value(re.compile("^Go on for long"))
    screen.check(box)
    box.fill(scripted("Only a word", text="One word."))
    screen.press(page.locator("form.edit").get_by_role("button", name="Send"))
    expect(answer(page)).to_contain_text("One word.")
    expect_complete(page)
    expect(page.locator("article")).to_have_count(2)

    screen.press(answer(page).get_by_role("button", name="Answer again with another model"))
    menu = page.get_by_role("form", name="Answer again with")
    screen.check(menu)
    screen.press(model_to_answer_again(menu, three[1]))
    expect(answer(page)).to_contain_text("From b.")
    expect_complete(page)
    expect(answer(page).locator(".by")).to_have_text(three[1])

    screen.press(answer(page).get_by_role("button", name="Previous version"))
    expect(answer(page)).to_contain_text("One word.")
    expect(answer(page).get_by_role("group", name="Versions")).to_contain_text("1/2")
    screen.press(question.get_by_role("button", name="Previous version"))
    expect(answer(page, 0)).to_contain_text("t5")
    expect(page.locator("article")).to_have_count(4)
    screen.check()


def test_models_answer_side_by_side_and_one_is_gone_on_with(screen: Screen, three: list[str]) -> None:
    page = screen.page
    page.reload()  # the page knows the models from now on
    ready(page)
    choose_models(page, *three)
    screen.check(who_answers(page))
    expect(who_answers(page)).to_contain_text("Three answer at once at most.")
    expect(who_answers(page).get_by_role("checkbox", name="scripted", checked=False).first).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.locator(".who-opener")).to_contain_text("and 2 more")
    ask(page, f"All three {uuid4().hex}")
    columns, tabs = page.locator(".columns article"), page.get_by_role("tab")
    expect(columns).to_have_text([re.compile(f"From {each}") for each in "abc"])
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    if screen.phone:
        expect(tabs).to_have_text(three)
        for shown in (2, 1):
            screen.press(tabs.nth(shown))
            for number in range(3):
                expect(columns.nth(number)).to_be_visible(visible=number == shown)
    else:
        expect(tabs.filter(visible=True)).to_have_count(0)
        places = [each.bounding_box() for each in columns.all()]
        assert len({place["y"] for place in places if place}) == 1
        assert len({place["x"] for place in places if place}) == 3
    screen.check(columns.nth(1))
    screen.press(columns.nth(1).get_by_role("button", name="Go on with this one"))
    expect(columns.nth(1)).to_contain_text("The conversation goes on from here.")
    field(page).fill("Onwards")
    screen.press(page.get_by_role("button", name="Send"))
    expect(page.locator(".columns")).to_have_count(0)
    expect_complete(page)
    expect(answer(page, 0)).to_contain_text("From b.")
    expect(answer(page, 0).get_by_role("group", name="Versions")).to_contain_text("2/3")
    screen.check()


def test_a_conversation_is_led_by_keys_alone(screen: Screen, contracts: str, three: list[str]) -> None:
    page, keys = screen.page, Keys(screen.page)
    caller = screen.visit.person.caller
    uploaded(caller, "annex.txt", "Annex A.")
    caller.post("prompts/", {"name": "Letter", "text": "Write to {{who}}."}, expect=201)
    screen.go(contracts)
    ready(page)
    put_together_by_keys(screen, keys)

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
    asked_elsewhere_by_keys(screen, keys, three[0])
    screen.check()


def put_together_by_keys(screen: Screen, keys: Keys) -> None:
    """A message from a saved prompt that asks for something, with a file."""
    page = screen.page
    if screen.phone:
        keys.to("Your message")
    expect(field(page)).to_be_focused()
    keys.write("/lett")
    expect(page.get_by_role("listbox", name="Prompts").get_by_role("option", name="Letter")).to_be_visible()
    keys.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("who")).to_be_focused()
    keys.write("Lan")
    keys.open("Put into the message")
    expect(field(page)).to_be_focused()
    expect(field(page)).to_have_value("Write to Lan.")

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
    expect(picker.locator(".pick-name")).to_have_text(["memo.txt", "annex.txt", "contract.txt"])
    keys.open("Choose")
    expect(picker.get_by_role("button", name="Chosen")).to_be_disabled()
    keys.press("Escape")
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    expect(page.locator("#chips .chip")).to_have_attribute("data-status", "ready")
    keys.open("Model and persona")
    expect(who_answers(page)).to_be_visible()
    keys.press("Escape")
    expect(page.locator(".who-opener")).to_be_focused()


def read_by_keys(screen: Screen, keys: Keys) -> None:
    """What stands under an answer that cites something."""
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


def asked_elsewhere_by_keys(screen: Screen, keys: Keys, model: str) -> None:
    """Another model goes on, and the conversation leaves its project."""
    page = screen.page
    opener = page.locator(".who-opener")
    keys.open("Model and persona")
    expect(page.locator("#who [data-all-models]")).to_have_count(0)  # of many, all are there
    keys.to("128k")  # the one that is chosen: one place of Tab for all, with arrows from one to the next
    for _ in page.get_by_role("radio").all():
        keys.press("ArrowDown")
        if model in (opener.text_content() or ""):
            break
    keys.press("Escape")
    expect(opener).to_be_focused()
    expect(opener).to_contain_text(model)
    keys.to("Your message", back=True)
    keys.write("And you?")
    keys.open("Send")
    expect(answer(page)).to_contain_text("From a.")
    expect_complete(page)
    keys.open("Options of this conversation", back=True)
    menu = page.locator("#menu")
    expect(menu.get_by_label("Title")).to_be_focused()
    keys.to("Project")
    keys.press("Home")
    expect(menu.get_by_label("Project")).to_have_value("")
    keys.open("Move")
    expect(menu).to_be_hidden()
    keys.open("Options of this conversation", back=True)
    expect(menu.get_by_label("Title")).to_be_focused()
    expect(menu.get_by_label("Project")).to_have_value("")
    keys.press("Escape")
    expect(page.get_by_role("link", name="Options of this conversation")).to_be_focused()
