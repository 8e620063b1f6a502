"""Text in a form of the workspace or the admin survives the loss of the session or the network."""

import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from accounts.models import User
from llm.models import Model
from tests.conftest import Person, make_person
from tests.e2e.conftest import OpenBrowser, Visit, ask, expect_complete, field, in_thread
from tests.e2e.project_steps import unfold
from tests.e2e.test_long_names import in_the_admin, newest, own_model
from tests.house import House
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

REFUSED = ["401 (Unauthorized)", "Code 401", "403 (Forbidden)", "status of 40", "status of 422", "net::ERR_FAILED"]
REFUSED += ["htmx:sendError"]
# The forms that post, by what a draft is called after: their address and their id. The search posts nothing, and the
# field of a message has tests of its own.
FORMS = r"""
const forms = () => [...document.querySelectorAll("form")].filter(
  (form) => form.getAttribute("method")?.toLowerCase() === "post" && form.id !== "composer",
);
const nameOf = (form) => new URL(form.getAttribute("action") || location.href, location.href).pathname + "#" + form.id;
const values = (form) => [...form.elements].filter((each) => each.name).map((each) => [each.name, each.value]);
const TEXT = "textarea, input:is(:not([type]), [type=text], [type=url], [type=email], [type=tel], [type=number])";
const textOf = (form) => [...form.elements].filter(
  (each) => each.matches(TEXT) && each.name && !each.readOnly && !each.disabled && !each.name.includes("__prefix__"),
);
"""


def script(parameter: str, body: str) -> str:
    """A function of the browser that knows `FORMS`."""
    return f"({parameter}) => {{{FORMS}{body}}}"


# Writes into every field of text; gives the fields' names, texts, and whether they are secrets, by the names of forms.
WRITE = script(
    "",
    """
  return forms().filter((form) => textOf(form).length).map((form) => {
    for (const field of textOf(form)) {
      const special = { number: "7", email: "lan@example.org", url: "https://example.org/7" };
      const text = special[field.type] ?? "Long thought of";
      field.value = text.slice(0, field.maxLength > 0 ? field.maxLength : undefined);
      field.dispatchEvent(new InputEvent("input", { bubbles: true }));
    }
    const secret = "[data-no-draft], [autocomplete=one-time-code]";
    return [nameOf(form), textOf(form).map((each) => [each.name, each.value, each.matches(secret)])];
  });
""",
)
SEND = script(
    "name",
    """
  const form = forms().find((each) => nameOf(each) === name);
  form.noValidate = true;
  form.requestSubmit([...form.elements].find((each) => each.matches("[type=submit]")));
""",
)
# Whether the form says the sentence, in itself or at its button.
SAYS = script(
    "[name, sentence]",
    """
  const form = forms().find((each) => nameOf(each) === name);
  const places = [...form.querySelectorAll(".problem"), document.getElementById(form.dataset.refusal ?? "")];
  return places.some((each) => each?.textContent.includes(sentence));
""",
)
VALUES = script(
    "name",
    """
  const form = forms().find((each) => nameOf(each) === name);
  return form ? values(form) : null;
""",
)
RESTORED = script(
    "name",
    """
  return forms().find((each) => nameOf(each) === name)?.querySelector(".restored") ?? null;
""",
)
OF_THE_TABLE = {
    "/messages/…/edit/#",
    "/personas/new/#persona-form",
    "/personas/…/#persona-form",
    "/personas/prompts/#",
    "/files/…/read/#ask-all",
    "/projects/…/settings/#",
    "/tasks/#",
    "/setup/persona/#",
    "/admin/personas/systemprompt/add/#systemprompt_form",
    "/admin/personas/reminder/add/#reminder_form",
}
PLACE = re.compile(r"(add|[0-9a-f-]{36}|[0-9]+)/(change/)?")  # of a row, or of one that is added in the admin
Written = list[tuple[str, list[list[Any]]]]


@pytest.fixture
def admin(person: Person) -> Person:
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=True, is_staff=True))
    return person


def pages_with_forms(product: Product, person: Person) -> list[str]:
    """Every page of a furnished workspace, and in the admin every empty form and the form of every new row."""
    before = in_thread(newest)
    model, profile = in_thread(lambda: own_model(product))
    name = in_thread(lambda: Model.objects.get(pk=model).name.partition(":")[2])
    house = House(person.caller, lambda script: product.model.set_script(name, script), model, profile)
    paths = house.furnish()
    del paths["shared"], paths["missing"]  # which are nobody's own
    in_admin = in_thread(lambda: in_the_admin(newest() - before))
    setup = [f"/setup/{step}/" for step in ("provider", "models", "persona", "people")]
    return [*paths.values(), *setup, *(path for path in in_admin if path.endswith(("/add/", "/change/")))]


def check(page: Page, written: Written, sentence: str) -> None:
    """Each form that is sent says the sentence, and everything that was written stands in it."""
    for name, fields in written:
        page.evaluate(SEND, name)
        page.wait_for_function(SAYS, arg=[name, sentence])
        values = page.evaluate(VALUES, name)
        assert [each for each in fields if each[:2] not in values] == [], (page.url, name, values)


def check_restored(page: Page, written: Written) -> None:
    """Check that the fields have the written text, except secrets, which are never stored."""
    for name, fields in written:
        if all(secret for *_, secret in fields):
            continue
        page.wait_for_function(RESTORED, arg=name)
        values = page.evaluate(VALUES, name)
        assert [each for each in fields if (each[:2] in values) == each[2]] == [], (page.url, name, values)


def abort_posts(route: Route) -> None:
    if route.request.method == "POST":
        route.abort()
    else:
        route.continue_()


def test_no_form_loses_what_is_written_with_the_network_or_the_session(
    visit: OpenBrowser, product: Product, admin: Person
) -> None:
    opened = visit()
    opened.expected += [*REFUSED, "404"]
    page = opened.sign_in()
    cookies = page.context.cookies()
    forms: set[str] = set()
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for path in pages_with_forms(product, admin):
        page.goto(product.url + path)
        assert "/login/?" not in page.url, path
        written: Written = page.evaluate(WRITE)
        names = [name for name, _ in written]
        assert len(names) == len(set(names)), (path, names)  # else one would get the draft of the other
        kinds = {(PLACE.sub("…/", name), tuple(field[0] for field in fields)) for name, fields in written}
        if kinds <= seen:
            continue  # the form of another row of the same kind
        seen.update(kinds)
        forms.update(names)
        page.route("**/*", abort_posts)
        check(page, written, "cannot be reached")
        page.unroute("**/*", abort_posts)
        page.context.clear_cookies(name="sessionid")
        check(page, written, "signed out")
        page.context.add_cookies(cookies)  # type: ignore[arg-type]  # as they were given
        page.goto(product.url + path)
        check_restored(page, written)
        page.evaluate("localStorage.clear()")
    assert {re.sub(r"[0-9a-f-]{36}", "…", name) for name in forms} >= OF_THE_TABLE


def sign_in_again(opened: Visit, where: Page) -> None:
    """By the link in the sentence."""
    where.get_by_role("alert").get_by_role("link", name="Sign in").click()
    where.get_by_label("User name").fill(opened.person.username)
    where.get_by_label("Password").fill(opened.person.password)
    where.get_by_role("button", name="Sign in").click()


def drafts(page: Page) -> list[str]:
    return list(page.evaluate("Object.values(localStorage)"))


def test_an_edited_message_is_there_again_after_signing_in_and_no_draft_is_left_once_it_is_sent(
    visit: OpenBrowser,
) -> None:
    opened = visit()
    opened.expected += REFUSED
    page = opened.sign_in()
    ask(page, "One", text="First.")
    expect_complete(page)
    page.get_by_role("link", name="Edit", exact=True).click()
    edited = page.get_by_label("Your message, in other words")
    edited.fill("One, long thought of")
    page.context.clear_cookies(name="sessionid")
    form = page.locator("form.edit")
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("alert")).to_contain_text("You were signed out")
    expect(form.get_by_role("alert")).to_be_in_viewport()
    expect(edited).to_have_value("One, long thought of")
    at = page.url.partition("#")[0]
    sign_in_again(opened, page)
    page.wait_for_url(at)
    expect(edited).to_have_value("One, long thought of")
    expect(form.get_by_role("status")).to_contain_text("is back")
    form.get_by_role("button", name="Send").click()
    expect(page.locator("article.question")).to_contain_text("One, long thought of")
    expect(form).to_have_count(0)
    assert drafts(page) == []


def test_what_is_left_by_a_link_is_back_and_can_be_discarded(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    page.goto(opened.product.url + "/personas/new/")
    page.get_by_label("Name", exact=True).fill("Lawyer")
    page.get_by_label("Instructions", exact=False).first.fill("Long thought of")
    page.get_by_role("link", name="Files").first.click()
    expect(page.get_by_role("heading", name="Files")).to_be_visible()
    page.goto(opened.product.url + "/personas/new/")
    expect(page.get_by_label("Instructions", exact=False).first).to_have_value("Long thought of")
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    expect(page.get_by_label("Instructions", exact=False).first).to_have_value("")
    expect(page.locator(".restored")).to_have_count(0)
    assert drafts(page) == []


def test_what_the_server_has_is_no_draft_any_more(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    page.goto(opened.product.url + "/personas/new/")
    page.get_by_label("Name", exact=True).fill("Lawyer")
    page.get_by_label("Instructions", exact=False).first.fill("Long thought of")
    page.locator("#persona-form .save [type=submit]").click()
    expect(page).to_have_url(re.compile("/personas/[0-9a-f-]{36}/"))
    assert drafts(page) == []
    page.goto(opened.product.url + "/personas/new/")
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    expect(page.locator(".restored")).to_have_count(0)


def test_passwords_are_in_no_draft_and_a_sign_out_removes_all(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += REFUSED
    page = opened.sign_in()
    page.goto(opened.product.url + "/settings/tokens/")
    page.get_by_label("Name").fill("nothing allowed")
    page.get_by_label("Your password").fill(opened.person.password)
    page.get_by_role("button", name="Make token").click()
    expect(page.get_by_role("alert")).to_have_text("Choose at least one scope.")
    expect(page).to_have_url(re.compile("/settings/tokens/$"))
    [draft] = drafts(page)
    assert "nothing allowed" in draft and opened.person.password not in draft
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert drafts(page) == []


def test_nobody_gets_the_draft_of_another_person(visit: OpenBrowser, product: Product) -> None:
    opened = visit()
    opened.expected += REFUSED
    page = opened.sign_in()
    page.goto(product.url + "/personas/prompts/")
    page.get_by_label("Name").first.fill("Alice's own")
    page.goto(product.url + "/")
    field(page).fill("Alice's message")
    page.context.clear_cookies(name="sessionid")
    other = in_thread(lambda: make_person(product))
    opened.person = other
    opened.sign_in()
    expect(field(page)).to_have_value("")
    page.goto(product.url + "/personas/prompts/")
    expect(page.get_by_label("Name").first).to_have_value("")


@pytest.mark.parametrize(("status", "body"), [(500, "<h1>Server error</h1>"), (502, ""), (200, "<h1>Hotel</h1>")])
def test_a_server_that_fails_leaves_the_page_with_the_text(visit: OpenBrowser, status: int, body: str) -> None:
    opened = visit()
    opened.expected += [f"status of {status}"]
    page = opened.sign_in()
    page.goto(opened.product.url + "/personas/prompts/")
    page.route("**/personas/prompts/", lambda route: route.fulfill(status=status, body=body))
    page.get_by_label("Name").first.fill("Letter")
    page.get_by_label("Text").first.fill("Long thought of")
    page.locator("form.wide").first.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Your text is kept")
    expect(page.get_by_role("alert")).to_be_in_viewport()
    expect(page.get_by_label("Text").first).to_have_value("Long thought of")


def test_a_page_that_was_open_too_long_is_loaded_again_with_the_text(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += REFUSED
    page = opened.sign_in()
    page.goto(opened.product.url + "/projects/")
    page.get_by_label("Name of a new project").fill("Contracts")
    tokens = page.locator("[name=csrfmiddlewaretoken]")
    tokens.evaluate_all("(all) => all.forEach((each) => (each.value = 'x'.repeat(64)))")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("This page was open too long")
    page.get_by_role("alert").get_by_role("link", name="Reload the page").click()
    expect(page.locator(".restored")).to_be_visible()
    expect(page.get_by_label("Name of a new project")).to_have_value("Contracts")
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile("/projects/[0-9a-f-]{36}/"))


def test_a_project_says_at_its_button_that_nothing_was_saved(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += REFUSED
    page = opened.sign_in()
    project = opened.person.caller.post("projects/", {"name": "Contracts"}, expect=201)["id"]
    page.goto(f"{opened.product.url}/projects/{project}/")
    unfold(page, "Instructions")
    page.get_by_role("textbox", name="Instructions").fill("Long thought of")
    page.route("**/projects/**", abort_posts)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_role("alert")).to_be_in_viewport()
    page.unroute("**/projects/**", abort_posts)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.wait_for_function("Object.keys(localStorage).length === 0")
    page.reload()
    unfold(page, "Instructions")
    expect(page.get_by_role("textbox", name="Instructions")).to_have_value("Long thought of")
    expect(page.locator(".restored")).to_have_count(0)


def test_what_one_tab_saves_is_no_end_of_what_another_writes(visit: OpenBrowser) -> None:
    opened = visit()
    first = opened.sign_in()
    second = first.context.new_page()
    for page, name in ((first, "Lawyer"), (second, "Doctor")):
        page.goto(opened.product.url + "/personas/new/")
        page.get_by_label("Name", exact=True).fill(name)
    first.locator("#persona-form .save [type=submit]").click()
    expect(first).to_have_url(re.compile("/personas/[0-9a-f-]{36}/"))
    second.reload()
    expect(second.get_by_label("Name", exact=True)).to_have_value("Doctor")


def test_a_page_of_the_network_in_place_of_an_answer_takes_no_task(visit: OpenBrowser) -> None:
    opened = visit()
    opened.expected += ["500"]
    page = opened.sign_in()
    page.goto(opened.product.url + "/tasks/")
    field = page.get_by_label("Add a task")
    for status in (200, 500):
        page.route("**/tasks/", partial(Route.fulfill, status=status, body="<p>Sign in to the net"))
        field.fill("Buy cacao")
        field.press("Enter")
        expect(page.locator("[data-add]").get_by_role("alert")).to_contain_text("could not accept this")
        expect(field).to_have_value("Buy cacao")
        page.unroute("**/tasks/")
