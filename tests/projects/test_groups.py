"""Projects shared with groups, and the rights of each role."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from accounts.groups.services import save_group
from accounts.models import PeopleGroup, Role, User
from core.errors import ProductError
from files.models import File
from projects.invitations import invite
from projects.members import add_group, change_role, groups_to_choose, hand_over, remove_member
from projects.models import Membership, Project, ProjectFile, roles
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import editable_projects
from projects.services import delete_project, update_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def binh() -> User:
    return User.objects.create_user("binh")


@pytest.fixture
def group(olga: User, binh: User) -> PeopleGroup:
    return save_group(user=None, group=None, fields={"name": "Sales", "members": [olga, binh]})


@pytest.fixture
def project(olga: User) -> Project:
    row = Project.objects.create(owner=olga, name="Contracts")
    file = File.objects.create(owner=olga, name="a.txt", size=1, sha256="0" * 64)
    ProjectFile.objects.create(project=row, file=file)
    SavedPrompt.objects.create(project=row, name="sum", text="Sum it up.")
    return row


def code(act: Callable[..., object], **arguments: object) -> str:
    try:
        act(**arguments)
    except ProductError as error:
        return error.code
    return ""


def seen(user: User) -> list[bool]:
    """The project, its file, its prompt; and whether they may change it."""
    rows = (Project.objects, File.objects, SavedPrompt.objects)
    return [each.visible_to(user).exists() for each in rows] + [editable_projects(user).exists()]


def test_who_is_in_a_group_has_its_role_in_all_that_is_in_the_project(
    olga: User, binh: User, group: PeopleGroup, project: Project
) -> None:
    assert seen(binh) == [False] * 4
    add_group(user=olga, project=project, group=group.pk)
    assert seen(binh) == [True, True, True, False]
    assert code(update_project, user=binh, project=project, fields={"name": "x"}) == "not_editor"
    add_group(user=olga, project=project, group=group.pk, role=Role.EDITOR)
    assert seen(binh) == [True] * 4
    assert code(update_project, user=binh, project=project, fields={"name": "x"}) == ""
    assert code(delete_project, user=binh, project=project) == "not_owner"
    Membership.objects.create(project=project, user=binh)
    assert roles.get_role(binh, project) == Role.EDITOR
    group.members.remove(binh)
    assert seen(binh) == [True, True, True, False]
    remove_member(user=binh, project=project, member=binh.pk)
    assert seen(binh) == [False] * 4


def test_groups_to_share_with_are_ones_own_and_everyone_is_for_administrators(
    olga: User, group: PeopleGroup, project: Project
) -> None:
    other, everyone = PeopleGroup.objects.create(name="Others"), PeopleGroup.objects.get(everyone=True)
    assert list(groups_to_choose(olga, project)) == [group]
    for each in (other, everyone):
        assert code(add_group, user=olga, project=project, group=each.pk) == "not_found"
    root = User.objects.create_superuser("root")
    add_group(user=root, project=project, group=everyone.pk)
    assert Project.objects.visible_to(User.objects.create_user("anna")).get() == project


def test_who_is_made_an_owner_shares_and_hands_over(
    olga: User, binh: User, group: PeopleGroup, project: Project
) -> None:
    Membership.objects.create(project=project, user=binh, role=Role.OWNER)
    add_group(user=binh, project=project, group=group.pk)
    change_role(user=binh, project=project, member=group.pk, role="editor")
    invite(user=binh, project=project, username="anna")
    invite(user=olga, project=project, username="anna", role="owner")
    assert project.invitations.get().role == Role.OWNER
    assert code(invite, user=binh, project=project, username="olga") == "owner_is_member"
    assert code(hand_over, user=olga, project=project, member=group.pk) == "not_found"
    other = Project.objects.create(owner=olga, name="Other")
    anna = User.objects.create_user("anna")
    here, both, theirs = (
        File.objects.create(owner=owner, name="a.txt", size=1, sha256="0" * 64) for owner in (olga, olga, anna)
    )
    ProjectFile.objects.bulk_create(ProjectFile(project=project, file=file) for file in (here, both, theirs))
    ProjectFile.objects.create(project=other, file=both)
    page = Client()
    page.force_login(olga)
    text = " ".join(page.get(reverse("chat:project", args=[project.pk])).content.decode().split())
    assert "The project then belongs to binh, with 2 files of olga that are in no other project." in text
    handed = hand_over(user=olga, project=project, member=binh.pk)
    assert handed.owner == binh and File.objects.filter(owner=binh).count() == 2
    assert [File.objects.get(pk=file.pk).owner for file in (here, both, theirs)] == [binh, olga, anna]
    assert roles.get_role(olga, handed) == Role.OWNER
    remove_member(user=olga, project=handed, member=olga.pk)
    assert roles.get_role(olga, handed) == Role.EDITOR  # by the group


def test_the_page_shows_groups_and_the_list_by_whom_it_is_shared(
    olga: User, binh: User, group: PeopleGroup, project: Project
) -> None:
    mine, others = Client(), Client()
    mine.force_login(olga)
    others.force_login(binh)
    added = mine.post(reverse("projects:groups", args=[project.pk]), {"group": group.pk, "role": "reader"})
    assert added.status_code == 302
    assert "Sales" in mine.get(reverse("chat:project", args=[project.pk])).text
    assert "shared with you by olga" in others.get(reverse("projects:list")).text
    removed = mine.post(reverse("projects:remove_member", args=[project.pk, group.pk]))
    assert removed.status_code == 302
    assert others.get(reverse("chat:project", args=[project.pk])).status_code == 404


def test_programs_share_with_groups_and_see_their_role(
    olga: User, binh: User, group: PeopleGroup, project: Project
) -> None:
    client, base = Client(), f"/api/v1/projects/{project.pk}/"
    client.force_login(olga)
    json = "application/json"
    response = client.post(f"{base}groups/", {"group": str(group.pk), "role": "editor"}, content_type=json)
    assert (response.status_code, response.json()["name"]) == (201, "Sales")
    assert client.patch(f"{base}groups/{group.pk}/", {"role": "owner"}, content_type=json).json()["role"] == "owner"
    assert client.get(f"{base}members/").json()["results"] == []
    assert [each["group"] for each in client.get(f"{base}groups/").json()["results"]] == [str(group.pk)]
    client.force_login(binh)
    assert [each["role"] for each in client.get("/api/v1/projects/").json()["results"]] == ["owner"]
    assert client.delete(f"{base}groups/{group.pk}/").status_code == 204
    assert client.get(base).status_code == 404
    assert client.delete(f"/api/v1/projects/{uuid4()}/groups/{group.pk}/").status_code == 404
