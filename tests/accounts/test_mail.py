"""Mails: invitations and links to choose another password, with a real mail server and without one."""

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.test import Client, RequestFactory
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts import people
from accounts.mailing import sending
from accounts.mailing.views import AddressForm
from accounts.models import OpenIDProvider, User
from accounts.openid.services import store_provider
from config import service_urls
from config.embedded.paths import StartError
from config.management.commands.doctor import _mail, mail_to
from core.audit.models import Entry
from core.errors import ProductError
from core.net.site import site_origin
from tests.accounts.mail_server import MailServer, mailing
from tests.accounts.openid_browser import browser
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db

FORGOTTEN = "/login/forgotten/"
ON_ITS_WAY = "a mail with a link is on its way"
NEW = "another long password"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mailing() as running:
        yield running


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga", email="olga@example.org", password=PASSWORD)


@pytest.fixture
def staff() -> Client:
    here = browser()
    here.force_login(User.objects.create_superuser("root", password=PASSWORD))
    return here


def link_in(text: str) -> str:
    match = re.search(r"http://testserver(/welcome/\S+)", text)
    assert match, text
    return match[1]


def invite(staff: Client, name: str, email: str) -> str:
    page = staff.post(reverse("admin:accounts_user_add"), {"username": name, "email": email})
    assert page.status_code == 200
    return page.content.decode()


def test_an_invitation_is_mailed(staff: Client, server: MailServer) -> None:
    page = invite(staff, "ada", "ada@example.org")
    assert "mailed to" in page and "/welcome/" not in page
    mail = server.received[0]
    assert mail["To"] == "ada@example.org" and "Glasshouse" in mail["Subject"]
    assert "“ada”" in server.text() and "password does not change" not in server.text()
    here = browser()
    assert here.post(link_in(server.text()), {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    assert here.get("/settings/").status_code == 200


def test_a_link_is_shown_where_it_cannot_be_mailed(staff: Client) -> None:
    assert "/welcome/" in invite(staff, "one", "one@example.org")  # no server
    with mailing() as server:
        assert "/welcome/" in invite(staff, "two", "")
        server.refuses.add("three@example.org")
        page = invite(staff, "three", "three@example.org")
        assert "/welcome/" in page and "could not be sent" in page
        assert server.received == []


def test_people_of_a_table_get_a_mail_each(staff: Client, server: MailServer) -> None:
    text = "username,email\none,one@example.org\ntwo,\nthree,three@example.org"
    page = staff.post(reverse("admin:accounts_user_import_table"), {"text": text}).content.decode()
    assert [each["To"] for each in server.received] == ["one@example.org", "three@example.org"]
    assert page.count("/welcome/") == 1


def test_a_mail_is_in_the_language_of_whom_it_is_for(olga: User, server: MailServer) -> None:
    User.objects.filter(pk=olga.pk).update(language="vi")
    people.mail_forgotten(email=olga.email, origin="http://testserver")
    assert "mật khẩu" in server.text()


def test_who_has_forgotten_the_password_chooses_another(olga: User, server: MailServer) -> None:
    here = browser()
    assert FORGOTTEN in here.get("/login/").content.decode()
    assert ON_ITS_WAY in here.post(FORGOTTEN, {"email": "OLGA@example.org"}).content.decode()
    people.mail_forgotten(email="OLGA@example.org", origin="http://testserver")  # what the worker does of it
    assert "“olga”" in server.text() and "password does not change" in server.text()
    link = link_in(server.text())
    assert here.post(link, {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    olga.refresh_from_db()
    assert olga.check_password(NEW) and here.get("/settings/").status_code == 200
    assert browser().get(link).status_code == 404  # it works once
    entry = Entry.objects.filter(action="password.link_mailed").latest("id")
    assert entry.object_id == str(olga.pk) and "welcome" not in str(entry.changes)


def test_the_answer_is_the_same_for_an_address_that_nobody_has(olga: User, server: MailServer) -> None:
    pages = [browser().post(FORGOTTEN, {"email": email}) for email in (olga.email, "nobody@example.org")]
    texts = [re.sub(r"nonce=\S+|data-since=\S+|value=\S+", "", page.content.decode()) for page in pages]
    assert texts[0] == texts[1] and ON_ITS_WAY in texts[0]
    people.mail_forgotten(email="nobody@example.org", origin="http://testserver")
    assert server.received == []


def test_what_is_no_address_is_said(server: MailServer) -> None:
    page = browser().post(FORGOTTEN, {"email": "olga"})
    assert page.status_code == 422 and ON_ITS_WAY not in page.content.decode()


def test_who_is_off_or_gave_the_address_themselves_or_signs_in_elsewhere_gets_none(
    olga: User, server: MailServer
) -> None:
    for fields in ({"is_active": False}, {"is_active": True, "email_confirmed": False}):
        User.objects.filter(pk=olga.pk).update(**fields)
        people.mail_forgotten(email=olga.email, origin="http://testserver")
    User.objects.filter(pk=olga.pk).update(email_confirmed=True)
    row = OpenIDProvider(name="Company", issuer="https://id.example.org", client_id="here", only=True)
    store_provider(user=None, provider=row, secret=None)
    people.mail_forgotten(email=olga.email, origin="http://testserver")
    assert server.received == []


def test_nobody_is_written_to_again_and_again(server: MailServer) -> None:
    email, mailed = f"{uuid4().hex}@example.org", 0
    for number in range(8):  # from as many addresses; the clock's quarter of an hour may end meanwhile
        form = AddressForm(RequestFactory(REMOTE_ADDR=f"10.9.8.{number}").get("/"), {"email": email})
        assert form.is_valid()
        mailed += not form.limit_reached
    assert 3 <= mailed <= 6


def test_without_a_server_the_page_says_whom_to_ask(olga: User) -> None:
    assert "Ask an administrator" in browser().get(FORGOTTEN).content.decode()
    assert ON_ITS_WAY not in browser().post(FORGOTTEN, {"email": olga.email}).content.decode()


def test_the_doctor_tries_the_server(server: MailServer) -> None:
    assert [each.state for each in _mail()] == ["ok"]
    assert mail_to("root@example.org").state == "ok" and server.received[0]["To"] == "root@example.org"
    server.refuses.add("root@example.org")
    assert mail_to("root@example.org").state == "fail"


def test_the_doctor_says_what_is_wrong(settings: Settings) -> None:
    assert [each.state for each in _mail()] == ["ok"] and mail_to("root@example.org").state == "fail"
    with mailing() as server:
        pass
    settings.EMAIL_URL, settings.EMAIL_HOST = server.url, "127.0.0.1"
    settings.EMAIL_PORT = int(server.url.rpartition(":")[2])
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    assert [each.state for each in _mail()] == ["fail"]
    with pytest.raises(ProductError, match="mail_failed"):
        sending.send([sending.Mail("root@example.org", "A\nB", "text")])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail", (25, "", False, False)),
        ("smtp://mail:1025", (1025, "", False, False)),
        ("smtp://a%40b.org:p%3A@mail", (587, "p:", False, True)),
        ("smtp://mail:587", (587, "", False, True)),
        ("smtp://mail:587?starttls=no", (587, "", False, False)),
        ("smtps://u:p@mail", (465, "p", True, False)),
    ],
)
def test_the_url_says_port_password_and_encryption(url: str, expected: tuple[int, str, bool, bool]) -> None:
    options = service_urls.mail(url)
    assert tuple(options[name] for name in ("PORT", "PASSWORD", "SSL", "TLS")) == expected
    assert options["HOST"] == "mail" and "@" in options["FROM"]


def test_what_is_no_url_of_a_mail_server_is_refused() -> None:
    for url in ("http://mail", "mail.example.org", "smtp:///x"):
        with pytest.raises(StartError):
            service_urls.mail(url)


def test_the_mailed_link_does_not_lead_to_a_port_that_the_request_has_named(
    server: MailServer, olga: User, settings: Settings
) -> None:
    User.objects.filter(pk=olga.pk).update(email_confirmed=True)
    settings.ALLOWED_HOSTS = ["testserver"]
    request = RequestFactory().post(FORGOTTEN, HTTP_HOST="testserver:9999")
    people.mail_forgotten(email=olga.email, origin=site_origin(request))
    assert "http://testserver/welcome/" in server.text() and "9999" not in server.text()
