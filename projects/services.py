"""All changes to projects and the lists of their files. Changes to members are in `members`."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.files.base import File as Content
from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from accounts.access.holds import require_free, require_rewritable
from accounts.models import User
from accounts.realtime import News, notify
from core.audit.services import changes_by_name, record
from core.errors import NotFound, ProductError
from core.faces import FaceColour, FaceFields, FaceIcon
from core.permissions import has_right, require_right
from core.requests import identifier, or_404
from core.rows import set_fields
from core.sentences import Sentence
from core.text import unix_lines
from files.models import File
from files.services import store, visible_file
from personas.models import Persona
from personas.variables import check_variables
from projects.models import Invitation, Project, ProjectFile
from projects.models.roles import require_editor, require_owner

MAX_INSTRUCTIONS = 100_000  # characters
MAX_NAME = 100  # characters


class ProjectFields(FaceFields, total=False):
    """Fields of a project that a form or a request may change."""

    name: str
    instructions: str
    persona: Persona | None
    web: bool
    findable: bool


def project_files(project: Project) -> QuerySet[File]:
    return File.objects.filter(project_entries__project=project)


@transaction.atomic
def create_project(*, user: User, fields: ProjectFields, owner: User | None = None) -> Project:
    """Create a project. The name is required. An administrator may create one for another `owner`.

    Raises `empty_name`, `instructions_too_long`, `variable_unknown`, `unknown_face`, or `NotFound` for a persona that
    the owner does not see.
    """
    project = Project(owner=owner or user)
    if project.owner != user:
        require_right(user, "add", project)
    set_fields(project, _check_fields(project.owner, fields))
    if not project.name:
        raise _empty_name_error()
    project.save()
    record(user=user, action="project.made", row=project, changes={"owner": str(project.owner_id)})
    return project


@transaction.atomic
def record_opened(*, user: AbstractUser, project: Project) -> None:
    """Record that an administrator opened a project of another user."""
    record(user=user, action="project.opened", row=project)


@transaction.atomic
def update_project(*, user: User, project: Project, fields: ProjectFields, based_on: int | None = None) -> Project:
    """Change a project. Only owners may change `web` and `findable`. A change of the instructions makes a new version.

    `based_on`: the version that the user has edited. Raises `changed_meanwhile` (409) if there is a newer one,
    `legal_hold` (409) if instructions or a name would be lost, and the errors of `create_project`.
    """
    require_editor(user=user, project=project)
    # An administrator chooses among the owner's personas, since these may answer in the project.
    persona_user = project.owner if has_right(user, "change", project) else user
    changes = _check_fields(persona_user, fields, current_persona=project.persona_id)
    locked = Project.objects.select_for_update().get(pk=project.pk)
    of_owner = {"web": locked.web, "findable": locked.findable}
    if any(changes.get(name, value) != value for name, value in of_owner.items()):
        require_owner(user=user, project=project)
    require_rewritable(locked, locked.name, changes.get("name", locked.name))
    require_rewritable(locked, locked.instructions, changes.get("instructions", locked.instructions))
    recorded = changes_by_name(locked, changes)
    updated = [*changes, "updated"]
    if changes.get("instructions", locked.instructions) != locked.instructions:
        if based_on is not None and based_on != locked.version:
            raise ProductError(
                "changed_meanwhile",
                "Somebody else changed the instructions while you were writing. Copy your text, reload the page, "
                "and merge both versions.",
                status=409,
            )
        locked.version += 1
        updated.append("version")
    set_fields(locked, changes)
    locked.save(update_fields=updated)
    if recorded:
        record(user=user, action="project.changed", row=project, changes=recorded)
    project.refresh_from_db()
    return project


def _check_fields(user: User, fields: ProjectFields, *, current_persona: UUID | None = None) -> ProjectFields:
    """Return the fields in their stored form. `current_persona`: the id of the current persona, which may stay."""
    changes = fields.copy()
    if "name" in changes:
        changes["name"] = " ".join(changes["name"].split())[:MAX_NAME]
        if not changes["name"]:
            raise _empty_name_error()
    if "instructions" in changes:
        changes["instructions"] = unix_lines(changes["instructions"])
        check_variables(changes["instructions"])
    if len(changes.get("instructions", "")) > MAX_INSTRUCTIONS:
        raise ProductError(
            "instructions_too_long",
            Sentence(
                "Instructions may have at most {max_instructions} characters. Put the rest into a file of the project.",
                max_instructions=MAX_INSTRUCTIONS,
            ),
        )
    if changes.get("icon", "") not in FaceIcon.values or changes.get("colour", "") not in FaceColour.values:
        raise ProductError("unknown_face", "There is no such icon or colour. Choose one of those that are offered.")
    persona = changes.get("persona")
    # An editor may keep the owner's private persona, but cannot choose one that they do not see.
    if (
        persona
        and persona.pk != current_persona
        and not Persona.objects.visible_to(user).filter(pk=persona.pk).exists()
    ):
        raise NotFound("persona")
    return changes


def _empty_name_error() -> ProductError:
    return ProductError("empty_name", "Enter a name for the project.")


@transaction.atomic
def delete_project(*, user: User, project: Project) -> None:
    """Delete a project with its memberships and its list of files. Files and conversations stay with their owners.

    Raises `legal_hold` (409).
    """
    require_owner(user=user, project=project, action="delete")
    require_free(project)
    rows = Invitation.objects.filter(project=project).exclude(person=None)
    invited = list(rows.values_list("person_id", flat=True))
    record(user=user, action="project.deleted", row=project)
    project.delete()
    for person in invited:
        notify(person, News.INVITATIONS)


@transaction.atomic
def add_file(*, user: User, project: Project, file: File, pinned: bool = False) -> ProjectFile:
    """Append a file that the user can see to the list. A file that is already in the list keeps its place."""
    require_editor(user=user, project=project)
    visible_file(user, file.pk)
    _lock_list(project)
    last = ProjectFile.objects.filter(project=project).aggregate(last=Max("ordinal"))["last"]
    entry, created = ProjectFile.objects.get_or_create(
        project=project,
        file=file,
        defaults={"added_by": user, "pinned": pinned, "ordinal": 0 if last is None else last + 1},
    )
    if pinned and not created:
        entry.pinned = True
        entry.save(update_fields=["pinned"])
    _touch(project)
    return entry


@transaction.atomic
def add_file_for_owner(*, user: AbstractUser, project: Project, name: str, content: "Content[Any]") -> ProjectFile:
    """Store a file in a project as an administrator. It belongs to the owner, as if they had uploaded it.

    Raises `right_missing` (403) and the errors of `files.services.store`.
    """
    require_right(user, "change", project)
    file = store(user=project.owner, name=name, content=content)
    record(user=user, action="file.given", row=file, changes={"project": str(project.pk)})
    return add_file(user=project.owner, project=project, file=file)


@transaction.atomic
def change_file(
    *, user: User, project: Project, file: object, pinned: bool | None = None, position: int | None = None
) -> ProjectFile:
    """Pin or move a file (its id). `position` counts from 0; a position beyond the end means the end."""
    require_editor(user=user, project=project)
    _lock_list(project)
    entry = get_entry(project, file)
    if pinned is not None:
        entry.pinned = pinned
        entry.save(update_fields=["pinned"])
    if position is not None:
        _move(entry, position)
        entry.refresh_from_db(fields=["ordinal"])
    _touch(project)
    return entry


@transaction.atomic
def remove_file(*, user: User, project: Project, file: object) -> None:
    """Remove a file from the project. The file itself stays with its owner."""
    require_editor(user=user, project=project)
    get_entry(project, file).delete()
    _touch(project)


def get_entry(project: Project, file: object) -> ProjectFile:
    """Return the entry of a file (its id) in the list. Raises `NotFound`."""
    rows = ProjectFile.objects.filter(project=project, file=identifier(file, "file")).select_related("file")
    return or_404(rows.first(), "file")


def _move(entry: ProjectFile, position: int) -> None:
    others = list(ProjectFile.objects.filter(project=entry.project_id).exclude(pk=entry.pk))
    others.insert(min(max(0, position), len(others)), entry)
    _renumber(others)


def _renumber(entries: Iterable[ProjectFile]) -> None:
    changed = []
    for ordinal, entry in enumerate(entries):
        if entry.ordinal != ordinal:
            entry.ordinal = ordinal
            changed.append(entry)
    ProjectFile.objects.bulk_update(changed, ["ordinal"])


def _lock_list(project: Project) -> None:
    """Lock the list of files until the end of the transaction. Raises `NotFound` for a deleted project."""
    if not Project.objects.select_for_update().filter(pk=project.pk).exists():
        raise NotFound("project")


def _touch(project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(updated=timezone.now())
