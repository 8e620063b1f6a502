"""An administrator connects a provider, finds why answers failed and what they cost, writes what a model is told, and
runs projects, on a desktop and on a phone, with the pages of the admin alone."""

import re
from collections.abc import Iterator
from decimal import Decimal
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, expect

from accounts.models import User
from chat.models import Conversation, Message, ModelCall, Turn
from llm.models import Model, Provider
from llm.services import set_default_model
from personas.models import BudgetProfile, PromptText, Reminder, SystemPrompt
from tests.conftest import Person
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import Screen, in_thread
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

SENTENCE = "The provider has reached its limit. Try again in a minute."


@pytest.fixture
def admin(screen: Screen, person: Person) -> Iterator[Screen]:
    """The person of the screen administers everything."""
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=True, is_staff=True))
    yield screen
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=False, is_staff=False))


def failed(person: Person) -> None:
    model = Model.objects.select_related("provider").get(name="scripted")
    place = Conversation.objects.create(owner=person.user)
    asked = Message.objects.create(conversation=place, role="user")
    answer = Message.objects.create(
        conversation=place, parent=asked, depth=1, role="assistant", error_code="seldom_seen", error_detail=SENTENCE
    )
    turn = Turn.objects.create(conversation=place, user_message=asked, answer=answer, model=model, status="failed")
    names = {"model": model, "model_name": model.name, "provider_name": model.provider.name}
    cost = Decimal("1234.5")
    ModelCall.objects.create(person=person.user, turn=turn, purpose="answer", input=9, output=1, cost=cost, **names)


# What scripts that are not ours build: Select2 names its fields by what is chosen in them, and in the rows of a table
# there is no label to name them by; Django's pair of lists puts its hint on a mark that is no control.
NOT_OURS = ("td .select2-container", ".help-tooltip")


def no_fault(screen: Screen) -> None:
    """Of the whole page, with Unfold's frame, lists and widgets."""
    there = [each for each in NOT_OURS if screen.page.locator(each).count()]
    assert violations(screen.page, {"exclude": there} if there else None) == []


def test_why_answers_failed_and_what_they_cost(admin: Screen, person: Person) -> None:
    in_thread(lambda: failed(person))
    page = admin.page
    admin.go("/admin/?days=7")
    row = page.get_by_role("row").filter(has_text="seldom_seen").first
    expect(row).to_contain_text(SENTENCE)
    expect(page.get_by_role("heading", name="US dollars by day")).to_be_visible()
    expect(page.get_by_text("Checked at")).to_be_visible()
    no_fault(admin)
    admin.press(page.get_by_text("By day", exact=True))
    people = page.locator("#content").get_by_role("heading", name="People", exact=True)
    people.scroll_into_view_if_needed()  # who used most comes then
    expect(page.get_by_role("row").filter(has_text=person.username)).to_contain_text("$1,234.50")
    admin.press(row.get_by_role("link"))
    expect(page).to_have_url(re.compile("error=seldom_seen"))
    expect(page.locator("#result_list")).to_contain_text(person.username)


def act(screen: Screen, name: str) -> None:
    """A button above a row's page; on a phone they are in a menu."""
    if screen.phone:
        screen.press(screen.page.get_by_role("link", name="more_horiz"))
    screen.press(screen.page.get_by_role("link", name=name))


@pytest.fixture
def new_provider() -> Iterator[str]:
    """Its name; it is gone afterwards, and the model of before answers by default."""
    name = f"Elsewhere {uuid4().hex[:8]}"
    yield name
    in_thread(lambda: set_default_model(model=Model.objects.get(provider__name="Scripted", name="scripted")))
    in_thread(lambda: Provider.objects.filter(name=name).delete())


def test_a_provider_is_connected_and_its_model_answers(admin: Screen, product: Product, new_provider: str) -> None:
    page = admin.page
    product.model.set_script("a-name-" + "of-a-model-that-is-long-" * 3, {"text": "Yes."})
    admin.go("/admin/llm/provider/")
    admin.press(page.get_by_role("link", name="Add provider"))
    page.get_by_label("Name").fill(new_provider)
    page.get_by_label("Kind").select_option("openai")
    page.get_by_label("Base URL").fill("http://127.0.0.1:9/v1")
    page.get_by_label("API key").fill("a-key")
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.get_by_text(f"“{new_provider}” is saved, and has no models yet.")).to_be_visible()
    admin.press(page.get_by_role("link", name="Test connection and choose models"))
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    no_fault(admin)
    admin.press(page.get_by_role("link", name=new_provider, exact=True).first)
    expect(page.get_by_label("API key")).to_have_value("")
    page.get_by_label("Base URL").fill(product.model.openai_url)
    page.get_by_label("API key").fill("a-key")  # the one that is stored is for the address before
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.get_by_text(f"“{new_provider}” is saved, and has no models yet.")).to_be_visible()
    admin.press(page.get_by_role("link", name="Test connection and choose models"))
    expect(page.get_by_role("status")).to_contain_text("It answers")
    page.get_by_label("scripted", exact=True).check()
    no_fault(admin)
    admin.check()
    admin.press(page.get_by_role("button", name="Add the chosen and store what was found"))
    admin.press(page.get_by_role("link", name="scripted", exact=True))
    act(admin, "Make default")
    admin.press(page.get_by_role("button", name="Make default"))
    expect(page.get_by_text("scripted is now the default model.")).to_be_visible()
    admin.go(f"/admin/llm/model/?q={new_provider}")
    no_fault(admin)
    row = page.get_by_role("row").filter(has_text=new_provider)
    expect(row.locator(".field-is_default")).to_contain_text("default")


@pytest.fixture
def no_new_prompt() -> Iterator[None]:
    """What is written in the test is gone afterwards, and the version of before is sent again."""
    before = in_thread(lambda: list(SystemPrompt.objects.values_list("pk", "active")))
    yield
    in_thread(lambda: SystemPrompt.objects.exclude(pk__in=[pk for pk, _ in before]).delete())
    in_thread(lambda: SystemPrompt.objects.filter(pk__in=[pk for pk, active in before if active]).update(active=True))


def test_a_system_prompt_is_written_twice_and_rolled_back(admin: Screen, person: Person, no_new_prompt: None) -> None:
    page = admin.page
    first, second = (f"Be {each}, says {person.username}." for each in ("brief", "thorough"))
    for text, before in ((first, None), (second, first)):
        admin.go("/admin/personas/systemprompt/")
        admin.press(page.get_by_role("link", name="Add system prompt"))
        field = page.get_by_label("Text")
        if before:
            expect(field).to_have_value(before)
        field.fill(text)
        page.get_by_label("Note").fill(text)
        expect(page.get_by_text("tokens").last).to_be_visible()
        no_fault(admin)
        admin.press(page.get_by_role("button", name="Save", exact=True))
        row = page.get_by_role("row").filter(has_text=text)
        expect(row.locator(".field-is_active")).to_contain_text("active")
    admin.press(page.get_by_role("row").filter(has_text=first).locator("th a"))
    act(admin, "Compare with the active one")
    expect(page.locator("#content")).to_contain_text(second)
    no_fault(admin)
    page.go_back()
    act(admin, "Make active")
    admin.press(page.get_by_role("button", name="Make active"))
    row = page.get_by_role("row").filter(has_text=first)
    expect(row.locator(".field-is_active")).to_contain_text("active")
    sent = in_thread(lambda: SystemPrompt.objects.get(active=True).text)
    assert sent == first


def test_a_text_is_written_with_its_preview_and_the_built_in_one_brought_back(admin: Screen, person: Person) -> None:
    page, mine = admin.page, f"Now end, {person.username}."
    admin.go("/admin/personas/prompttext/")
    no_fault(admin)
    admin.press(page.get_by_role("link", name="Note of the last step"))
    expect(page.locator("mark")).to_contain_text("This is the last step of this turn.")
    no_fault(admin)
    admin.press(page.get_by_role("link", name="Edit").first)
    page.get_by_label("Text").fill("{when}")
    expect(page.get_by_text("There is no placeholder {when} in this text.")).to_be_visible()
    page.get_by_label("Text").fill(mine)
    expect(page.locator("mark")).to_have_text(mine)
    expect(page.get_by_text("≈")).to_be_visible()
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.locator(".lead")).to_contain_text(f"by {person.username}")
    admin.press(page.get_by_role("button", name="Use the built-in text").first)
    expect(page.locator(".lead")).to_contain_text("Sent now: the built-in text")
    expect(page.locator("mark")).to_contain_text("This is the last step of this turn.")
    in_thread(lambda: PromptText.objects.filter(text=mine).delete())


def choose(screen: Screen, field: Locator, name: str) -> None:
    """In a field that searches while one types."""
    screen.press(field)
    screen.page.locator(".select2-search__field").fill(name)
    screen.press(screen.page.get_by_role("option", name=name))


def test_a_project_is_made_with_members_and_a_file_and_handed_over(admin: Screen, person: Person) -> None:
    page, name = admin.page, f"Contracts {uuid4().hex[:8]}"
    names = [f"person-{uuid4().hex[:12]}" for _ in range(2)]
    in_thread(lambda: [User.objects.create_user(each) for each in names])
    admin.go("/admin/projects/project/add/")
    page.get_by_label("Name", exact=False).first.fill(name)
    page.get_by_label("Instructions").fill("Be exact.")
    page.locator("[type=file]").set_input_files(
        {"name": "fees.txt", "mimeType": "text/plain", "buffer": b"The fee is limited by clause 7."}
    )
    for number, each in enumerate(names):
        admin.press(page.get_by_text("Add another Member"))
        choose(admin, page.locator("#memberships-group .field-user .select2-selection").nth(number), each)
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    row = page.get_by_role("row").filter(has_text=name)
    expect(row.locator(".field-members")).to_have_text("2")
    expect(row.locator(".field-files")).to_have_text("1")
    admin.press(row.get_by_role("link", name=name))
    expect(page.locator("#entries-group")).to_contain_text("fees.txt")
    choose(admin, page.locator(".field-owner .select2-selection").first, names[0])
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.get_by_role("row").filter(has_text=name).locator(".field-owner")).to_have_text(names[0])


def test_a_reminder_and_a_budget_profile_are_made(admin: Screen, person: Person) -> None:
    page, name = admin.page, f"Frugal {uuid4().hex[:8]}"
    admin.go("/admin/personas/reminder/add/")
    page.get_by_label("Text").fill(f"Cite clauses. {name}")
    page.get_by_label("Scope").select_option("persona")
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.locator("#result_list")).to_contain_text(name)

    admin.go("/admin/personas/budgetprofile/add/")
    page.get_by_label("Name", exact=False).first.fill(name)
    page.get_by_label("Kept free for the answer").fill("2024")
    expect(page.get_by_role("row").filter(has_text="available for documents").first).to_contain_text("4,924")
    no_fault(admin)
    admin.press(page.get_by_role("button", name="Save", exact=True))
    expect(page.locator("#result_list")).to_contain_text(name)
    in_thread(
        lambda: (Reminder.objects.filter(text__contains=name).delete(), BudgetProfile.objects.get(name=name).delete())
    )


PAGES = (
    "/admin/accounts/workspace/1/change/",
    "/admin/accounts/user/",
    "/admin/auth/group/add/",
    "/admin/chat/turn/?status__exact=failed",
    "/admin/llm/model/add/",
    "/admin/personas/persona/add/",
)


def test_lists_forms_and_the_settings_of_the_workspace_break_no_rule(admin: Screen) -> None:
    for path in PAGES:
        admin.go(path)
        expect(admin.page.locator("#content")).to_be_visible()
        no_fault(admin)
