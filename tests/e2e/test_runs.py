"""Runs and mentions in a browser: on the task's page, in the conversation, with the keyboard, and without scripts."""

import re

import pytest
from playwright.sync_api import Page, expect

from chat.models import Conversation
from llm.models import Model
from tests.chat.conversations import past
from tests.chat.runs.working import DONE, SAID, Work, drafting, script, with_items, work
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, answer, field, in_thread, ready
from tests.e2e.task_steps import run_of
from tests.product import Product
from tests.projects.uploads import uploaded

pytestmark = [pytest.mark.browser, pytest.mark.product]

OK = script(*DONE)
ASK = script({"tool_calls": [{"name": "ask_user", "arguments": {"question": "Which colour?"}}]}, SAID)


@pytest.mark.smoke
def test_a_hybrid_task_is_drafted_started_confirmed_and_done_on_its_page(
    page: Page, person: Person, product: Product, model: Model
) -> None:
    checklist = work(person, product, model, "hybrid", drafting(OK, OK, at1="the invoice"))
    page.goto(f"{product.url}/tasks/{checklist.task['id']}/")
    page.get_by_role("button", name="Have the model do it").click()
    run = run_of(page)
    expect(run.locator(".run-status")).to_have_text("Ready to start")
    expect(run.locator(".run-items > li")).to_have_count(2)
    run.get_by_role("button", name="Start").click()
    expect(run.locator(".run-status")).to_have_text("Waiting for you")
    expect(run).to_contain_text("needs: the invoice")
    run.get_by_label("Your answer, if one is needed").fill("Number 4711.")
    run.get_by_role("button", name="Confirm and go on").click()
    expect(run.locator(".run-status")).to_have_text("Done")
    expect(run.locator(".run-items > li.done")).to_have_count(2)
    run.locator(".run-items > li").nth(1).get_by_role("link", name="answer").click()
    expect(page.locator("article.question").last).to_contain_text("Number 4711.")
    expect(page.locator("article.question").last.locator("a.mention")).to_have_text(re.compile(r"^@D.*\.C02$"))


def test_a_run_that_waits_says_so_in_the_conversation_and_its_tab_and_the_composer_answers(
    page: Page, person: Person, product: Product, model: Model
) -> None:
    checklist = with_items(work(person, product, model), [ASK, OK])
    run = checklist.begin()
    checklist.until(run["id"], "waiting")
    page.goto(f"{product.url}/c/{run['conversation']}/")
    ready(page)
    expect(run_of(page)).to_contain_text("Which colour?")
    expect(page).to_have_title(re.compile(r"^\(waiting\) Work"))
    person.caller.http.patch(f"tasks/{checklist.items()[0]['id']}/", json={"title": OK})
    field(page).fill("Blue.")
    page.get_by_role("button", name="Send").click()
    checklist.until(run["id"], "done")
    expect(run_of(page).locator(".run-status")).to_have_text("Done")
    expect(answer(page)).to_have_attribute("data-status", "done")
    expect(page).to_have_title(re.compile(r"^(?!\(waiting\))"))
    expect(page.locator("article.answer")).to_have_count(3)


def test_a_run_works_without_scripts(visit: OpenBrowser, person: Person, product: Product, model: Model) -> None:
    checklist = with_items(work(person, product, model), [ASK])
    page = visit(java_script_enabled=False).sign_in()
    page.goto(f"{product.url}/tasks/{checklist.task['id']}/run/")
    page.get_by_role("button", name="Have the model do it").click()
    [run] = person.caller.get("runs/")["results"]
    checklist.until(run["id"], "waiting")
    page.reload()
    expect(page).to_have_title(re.compile(r"^\(waiting\)"))
    person.caller.http.patch(f"tasks/{checklist.items()[0]['id']}/", json={"title": OK})
    page.get_by_label("Your answer").fill("Blue.")
    page.get_by_role("button", name="Answer and go on").click()
    checklist.until(run["id"], "done")
    page.reload()
    expect(page.locator(".run-status")).to_have_text("Done")


def test_a_run_is_stopped_and_tried_again(page: Page, person: Person, product: Product, model: Model) -> None:
    checklist: Work = with_items(work(person, product, model), [script({"tokens": 4_000, "interval": 0.02})])
    checklist.begin()
    page.goto(f"{product.url}/tasks/{checklist.task['id']}/")
    run = run_of(page)
    run.get_by_role("button", name="Stop").click()
    expect(run.locator(".run-status")).to_have_text("Stopped")
    person.caller.http.patch(f"tasks/{checklist.items()[0]['id']}/", json={"title": OK})
    run.get_by_role("button", name="Try again").click()
    expect(run.locator(".run-status")).to_have_text("Done")


def test_what_is_meant_by_an_at_sign_is_chosen_with_the_keyboard(page: Page, person: Person, product: Product) -> None:
    task = person.caller.post("tasks/", {"title": "Read the mail", "level": "task"}, expect=201)
    person.caller.post("tasks/", {"title": "Write the mail", "level": "task"}, expect=201)
    uploaded(person.caller, "mailing.txt", "Names.")
    field(page).press_sequentially("About @ma")
    options = page.locator("#mentions").get_by_role("option")
    expect(options).to_have_count(3)
    expect(options.first).to_have_attribute("aria-selected", "true")
    field(page).press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    field(page).press("ArrowUp")
    field(page).press("Enter")
    expect(field(page)).to_have_value(f"About @{task['code']} ")
    expect(page.get_by_role("listbox")).to_be_hidden()
    field(page).press_sequentially("with @mailing")
    expect(options).to_have_count(1)
    field(page).press("Tab")
    expect(page.locator("#chips .chip")).to_contain_text("mailing.txt")
    expect(field(page)).to_have_value(f"About @{task['code']} with ")
    field(page).press_sequentially("@")
    expect(options).to_have_count(3)
    field(page).press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    field(page).press("Control+A")
    field(page).fill(f"See @{task['code']}")
    field(page).press("Enter")
    link = page.locator("article.question").get_by_role("link", name=f"@{task['code']}")
    expect(link).to_have_attribute("href", f"/tasks/code/{task['code']}/")


def test_a_past_conversation_is_attached_with_the_keyboard_and_removed(page: Page, person: Person) -> None:
    conversation = in_thread(lambda: past(person.user, 2))
    in_thread(lambda: Conversation.objects.filter(pk=conversation.pk).update(title="Voyage to Hue"))
    field(page).press_sequentially("What about @voyage")
    option = page.locator("#mentions").get_by_role("option")
    expect(option).to_contain_text("Voyage to Hue")
    field(page).press("Enter")
    chip = page.locator("#chips .chip")
    expect(chip).to_contain_text("Voyage to Hue (conversation).md")
    expect(field(page)).to_have_value("What about ")
    chip.get_by_role("button", name="Remove").click()
    expect(chip).to_have_count(0)
