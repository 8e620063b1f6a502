from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from accounts.models import ApiToken, User
from accounts.services import create_token
from chat.models import Conversation

pytestmark = pytest.mark.django_db


def user_form(person: User, **changes: Any) -> dict[str, Any]:
    form = {"username": person.username, "timezone": person.timezone, "language": "", "email": ""}
    form |= {name: "on" for name in ("is_active", "is_staff", "is_superuser") if getattr(person, name)}
    return form | changes


def change_url(person: User) -> str:
    return reverse("admin:accounts_user_change", args=[person.pk])


def test_a_person_is_added_and_gets_a_time_zone(admin_client: Client) -> None:
    form = {"username": "olga", "usable_password": "true"}
    passwords = {"password1": "a long enough one", "password2": "a long enough one"}
    admin_client.post(reverse("admin:accounts_user_add"), form | passwords)
    person = User.objects.get(username="olga")
    assert person.check_password("a long enough one")
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
