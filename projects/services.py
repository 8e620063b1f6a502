"""Every change to projects and the list of their files; their members are in `members`."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.files.base import File as Content
from django.db import transaction
from django.db.models import F, Max, QuerySet
from django.utils import timezone

from accounts.access.holds import require_free, require_rewritable
from accounts.models import User
from accounts.realtime import News, tell
from core.audit.services import changed_fields, record
from core.errors import NotFound, ProductError
from core.permissions import has_right, require_right
from core.requests import identifier, or_404
from core.sentences import Sentence
from core.text import unix_lines
from files.models import File
from files.services import store, visible_file
from personas.models import Persona
from personas.variables import check_variables
from projects.models import Invitation, Project, ProjectFile
from projects.models.roles import require_editor, require_owner

MAX_INSTRUCTIONS = 100_000  # characters
MAX_NAME = 100


def files_of(project: Project) -> QuerySet[File]:
    return File.objects.filter(project_entries__project=project)


@transaction.atomic
def create_project(*, user: User, fields: Mapping[str, Any], owner: User | None = None) -> Project:
    """`fields`: name, and optionally instructions, persona and web. An administrator makes one for another `owner`."""
    project = Project(owner=owner or user)
    if project.owner != user:
        require_right(user, "add", project)
    for name, value in _checked(project.owner, fields).items():
        setattr(project, name, value)
    if not project.name:
        raise _no_name()
    project.save()
    record(user=user, action="project.made", row=project, changes={"owner": str(project.owner_id)})
    return project


@transaction.atomic
def record_opened(*, user: AbstractUser, project: Project) -> None:
    """That an administrator has read what stands in a project that is not theirs."""
    record(user=user, action="project.opened", row=project)


@transaction.atomic
def update_project(*, user: User, project: Project, fields: Mapping[str, Any], based_on: int | None = None) -> Project:
    """Changes name, instructions, persona, or whether the web is on, which is its owner's alone to say. Other
    instructions make a new version.

    `based_on` is the version that the writer had before them; raises `changed_meanwhile` (409) unless it is the newest,
    and `legal_hold` (409) where instructions or a name would be lost.
    """
    require_editor(user=user, project=project)
    # An administrator chooses among the owner's personas: those are the ones that may answer there.
    choosing = project.owner if has_right(user, "change", project) else user
    changes = _checked(choosing, fields, already=project.persona_id)
    locked = Project.objects.select_for_update().get(pk=project.pk)
    if changes.get("web", locked.web) != locked.web:
        require_owner(user=user, project=project)
    for name in ("name", "instructions"):
        require_rewritable(locked, getattr(locked, name), changes.get(name, getattr(locked, name)))
    said = changed_fields(locked, changes)
    if changes.get("instructions", locked.instructions) != locked.instructions:
        if based_on is not None and based_on != locked.version:
            raise ProductError(
                "changed_meanwhile",
                "Somebody else changed the instructions while you were writing. Copy your text, reload the page, "
                "and put both together.",
                status=409,
            )
        changes["version"] = F("version") + 1
    Project.objects.filter(pk=project.pk).update(**changes, updated=timezone.now())
    if said:
        record(user=user, action="project.changed", row=project, changes=said)
    project.refresh_from_db()
    return project


def _checked(user: User, fields: Mapping[str, Any], *, already: UUID | None = None) -> dict[str, Any]:
    changes = {name: fields[name] for name in ("name", "instructions", "persona", "web") if name in fields}
    if "name" in changes:
        changes["name"] = " ".join(changes["name"].split())[:MAX_NAME]
        if not changes["name"]:
            raise _no_name()
    if "instructions" in changes:
        changes["instructions"] = unix_lines(changes["instructions"])
        check_variables(changes["instructions"])
    if len(changes.get("instructions", "")) > MAX_INSTRUCTIONS:
        raise ProductError(
            "instructions_too_long",
            Sentence(
                "Instructions have at most {max_instructions} characters. Put the rest into a file of the project.",
                max_instructions=MAX_INSTRUCTIONS,
            ),
        )
    persona: Persona | None = changes.get("persona")
    # An editor may leave the owner's private persona where it is, but cannot choose one they do not see.
    if persona and persona.pk != already and not Persona.objects.visible_to(user).filter(pk=persona.pk).exists():
        raise NotFound("persona")
    return changes


def _no_name() -> ProductError:
    return ProductError("empty_name", "Give the project a name of at least one character.")


@transaction.atomic
def delete_project(*, user: User, project: Project) -> None:
    """Instructions, memberships and the list of files go; files and conversations stay with those whose they are.

    Raises `legal_hold` (409).
    """
    require_owner(user=user, project=project, action="delete")
    require_free(project)
    rows = Invitation.objects.filter(project=project).exclude(person=None)
    invited = list(rows.values_list("person_id", flat=True))
    record(user=user, action="project.deleted", row=project)
    project.delete()
    for person in invited:
        tell(person, News.INVITATIONS)


@transaction.atomic
def add_file(*, user: User, project: Project, file: File, pinned: bool = False) -> ProjectFile:
    """Puts a file that the user can see at the end of the list. One that is there stays in its place."""
    require_editor(user=user, project=project)
    visible_file(user, file.pk)
    _locked(project)
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
def give_file(*, user: AbstractUser, project: Project, name: str, content: "Content[Any]") -> ProjectFile:
    """An administrator's upload into somebody's project: the file is its owner's, as if they had uploaded it.

    Raises `right_missing`, and what `files.services.store` raises.
    """
    require_right(user, "change", project)
    file = store(user=project.owner, name=name, content=content)
    record(user=user, action="file.given", row=file, changes={"project": str(project.pk)})
    return add_file(user=project.owner, project=project, file=file)


@transaction.atomic
def change_file(
    *, user: User, project: Project, file: object, pinned: bool | None = None, position: int | None = None
) -> ProjectFile:
    """`file` is an id. `position` counts from 0; beyond the ends means the end."""
    require_editor(user=user, project=project)
    _locked(project)
    entry = entry_of(project, file)
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
    """The file itself stays with its owner."""
    require_editor(user=user, project=project)
    entry_of(project, file).delete()
    _touch(project)


def entry_of(project: Project, file: object) -> ProjectFile:
    """Raises `NotFound` when the file of this id is not in the project."""
    rows = ProjectFile.objects.filter(project=project, file=identifier(file, "file")).select_related("file")
    return or_404(rows.first(), "file")


def _move(entry: ProjectFile, position: int) -> None:
    others = list(ProjectFile.objects.filter(project=entry.project_id).exclude(pk=entry.pk))
    others.insert(min(max(0, position), len(others)), entry)
    _number(others)


def _number(entries: Iterable[ProjectFile]) -> None:
    changed = []
    for ordinal, entry in enumerate(entries):
        if entry.ordinal != ordinal:
            entry.ordinal = ordinal
            changed.append(entry)
    ProjectFile.objects.bulk_update(changed, ["ordinal"])


def _locked(project: Project) -> None:
    """Changes of one list come one after the other."""
    if not Project.objects.select_for_update().filter(pk=project.pk).exists():
        raise NotFound("project")


def _touch(project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(updated=timezone.now())
