"""A person works in a project, in a browser."""

import re

import pytest
from playwright.sync_api import FilePayload, Page, expect

from projects.models import Invitation, Project
from tests.conftest import Person, make_person
from tests.e2e.conftest import OpenBrowser, in_thread
from tests.e2e.file_steps import carry, chip, choose, overflow, row, text_file
from tests.e2e.project_steps import make, search, unfold
from tests.product import Product
from tests.projects.uploads import pdf

pytestmark = [pytest.mark.browser, pytest.mark.product]

CONTRACT = FilePayload(
    name="contract.pdf",
    mimeType="application/pdf",
    buffer=pdf(*(f"Clause {n}. The parties agree on this and on that." for n in range(1, 7)), "The fee is limited."),
)


def names(page: Page) -> list[str]:
    return [text.split()[0] for text in page.locator("#entries .place-files div > a").all_inner_texts()]


def test_files_are_put_in_order_pinned_and_removed(page: Page) -> None:
    make(page, "Contracts")
    choose(page, text_file("a.txt", "first words"))
    expect(row(page, "a.txt")).to_contain_text("Ready")
    choose(page, text_file("b.txt", "second words"))
    expect(row(page, "b.txt")).to_contain_text("Ready")
    assert names(page) == ["a.txt", "b.txt"]
    page.get_by_role("button", name="Move b.txt up").click()
    expect(page.get_by_role("button", name="Move b.txt up")).to_be_disabled()
    assert names(page) == ["b.txt", "a.txt"]
    pin = page.get_by_role("button", name="Pin a.txt")
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    expect(pin).to_be_focused()
    expect(row(page, "a.txt")).to_contain_text("pinned")
    page.get_by_role("button", name="Remove b.txt from the project").click()
    expect(row(page, "b.txt")).to_have_count(0)
    page.get_by_role("button", name="Add from your files…").click()
    picker = page.locator("#file-picker")
    expect(picker.locator("li", has_text="a.txt")).to_contain_text("Added")
    expect(picker.locator("li", has_text="b.txt")).to_contain_text(re.compile("Plain text · .* · .*20[0-9][0-9]|/"))
    picker.get_by_label("Search your files by name").fill("B.")
    expect(picker.locator("li", has_text="a.txt")).to_have_count(0)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(picker.get_by_role("button", name="Added")).to_be_focused()
    page.keyboard.press("Escape")
    expect(picker).to_be_hidden()
    expect(row(page, "b.txt")).to_contain_text("Ready")


def test_search_leads_to_the_passage(page: Page) -> None:
    make(page, "Contracts")
    choose(page, CONTRACT)
    expect(row(page, "contract.pdf")).to_contain_text("Ready")

    def is_found() -> bool:
        search(page, "limited fee")
        expect(page.locator("#results > *")).not_to_have_count(0)
        return page.locator("#results mark").count() > 0

    expect_in_time(page, is_found)
    result = page.get_by_role("link", name=re.compile("contract.pdf, page 7"))
    expect(page.locator("#results mark").filter(has_text="fee")).to_have_count(1)
    result.click()
    expect(page.locator("#page-7 mark")).to_contain_text("The fee is limited.")
    expect(page.locator("#passage").first).to_be_in_viewport()


def expect_in_time(page: Page, condition: object) -> None:
    """Indexing follows reading within seconds; a search before that finds nothing yet."""
    assert callable(condition)
    for _ in range(60):
        if condition():
            return
        page.wait_for_timeout(500)
    raise AssertionError("the search never found the file")


def test_instructions_and_persona_are_saved(page: Page, person: Person) -> None:
    person.caller.post("personas/", {"name": "Lawyer", "instructions": "You are a lawyer."}, expect=201)
    make(page, "Contracts")
    unfold(page, "Instructions")
    page.get_by_label("Instructions for every conversation").fill("Answer as a lawyer.\nQuote clauses.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("version 2")).to_be_visible()
    expect(page.locator("#settings > summary")).to_contain_text("Answer as a lawyer.")
    unfold(page, "Instructions")
    expect(page.get_by_label("Instructions for every conversation")).to_have_value(
        "Answer as a lawyer.\nQuote clauses."
    )
    page.get_by_label("Name", exact=True).fill("Agreements")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Agreements")).to_be_visible()
    expect(page.get_by_text("version 2")).to_be_visible()  # only other instructions make a new one
    unfold(page, "Instructions")
    persona = page.locator("#persona")
    persona.select_option(label="Lawyer")
    page.get_by_role("button", name="Save").click()
    page.reload()
    expect(persona.locator("option:checked")).to_have_text("Lawyer")


def test_who_saves_over_somebody_elses_instructions_is_told(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected += ["409 (Conflict)", "Code 409"]
    make(page, "Contracts")
    other = opened.tab(page.url.removeprefix(opened.product.url))
    unfold(other, "Instructions")
    unfold(page, "Instructions")
    other.get_by_label("Instructions for every conversation").fill("Theirs")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_text("version 2")).to_be_visible()
    page.get_by_label("Instructions for every conversation").fill("Mine")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody else changed the instructions")
    expect(page.get_by_label("Instructions for every conversation")).to_have_value("Mine")


@pytest.fixture
def colleague(product: Product, committed: None) -> Person:
    return in_thread(lambda: make_person(product))


def test_an_invitation_shows_and_is_answered_without_a_reload(
    visit: OpenBrowser, person: Person, colleague: Person
) -> None:
    """The guest's page gets the invitation, and the owner's page gets the answer."""
    theirs = visit().sign_in()
    theirs.goto(f"{theirs.url.partition('/c/')[0].rstrip('/')}/projects/")
    expect(theirs.locator("#invited")).to_have_text("")
    project = in_thread(lambda: Project.objects.create(owner=colleague.user, name="Contracts"))
    body = {"username": person.username, "role": "editor"}
    in_thread(lambda: colleague.caller.post(f"projects/{project.pk}/members/", body, expect=201))
    expect(theirs.locator("#invited")).to_contain_text("1 invitation")
    offered = theirs.get_by_role("region", name="Invitations")
    expect(offered).to_contain_text(f"{colleague.username} invites you · Editor")
    in_thread(lambda: colleague.caller.http.delete(f"projects/{project.pk}/invitations/{sent(project)}/"))
    expect(offered).to_have_count(0)
    in_thread(lambda: colleague.caller.post(f"projects/{project.pk}/members/", body, expect=201))
    offered.get_by_role("button", name="Accept").click()
    expect(theirs.get_by_role("heading", name="Contracts")).to_be_visible()
    expect(theirs.locator("#invited")).to_have_text("")


def sent(project: Project) -> str:
    return str(Invitation.objects.get(project=project).pk)


def test_who_is_invited_stands_among_the_members_until_they_come(visit: OpenBrowser, colleague: Person) -> None:
    page = visit().sign_in()
    make(page, "Contracts")
    unfold(page, "Members")
    for name in (colleague.username, "nobody-of-this-name"):
        page.get_by_label("User name").fill(name)
        page.get_by_role("button", name="Invite").click()
        expect(page.locator("#members li", has_text=name)).to_contain_text("invited until")
        expect(page.get_by_label("User name")).to_be_visible()  # the part stays open
    page.locator("#members li", has_text="nobody-of-this-name").get_by_role("button", name="Withdraw").click()
    expect(page.locator("#members li", has_text="nobody-of-this-name")).to_have_count(0)
    got = in_thread(lambda: Invitation.objects.get(person=colleague.user))
    in_thread(lambda: colleague.caller.post(f"invitations/{got.pk}/accept/", expect=200))
    row = page.locator("#members li", has_text=colleague.username)
    expect(row).not_to_contain_text("invited until")
    expect(row.get_by_role("button", name="Remove")).to_be_visible()


@pytest.mark.smoke
def test_a_question_is_asked_on_the_page_of_its_project(page: Page) -> None:
    make(page, "Contracts")
    address = page.url
    expect(page.get_by_text("None yet. Ask above")).to_be_visible()
    page.get_by_label("Your message").fill("Which clause limits the fee?")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/c/[0-9a-f-]{36}/"))
    expect(page.locator("article.answer")).to_have_attribute("data-status", "done")
    expect(page.locator(".place")).to_have_count(0)
    page.locator(".head .of-project").click()
    expect(page).to_have_url(address)
    expect(page.get_by_role("region", name="Your conversations here").get_by_role("link")).to_have_count(1)


def test_a_file_dropped_on_the_list_joins_the_project_and_elsewhere_the_message(page: Page) -> None:
    make(page, "Contracts")
    expect(page.get_by_text("Drop files here")).to_be_visible()
    carry(page, "drop", "listed.txt", b"words", "#files")
    expect(row(page, "listed.txt")).to_contain_text("Ready")
    carry(page, "drop", "attached.txt", b"other words")
    expect(chip(page, "attached.txt").locator("input[name=files]")).to_have_count(1)
    expect(row(page, "attached.txt")).to_have_count(0)


def test_a_project_is_deleted_after_saying_what_goes(page: Page) -> None:
    make(page, "Contracts")
    page.get_by_text("Delete this project…").click()
    expect(page.get_by_text("go for ever")).to_contain_text("stay with those who own them")
    page.get_by_role("button", name="Delete for ever").click()
    expect(page.get_by_text("A project holds instructions and files")).to_be_visible()


def test_a_project_works_without_scripts(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    make(page, "Contracts")
    page.get_by_label("Files to upload").set_input_files(
        [text_file("a.txt", "words"), text_file("b.txt", "other words")]
    )
    page.get_by_role("button", name="Upload", exact=True).click()
    assert names(page) == ["a.txt", "b.txt"]
    page.get_by_role("button", name="Move b.txt up").click()
    assert names(page) == ["b.txt", "a.txt"]
    search(page, "nothing like this")
    expect(page.locator("#results")).not_to_be_empty()


def test_a_project_fits_on_a_phone(phone: Page) -> None:
    phone.get_by_role("button", name="Conversations").click()
    make(phone, "A-project-name-without-any-place-to-break-it" * 2)
    choose(phone, text_file("a-name-without-any-place-to-break-it" * 4 + ".txt", "words"))
    expect(row(phone, "a-name")).to_contain_text("Ready")
    assert overflow(phone) == 0
