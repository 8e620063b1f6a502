"""The first administrator sets the workspace up, on a desktop and on a phone."""

from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from accounts.models import User
from llm.models import Model, Provider
from llm.services import set_default_model
from tests.conftest import Person
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import Screen, in_thread
from tests.product import Product
from workspace.models import Workspace

pytestmark = [pytest.mark.browser, pytest.mark.product]
NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture
def administrator(screen: Screen, person: Person) -> Iterator[Screen]:
    """Make the person of the screen an administrator, and delete their rows afterwards."""
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=True, is_staff=True))
    yield screen
    in_thread(lambda: _as_before(person))


def _as_before(person: Person) -> None:
    User.objects.filter(pk=person.user.pk).update(is_superuser=False, is_staff=False)
    set_default_model(model=Model.objects.get(provider__name="Scripted", name="scripted"))
    Provider.objects.filter(name__startswith="127.0.0.1:").delete()
    person.user.personas.all().delete()
    Workspace.objects.all().delete()


def test_a_workspace_is_set_up(administrator: Screen, product: Product) -> None:
    screen, page = administrator, administrator.page
    screen.visit.expected.append("422")  # what is wrong is said on the page, and in the console
    screen.go("/")
    card = page.get_by_role("region", name="Set up the workspace")
    screen.check(card)
    assert violations(page) == []
    screen.press(card.get_by_role("link", name="Go on"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Set up the workspace")
    screen.check()
    assert violations(page) == []

    screen.press(page.get_by_role("link", name="Connect a provider"))
    page.get_by_label("Another server that speaks OpenAI's protocol").check()
    page.get_by_label("API key").fill("a-key")
    page.get_by_label("Address").fill(NOBODY)
    page.get_by_label("Address").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.get_by_label("Address")).to_have_value(NOBODY)
    expect(page.get_by_label("API key")).to_have_value("")
    screen.check()
    assert violations(page) == []
    page.get_by_label("Address").fill(product.model.openai_url)
    page.get_by_label("API key").fill("a-key")
    screen.press(page.get_by_role("button", name="Connect and look for models"))

    host = urlsplit(product.model.url).netloc
    expect(page.get_by_role("heading", level=2)).to_have_text(f"Which models of {host}?")
    page.get_by_label("scripted", exact=True).check()
    screen.check()
    assert violations(page) == []
    screen.press(page.get_by_role("button", name="Add these models"))
    expect(page.get_by_role("heading", level=2)).to_have_text("Which model answers by default?")
    page.get_by_role("radio", name=f"scripted {host}").check()
    assert violations(page) == []
    screen.press(page.get_by_role("button", name="Make this the default"))

    page.get_by_label("Name").fill("Our editor")
    page.get_by_label("Instructions").fill("Make texts clearer.")
    assert violations(page) == []
    screen.press(page.get_by_role("button", name="Make this persona"))
    name = f"person-{uuid4().hex[:12]}"
    page.get_by_label("User name").fill(name)
    screen.press(page.get_by_role("button", name="Make a link"))
    expect(page.locator("pre")).to_contain_text(f"{product.url}/welcome/")
    screen.check()
    assert violations(page) == []
    expect(page.get_by_role("navigation", name="Steps").locator(".done")).to_have_count(5)
    screen.press(page.get_by_role("button", name="Finish setting up"))
    expect(page.get_by_role("heading", level=1)).to_have_text("What would you like to know?")
    expect(page.locator(".setup-card")).to_have_count(0)
