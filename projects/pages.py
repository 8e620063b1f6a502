"""Collect what the page of a project shows around its composer, and the rows of its file picker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from accounts.models import EDITING, Role, User
from core.requests import choices
from files.index.finding import find_passages
from files.index.ledger import Payer
from files.index.search import cut_excerpts
from files.models import File
from personas.models import Persona
from projects import members as membership
from projects import services
from projects.handing_over import exclusive_files
from projects.models import Invitation, Project, ProjectFile, roles

PICKER_FILES = 50  # files in the picker; a search finds the others
MAX_RESULTS = 10  # passages
MAX_QUERY = 200  # characters of a name to search for


@dataclass(frozen=True, slots=True)
class AddableFile:
    """A file of the user in the picker.

    `added`: it is in the project. `same`: the project has another file with the same content.
    """

    file: File
    added: bool
    same: bool


@dataclass(frozen=True, slots=True)
class FilePicker:
    """The newest files of the user whose names contain the query. `more`: there are others."""

    rows: Sequence[AddableFile]
    query: str
    more: bool


def project_page(user: User, project: Project, *, query: str) -> Mapping[str, object]:
    """Return the context of the page: files, instructions, prompts, people, and results of a search in the files."""
    role = roles.get_role(user, project)
    return {
        **files_context(project, role),
        "section": "projects",
        **people_context(user, project, mine=role == Role.OWNER),
        "prompts": project.saved_prompts.all(),
        "project_personas": choices(Persona.objects.visible_to(user), project.persona),
        **search_context(user, project, query),
    }


def files_context(project: Project, role: Role) -> Mapping[str, object]:
    """Return the context of the list of files."""
    entries = list(ProjectFile.objects.filter(project=project).select_related("file"))
    return {
        "project": project,
        "role": role,
        "editor": role in EDITING,
        "mine": role == Role.OWNER,
        "entries": entries,
        "unread": any(entry.file.unread for entry in entries),
        "readable": next((entry.file for entry in entries if entry.file.token_count), None) if entries[1:] else None,
        "tokens": sum(entry.file.token_count or 0 for entry in entries),
    }


def people_context(user: User, project: Project, *, mine: bool) -> Mapping[str, object]:
    """Return the context for the members; for owners also the invitations and the groups to add."""
    rows = membership.list_members(project)
    if not mine:
        return {"members": rows}
    return {
        "members": rows,
        "going": exclusive_files(project).count(),
        "sent": Invitation.objects.sent(project),
        "roles": Role.choices,
        "groups": membership.groups_to_choose(user, project),
    }


def search_context(user: User, project: Project, query: str) -> Mapping[str, object]:
    """Return the context for the passages that a search in the project's files finds."""
    if not query.strip():
        return {"query": query, "results": None}
    result = find_passages(
        queries=[query], files=services.project_files(project), limit=MAX_RESULTS, payer=Payer(user.pk)
    )
    return {"query": query, "results": cut_excerpts(result.hits), "notes": result.notes}


def file_picker(user: User, project: Project, query: str) -> FilePicker:
    """Return the user's own readable files, newest first."""
    query = " ".join(query.replace("\0", " ").split())[:MAX_QUERY]
    rows: QuerySet[File] = File.objects.owned_by(user).exclude(status=File.Status.FAILED).order_by("-created", "-id")
    if query:
        rows = rows.filter(name__icontains=query)
    files = list(rows[: PICKER_FILES + 1])
    inside = dict(services.project_files(project).values_list("pk", "sha256"))
    contents = set(inside.values())
    picked = [
        AddableFile(file, added=file.pk in inside, same=file.pk not in inside and file.sha256 in contents)
        for file in files[:PICKER_FILES]
    ]
    return FilePicker(picked, query, more=len(files) > PICKER_FILES)
