"""Inviting, signing out, switching off and importing people."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import people
from accounts.models import ApiToken, PeopleGroup, Session, User
from accounts.services import create_token
from core.audit.models import Entry
from core.errors import ProductError

pytestmark = pytest.mark.django_db
LIST = "/admin/accounts/user/"
PASSWORD = "a long enough one"
INVITED = {"username": "olga", "email": "olga@example.org", "first_name": "Olga", "last_name": "P", "groups": []}


@pytest.fixture
def staff(client: Client) -> User:
    """Return an administrator with rights on people only, signed in with `client`."""
    person = User.objects.create_user("staff", is_staff=True)
    names = ["add_user", "change_user", "view_user"]
    person.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(person)
    return person


@pytest.fixture
def strong() -> Group:
    group = Group.objects.create(name="Strong")
    group.permissions.add(Permission.objects.get(codename="change_provider"))
    return group


def link_in(page: Any) -> str:
    """The address of the only link of a page of links."""
    (link,) = page.context["links"]
    parts = urlsplit(link[1])
    return f"{parts.path}?{parts.query}"


def chosen(**more: Any) -> dict[str, Any]:
    return {"new_password1": PASSWORD, "new_password2": PASSWORD, **more}


def act(client: Client, action: str, *rows: User) -> Any:
    form = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    return client.post(LIST, form, follow=True)


def test_somebody_invited_chooses_a_password_by_the_link_once(admin_client: Client, client: Client) -> None:
    assert "LDAP" not in admin_client.get(f"{LIST}add/").content.decode()
    page = admin_client.post(f"{LIST}add/", INVITED)
    person, link = User.objects.get(username="olga"), link_in(page)
    assert (person.has_usable_password(), person.email, person.first_name) == (False, "olga@example.org", "Olga")
    assert "no-store" in page["Cache-Control"]
    client = Client()
    assert client.post(link, chosen(new_password2="another")).status_code == 422
    answer = client.post(link, chosen())
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/settings/").status_code == 200
    person.refresh_from_db()
    assert person.check_password(PASSWORD)
    again = Client().get(link)
    assert (again.status_code, "This link has ended" in again.content.decode()) == (404, True)
    assert Client().post(link, chosen(new_password1="x")).status_code == 404


def test_a_new_link_ends_those_before_it_and_the_password_only_when_it_is_used(admin_client: Client) -> None:
    first = link_in(admin_client.post(f"{LIST}add/", INVITED))
    person = User.objects.get(username="olga")
    address = reverse("admin:accounts_user_new_link", args=[person.pk])
    assert admin_client.get(address).status_code == 200
    assert Client().get(first).status_code == 200
    second = link_in(admin_client.post(address))
    assert (Client().get(first).status_code, Client().get(second).status_code) == (404, 200)
    Client().post(second, chosen())
    User.objects.update(last_login=timezone.now() - timedelta(days=1))
    third = link_in(admin_client.post(address))
    assert Client().login(username="olga", password=PASSWORD)  # which ends the link: it knows the last sign-in
    assert Client().get(third).status_code == 404


def test_a_link_of_somebody_who_is_deactivated_or_of_nobody_is_not_taken(admin_client: Client) -> None:
    link = link_in(admin_client.post(f"{LIST}add/", INVITED))
    User.objects.filter(username="olga").update(is_active=False)
    assert Client().get(link).status_code == 404
    assert Client().get(link.replace(link.split("/")[2], str(ApiToken().pk))).status_code == 404
    with pytest.raises(ProductError, match="deactivated"):
        people.create_key(user=User.objects.get(username="admin"), person=User.objects.get(username="olga"))


def test_only_held_groups_are_given_with_an_invitation(client: Client, staff: User, strong: Group) -> None:
    page = client.post(f"{LIST}add/", INVITED | {"groups": [strong.pk]})
    assert "You lack the right “llm.change_provider”" in page.content.decode()
    assert not User.objects.filter(username="olga").exists()
    assert "olga@example.org" in page.content.decode()
    client.post(f"{LIST}add/", INVITED)
    assert User.objects.filter(username="olga").exists()


def test_signed_out_everywhere_means_sessions_and_if_asked_tokens(admin_client: Client) -> None:
    person = User.objects.create_user("olga", password=PASSWORD)
    Client().force_login(person)
    token, _ = create_token(user=person, name="notebook")
    address = reverse("admin:accounts_user_sign_out", args=[person.pk])
    admin_client.post(address, {"_form_submitted": "on"})
    assert not Session.objects.filter(user=person).exists()
    assert ApiToken.objects.usable().filter(pk=token.pk).exists()
    admin_client.post(address, {"_form_submitted": "on", "tokens": "on"})
    assert not ApiToken.objects.usable().filter(pk=token.pk).exists()
    assert Entry.objects.filter(object_id=str(person.pk), action="person.signed_out_everywhere").count() == 2


def test_many_are_deactivated_and_who_is_left_out_is_named(client: Client, staff: User, admin_user: User) -> None:
    others = [User.objects.create_user(name, password=PASSWORD) for name in ("olga", "binh")]
    Client().force_login(others[0])
    page = act(client, "deactivate_selected", *others, staff, admin_user).content.decode()
    assert "2 people were deactivated" in page
    assert "You cannot deactivate your own account" in page
    assert "Left out: admin." in page
    active = dict(User.objects.values_list("username", "is_active"))
    assert active == {"olga": False, "binh": False, "staff": True, "admin": True}
    assert not Session.objects.filter(user=others[0]).exists()
    assert "2 people were activated" in act(client, "activate_selected", *others).content.decode()
    assert Entry.objects.filter(actor_id=staff.pk, action__startswith="person.").count() == 4


def test_many_get_links_at_once_but_not_who_may_do_more(client: Client, staff: User, admin_user: User) -> None:
    others = [User.objects.create_user(name) for name in ("olga", "binh")]
    page = act(client, "link_selected", *others, admin_user)
    assert [str(person) for person, _ in page.context["links"]] == ["binh", "olga"]
    assert "Left out: admin." in page.content.decode()
    password = reverse("admin:accounts_user_new_link", args=[admin_user.pk])
    assert client.post(password).status_code == 403
    assert client.post(reverse("admin:accounts_user_sign_out", args=[admin_user.pk])).status_code == 403


def table(*lines: str) -> str:
    return "\n".join(("username,email,name,rights", *lines))


def imported(client: Client, text: str) -> Any:
    return client.post(reverse("admin:accounts_user_import_table"), {"text": text})


def test_a_table_brings_everybody_with_links(admin_client: Client, strong: Group) -> None:
    weak = Group.objects.create(name="Weak; or not")
    text = table("olga,olga@example.org,Olga Maria Petrova,Strong", "", "binh,,Nguyễn Văn Bình,", "c,,,")
    page = imported(admin_client, text)
    assert [str(person) for person, _ in page.context["links"]] == ["olga", "binh", "c"]
    olga, binh = User.objects.get(username="olga"), User.objects.get(username="binh")
    assert (olga.first_name, olga.last_name, list(olga.groups.all())) == ("Olga Maria", "Petrova", [strong])
    assert (binh.get_full_name(), binh.has_usable_password()) == ("Nguyễn Văn Bình", False)
    assert "/welcome/" in page.content.decode()
    assert weak.user_set.count() == 0
    file = SimpleUploadedFile("people.csv", "\ufeffUsername;Name\r\nd;Dora\r\n".encode())
    admin_client.post(reverse("admin:accounts_user_import_table"), {"file": file, "text": ""})
    assert User.objects.get(username="d").first_name == "Dora"


def test_one_wrong_line_and_nobody_is_imported(admin_client: Client) -> None:
    text = table(
        "olga,,,",
        "admin,,,",
        "olga,nonsense,,",
        ",x@example.org,,",
        "b d,,,Nowhere",
    )
    page = imported(admin_client, text)
    assert page.status_code == 422
    wrong = [(each.line, str(each.sentence)) for each in page.context["wrong"]]
    assert [line for line, _ in wrong] == [3, 4, 4, 5, 6, 6]
    assert "The user name “admin” is taken" in wrong[0][1]
    assert "Line 2 has the user name “olga”, too" in wrong[1][1]
    assert wrong[2][1].startswith("E-mail: Enter a valid email address")
    assert wrong[3][1] == "User name: This field cannot be blank."
    assert "There is no group of administrators “Nowhere”" in wrong[5][1]
    assert "b d,,,Nowhere" in page.content.decode()
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The table is empty"),
        ("username,email", "has no people"),
        ("name,email\nOlga,o@example.org", "“username” is missing"),
        ("username,phone\nolga,1", "There is no column “phone”"),
        ("username\n" + "\n".join(f"p{number}" for number in range(501)), "more than 500 people"),
    ],
    ids=["empty", "nobody", "no names", "another column", "too many"],
)
def test_a_table_that_cannot_be_read_says_why(admin_client: Client, text: str, sentence: str) -> None:
    assert sentence in imported(admin_client, text).content.decode()


def test_a_file_in_another_encoding_is_refused(admin_client: Client) -> None:
    file = SimpleUploadedFile("people.csv", "username,name\nb,Bình".encode("utf-16"))
    page = admin_client.post(reverse("admin:accounts_user_import_table"), {"file": file})
    assert "not written in UTF-8" in page.content.decode()


def test_a_table_gives_no_more_than_its_giver_has(client: Client, staff: User, strong: Group) -> None:
    page = imported(client, table("olga,,,Strong"))
    assert "gives rights that you lack" in page.content.decode()
    staff.user_permissions.remove(Permission.objects.get(codename="add_user"))
    assert imported(client, table("olga,,,")).status_code == 403
    assert not User.objects.filter(username="olga").exists()


def test_people_of_a_table_are_put_into_groups_of_people(admin_client: Client) -> None:
    sales, office = (PeopleGroup.objects.create(name=name) for name in ("Sales", "Office"))
    text = "username,groups\nolga,Sales|Office\nbinh,Sales\nc,"
    imported(admin_client, text)
    assert sorted(person.username for person in sales.members.all()) == ["binh", "olga"]
    assert [person.username for person in office.members.all()] == ["olga"]
    assert Entry.objects.filter(action="people_group.members_changed").count() == 2
    page = imported(admin_client, "username,groups\nd,Sale\ne,Everyone")
    wrong = [str(each.sentence) for each in page.context["wrong"]]
    assert "There is no group of people “Sale”" in wrong[0]
    assert "“Everyone”" in wrong[1]
    assert not User.objects.filter(username__in=["d", "e"]).exists()


def test_a_table_does_not_change_people_who_are_here(admin_client: Client) -> None:
    text = "username,email,name\nolga,olga@example.org,Olga\nbinh,,"
    imported(admin_client, text)
    before = Entry.objects.count()
    page = imported(admin_client, text.replace(",Olga", ",Olga Petrova"))
    assert "People who have an account already: 2." in page.content.decode()
    assert page.context["links"] == [] and User.objects.get(username="olga").first_name == "Olga"
    assert Entry.objects.count() == before
    page = imported(admin_client, "username,email\nolga,other@example.org")
    assert "The user name “olga” is taken" in page.content.decode()


def test_a_cell_that_is_too_long_is_refused(admin_client: Client) -> None:
    page = imported(admin_client, 'username,name\nolga,"' + "x" * 200_000)
    assert "Line 2 is not CSV" in page.content.decode()


def test_the_command_imports_a_table(admin_user: User, tmp_path: Path, settings: Any) -> None:
    settings.SITE_URL = "https://chat.example.org"
    sales = PeopleGroup.objects.create(name="Sales")
    path = tmp_path / "people.csv"
    path.write_text("username,email,name,groups\nolga,olga@example.org,Olga,Sales\nbinh,,,\n", encoding="utf-8-sig")

    def run(**options: object) -> str:
        out = StringIO()
        call_command("import_people", str(path), administrator="admin", stdout=out, **options)
        return out.getvalue()

    assert run(dry_run=True) == "olga: a new account, groups: Sales\nbinh: a new account\n"
    assert User.objects.count() == 1
    table = path.read_text("utf-8-sig")
    Group.objects.create(name="Helpers")
    PeopleGroup.objects.create(name="Staff", all_models=True, may=["share"])
    path.write_text("username,groups,rights\nc,Sales|Staff,Helpers\n")
    assert (
        run(dry_run=True)
        == "c: a new account, groups: Sales, Staff (its members have models, rights), rights: Helpers\n"
    )
    path.write_text(table)
    report = run()
    assert "olga: https://chat.example.org/welcome/" in report and report.endswith("2 new, 0 here already.\n")
    assert [person.username for person in sales.members.all()] == ["olga"]
    assert Entry.objects.get(action="person.imported").actor_id == admin_user.pk
    assert run() == "0 new, 2 here already.\n" and User.objects.count() == 3
    path.write_text("username,email\nc,\nolga,else@example.org\nd,nonsense\n")
    with pytest.raises(CommandError) as refused:
        run()
    assert "Line 3: The user name “olga” is taken" in str(refused.value) and "Line 4: E-mail" in str(refused.value)
    assert User.objects.count() == 3
    path.write_bytes("username\nBình".encode("utf-16"))
    with pytest.raises(CommandError, match="not written in UTF-8"):
        run()


def test_the_list_counts_no_further_than_it_must(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Callable[[int], Any]
) -> None:
    monkeypatch.setattr("core.admin.MAX_COUNTED", 3)
    User.objects.bulk_create([User(username=f"p{number}", password="!") for number in range(5)])
    with django_assert_max_num_queries(11):
        page = admin_client.get(LIST)
    assert "These are the first 3" in page.content.decode()
    matches = admin_client.get(LIST, {"q": "p4"})
    assert [row.username for row in matches.context["cl"].result_list] == ["p4"]
    assert "These are the first" not in matches.content.decode()
    User.objects.filter(username="p1").update(last_login=timezone.now(), password="x")
    User.objects.filter(username="p2").update(is_active=False)
    states = {state: list(admin_client.get(LIST, {"state": state}).context["cl"].result_list) for state in STATES}
    assert {state: len(rows) for state, rows in states.items()} == STATES


STATES = {"active": 2, "invited": 3, "off": 1}
