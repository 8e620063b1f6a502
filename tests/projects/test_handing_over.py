"""Handing over everything that a user owns to another user."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import User
from chat.models import Conversation
from core.errors import ProductError
from files.models import File
from personas.models import Persona
from projects.handing_over import Possessions, count_possessions, hand_over
from projects.models import Membership, Project, ProjectFile

pytestmark = pytest.mark.django_db


@pytest.fixture
def leaver() -> User:
    """Owns a project with a file and a member, a persona, and another file that is in no project."""
    person, taker = (User.objects.create_user(name) for name in ("leaver", "taker"))
    project = Project.objects.create(owner=person, name="Contracts")
    inside, _beside = (
        File.objects.create(owner=person, name=name, size=1, sha256="0" * 64) for name in ("in.txt", "beside.txt")
    )
    ProjectFile.objects.create(project=project, file=inside)
    Membership.objects.create(project=project, user=taker)
    Persona.objects.create(owner=person, name="Lawyer")
    Conversation.objects.create(owner=person, title="A private matter")
    return person


def test_projects_their_files_and_personas_go_and_all_else_stays(admin_client: Client, leaver: User) -> None:
    address = reverse("admin:accounts_user_hand_over", args=[leaver.pk])
    page = admin_client.get(address).content.decode()
    assert "1 project, 1 file of these, 1 persona" in page
    answer = admin_client.post(address, {"to": "taker"}, follow=True).content.decode()
    assert "“taker” owns 1 project, 1 file of these, 1 persona now." in answer
    taker = User.objects.get(username="taker")
    assert (count_possessions(leaver), count_possessions(taker)) == (Possessions(0, 0, 0), Possessions(1, 1, 1))
    assert not Membership.objects.filter(user=taker).exists()
    assert list(File.objects.filter(owner=leaver).values_list("name", flat=True)) == ["beside.txt"]
    assert Conversation.objects.get().owner == leaver
    history = admin_client.get(reverse("admin:accounts_user_history", args=[leaver.pk])).content.decode()
    assert "person.handed_over" in history


def test_a_persona_whose_name_the_new_owner_has_gets_a_number(admin_user: User, leaver: User) -> None:
    taker = User.objects.get(username="taker")
    Persona.objects.create(owner=taker, name="lawyer")
    hand_over(user=admin_user, person=leaver, to="taker")
    assert set(Persona.objects.filter(owner=taker).values_list("name", flat=True)) == {"lawyer", "Lawyer (2)"}


@pytest.mark.parametrize(("to", "sentence"), [("nobody", "Nobody has"), ("leaver", "already"), ("off", "deactivated")])
def test_it_goes_to_somebody_else_who_is_active(admin_client: Client, leaver: User, to: str, sentence: str) -> None:
    User.objects.create_user("off", is_active=False)
    page = admin_client.post(reverse("admin:accounts_user_hand_over", args=[leaver.pk]), {"to": to})
    assert (page.status_code, sentence in page.content.decode()) == (422, True)
    assert count_possessions(leaver) == Possessions(1, 1, 1)


def test_it_takes_the_rights_to_all_of_it(client: Client, leaver: User, admin_user: User) -> None:
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__in=["change_user", "change_project"]))
    client.force_login(staff)
    assert client.post(reverse("admin:accounts_user_hand_over", args=[leaver.pk]), {"to": "staff"}).status_code == 403
    with pytest.raises(ProductError, match=r"personas\.change_persona"):
        hand_over(user=staff, person=leaver, to="staff")
    staff.user_permissions.add(Permission.objects.get(codename="change_persona"))
    staff = User.objects.get(pk=staff.pk)
    with pytest.raises(ProductError, match="has rights that you do not have"):
        hand_over(user=staff, person=admin_user, to="staff")
    hand_over(user=staff, person=leaver, to="staff")
    assert count_possessions(staff) == Possessions(1, 1, 1)
