"""Nobody joins a project without their consent, and invitations do not reveal user names."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from core.errors import ProductError
from projects import invitations, services
from projects.invitations import accept, invite
from projects.models import Invitation, Membership, Project

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("olga-owner")


@pytest.fixture
def guest() -> User:
    return User.objects.create_user("gustav-guest")


@pytest.fixture
def project(owner: User) -> Project:
    return Project.objects.create(owner=owner, name="Contracts", instructions="Be exact.")


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def ask_api(client: Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    return client.generic(method, f"/api/v1/{path}", "" if body is None else json.dumps(body), "application/json")


def refused(code: str, **arguments: Any) -> None:
    with pytest.raises(ProductError) as raised:
        invite(**arguments)
    assert raised.value.code == code


def test_whoever_is_invited_is_no_member_before_they_accept(owner: User, guest: User, project: Project) -> None:
    sender, receiver = signed_in(owner), signed_in(guest)
    sent = ask_api(sender, "POST", f"projects/{project.pk}/members/", {"username": guest.username, "role": "editor"})
    assert sent.status_code == 201
    for path in ("", "files/", "members/", "invitations/"):
        assert ask_api(receiver, "GET", f"projects/{project.pk}/{path}").status_code == 404
    assert receiver.get(f"/projects/{project.pk}/").status_code == 404
    assert ask_api(sender, "GET", f"projects/{project.pk}/members/").json()["results"] == []
    (got,) = ask_api(receiver, "GET", "invitations/").json()["results"]
    assert (got["project"], got["project_name"], got["invited_by"], got["role"]) == (
        str(project.pk),
        "Contracts",
        owner.username,
        "editor",
    )
    joined = ask_api(receiver, "POST", f"invitations/{got['id']}/accept/")
    assert (joined.status_code, joined.json()["role"]) == (200, "editor")
    assert ask_api(receiver, "GET", f"projects/{project.pk}/").status_code == 200
    assert ask_api(sender, "GET", f"projects/{project.pk}/invitations/").json()["results"] == []
    assert ask_api(receiver, "POST", f"invitations/{got['id']}/accept/").status_code == 404


def test_an_owner_cannot_tell_a_name_that_nobody_has(owner: User, guest: User, project: Project) -> None:
    """The answers, the list, and the invitation after a refusal or a deletion look the same."""
    sender, path = signed_in(owner), f"projects/{project.pk}/"
    deactivated = User.objects.create_user("greta-gone", is_active=False)
    names = [guest.username, "nobody-of-this-name", deactivated.username]
    answers = [ask_api(sender, "POST", f"{path}members/", {"username": name}) for name in names]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({tuple(answer.json()) for answer in answers}) == 1
    before = ask_api(sender, "GET", f"{path}invitations/").json()["results"]
    assert [each["username"] for each in before] == names
    receiver = signed_in(guest)
    mine = ask_api(receiver, "GET", "invitations/").json()["results"]
    assert ask_api(receiver, "POST", f"invitations/{mine[0]['id']}/decline/").status_code == 204
    deactivated.delete()
    User.objects.filter(pk=guest.pk).update(username="gustav-renamed")
    assert ask_api(sender, "GET", f"{path}invitations/").json()["results"] == before
    assert ask_api(receiver, "GET", "invitations/").json()["results"] == []
    again = ask_api(sender, "POST", f"{path}members/", {"username": "nobody-of-this-name", "role": "editor"})
    assert again.status_code == 201
    assert Invitation.objects.count() == 3


def test_a_declined_invitation_is_not_shown_again_by_its_repeat(owner: User, guest: User, project: Project) -> None:
    sent = invite(user=owner, project=project, username=guest.username)
    invitations.decline(user=guest, invitation=sent)
    invite(user=owner, project=project, username=guest.username, role="editor")
    assert not Invitation.objects.visible_to(guest).exists()
    Invitation.objects.update(expires=timezone.now() - timedelta(seconds=1))
    invite(user=owner, project=project, username=guest.username)
    assert Invitation.objects.visible_to(guest).exists()


def test_a_name_that_somebody_has_since_is_invited_anew_by_a_repeat(owner: User, project: Project) -> None:
    invite(user=owner, project=project, username="newcomer")
    newcomer = User.objects.create_user("newcomer")
    assert not Invitation.objects.visible_to(newcomer).exists()  # it was sent to nobody
    invite(user=owner, project=project, username="newcomer", role="editor")
    assert Invitation.objects.visible_to(newcomer).get().role == "editor"


def test_an_invitation_ends(owner: User, guest: User, project: Project) -> None:
    sent = invite(user=owner, project=project, username=guest.username)
    assert timedelta(days=29) < sent.expires - timezone.now() <= invitations.LIFETIME
    Invitation.objects.update(expires=timezone.now())
    assert not Invitation.objects.sent(project).exists()
    with pytest.raises(ProductError):
        accept(user=guest, invitation=sent)
    assert not Membership.objects.exists()


def test_only_the_owner_sends_sees_and_withdraws(owner: User, guest: User, project: Project) -> None:
    editor = User.objects.create_user("edda-editor")
    accept(user=editor, invitation=invite(user=owner, project=project, username=editor.username, role="editor"))
    sent = invite(user=owner, project=project, username=guest.username)
    theirs, path = signed_in(editor), f"projects/{project.pk}/"
    assert ask_api(theirs, "POST", f"{path}members/", {"username": "somebody"}).json()["code"] == "not_owner"
    assert ask_api(theirs, "GET", f"{path}invitations/").json()["code"] == "not_owner"
    assert ask_api(theirs, "DELETE", f"{path}invitations/{sent.pk}/").json()["code"] == "not_owner"
    for act in ("accept", "decline"):  # an invitation is its person's alone, the owner's neither
        assert ask_api(theirs, "POST", f"invitations/{sent.pk}/{act}/").status_code == 404
        assert ask_api(signed_in(owner), "POST", f"invitations/{sent.pk}/{act}/").status_code == 404
    assert ask_api(signed_in(owner), "DELETE", f"{path}invitations/{sent.pk}/").status_code == 204
    with pytest.raises(ProductError):
        accept(user=guest, invitation=sent)
    assert ask_api(signed_in(owner), "DELETE", f"{path}invitations/{sent.pk}/").status_code == 404


def test_what_makes_no_sense_is_refused(owner: User, guest: User, project: Project) -> None:
    arguments: dict[str, Any] = {"user": owner, "project": project}
    refused("owner_is_member", **arguments, username=owner.username)
    for name in ("", "  ", "a" * 151, "nul\x00"):
        refused("bad_username", **arguments, username=name)
    refused("unknown_role", **arguments, username="somebody", role="king")
    accept(user=guest, invitation=invite(**arguments, username=guest.username))
    refused("already_member", **arguments, username=guest.username)
    refused("not_found", user=User.objects.create_user("stranger-here"), project=project, username="somebody")


def test_invitations_that_nobody_answers_are_limited(owner: User, project: Project) -> None:
    until = timezone.now() + invitations.LIFETIME
    Invitation.objects.bulk_create(Invitation(project=project, username=f"name-{n}", expires=until) for n in range(50))
    refused("too_many_invitations", user=owner, project=project, username="one-more")
    invite(user=owner, project=project, username="name-7", role="editor")  # no other one
    Invitation.objects.filter(username="name-8").update(expires=timezone.now())
    invite(user=owner, project=project, username="one-more")
    others = [Project.objects.create(owner=owner, name=f"Other {n}") for n in range(3)]
    Invitation.objects.bulk_create(
        Invitation(project=other, username=f"name-{n}", expires=until) for other in others for n in range(50)
    )
    refused("too_many_invitations", user=owner, project=Project.objects.create(owner=owner, name="New"), username="x")


def test_the_page_shows_what_is_invited_and_takes_the_answer(owner: User, guest: User, project: Project) -> None:
    sender, receiver = signed_in(owner), signed_in(guest)
    assert sender.post(f"/projects/{project.pk}/members/", {"username": guest.username}).status_code == 302
    shown = sender.get(f"/projects/{project.pk}/").content.decode()
    assert guest.username in shown and "invited until" in shown and "Withdraw" in shown
    count = receiver.get("/").content.decode()
    assert "1 invitation" in " ".join(count.split())
    listed = receiver.get("/projects/").content.decode()
    assert "olga-owner invites you" in " ".join(listed.split()) and "Be exact." not in listed
    sent = Invitation.objects.get()
    for part in ("invitations/", "invitations/count/"):
        assert receiver.get(f"/projects/{part}").status_code == 200
    led = receiver.post(f"/projects/invitations/{sent.pk}/accept/")
    assert led["Location"] == f"/projects/{project.pk}/"
    assert receiver.get(led["Location"]).status_code == 200
    assert "invited until" not in sender.get(f"/projects/{project.pk}/members/").content.decode()


def test_the_page_declines_and_withdraws(owner: User, guest: User, project: Project) -> None:
    sender, receiver = signed_in(owner), signed_in(guest)
    sent = invite(user=owner, project=project, username=guest.username)
    assert receiver.post(f"/projects/invitations/{sent.pk}/decline/")["Location"] == "/projects/"
    assert "Contracts" not in receiver.get("/projects/").content.decode()
    assert "invited until" in sender.get(f"/projects/{project.pk}/").content.decode()
    assert sender.post(f"/projects/{project.pk}/invitations/{sent.pk}/withdraw/").status_code == 302
    assert "invited until" not in sender.get(f"/projects/{project.pk}/").content.decode()


def test_invitations_go_with_their_project(owner: User, guest: User, project: Project) -> None:
    invite(user=owner, project=project, username=guest.username)
    services.delete_project(user=owner, project=project)
    assert not Invitation.objects.exists()


def test_many_invitations_are_as_many_queries_as_one(
    owner: User, guest: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        invite(user=owner, project=Project.objects.create(owner=owner, name=f"P{number}"), username=guest.username)
    client = signed_in(guest)
    client.get("/projects/")
    with django_assert_max_num_queries(8):
        assert client.get("/projects/").content.decode().count("invites you") == 5
