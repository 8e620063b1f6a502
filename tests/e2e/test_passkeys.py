"""A passkey, made and used with Chromium's virtual authenticator. Browsers have passkeys on https and on localhost."""

import pytest
from playwright.sync_api import Browser, expect

from accounts.second_factors.services import factors_of
from tests.conftest import Person
from tests.e2e.conftest import in_thread
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]
KEY = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def test_a_passkey_signs_in_without_a_password_and_as_the_second_factor(
    product: Product, browser: Browser, person: Person
) -> None:
    site = product.url.replace("127.0.0.1", "localhost")
    context = browser.new_context(base_url=site)
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": KEY})

    def with_password() -> None:
        page.goto("/login/?next=/settings/second-factor/")
        page.get_by_label("User name").fill(person.username)
        page.get_by_label("Password").fill(person.password)
        page.get_by_role("button", name="Sign in").click()

    def out() -> None:
        context.clear_cookies()

    with_password()
    page.get_by_label("Name").fill("my phone")
    page.get_by_role("button", name="Add a passkey").click()
    expect(page.get_by_text("The passkey is added.")).to_be_visible()
    expect(page.get_by_text("Your recovery codes, shown this once")).to_be_visible()
    assert [row.data["name"] for row in in_thread(lambda: factors_of(person.user))] == ["my phone"]

    out()
    page.goto("/login/?next=/settings/second-factor/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("my phone", exact=True)).to_be_visible()

    out()
    with_password()
    expect(page).to_have_url(f"{site}/login/second/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("my phone", exact=True)).to_be_visible()
    context.close()
