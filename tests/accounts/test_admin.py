import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import reverse

from accounts.models import AdminRecord, ApiToken, User
from accounts.services import create_token, save_user
from chat.models import Conversation
from core.audit.models import Entry
from core.errors import ProductError

pytestmark = pytest.mark.django_db


def user_form(person: User, **changes: Any) -> dict[str, Any]:
    form = {"username": person.username, "timezone": person.timezone, "language": "", "email": ""}
    form |= {name: "on" for name in ("is_active", "is_staff", "is_superuser") if getattr(person, name)}
    return form | changes


def change_url(person: User) -> str:
    return reverse("admin:accounts_user_change", args=[person.pk])


def test_a_person_is_added_and_gets_a_time_zone(admin_client: Client) -> None:
    admin_client.post(reverse("admin:accounts_user_add"), {"username": "olga"})
    person = User.objects.get(username="olga")
    admin_client.post(change_url(person), user_form(person, timezone="Europe/Paris", language="vi"))
    person.refresh_from_db()
    assert (person.timezone, person.language) == ("Europe/Paris", "vi")
    wrong = admin_client.post(change_url(person), user_form(person, timezone="Mars"))
    assert "is not a time zone" in wrong.content.decode()


def test_a_password_is_set_without_being_shown(admin_client: Client, admin_user: User) -> None:
    page = admin_client.get(change_url(admin_user)).content.decode()
    assert admin_user.password not in page
    assert admin_user.password.rpartition("$")[2] not in page
    passwords = {"password1": "another long one", "password2": "another long one", "usable_password": "true"}
    admin_client.post(reverse("admin:auth_user_password_change", args=[admin_user.pk]), passwords)
    admin_user.refresh_from_db()
    assert admin_user.check_password("another long one")


@pytest.mark.parametrize("lost", ["is_active", "is_superuser"])
def test_the_last_administrator_stays(admin_client: Client, admin_user: User, lost: str) -> None:
    form = user_form(admin_user)
    del form[lost]
    assert "last administrator" in admin_client.post(change_url(admin_user), form).content.decode()
    deletion = reverse("admin:accounts_user_delete", args=[admin_user.pk])
    assert admin_client.post(deletion, {"post": "yes"}).status_code == 409
    admin_user.refresh_from_db()
    assert admin_user.is_active
    assert admin_user.is_superuser


def test_one_of_two_administrators_may_go(admin_client: Client) -> None:
    second = User.objects.create_superuser("second")
    admin_client.post(change_url(second), {**user_form(second), "is_superuser": ""})
    second.refresh_from_db()
    assert not second.is_superuser


def test_what_goes_with_a_person_is_counted_and_not_shown(admin_client: Client) -> None:
    person = User.objects.create_user("olga")
    Conversation.objects.create(owner=person, title="a private matter")
    create_token(user=person, name="notebook")
    url = reverse("admin:accounts_user_delete", args=[person.pk])
    page = admin_client.get(url).content.decode()
    assert "1 conversations" in page
    assert "1 API tokens" in page
    assert "a private matter" not in page
    admin_client.post(url, {"post": "yes"})
    assert not User.objects.filter(pk=person.pk).exists()


def test_a_tokens_hash_is_never_shown(admin_client: Client) -> None:
    row, token = create_token(user=User.objects.create_user("olga"), name="notebook")
    for url in (
        reverse("admin:accounts_apitoken_changelist"),
        reverse("admin:accounts_apitoken_change", args=[row.pk]),
    ):
        page = admin_client.get(url).content.decode()
        assert "notebook" in page
        assert row.digest not in page
        assert token not in page


@pytest.mark.parametrize("way", ["button", "list"])
def test_a_revoked_token_is_refused_and_its_row_stays(admin_client: Client, client: Client, way: str) -> None:
    row, token = create_token(user=User.objects.create_user("olga"), name="notebook")
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/v1/conversations/", headers=headers).status_code == 200
    if way == "button":
        admin_client.post(reverse("admin:accounts_apitoken_revoke", args=[row.pk]), {"_form_submitted": "on"})
    else:
        form = {"action": "revoke_selected", "_selected_action": [str(row.pk)]}
        admin_client.post(reverse("admin:accounts_apitoken_changelist"), form)
    assert client.get("/api/v1/conversations/", headers=headers).status_code == 401
    assert ApiToken.objects.filter(pk=row.pk).exists()


def test_tokens_are_neither_made_nor_changed_here(admin_client: Client) -> None:
    row, _ = create_token(user=User.objects.create_user("olga"), name="notebook")
    assert admin_client.get(reverse("admin:accounts_apitoken_add")).status_code == 403
    change = reverse("admin:accounts_apitoken_change", args=[row.pk])
    assert admin_client.post(change, {"name": "mine", "scopes": '["admin"]'}).status_code == 403
    row.refresh_from_db()
    assert (row.name, "admin" in row.scopes) == ("notebook", False)


def test_groups_can_be_made(admin_client: Client) -> None:
    admin_client.post(reverse("admin:auth_group_add"), {"name": "Operators"})
    assert Group.objects.filter(name="Operators").exists()


@pytest.fixture
def staff(client: Client) -> User:
    """Return a member of the staff who may change people, groups and providers, signed in with `client`."""
    person = User.objects.create_user("staff", is_staff=True)
    names = ["add_user", "change_user", "delete_user", "add_group", "change_group", "delete_group", "view_provider"]
    person.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(person)
    return person


def test_nobody_makes_themselves_or_a_friend_a_superuser(client: Client, staff: User) -> None:
    friend = User.objects.create_user("friend")
    for person in (staff, friend):
        rights = list(person.user_permissions.values_list("pk", flat=True))
        form = user_form(person, is_superuser="on", is_staff="on", email="new@example.org", user_permissions=rights)
        client.post(change_url(person), form)
        person.refresh_from_db()
        assert (person.is_superuser, person.email) == (False, "new@example.org")
    friend.is_superuser = True
    with pytest.raises(ProductError, match="Only a superuser"):
        save_user(user=staff, person=friend)


def test_who_may_do_more_is_out_of_reach(client: Client, staff: User, admin_user: User) -> None:
    more = User.objects.create_user("more", is_staff=True, is_active=False)
    more.user_permissions.set(Permission.objects.filter(codename="change_provider"))
    for person in (admin_user, more):
        before = person.password
        assert client.post(change_url(person), user_form(person, email="taken@example.org")).status_code == 403
        passwords = {"password1": "another long one", "password2": "another long one", "usable_password": "true"}
        changed = client.post(reverse("admin:auth_user_password_change", args=[person.pk]), passwords)
        assert changed.status_code == 403
        deletion = reverse("admin:accounts_user_delete", args=[person.pk])
        assert client.post(deletion, {"post": "yes"}).status_code == 403
        chosen = {"action": "delete_selected", "_selected_action": [str(person.pk)], "post": "yes"}
        client.post(reverse("admin:accounts_user_changelist"), chosen)
        person.refresh_from_db()
        assert (person.password, person.email == "taken@example.org") == (before, False)
        with pytest.raises(ProductError, match="has rights that you do not have"):
            save_user(user=staff, person=person)


def test_only_held_rights_are_given(client: Client, staff: User) -> None:
    friend = User.objects.create_user("friend")
    shared, more = (Permission.objects.get(codename=f"{name}_provider") for name in ("view", "change"))
    strong = Group.objects.create(name="Strong")
    strong.permissions.add(more)
    for fields in ({"user_permissions": [more.pk]}, {"groups": [strong.pk]}):
        page = client.post(change_url(friend), user_form(friend, **fields)).content.decode()
        assert "You lack the right “llm.change_provider”" in page
    client.post(change_url(friend), user_form(friend, user_permissions=[shared.pk]))
    assert list(friend.user_permissions.all()) == [shared]
    own = Group.objects.create(name="Own")
    staff.groups.add(own)
    change = reverse("admin:auth_group_change", args=[own.pk])
    refused = client.post(change, {"name": "Own", "permissions": [shared.pk, more.pk]}).content.decode()
    assert "You lack the right “llm.change_provider”" in refused
    client.post(change, {"name": "Ours", "permissions": [shared.pk]})
    own.refresh_from_db()
    assert (own.name, list(own.permissions.all())) == ("Ours", [shared])
    assert client.post(reverse("admin:auth_group_delete", args=[strong.pk]), {"post": "yes"}).status_code == 403
    client.post(reverse("admin:auth_group_delete", args=[own.pk]), {"post": "yes"})
    assert list(Group.objects.values_list("name", flat=True)) == ["Strong"]


def test_what_a_deleted_administrator_did_is_kept(admin_client: Client, client: Client, staff: User) -> None:
    """Entries of Django's own log, from the time before the audit, are kept too."""
    friend = User.objects.create_user("friend")
    client.force_login(staff)
    client.post(change_url(friend), user_form(friend, email="new@example.org"))
    kind = ContentType.objects.get_for_model(User)
    message = json.dumps([{"changed": {"fields": ["Email address"]}}])
    of_row = {"content_type": kind, "object_id": str(friend.pk), "object_repr": "friend"}
    LogEntry.objects.create(user=staff, action_flag=2, change_message=message, **of_row)
    client.force_login(User.objects.get(username="admin"))
    history = client.get(reverse("admin:accounts_user_history", args=[friend.pk])).content.decode()
    assert "Changed Email address" in history
    assert "Person changed: email address" in history
    client.post(reverse("admin:accounts_user_delete", args=[staff.pk]), {"post": "yes"})
    assert not User.objects.filter(username="staff").exists()
    assert Entry.objects.get(action="person.changed").actor_name == "staff"
    record = AdminRecord.objects.get(username="staff")
    assert (record.row, record.what) == ("friend", "user")
    assert "Email address" in record.message
    listed = client.get(reverse("admin:accounts_adminrecord_changelist")).content.decode()
    assert record.message in listed
    assert client.get(reverse("admin:accounts_adminrecord_change", args=[record.pk])).status_code == 200


@pytest.mark.parametrize(
    "lookup", ["sessions__session_key__startswith", "api_tokens__digest__startswith", "password__startswith"]
)
def test_nobody_is_found_by_what_signs_them_in(admin_client: Client, lookup: str) -> None:
    assert admin_client.get("/admin/accounts/user/", {"username": "admin", lookup: "a"}).status_code == 400
