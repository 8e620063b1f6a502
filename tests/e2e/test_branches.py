"""Branches in the browser: edited questions, versions, answers side by side, deleting, titles; also without scripts."""

import re

import pytest
from playwright.sync_api import Page, expect

from llm.models import Model
from tests.e2e.conftest import (
    OpenBrowser,
    answer,
    ask,
    choose_models,
    expect_complete,
    field,
    in_thread,
    ready,
    scripted,
)
from tests.e2e.conversation_steps import act, model_to_answer_again
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]


@pytest.fixture
def three_models(product: Product, committed: None) -> list[str]:
    names = [product.model.set_script(f"column-{each}", {"text": f"From {each}."}) for each in "abc"]

    def make() -> None:
        provider = Model.objects.get(name="scripted").provider
        for name in names:
            provider.models.get_or_create(name=name, context_window=8192)

    in_thread(make)
    return names


def side_by_side(page: Page, names: list[str], question: str) -> None:
    choose_models(page, *names)
    page.keyboard.press("Escape")
    ask(page, question)
    expect(page.get_by_role("button", name="Send")).to_be_visible()


@pytest.mark.smoke
def test_a_question_is_edited_in_its_place_and_the_old_one_is_a_click_away(page: Page) -> None:
    ask(page, "First words", text="First answer.")
    expect_complete(page)
    page.get_by_role("link", name="Edit").click()
    box = page.get_by_label("Your message, in other words")
    expect(box).to_be_focused()
    expect(box).to_have_value(re.compile("^First words"))
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator("article.question")).to_contain_text("First words")
    page.get_by_role("link", name="Edit").click()
    box.fill(scripted("Second words", text="Second answer."))
    page.locator("form.edit").get_by_role("button", name="Send").click()
    expect(answer(page)).to_contain_text("Second answer.")
    expect_complete(page)
    expect(page.locator("article")).to_have_count(2)
    versions = page.locator("article.question").get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")
    versions.get_by_role("button", name="Previous version").click()
    expect(answer(page)).to_contain_text("First answer.")
    expect(versions).to_contain_text("1/2")


def test_an_answer_is_written_anew_by_hand_and_the_conversation_copied(page: Page) -> None:
    ask(page, "How many?", text="Nine.")
    expect_complete(page)
    act(answer(page), "Edit this answer")
    box = page.get_by_label("The answer, in your words")
    expect(box).to_be_focused()
    expect(box).to_have_value("Nine.")
    box.press("Escape")
    expect(answer(page)).to_contain_text("Nine.")
    act(answer(page), "Edit this answer")
    box.fill("Twelve.")
    page.get_by_role("button", name="Save as a version").click()
    expect(answer(page)).to_contain_text("edited by you")
    expect(answer(page)).to_contain_text("Twelve.")
    expect(answer(page).get_by_role("group", name="Versions")).to_contain_text("2/2")
    place = page.url.partition("#")[0].partition("?")[0]
    act(answer(page), "Go on in a new conversation")
    expect(page.get_by_text("Copied from")).to_be_visible()
    assert not page.url.startswith(place)
    expect(answer(page)).to_contain_text("Twelve.")
    page.get_by_text("Copied from").get_by_role("link").click()
    page.wait_for_url(f"{place}*")


def test_an_answer_is_made_anew_beside_the_old_one(page: Page) -> None:
    ask(page, "Again", text="The answer.")
    expect_complete(page)
    first = answer(page).get_attribute("id")
    answer(page).get_by_role("button", name="Regenerate").click()
    expect(page.locator(f"article.answer:not(#{first})")).to_have_count(1)
    expect_complete(page)
    expect(answer(page).get_by_role("group", name="Versions")).to_contain_text("2/2")
    answer(page).get_by_role("button", name="Previous version").click()
    expect(answer(page)).to_have_id(str(first))


def test_three_models_answer_side_by_side_and_one_is_gone_on_with(three_models: list[str], page: Page) -> None:
    ask(page, "Before", text="Before.")
    expect_complete(page)
    side_by_side(page, three_models, "All three")
    columns = page.locator(".columns article")
    expect(columns).to_have_text([re.compile(f"From {each}") for each in "abc"])
    tops = columns.evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")
    assert tops[0] == tops[1] == tops[2]
    expect(columns.nth(0)).to_contain_text("The conversation goes on from here.")
    columns.nth(1).get_by_role("button", name="Go on with this one").click()
    expect(columns.nth(1)).to_contain_text("The conversation goes on from here.")
    ask(page, "Onwards", text="Further.")
    expect(page.locator(".columns")).to_have_count(0)
    expect_complete(page)
    expect(answer(page, 1)).to_contain_text("From b.")
    expect(answer(page, 1).get_by_role("group", name="Versions")).to_contain_text("2/3")
    order = page.locator("article").evaluate_all("all => all.map(each => each.id)")
    page.reload()
    assert page.locator("article").evaluate_all("all => all.map(each => each.id)") == order


def test_on_a_phone_answers_side_by_side_are_tabs(three_models: list[str], phone: Page) -> None:
    side_by_side(phone, three_models, "All three")
    columns = phone.locator(".columns article")
    expect(columns).to_have_count(3)
    tabs = phone.get_by_role("tab")
    expect(tabs).to_have_text(three_models)
    expect(tabs.first).to_have_attribute("aria-selected", "true")
    for shown in (0, 2, 1):
        tabs.nth(shown).click()
        for number in range(3):
            expect(columns.nth(number)).to_be_visible(visible=number == shown)
    tabs.nth(1).press("ArrowRight")
    expect(tabs.nth(2)).to_be_focused()
    expect(columns.nth(2)).to_be_visible()
    assert phone.locator("#transcript").evaluate("each => each.scrollWidth <= each.clientWidth")


def test_an_answer_is_made_anew_by_another_model(three_models: list[str], page: Page) -> None:
    page.reload()  # the page knows the new models from now on
    ready(page)
    ask(page, "Again", text="The answer.")
    expect_complete(page)
    answer(page).get_by_role("button", name="Answer again with another model").click()
    menu = page.get_by_role("form", name="Answer again with")
    expect(menu.get_by_role("button").first).to_be_focused()
    model_to_answer_again(menu, three_models[1]).click()
    expect(answer(page)).to_contain_text("From b.")
    expect_complete(page)
    expect(answer(page).get_by_role("group", name="Versions")).to_contain_text("2/2")
    expect(answer(page).locator(".by")).to_have_text(three_models[1])


def test_a_stopped_answer_is_continued(page: Page) -> None:
    ask(page, "Go on for long", tokens=2_000, interval=0.05)
    expect(answer(page)).to_contain_text("t5")
    page.get_by_role("button", name="Stop the answer").click()
    answer(page).get_by_role("button", name="Continue").click()
    expect(page.get_by_text("You asked to continue.")).to_be_visible()
    expect(answer(page, 1)).to_contain_text("t5")
    page.get_by_role("button", name="Stop the answer").click()
    expect(answer(page, 1)).to_have_attribute("data-status", "stopped")


def test_an_answer_is_asked_for_again_in_short(page: Page) -> None:
    ask(page, "Tell me all of it", text="A long story with many words.")
    expect_complete(page)
    act(answer(page), "Shorten")
    expect(page.locator("article.question").last).to_contain_text("in at most half of its length")
    expect(page.locator("article.answer")).to_have_count(2)
    expect_complete(page)
    expect(answer(page, 0)).to_contain_text("A long story with many words.")


def test_deleting_says_what_went_and_is_taken_back(page: Page) -> None:
    ask(page, "One", text="First answer.")
    expect_complete(page)
    ask(page, "Two", text="Second answer.")
    expect_complete(page)
    act(page.locator("article.question").first, "Delete")
    expect(page.get_by_text("Deleted: 2 messages and their answers.")).to_be_visible()
    expect(page.locator("article")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("article")).to_have_count(4)
    act(page.locator("article.question").nth(1), "Delete")
    expect(page.get_by_text("Deleted: 1 message and its answers.")).to_be_visible()
    expect(page.locator("article")).to_have_count(2)
    act(answer(page), "Delete")
    expect(page.get_by_text("Deleted: this answer.")).to_be_visible()
    page.get_by_role("button", name="Answer this").click()
    expect(answer(page)).to_contain_text("First answer.")


def leave_reason(page: Page) -> None:
    """Close the question why an answer is good or bad."""
    expect(page.locator(".why-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".why-dialog")).to_be_hidden()


def test_an_answer_is_judged_and_the_judgement_taken_back(page: Page) -> None:
    ask(page, "One", text="First answer.")
    expect_complete(page)
    good, bad = (answer(page).get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    leave_reason(page)
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "true")
    expect(good).to_have_attribute("aria-pressed", "false")
    leave_reason(page)
    page.reload()
    expect(bad).to_have_attribute("aria-pressed", "true")
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "false")


def test_the_models_title_comes_to_the_open_page(page: Page) -> None:
    ask(page, "What is it about?", text="Storage.", title="Storage design", interval=0.05)
    expect(page.get_by_role("heading", name="Storage design")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Storage design", exact=True)).to_be_visible()
    expect(page).to_have_title(re.compile("Storage design · Glasshouse$"))


def test_editing_switching_and_deleting_need_no_scripts(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()

    def settle() -> None:
        while answer(page).get_attribute("data-status") == "pending":
            page.reload()

    ask(page, "First words", text="First answer.")
    settle()
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_role("heading", name="Edit your message")).to_be_visible()
    page.get_by_label("Your message, in other words").fill(scripted("Second words", text="Second answer."))
    page.get_by_role("button", name="Send").click()
    settle()
    expect(answer(page)).to_contain_text("Second answer.")
    page.get_by_role("button", name="Previous version").click()
    expect(answer(page)).to_contain_text("First answer.")
    page.get_by_role("button", name="Good answer").click()
    expect(page.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "true")
    act(page.locator("article.question"), "Delete")
    expect(answer(page)).to_contain_text("Second answer.")
    expect(field(page)).to_be_visible()
