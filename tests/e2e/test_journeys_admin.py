"""Pages of the admin on a desktop and on a phone: axe finds no fault in them, and their own scripts and menus work.

The tests of each app's admin hold what the forms save (`tests/*/test_admin.py`, `tests/chat/test_texts.py`).
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, expect

from accounts.models import User
from chat.ledger.models import ModelCall
from chat.models import Conversation, Message, Turn
from llm.models import Model, Provider
from personas.models import SystemPrompt
from personas.services import save_prompt
from tests.conftest import Person
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import Screen, in_thread
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

SENTENCE = "The provider has reached its limit. Try again in a minute."


@pytest.fixture
def admin(screen: Screen, person: Person) -> Iterator[Screen]:
    """Make the person of the screen a superuser for the test."""
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=True, is_staff=True))
    yield screen
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=False, is_staff=False))


def store_failed_answer(person: Person) -> None:
    model = Model.objects.select_related("provider").get(name="scripted")
    place = Conversation.objects.create(owner=person.user)
    question = Message.objects.create(conversation=place, role="user")
    answer = Message.objects.create(
        conversation=place, parent=question, depth=1, role="assistant", error_code="seldom_seen", error_detail=SENTENCE
    )
    turn = Turn.objects.create(conversation=place, user_message=question, answer=answer, model=model, status="failed")
    names = {"model": model, "model_name": model.name, "provider_name": model.provider.name}
    cost = Decimal("1234.5")
    ModelCall.objects.create(person=person.user, turn=turn, purpose="answer", input=9, output=1, cost=cost, **names)


# Scripts of others build these. Select2 names a field by its value, and in the rows of a table no label names it.
# Django's pair of lists puts its hint on a mark that is no control.
NOT_OURS = ("td .select2-container", ".help-tooltip")


def no_fault(screen: Screen) -> None:
    """Assert that axe finds nothing on the whole page, with Unfold's frame, lists and widgets."""
    excluded = [each for each in NOT_OURS if screen.page.locator(each).count()]
    assert violations(screen.page, {"exclude": excluded} if excluded else None) == []


PAGES = (
    "/admin/accounts/workspace/1/change/",
    "/admin/accounts/user/",
    "/admin/auth/group/add/",
    "/admin/llm/model/",
    "/admin/llm/model/add/",
    "/admin/llm/provider/add/",
    "/admin/personas/persona/add/",
)


def test_the_first_page_says_why_answers_failed_and_no_list_or_form_has_a_fault(admin: Screen, person: Person) -> None:
    in_thread(lambda: store_failed_answer(person))
    page = admin.page
    admin.go("/admin/?days=7")
    row = page.get_by_role("row").filter(has_text="seldom_seen").first
    expect(row).to_contain_text(SENTENCE)
    expect(page.get_by_role("heading", name="US dollars by day")).to_be_visible()
    expect(page.get_by_text("Checked at")).to_be_visible()
    no_fault(admin)
    admin.press(page.get_by_text("By day", exact=True))
    people = page.locator("#content").get_by_role("heading", name="People", exact=True)
    people.scroll_into_view_if_needed()  # the page fetches who used most at this moment
    expect(page.get_by_role("row").filter(has_text=person.username)).to_contain_text("$1,234.50")
    admin.press(row.get_by_role("link"))
    expect(page).to_have_url(re.compile("error=seldom_seen"))
    expect(page.locator("#result_list")).to_contain_text(person.username)
    no_fault(admin)
    for path in PAGES:
        admin.go(path)
        expect(page.locator("#content")).to_be_visible()
        no_fault(admin)


def press_action(screen: Screen, name: str) -> None:
    """Press a button above a row's page. On a phone the buttons are in a menu."""
    if screen.phone:
        screen.press(screen.page.get_by_role("link", name="more_horiz"))
    screen.press(screen.page.get_by_role("link", name=name))


@pytest.fixture
def new_provider(product: Product) -> Iterator[Provider]:
    """Yield a provider without models whose server answers. It is deleted afterwards."""
    # A long name shows whether the list of offered models fits a phone.
    product.model.set_script("a-name-" + "of-a-model-that-is-long-" * 3, {"text": "Yes."})
    name = f"Elsewhere {uuid4().hex[:8]}"
    provider = in_thread(lambda: Provider.objects.create(name=name, kind="openai", base_url=product.model.openai_url))
    yield provider
    in_thread(provider.delete)


def test_a_provider_is_tested_and_its_model_added(admin: Screen, new_provider: Provider) -> None:
    page = admin.page
    in_thread(lambda: Provider.objects.filter(pk=new_provider.pk).update(base_url="http://127.0.0.1:9/v1"))
    admin.go(f"/admin/llm/provider/{new_provider.pk}/change/")
    press_action(admin, "Test connection and choose models")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    no_fault(admin)
    in_thread(lambda: Provider.objects.filter(pk=new_provider.pk).update(base_url=new_provider.base_url))
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("It answers")
    page.get_by_label("scripted", exact=True).check()
    no_fault(admin)
    admin.check()
    admin.press(page.get_by_role("button", name="Add models and store their facts"))
    expect(page.get_by_role("link", name="scripted", exact=True)).to_be_visible()


@pytest.fixture
def draft_prompt() -> Iterator[SystemPrompt]:
    """A version of the system prompt that is not sent, deleted afterwards."""
    text = f"Be brief. {uuid4().hex}"
    draft = in_thread(lambda: save_prompt(user=None, kind=SystemPrompt, text=text, activate=False))
    yield draft
    in_thread(draft.delete)


def test_a_text_for_models_is_counted_compared_and_previewed(admin: Screen, draft_prompt: SystemPrompt) -> None:
    page, text = admin.page, f"Now end, {uuid4().hex}."
    admin.go("/admin/personas/systemprompt/add/")
    page.get_by_label("Text").fill(draft_prompt.text)
    expect(page.get_by_text("tokens").last).to_be_visible()
    no_fault(admin)
    admin.go(f"/admin/personas/systemprompt/{draft_prompt.pk}/change/")
    press_action(admin, "Compare with the active one")
    expect(page.locator("#content")).to_contain_text("You are being tested.")
    no_fault(admin)

    admin.go("/admin/personas/prompttext/")
    no_fault(admin)
    admin.press(page.get_by_role("link", name="Note of the last step"))
    expect(page.locator("mark")).to_contain_text("This is the last step of this turn.")
    no_fault(admin)
    admin.press(page.get_by_role("link", name="Edit").first)
    page.get_by_label("Text").fill("{when}")
    expect(page.get_by_text("This text cannot have the placeholder {when}.")).to_be_visible()
    page.get_by_label("Text").fill(text)
    expect(page.locator("mark")).to_have_text(text)
    expect(page.get_by_text("≈")).to_be_visible()
    no_fault(admin)


def choose(screen: Screen, field: Locator, name: str) -> None:
    """Choose an option of a field that searches while one types."""
    screen.press(field)
    screen.page.locator(".select2-search__field").fill(name)
    screen.press(screen.page.get_by_role("option", name=name))


def test_forms_with_rows_that_are_added_and_numbers_that_are_explained(admin: Screen, person: Person) -> None:
    page, name = admin.page, f"Contracts {uuid4().hex[:8]}"
    usernames = [f"person-{uuid4().hex[:12]}" for _ in range(2)]
    in_thread(lambda: [User.objects.create_user(each) for each in usernames])
    admin.go("/admin/projects/project/add/")
    page.get_by_label("Name", exact=False).first.fill(name)
    page.locator("[type=file]").set_input_files(
        {"name": "fees.txt", "mimeType": "text/plain", "buffer": b"The fee is limited by clause 7."}
    )
    for number, username in enumerate(usernames):
        admin.press(page.get_by_text("Add another Member"))
        choose(admin, page.locator("#memberships-group .field-user .select2-selection").nth(number), username)
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    row = page.get_by_role("row").filter(has_text=name)
    expect(row.locator(".field-members")).to_have_text("2")
    expect(row.locator(".field-files")).to_have_text("1")

    admin.go("/admin/personas/reminder/add/")
    page.get_by_label("Scope").select_option("persona")
    no_fault(admin)
    admin.go("/admin/personas/budgetprofile/add/")
    page.get_by_label("Kept free for the answer").fill("2024")
    expect(page.get_by_role("row").filter(has_text="available for documents").first).to_contain_text("4,924")
    no_fault(admin)
