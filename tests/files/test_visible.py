"""Visibility of files: the files that a person sees, and a query that does not read everybody's."""

import pytest
from django.db import connection

from accounts.models import PeopleGroup, User
from files.models import File
from projects.models import Membership, Project, ProjectFile

pytestmark = pytest.mark.django_db


def uploaded(owner: User, number: int) -> list[File]:
    rows = [File(owner=owner, name=f"{owner} {each}.txt", size=1, sha256="0" * 64, blob="0") for each in range(number)]
    return File.objects.bulk_create(rows)


def project_with(owner: User, file: File) -> Project:
    project = Project.objects.create(owner=owner, name="Shared")
    ProjectFile.objects.create(project=project, file=file)
    return project


def test_files_are_seen_by_their_owner_and_in_projects_by_those_who_are_in_them() -> None:
    reader, other = (User.objects.create_user(name) for name in ("reader", "other"))
    group = PeopleGroup.objects.create(name="Readers")
    group.members.add(reader)
    [own], [owned, by_name, by_group, _hidden] = uploaded(reader, 1), uploaded(other, 4)
    project_with(reader, owned)
    Membership.objects.create(project=project_with(other, by_name), user=reader)
    project = project_with(other, by_group)
    Membership.objects.create(project=project, group=group)
    Membership.objects.create(project=project, user=reader)
    seen = File.objects.visible_to(reader)
    assert sorted(seen, key=lambda file: file.pk) == [own, owned, by_name, by_group]
    assert seen.count() == 4
    assert File.objects.visible_to(other).count() == 4


def test_a_list_of_files_does_not_read_those_of_others() -> None:
    reader, other = (User.objects.create_user(name) for name in ("reader", "other"))
    uploaded(reader, 5)
    uploaded(other, 3_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE files_file")
    plan = File.objects.visible_to(reader).filter(name__icontains="txt")[:50].explain()
    assert "Seq Scan on files_file" not in plan


def test_ones_own_file_is_found_without_a_look_at_what_is_shared() -> None:
    reader = User.objects.create_user("reader")
    [own, *_] = uploaded(reader, 5)
    plan = File.objects.visible_to(reader).filter(pk=own.pk).explain(analyze=True)
    shared = plan[plan.index("InitPlan") :].splitlines()
    assert "never executed" in shared[1]
