"""A person's time zone: its source, legacy and unknown names, and its effect on other people's pages."""

import pytest
from django.test import Client
from django.urls import reverse

from accounts.forms import PreferencesForm
from accounts.models import User
from accounts.services import change_preferences, take_browsers_zone
from chat.models import Conversation
from core.errors import ProductError
from tests.accounts.programs import Program

pytestmark = pytest.mark.django_db
PREFERENCES = reverse("settings:preferences")
BROWSERS_ZONE = reverse("settings:browsers-zone")


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def page(olga: User) -> Client:
    client = Client()
    client.force_login(olga)
    return client


def test_a_legacy_name_is_stored_as_the_present_one(olga: User, page: Client) -> None:
    page.post(PREFERENCES, {"language": "", "timezone": "Asia/Saigon", "theme": ""})
    olga.refresh_from_db()
    assert (olga.timezone, olga.timezone_source) == ("Asia/Ho_Chi_Minh", "chosen")
    changed = Program(olga, "admin").client.patch(
        "/api/v1/me/", {"timezone": "Asia/Calcutta"}, content_type="application/json"
    )
    assert changed.json()["timezone"] == "Asia/Kolkata"
    form = PreferencesForm({"language": "", "timezone": "Europe/Kiev", "theme": ""}, instance=olga)
    assert form.is_valid()
    assert form.instance.timezone == "Europe/Kyiv"


def test_a_stored_name_that_the_machine_does_not_know_locks_nobody_out(olga: User, page: Client) -> None:
    User.objects.filter(pk=olga.pk).update(timezone="Mars/Olympus")
    for address in ("/", PREFERENCES, "/daily/", "/tasks/", reverse("settings:sessions")):
        assert page.get(address, follow=True).status_code == 200, address
    assert "does not know the time zone “Mars/Olympus”" in " ".join(page.get(PREFERENCES).content.decode().split())
    program = Program(olga, "chat", "tasks", "admin")
    assert program.client.get("/api/v1/me/").json()["timezone"] == "Mars/Olympus"
    assert program.client.get("/api/v1/me/usage/").status_code == 200
    assert program.client.get("/api/v1/tasks/").status_code == 200
    assert User.objects.get(pk=olga.pk).zone.key == "UTC"
    assert Conversation.objects.create(owner=olga).owner.zone.key == "UTC"


def test_the_browsers_zone_is_taken_once_and_the_settings_say_so(olga: User, page: Client) -> None:
    assert "browsers-zone" in page.get("/").content.decode()
    assert page.post(BROWSERS_ZONE, {"timezone": "Asia/Saigon"}).status_code == 204
    olga.refresh_from_db()
    assert (olga.timezone, olga.timezone_source) == ("Asia/Ho_Chi_Minh", "browser")
    assert "It was taken from your browser" in page.get(PREFERENCES).content.decode()
    assert "browsers-zone" not in page.get("/").content.decode()
    page.post(BROWSERS_ZONE, {"timezone": "Europe/Paris"})
    olga.refresh_from_db()
    assert olga.timezone == "Asia/Ho_Chi_Minh"


def test_a_zone_that_was_chosen_stays_whatever_the_browser_says(olga: User) -> None:
    change_preferences(user=olga, fields={"timezone": "UTC"})
    assert not take_browsers_zone(user=olga, name="Europe/Paris")
    olga.refresh_from_db()
    assert olga.timezone == "UTC"


def test_a_browsers_zone_that_is_not_known_is_refused(olga: User, page: Client) -> None:
    with pytest.raises(ProductError):
        take_browsers_zone(user=olga, name="Mars/Olympus")
    assert page.post(BROWSERS_ZONE, {"timezone": "x" * 10_000}).status_code == 400
    assert page.get(BROWSERS_ZONE).status_code == 405
    assert Client().post(BROWSERS_ZONE, {"timezone": "UTC"}).status_code == 302
