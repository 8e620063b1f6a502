"""Administrators change projects through the same services as people, and the audit records what they open."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from accounts.models import User
from core.audit.models import Entry
from files.models import File
from personas.models import Persona
from projects.models import Membership, Project, ProjectFile

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:projects_project_changelist"), reverse("admin:projects_project_add")


def person(name: str = "") -> User:
    return User.objects.create_user(name or uuid4().hex)


def page_of(project: Project) -> str:
    return reverse("admin:projects_project_change", args=[project.pk])


def file_of(owner: User, name: str) -> File:
    return File.objects.create(owner=owner, name=name, size=1, sha256="0" * 64, status=File.Status.READY)


def form(owner: User, project: Project | None = None, **changes: Any) -> dict[str, Any]:
    """As the page sends it, with the members and files that there are."""
    members = list(project.memberships.order_by("pk")) if project else []
    entries = list(project.entries.all()) if project else []
    sent: dict[str, Any] = {"name": "Contracts", "instructions": "Be exact.", "owner": str(owner.pk), "web": "on"}
    sent["based_on"] = str(project.version) if project else ""
    for prefix, rows in (("memberships", members), ("entries", entries)):
        sent |= {f"{prefix}-TOTAL_FORMS": len(rows), f"{prefix}-INITIAL_FORMS": len(rows)}
    for number, member in enumerate(members):
        sent |= {f"memberships-{number}-{name}": str(value) for name, value in _fields(member).items()}
    for number, entry in enumerate(entries):
        sent |= {f"entries-{number}-id": entry.pk, f"entries-{number}-project": str(entry.project_id)}
        sent |= {f"entries-{number}-pinned": "on"} if entry.pinned else {}
    return sent | changes


def _fields(member: Membership) -> dict[str, Any]:
    return {"id": member.pk, "project": member.project_id, "user": member.user_id, "role": member.role}


def saved(client: Client, url: str, sent: dict[str, Any]) -> None:
    answer = client.post(url, sent)
    assert answer.status_code == 302, answer.context["errors"] if answer.context else answer.content


@pytest.fixture
def project() -> Project:
    return Project.objects.create(owner=person("olga"), name="Contracts", instructions="Be exact.")


@pytest.fixture
def limited(client: Client) -> Client:
    """Return the client of a member of the staff who may only view projects."""
    staff = User.objects.create_user("looks", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_project"))
    client.force_login(staff)
    return client


def test_projects_are_told_apart_and_found_by_name(admin_client: Client, project: Project) -> None:
    Project.objects.create(owner=project.owner, name="Recipes")
    page = admin_client.get(LIST, {"q": "Contr"}).content.decode()
    assert "Contracts" in page and "Recipes" not in page


def test_a_project_is_made_for_somebody_with_its_members(admin_client: Client) -> None:
    owner, reader = person(), person()
    member: dict[str, Any] = {
        "memberships-TOTAL_FORMS": 1,
        "memberships-0-user": str(reader.pk),
        "memberships-0-role": "reader",
    }
    saved(admin_client, ADD, form(owner, **member, instructions="One.\r\nTwo."))
    project = Project.objects.get(name="Contracts")
    assert (project.owner, project.instructions) == (owner, "One.\nTwo.")
    assert [(each.user, each.role) for each in project.memberships.all()] == [(reader, "reader")]


def test_members_and_files_are_changed_where_the_project_is(admin_client: Client, project: Project) -> None:
    first, second, new = person(), person(), person()
    for member in (first, second):
        Membership.objects.create(project=project, user=member, role="reader")
    staying, leaving = (
        ProjectFile.objects.create(project=project, file=file_of(project.owner, name), ordinal=number)
        for number, name in enumerate(("kept.txt", "gone.txt"))
    )
    sent = form(project.owner, project)
    assert "kept.txt" in admin_client.get(page_of(project)).content.decode()
    sent |= {"memberships-0-role": "editor", "memberships-1-DELETE": "on", "memberships-TOTAL_FORMS": 3}
    sent |= {"memberships-2-user": str(new.pk), "memberships-2-role": "reader", "memberships-2-project": project.pk}
    sent |= {"entries-0-pinned": "on", "entries-1-DELETE": "on"}
    saved(admin_client, page_of(project), sent)
    members = project.memberships.order_by("pk").values_list("user", "role")
    assert list(members) == [(first.pk, "editor"), (new.pk, "reader")]
    assert list(project.entries.values_list("pk", "pinned")) == [(staying.pk, True)]
    assert File.objects.filter(pk=leaving.file_id).exists()


def test_a_file_is_added_as_its_owners_if_there_is_room(
    admin_client: Client, project: Project, settings: Settings, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    sent = form(project.owner, project)
    saved(admin_client, page_of(project), sent | {"file": SimpleUploadedFile("fees.txt", b"Seven.")})
    assert [(each.file.name, each.file.owner) for each in project.entries.all()] == [("fees.txt", project.owner)]
    settings.STORED_BYTES = 10
    sent = form(project.owner, project, instructions="Be kept.") | {"file": SimpleUploadedFile("b.txt", b"Eight.")}
    refused = admin_client.post(page_of(project), sent).content.decode()
    assert "is the maximum" in refused and "Be kept." in refused
    assert project.entries.count() == 1


def test_new_instructions_are_a_new_version_and_overwrite_nobodys(admin_client: Client, project: Project) -> None:
    sent = form(project.owner, project, instructions="Be brief.")
    saved(admin_client, page_of(project), sent)
    project.refresh_from_db()
    assert (project.instructions, project.version) == ("Be brief.", 2)
    late = admin_client.post(page_of(project), sent | {"instructions": "Be late."})
    assert "Somebody else changed the instructions" in late.content.decode() and "Be late." in late.content.decode()


def test_a_project_is_handed_over_with_the_files_that_only_it_has(admin_client: Client, project: Project) -> None:
    taker, owner = person(), project.owner
    Membership.objects.create(project=project, user=taker, role="reader")
    own, shared = file_of(owner, "own.txt"), file_of(owner, "shared.txt")
    other = Project.objects.create(owner=owner, name="Other")
    for where, file in ((project, own), (project, shared), (other, shared)):
        ProjectFile.objects.create(project=where, file=file)
    saved(admin_client, page_of(project), form(taker, project))
    project.refresh_from_db()
    owners = dict(File.objects.values_list("name", "owner"))
    assert (project.owner, project.memberships.count(), owners) == (
        taker,
        0,
        {"own.txt": taker.pk, "shared.txt": owner.pk},
    )


def test_a_persona_that_its_owner_does_not_see_cannot_answer_there(admin_client: Client, project: Project) -> None:
    private = Persona.objects.create(owner=person(), name="Private")
    theirs = Persona.objects.create(owner=project.owner, name="Theirs")
    refused = admin_client.post(page_of(project), form(project.owner, project, persona=str(private.pk)))
    assert "Select a valid choice" in refused.content.decode()
    saved(admin_client, page_of(project), form(project.owner, project, persona=str(theirs.pk)))


def test_who_opens_somebodys_project_stands_in_its_history(limited: Client, project: Project) -> None:
    page = limited.get(page_of(project)).content.decode()
    assert "Be exact." in page
    [entry] = Entry.objects.filter(object_id=str(project.pk), action="project.opened")
    assert entry.actor_name == "looks"


def test_who_may_only_look_changes_nothing(limited: Client, project: Project) -> None:
    assert limited.post(page_of(project), form(project.owner, project, name="Mine")).status_code == 403
    assert limited.get(ADD).status_code == 403
    assert limited.post(reverse("admin:projects_project_delete", args=[project.pk])).status_code == 403
    project.refresh_from_db()
    assert project.name == "Contracts"


def test_a_project_is_deleted_with_its_list_of_files_and_not_the_files(admin_client: Client, project: Project) -> None:
    file = file_of(project.owner, "stays.txt")
    ProjectFile.objects.create(project=project, file=file)
    delete = reverse("admin:projects_project_delete", args=[project.pk])
    admin_client.post(delete, {"post": "yes"})
    assert not Project.objects.filter(pk=project.pk).exists() and File.objects.filter(pk=file.pk).exists()
