"""The settings pages without a browser: stored values, ended sessions, and the language of the answer."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.access.sessions import VISIT
from accounts.models import Session, User
from accounts.tasks import forget_expired
from core.audit.models import Entry
from core.audit.origin import How
from files import storage
from files.services import upload
from workspace.models.settings import workspace_at

pytestmark = pytest.mark.django_db

PASSWORD, NEW = "correct horse battery", "an even longer staple"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605 Version/18.0 Mobile Safari/604.1"
PREFERENCES = reverse("settings:preferences")
SESSIONS = reverse("settings:sessions")


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga", password=PASSWORD)


@pytest.fixture
def browser(olga: User) -> Callable[[str], Client]:
    """Signs olga in with a browser of that name."""

    def open_(agent: str) -> Client:
        client = Client(headers={"User-Agent": agent})
        client.post(reverse("login"), {"username": "olga", "password": PASSWORD})
        client.get(SESSIONS)
        return client

    return open_


def text(client: Client, url: str) -> str:
    return " ".join(client.get(url).content.decode().split())


def signed_in(client: Client) -> bool:
    return client.get(SESSIONS).status_code == 200


def test_language_time_zone_and_colours_are_kept_and_take_effect(browser: Callable[[str], Client], olga: User) -> None:
    client = browser(FIREFOX)
    assert "data-theme" not in text(client, PREFERENCES)
    chosen = {"language": "vi", "timezone": "Asia/Ho_Chi_Minh", "theme": "dark"}
    saved = client.post(PREFERENCES, chosen, follow=True)
    assert saved.headers["Content-Language"] == "vi"
    page = saved.content.decode()
    assert '<html lang="vi"' in page
    assert 'data-theme="dark"' in page
    olga.refresh_from_db()
    assert (olga.language, olga.timezone, olga.theme) == ("vi", "Asia/Ho_Chi_Minh", "dark")


def test_the_browsers_language_counts_until_another_is_chosen(browser: Callable[[str], Client]) -> None:
    client = browser(FIREFOX)
    page = client.get(PREFERENCES, headers={"Accept-Language": "vi"})
    assert page.headers["Content-Language"] == "vi"
    client.post(PREFERENCES, {"language": "en", "timezone": "UTC", "theme": ""})
    chosen = client.get(PREFERENCES, headers={"Accept-Language": "vi"})
    assert chosen.headers["Content-Language"] == "en"


def test_the_password_of_a_proxy_in_front_changes_nothing_for_a_page(
    browser: Callable[[str], Client], olga: User
) -> None:
    """A browser sends the proxy's password with each request, beside the session."""
    client = browser(FIREFOX)
    client.post(PREFERENCES, {"language": "vi", "timezone": "Asia/Ho_Chi_Minh", "theme": ""})
    page = client.get(PREFERENCES, headers={"Authorization": "Basic b2xnYTpwYXNz"})
    assert page.headers["Content-Language"] == "vi"
    assert '<html lang="vi"' in page.content.decode()
    form = {"name": "mine", "scopes": ["chat"], "days": "30", "password": PASSWORD}
    client.post(reverse("settings:tokens"), form, headers={"Authorization": "Basic b2xnYTpwYXNz"})
    assert Entry.objects.get(action="token.made").how == How.PAGE


def test_a_place_that_is_no_time_zone_is_refused_beside_the_field(browser: Callable[[str], Client], olga: User) -> None:
    refused = browser(FIREFOX).post(PREFERENCES, {"language": "vi", "timezone": "Mars", "theme": ""})
    assert refused.status_code == 422
    assert "“Mars” is not a time zone" in refused.content.decode()
    olga.refresh_from_db()
    assert (olga.language, olga.timezone) == ("", "UTC")


def test_times_are_shown_in_ones_own_zone(browser: Callable[[str], Client], olga: User) -> None:
    client = browser(FIREFOX)
    User.objects.filter(pk=olga.pk).update(timezone="Pacific/Kiritimati")
    here = text(client, SESSIONS)
    User.objects.filter(pk=olga.pk).update(timezone="Pacific/Niue")  # 25 hours earlier: always another day
    assert text(client, SESSIONS) != here


def test_the_sessions_are_told_apart_by_browser_and_their_keys_are_not_shown(
    browser: Callable[[str], Client], olga: User
) -> None:
    desk, phone = browser(FIREFOX), browser(IPHONE)
    page = text(desk, SESSIONS)
    assert "Firefox on Linux" in page
    assert "Safari on iPhone" in page
    assert page.index("Firefox on Linux") < page.index("this browser") < page.index("Safari on iPhone")
    for client in (desk, phone):
        assert str(client.session.session_key) not in page
    assert Session.objects.filter(user=olga).count() == 2


def test_one_session_is_ended_and_the_others_stay(browser: Callable[[str], Client]) -> None:
    desk, phone, tablet = browser(FIREFOX), browser(IPHONE), browser("Something else")
    url = text(desk, SESSIONS).partition("Safari on iPhone")[2].partition('action="')[2].partition('"')[0]
    assert desk.post(url).status_code == 302
    assert not signed_in(phone)
    assert signed_in(desk)
    assert signed_in(tablet)
    assert desk.post(url).status_code == 404


def test_everywhere_else_is_signed_out(browser: Callable[[str], Client], client: Client) -> None:
    somebody = User.objects.create_user("somebody")
    client.force_login(somebody)
    desk, phone = browser(FIREFOX), browser(IPHONE)
    unused = Client()
    unused.post(reverse("login"), {"username": "olga", "password": PASSWORD})
    desk.post(reverse("settings:end_others"))
    assert signed_in(desk)
    assert not signed_in(phone)
    assert not signed_in(unused)
    assert signed_in(client)


def test_a_new_password_signs_out_every_other_browser(browser: Callable[[str], Client], olga: User) -> None:
    desk, phone = browser(FIREFOX), browser(IPHONE)
    form = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    done = desk.post(reverse("settings:password"), form, follow=True)
    assert "Your password is changed" in done.content.decode()
    assert signed_in(desk)
    assert not signed_in(phone)
    olga.refresh_from_db()
    assert olga.check_password(NEW)


def test_a_password_set_by_an_administrator_signs_out_everywhere(
    browser: Callable[[str], Client], olga: User, admin_client: Client
) -> None:
    desk = browser(FIREFOX)
    url = reverse("admin:auth_user_password_change", args=[olga.pk])
    admin_client.post(url, {"password1": NEW, "password2": NEW, "usable_password": "true"})
    assert not signed_in(desk)
    assert not Session.objects.filter(user=olga).exists()


def test_an_administrator_who_sets_their_own_password_stays_signed_in(admin_client: Client, admin_user: User) -> None:
    url = reverse("admin:auth_user_password_change", args=[admin_user.pk])
    admin_client.post(url, {"password1": NEW, "password2": NEW, "usable_password": "true"})
    admin_user.refresh_from_db()
    assert admin_user.check_password(NEW)
    assert signed_in(admin_client)


def test_who_is_switched_off_is_signed_out(browser: Callable[[str], Client], olga: User, admin_client: Client) -> None:
    desk = browser(FIREFOX)
    form = {"username": "olga", "timezone": "UTC", "language": "", "theme": "", "email": ""}
    admin_client.post(reverse("admin:accounts_user_change", args=[olga.pk]), form)
    assert not signed_in(desk)
    assert not Session.objects.filter(user=olga).exists()


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}, "old password was entered incorrectly"),
        ({"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW + "!"}, "didn’t match"),
        ({"old_password": PASSWORD, "new_password1": "short", "new_password2": "short"}, "at least 10 characters"),
        ({"old_password": PASSWORD, "new_password1": "9" * 12, "new_password2": "9" * 12}, "entirely numeric"),
    ],
)
def test_a_password_that_will_not_do_is_refused_in_words(
    browser: Callable[[str], Client], olga: User, form: dict[str, str], sentence: str
) -> None:
    client = browser(FIREFOX)
    refused = client.post(reverse("settings:password"), form)
    assert refused.status_code == 422
    assert sentence in refused.content.decode().replace("&#x27;", "’")
    olga.refresh_from_db()
    assert olga.check_password(PASSWORD)
    assert signed_in(client)


def test_expired_sessions_are_forgotten(browser: Callable[[str], Client], olga: User) -> None:
    desk, phone = browser(FIREFOX), browser(IPHONE)
    Session.objects.filter(pk=phone.session.session_key).update(expire_date="2020-01-01T00:00Z")
    forget_expired()
    assert [row.pk for row in Session.objects.filter(user=olga)] == [desk.session.session_key]


def test_a_session_in_use_ends_so_many_days_after_its_sign_in(browser: Callable[[str], Client], olga: User) -> None:
    client = browser(FIREFOX)
    longest = timedelta(days=workspace_at().session_most_days)

    def signed_in_ago(ago: timedelta) -> datetime:
        """Let the sign-in be so long ago. Returns the time of the sign-in."""
        began = (timezone.now() - ago).replace(microsecond=0)
        session = client.session
        session[VISIT] = {"began": int(began.timestamp()), "seen": 0, "agent": FIREFOX}
        session.save()
        return began

    began = signed_in_ago(longest - timedelta(hours=1))
    assert signed_in(client)  # which stores the visit, and would make the session last from now on
    assert Session.objects.get(user=olga).expire_date == began + longest
    signed_in_ago(longest)
    assert not signed_in(client)


def test_the_bytes_of_a_deleted_persons_files_go_too(
    olga: User, admin_user: User, admin_client: Client, settings: Settings, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    own = upload(user=olga, name="own.txt", content=ContentFile(b"only olga has this"))
    shared = upload(user=olga, name="shared.txt", content=ContentFile(b"both have this"))
    upload(user=admin_user, name="mine.txt", content=ContentFile(b"both have this"))
    admin_client.post(reverse("admin:accounts_user_delete", args=[olga.pk]), {"post": "yes"})
    for number in range(256):
        storage.sweep(f"{number:02x}")
    assert not default_storage.exists(str(own.blob.name))
    assert default_storage.exists(str(shared.blob.name))
