"""The workspace's settings: the rights to read and change them, and the effect of each."""

import re
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from PIL import Image

from accounts.models import User
from chat.models import Conversation, Share
from chat.openai_api.create_turn import delete_old_conversations
from core.errors import ProductError
from personas.models import BudgetProfile
from personas.services import default_profile, rules_at
from tests.accounts.programs import Program
from tests.chat.conversations import past
from tests.conftest import PASSWORD
from workspace import services as workspace
from workspace.models import Workspace, WorkspaceVersion, colours
from workspace.models.settings import workspace_at

pytestmark = pytest.mark.django_db
PAGE = "/admin/accounts/workspace/1/change/"
API = "/api/v1/workspace/"


def picture(kind: str = "PNG", size: tuple[int, int] = (600, 300), **options: Any) -> bytes:
    written = BytesIO()
    Image.new("RGB", size, "#a3281d").save(written, kind, **options)
    return written.getvalue()


def fields_of(page: Any) -> dict[str, Any]:
    """Return the fields that a browser would send from an untouched form of the admin."""
    form = page.context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    shown = re.findall(r'type="hidden" name="initial-(\w+)"', page.content.decode())
    values |= {f"initial-{name}": form[name].value() for name in shown}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def set_to(**fields: Any) -> None:
    workspace.change_settings(user=None, fields=fields)


@pytest.fixture
def signed_in(client: Client) -> Client:
    client.force_login(User.objects.create_user("olga", password=PASSWORD))
    return client


def test_the_page_changes_what_was_touched_and_nothing_else(admin_client: Client) -> None:
    assert admin_client.get("/admin/accounts/workspace/").headers["Location"] == PAGE
    sent = fields_of(admin_client.get(PAGE))
    set_to(notice="Of another administrator.")  # while this one reads
    other = BudgetProfile.objects.create(name="Long")
    sent |= {"name": "Lighthouse", "default_profile": str(other.pk), "languages": ["vi", "en"], "accent": "#1D4ED8"}
    saved = admin_client.post(PAGE, sent, follow=True)
    assert "It applies everywhere now." in saved.content.decode()
    now = workspace_at()
    assert (now.name, now.accent, now.notice) == ("Lighthouse", "#1d4ed8", "Of another administrator.")
    assert default_profile() == other and other.layout == "near_end"
    sent = fields_of(admin_client.get(PAGE)) | {"layout": "files_first"}
    admin_client.post(PAGE, sent)
    assert default_profile().layout == "files_first" and rules_at().profile_for(None).layout == "files_first"
    del sent["sharing"]
    admin_client.post(PAGE, sent)
    assert not workspace_at().sharing and workspace_at().name == "Lighthouse"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"accent": "#ffcc00"}, "The nearest colour that can is #"),
        ({"accent": "green"}, "six digits"),
        ({"languages": ["vi"]}, "must be among those that are offered"),
        ({"name": ""}, "required"),
        ({"session_days": "0"}, "greater than or equal to 1"),
        ({"password_length": "7"}, "greater than or equal to 8"),
    ],
)
def test_what_cannot_be_is_said_beside_the_field_and_kept(admin_client: Client, wrong: Any, sentence: str) -> None:
    sent = fields_of(admin_client.get(PAGE)) | wrong
    page = admin_client.post(PAGE, sent).content.decode()
    assert sentence in page
    assert not Workspace.objects.exists()


def test_programs_read_and_change_them_with_the_scope_and_the_right() -> None:
    admin, staff = User.objects.create_superuser("root"), User.objects.create_user("staff", is_staff=True)
    assert Program(admin, "chat").ask("GET", API).status_code == 403
    assert Program(staff, "admin").ask("GET", API).json()["code"] == "right_missing"
    staff.user_permissions.add(Permission.objects.get(codename="view_workspace"))
    reader = Program(User.objects.get(pk=staff.pk), "admin")
    assert reader.ask("GET", API).json()["name"] == "Glasshouse"
    assert reader.ask("PATCH", API, '{"name": "Mine"}').json()["code"] == "right_missing"
    program, profile = Program(admin, "admin"), BudgetProfile.objects.create(name="Long")
    body = f'{{"name": "Lighthouse", "default_profile": "{profile.pk}", "layout": "all_first"}}'
    values = program.ask("PATCH", API, body).json()
    assert (values["name"], values["layout"], values["default_profile"]) == ("Lighthouse", "all_first", str(profile.pk))
    assert (values["sharing"], values["logo"]) == (True, None)
    for wrong in ('{"accent": "#ffff00"}', '{"languages": []}', '{"sharng": false}', '{"logo": "x"}', '{"name": ""}'):
        assert program.ask("PATCH", API, wrong).status_code == 400, wrong
    assert program.ask("GET", API).json() == values
    put = program.client.put(
        f"{API}logo/",
        *_form({"file": SimpleUploadedFile("logo.webp", picture("WEBP"), "image/webp")}),
    )
    assert put.json()["logo"].startswith("/logo/")
    assert program.ask("DELETE", f"{API}logo/").status_code == 204
    assert program.ask("GET", API).json()["logo"] is None


def _form(fields: dict[str, Any]) -> tuple[bytes, str]:
    return encode_multipart(BOUNDARY, fields), MULTIPART_CONTENT


def test_the_logo_is_made_anew_and_stands_where_the_name_stands(admin_client: Client, client: Client) -> None:
    before = picture("JPEG", comment=b"where it was taken")
    sent = fields_of(admin_client.get(PAGE)) | {"picture": SimpleUploadedFile("logo.jpg", before)}
    admin_client.post(PAGE, sent)
    address = f"/logo/{workspace_at().logo_name}.png"
    shown = client.get(address)
    with Image.open(BytesIO(shown.content)) as image:
        assert (image.format, image.size) == ("PNG", (256, 128))
    assert b"where it was taken" not in shown.content
    assert shown["Content-Type"] == "image/png" and "immutable" in shown["Cache-Control"]
    for page in (client.get("/login/"), admin_client.get("/"), admin_client.get("/admin/")):
        assert address in page.content.decode()
    assert client.get("/logo/of-another.png").status_code == 404
    admin_client.post(PAGE, fields_of(admin_client.get(PAGE)) | {"remove_logo": "on"})
    assert address not in client.get("/login/").content.decode() and client.get(address).status_code == 404


@pytest.mark.parametrize(
    "content",
    [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"", picture()[:100], picture("GIF"), picture(size=(5_000, 4))],
)
def test_a_logo_that_is_none_is_refused_in_words(admin_client: Client, content: bytes) -> None:
    with pytest.raises(ProductError) as refused:
        workspace.set_logo(user=None, picture=BytesIO(content))
    assert refused.value.code == "bad_logo"
    if content:
        sent = fields_of(admin_client.get(PAGE)) | {"picture": SimpleUploadedFile("logo.png", content)}
        assert "picture" in admin_client.post(PAGE, sent).content.decode()
    with pytest.raises(ProductError, match="2 MB"):
        workspace.set_logo(user=None, picture=BytesIO(bytes(2_000_001)))


def test_a_change_is_there_at_once_and_costs_a_page_of_somebody_signed_in_no_statement(signed_in: Client) -> None:
    signed_in.get("/settings/")
    with CaptureQueriesContext(connection) as queries:
        page = signed_in.get("/settings/").content.decode()
    about = [each["sql"] for each in queries if "workspace" in each["sql"]]
    assert len(about) == 1 and "session_key" in about[0]  # the session's own statement brings the version
    assert "· Glasshouse" in page
    set_to(name="Lighthouse", accent="#6d28d9", notice="Ask <b>Ann</b> at https://help.example.org")
    page = signed_in.get("/settings/").content.decode()
    assert "· Lighthouse" in page and "Ask &lt;b&gt;Ann" in page
    assert '<a href="https://help.example.org"' in page
    accent = colours.accent("#6d28d9")
    assert f"--accent: light-dark(#6d28d9, {accent.dark})" in page
    home = signed_in.get("/").content.decode()
    assert "help.example.org" in home and "Lighthouse" in home
    WorkspaceVersion.objects.all().delete()  # nothing is kept then
    assert "Lighthouse" in signed_in.get("/settings/").content.decode()


def test_the_sign_in_page_and_the_admin_have_the_name_the_colour_and_the_notice(
    client: Client, admin_client: Client
) -> None:
    set_to(name="Lighthouse & Co", accent="#1d4ed8", notice="Closed on Sunday.")
    page = client.get("/login/").content.decode()
    assert "Lighthouse &amp; Co" in page and "Closed on Sunday." in page and "light-dark(#1d4ed8" in page
    admin = admin_client.get("/admin/").content.decode()
    assert "Lighthouse &amp; Co" in admin and "29, 78, 216" in admin


def test_pages_come_in_languages_that_are_offered(signed_in: Client) -> None:
    stranger = Client()
    ask = {"Accept-Language": "vi-VN,vi;q=0.9,en;q=0.5"}
    assert 'lang="vi"' in stranger.get("/login/", headers=ask).content.decode()
    set_to(languages=["en"])
    assert 'lang="en"' in stranger.get("/login/", headers=ask).content.decode()
    set_to(languages=["en", "vi"], default_language="vi")
    assert 'lang="vi"' in stranger.get("/login/", headers={"Accept-Language": "fr"}).content.decode()
    User.objects.update(language="vi")
    assert 'lang="vi"' in signed_in.get("/settings/").content.decode()
    set_to(languages=["en"], default_language="en")
    page = signed_in.get("/settings/").content.decode()
    assert 'lang="en"' in page and 'value="vi"' not in page
    refused = signed_in.patch("/api/v1/me/", '{"language": "vi"}', content_type="application/json")
    assert refused.status_code == 200  # it is theirs already
    User.objects.update(language="")
    refused = signed_in.patch("/api/v1/me/", '{"language": "vi"}', content_type="application/json")
    assert "does not offer" in refused.json()["detail"]


def test_links_answer_as_if_ended_while_sharing_is_off(signed_in: Client) -> None:
    place = past(User.objects.get(username="olga"), 1)
    address = (
        signed_in.post(f"/api/v1/conversations/{place.pk}/shares/").json()["url"].removeprefix("http://testserver")
    )
    assert Client().get(address).status_code == 200
    set_to(sharing=False)
    answer = Client().get(address)
    assert answer.status_code == 404
    refused = signed_in.post(f"/api/v1/conversations/{place.pk}/shares/")
    assert (refused.status_code, refused.json()["code"]) == (403, "sharing_off")
    assert "Share by link" not in signed_in.get(f"/c/{place.pk}/organise/").content.decode()
    assert "switched off" in signed_in.get(f"/c/{place.pk}/share/").content.decode()
    assert "switched off" in signed_in.get("/shares/").content.decode()
    assert Share.objects.count() == 1
    set_to(sharing=True)
    assert Client().get(address).status_code == 200


def test_signing_in_follows_its_rules(client: Client) -> None:
    User.objects.create_user("olga", password=PASSWORD)
    set_to(session_days=3, password_length=20)
    answer = client.post("/login/", {"username": "olga", "password": PASSWORD}, REMOTE_ADDR="203.0.113.7")
    assert answer.cookies["sessionid"]["max-age"] == 3 * 86_400
    with pytest.raises(ValidationError, match="20 characters"):
        validate_password("quite-long-pass-1")
    validate_password("quite-long-pass-1-and-more")
    assert 'minlength="20"' in client.get("/settings/password/").content.decode()


def test_requests_of_programs_are_kept_as_long_as_it_says() -> None:
    user = User.objects.create_user("olga")
    place = past(user, 1)
    five = timezone.now() - timedelta(days=5)
    Conversation.objects.filter(pk=place.pk).update(origin=Conversation.Origin.API, updated=five)
    delete_old_conversations()  # the installation keeps them for 30 days
    set_to(api_conversation_days=0)
    delete_old_conversations()
    assert Conversation.objects.filter(pk=place.pk).exists()
    set_to(api_conversation_days=4)
    delete_old_conversations()
    assert not Conversation.objects.filter(pk=place.pk).exists()
