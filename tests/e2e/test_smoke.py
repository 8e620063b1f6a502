"""Smoke tests that no other file has. The marker `smoke` stands at some twenty tests of other files, too."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from accounts.models import User
from personas.models import SystemPrompt
from tests.conftest import Person
from tests.e2e.axe_steps import violations
from tests.e2e.conftest import ask, expect_complete, in_thread
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product, pytest.mark.smoke]


@pytest.fixture
def administrator(person: Person) -> Iterator[Person]:
    """A superuser. The versions of the system prompt that they save are deleted afterwards."""
    in_thread(lambda: User.objects.filter(pk=person.user.pk).update(is_superuser=True, is_staff=True))
    active = in_thread(lambda: SystemPrompt.objects.get(active=True).pk)
    before = in_thread(lambda: list(SystemPrompt.objects.values_list("pk", flat=True)))
    yield person
    in_thread(lambda: SystemPrompt.objects.exclude(pk__in=before).delete())
    in_thread(lambda: SystemPrompt.objects.filter(pk=active).update(active=True))


def test_an_admin_saves_a_system_prompt_that_the_next_answer_gets(
    administrator: Person, page: Page, product: Product
) -> None:
    text = f"Be brief. {uuid4().hex}"
    page.goto(f"{product.url}/admin/personas/systemprompt/add/")
    page.get_by_label("Text").fill(text)
    page.get_by_label("Note").fill(text)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("row").filter(has_text=text)).to_be_visible()
    page.goto(product.url)
    ask(page, f"Hello {text}")
    expect_complete(page)
    assert any(text in str(request.body["messages"][0]) for request in product.model.requests(f"Hello {text}"))


def test_the_four_most_used_pages_break_no_rule_of_wcag(page: Page, product: Product) -> None:
    ask(page, "Hello", text="A [link](https://example.org), `code` and **bold** words.")
    expect_complete(page)
    faults = {"conversation": violations(page)}
    for name, path in {"home": "/", "tasks": "/tasks/", "settings": "/settings/"}.items():
        page.goto(product.url + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        faults[name] = violations(page)
    assert {name: sentences for name, sentences in faults.items() if sentences} == {}
