"""Change the owner of projects, personas and their files, for example when a user leaves.

Otherwise deleting the user deletes all of these.
"""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from accounts.access.delegation import require_rank
from accounts.access.holds import require_movable
from accounts.models import User
from core.audit.services import record
from core.errors import ProductError
from core.permissions import require_right
from core.sentences import Sentence
from files.models import File
from personas.handing_over import hand_over_personas
from personas.models import Persona
from projects.models import Membership, Project, ProjectFile


@dataclass(frozen=True, slots=True)
class Possessions:
    """Number of a user's rows that can be handed over. `files`: the user's own files in their projects."""

    projects: int
    personas: int
    files: int


def count_possessions(person: User) -> Possessions:
    return Possessions(
        projects=Project.objects.filter(owner=person).count(),
        personas=Persona.objects.filter(owner=person).count(),
        files=_project_files(person).count(),
    )


def hand_over(*, user: AbstractUser, person: User, to: str) -> tuple[Possessions, User]:
    """Give all projects and personas of `person`, and their files in these projects, to the user with the name `to`.

    Conversations, tasks and other files stay. Returns how much was handed over, and the new owner. Raises `outranked`,
    `right_missing`, `unknown_person`, `not_active`, `same_person` and `legal_hold` (409).
    """
    require_right(user, "change", Project)
    require_right(user, "change", Persona)
    require_rank(user, person)
    new_owner = _find_new_owner(person, to)
    with transaction.atomic():
        rows = list(Project.objects.select_for_update().filter(owner=person))
        require_movable(*rows)
        projects = [row.pk for row in rows]
        files = _project_files(person).update(owner=new_owner)  # before the owner of the projects changes
        Membership.objects.filter(project__in=projects, user=new_owner).delete()
        Project.objects.filter(pk__in=projects).update(owner=new_owner, updated=timezone.now())
        personas = hand_over_personas(person=person, to=new_owner)
        changes = {"projects": len(projects), "personas": personas, "files": files, "to": str(new_owner.pk)}
        record(user=user, action="person.handed_over", row=person, name=person.get_username(), changes=changes)
        changes = {**changes, "from": str(person.pk)}
        record(user=user, action="person.handed_over", row=new_owner, name=new_owner.get_username(), changes=changes)
    return Possessions(len(projects), personas, files), new_owner


def hand_over_project(*, user: AbstractUser, project: Project, to: User) -> None:
    """Give a project with `exclusive_files` to another user. Raises the errors of `hand_over`."""
    person = project.owner
    require_right(user, "change", project)
    require_rank(user, person)
    require_movable(project)
    new_owner = _find_new_owner(person, to.get_username())
    with transaction.atomic():
        files = exclusive_files(project).update(owner=new_owner)
        Membership.objects.filter(project=project, user=new_owner).delete()
        Project.objects.filter(pk=project.pk).update(owner=new_owner, updated=timezone.now())
        changes = {"owner": [str(person.pk), str(new_owner.pk)], "files": files}
        record(user=user, action="project.handed_over", row=project, changes=changes)


def exclusive_files(project: Project) -> QuerySet[File]:
    """Return the owner's files that are in no other project of theirs.

    Their owner changes with the project's owner, so that the project stays complete when the user leaves.
    """
    others = ProjectFile.objects.filter(project__owner=project.owner_id).exclude(project=project).values("file")
    return File.objects.filter(owner=project.owner_id, pk__in=project.entries.values("file")).exclude(pk__in=others)


def _project_files(person: User) -> QuerySet[File]:
    return File.objects.filter(owner=person, pk__in=File.objects.filter(project_entries__project__owner=person))


def _find_new_owner(person: User, name: str) -> User:
    """Return the active user with this name, who takes over from `person`."""
    new_owner = User.objects.filter(username=name.strip()).first()
    if new_owner is None:
        sentence = Sentence("Nobody has this user name. Check its spelling, including capital letters.")
        raise ProductError("unknown_person", sentence, status=422)
    if not new_owner.is_active:
        raise ProductError(
            "not_active",
            Sentence("“{taker}” is deactivated. Choose an active person.", taker=str(new_owner)),
            status=422,
        )
    if new_owner.pk == person.pk:
        raise ProductError("same_person", "This person already owns everything. Choose somebody else.", status=422)
    return new_owner
