"""A person signs in to a tool server from the conversation, in a browser that follows the content security policy."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from llm.models import Model, ToolGrant, ToolServer
from personas.models import Persona
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, in_thread
from tests.llm.oauth_server import OAuthServer, serving
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]


@pytest.fixture
def oauth() -> Iterator[OAuthServer]:
    with serving() as server:
        yield server


@pytest.fixture
def place(person: Person, oauth: OAuthServer) -> Iterator[tuple[str, ToolServer]]:
    """Yield a conversation whose persona has a tool server with a sign-in of each person."""

    def make() -> tuple[str, ToolServer]:
        row = ToolServer.objects.create(
            name=f"o{uuid4().hex[:8]}", base_url=oauth.url, access="person", approval_required=False
        )
        Model.objects.filter(name="scripted").update(tools=True)  # the page asks the model it shows
        persona = Persona.objects.create(
            owner=person.user, name="Notes", instructions="Look.", tools=[f"{row.name}__*"]
        )
        return str(person.caller.post("conversations/", {"persona": str(persona.pk)}, expect=201)["id"]), row

    conversation, row = in_thread(make)
    yield conversation, row

    def remove() -> None:
        row.delete()
        Model.objects.filter(name="scripted").update(tools=False)

    in_thread(remove)


def test_a_person_signs_in_from_the_conversation_and_the_tool_is_there(
    visit: OpenBrowser, product: Product, person: Person, place: tuple[str, ToolServer], oauth: OAuthServer
) -> None:
    conversation, row = place
    opened = visit()
    opened.expected.append(f"the page asked for {oauth.url.removesuffix('/mcp')}/authorize?")
    page = opened.sign_in()
    page.goto(f"{product.url}/c/{conversation}/")
    page.get_by_role("button", name=f"Sign in to {row.name}").click()
    expect(page.get_by_text("Glasshouse does not get your password.")).to_be_visible()
    page.get_by_role("link", name="Go on to 127.0.0.1").click()
    expect(field(page)).to_be_visible()
    expect(page.get_by_role("button", name=f"Sign in to {row.name}")).to_have_count(0)
    call = {"tool_calls": [{"name": f"{row.name}__whoami", "arguments": {}}]}
    ask(page, "Who am I?", steps=[call, {"text": "You are alice."}])
    expect(answer(page)).to_contain_text("You are alice.")
    expect_complete(page)
    assert [account for account, _token in oauth.accounts.calls] == ["alice"]
    page.goto(f"{product.url}/settings/tools/")
    page.get_by_text("Disconnect…").click()
    page.get_by_role("button", name=f"Disconnect {row.name}").click()
    expect(page.get_by_text(f"You are signed out of {row.name}.")).to_be_visible()
    assert in_thread(lambda: ToolGrant.objects.filter(user=person.user).count()) == 0
