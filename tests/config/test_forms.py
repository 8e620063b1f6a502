"""Forms that a page's script submits: the answer keeps the person's text on the page."""

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from accounts.models import ApiToken, User
from projects.saved_prompts.models import SavedPrompt

pytestmark = pytest.mark.django_db
SCRIPT = {"Form-Submission": "script", "HX-Current-URL": "http://testserver/settings/tokens/?here"}
PASSWORD = "a long enough password"


def fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken")


urlpatterns = [path("fails/", fails), path("", include("config.urls"))]
handler500 = "config.http.health.server_error"


@pytest.fixture
def alice(client: Client) -> User:
    person = User.objects.create_user("alice", password=PASSWORD)
    client.force_login(person)
    return person


def test_a_redirect_is_an_address_to_go_to(client: Client, alice: User) -> None:
    sent = client.post("/personas/prompts/", {"name": "Letter", "text": "Write a letter."}, headers=SCRIPT)
    assert (sent.status_code, sent["Form-Stored"]) == (204, "yes")
    assert sent["Form-Location"].startswith("/personas/prompts/")
    assert SavedPrompt.objects.filter(name="Letter").exists()


def test_a_page_with_wrong_fields_is_shown_once_and_only_to_who_sent_them(client: Client, alice: User) -> None:
    sent = client.post("/settings/tokens/", {"name": "nothing allowed", "password": PASSWORD}, headers=SCRIPT)
    assert (sent.status_code, sent["Form-Stored"]) == (204, "no")
    bob = Client()
    bob.force_login(User.objects.create_user("bob"))
    assert bob.get(sent["Form-Location"])["Location"] == "/settings/tokens/"
    page = client.get(sent["Form-Location"])
    assert page.status_code == 422 and "nothing allowed" in page.text
    nonce = page["Content-Security-Policy"].partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in page.text  # its own scripts run
    assert client.get(sent["Form-Location"])["Location"] == "/settings/tokens/"


def test_a_secret_that_is_shown_once_is_shown(client: Client, alice: User) -> None:
    fields = {"name": "mine", "password": PASSWORD, "scopes": ["chat"], "days": "30"}
    sent = client.post("/settings/tokens/?why=x", fields, headers=SCRIPT)
    assert (sent.status_code, sent["Form-Stored"]) == (204, "yes"), client.get(sent["Form-Location"]).text
    assert sent["Form-Location"].startswith("/settings/tokens/?why=x&form-answer=")
    page = client.get(sent["Form-Location"])
    assert ApiToken.objects.filter(user=alice, name="mine").exists()
    assert page.status_code == 200 and "mine" in page.text


@pytest.mark.parametrize(
    "address", ["/personas/new/", "/projects/", "/personas/prompts/", "/admin/personas/systemprompt/add/", "/setup/"]
)
def test_who_is_not_signed_in_any_more_is_told_so_and_where_to_sign_in(client: Client, address: str) -> None:
    refused = client.post(address, {"name": "x"}, headers=SCRIPT)
    assert refused.status_code == 401 and "You were signed out" in refused.text
    assert "/login/?next=%2Fsettings%2Ftokens%2F%3Fhere" in refused.text


def test_a_page_that_was_open_too_long_is_said_in_a_sentence(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    refused = client.post("/personas/prompts/", {"name": "x"}, headers=SCRIPT)
    assert refused.status_code == 401  # what the script's person has to do first
    client.force_login(alice)
    for headers in (SCRIPT, {"HX-Request": "true"}):
        refused = client.post("/personas/prompts/", {"name": "x"}, headers=headers)
        assert refused.status_code == 403 and "This page was open too long" in refused.text
        assert "<html" not in refused.text and "data-reload" in refused.text
    assert "<html" in client.post("/personas/prompts/", {"name": "x"}).text


def test_a_failure_is_a_sentence_with_the_number_in_the_log(client: Client, alice: User) -> None:
    client.raise_request_exception = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.ROOT_URLCONF", __name__)
        failed = client.post("/fails/", headers=SCRIPT)
    assert failed.status_code == 500 and "tell your administrator the number" in failed.text
    assert "<html" not in failed.text


def test_the_admin_says_that_wrong_fields_are_not_stored(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    sent = client.post("/admin/personas/systemprompt/add/", {"text": ""}, headers=SCRIPT)
    assert (sent.status_code, sent["Form-Stored"]) == (204, "no")
    assert "This field is required." in client.get(sent["Form-Location"]).text


def test_a_form_that_asks_for_a_fresh_sign_in_says_where(client: Client, alice: User) -> None:
    alice.set_unusable_password()  # as of somebody who signs in through a provider
    alice.save()
    client.force_login(alice)
    sent = client.post("/settings/tokens/", {"name": "mine", "scopes": ["chat"]}, headers=SCRIPT)
    assert sent.status_code == 403 and "This needs a recent sign-in." in sent.text
    assert "/login/again/?next=%2Fsettings%2Ftokens%2F%3Fhere" in sent.text


def test_a_way_to_sign_in_with_other_rights_is_no_sign_that_it_is_stored(client: Client, alice: User) -> None:
    sent = client.post("/admin/personas/systemprompt/add/", {"text": "x"}, headers=SCRIPT)
    assert (sent.status_code, sent["Form-Stored"]) == (204, "no")
    assert sent["Form-Location"].startswith("/admin/login/?next=")


def test_forms_without_scripts_get_pages_as_before(client: Client, alice: User) -> None:
    assert client.post("/personas/prompts/", {"name": "Letter", "text": "Write."}).status_code == 302
    assert "<html" in client.post("/settings/tokens/", {"name": "x", "password": PASSWORD}).text
