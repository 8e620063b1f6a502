"""What the templates of files and projects show: plain values, made of rows with a fixed number of queries."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import User
from files.models import File, FileText
from files.pages import FileView, file_view
from files.search import Hit, search
from personas.models import Persona
from projects import services
from projects.models import Membership, Project, ProjectFile

FILES = 100  # of one page of the list
CHOICES = 200  # files that one can add to a project
RESULTS = 10
NEAR = 160  # characters within which words stand together
BEFORE, EXCERPT = 80, 320  # characters of a result shown before such a place, and in all


@dataclass(slots=True)
class Uses:
    """Projects that hold a file: those that the reader sees, and how many others."""

    projects: list[Project] = field(default_factory=list)
    others: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    file: FileView
    uses: Uses


@dataclass(frozen=True, slots=True)
class FileList:
    files: list[Listed]
    unread: bool
    after: UUID | None


def file_list(user: User, after: object = None) -> FileList:
    """One page of one's own files, newest first; `after` is the last id of the page before."""
    rows = File.objects.owned_by(user).order_by("-id")  # ids grow with time
    if after:
        rows = rows.filter(pk__lt=services.identifier(after, "file"))
    found = list(rows[: FILES + 1])
    views = [file_view(file) for file in found[:FILES]]
    uses = uses_of(user, [view.id for view in views])
    return FileList(
        files=[Listed(view, uses[view.id]) for view in views],
        unread=any(view.unread for view in views),
        after=views[-1].id if len(found) > FILES else None,
    )


def uses_of(user: User, files: Sequence[UUID]) -> dict[UUID, Uses]:
    visible = {project.pk: project for project in Project.objects.visible_to(user)}
    found = {pk: Uses() for pk in files}
    for file, project in ProjectFile.objects.filter(file__in=files).values_list("file", "project"):
        if project in visible:
            found[file].projects.append(visible[project])
        else:
            found[file].others += 1
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in its project; `before` and `after` are the positions to which it moves up and down."""

    file: FileView
    pinned: bool
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Entries:
    entries: list[Entry]
    unread: bool
    tokens: int


def entries_of(project: Project) -> Entries:
    rows = list(ProjectFile.objects.filter(project=project).select_related("file"))
    last = len(rows) - 1
    entries = [
        Entry(file_view(row.file), row.pinned, at - 1 if at else None, at + 1 if at < last else None)
        for at, row in enumerate(rows)
    ]
    return Entries(
        entries,
        unread=any(entry.file.unread for entry in entries),
        tokens=sum(entry.file.tokens or 0 for entry in entries),
    )


def members_of(project: Project) -> QuerySet[Membership]:
    return Membership.objects.filter(project=project).select_related("user").order_by("created")


def personas_for(user: User, project: Project) -> list[Persona]:
    """Those to choose from, and the one that is chosen, which may be somebody's private one."""
    personas = list(Persona.objects.visible_to(user))
    chosen = project.persona
    if chosen is not None and chosen not in personas:
        personas.insert(0, chosen)
    return personas


def addable(user: User, project: Project) -> QuerySet[File]:
    """One's newest files that are not in the project."""
    return File.objects.owned_by(user).exclude(project_entries__project=project)[:CHOICES]


@dataclass(frozen=True, slots=True)
class Result:
    """The part of a found passage where most of the words asked for are; `parts` are its pieces, each with whether it
    matched. `page` is that of the match, 0 where there are none."""

    file: UUID
    name: str
    page: int
    start: int
    end: int
    parts: list[tuple[str, bool]]


def results(project: Project, query: str) -> list[Result]:
    return passages(services.files_of(project), query, limit=RESULTS)


def passages(files: QuerySet[File], query: str, *, limit: int) -> list[Result]:
    """The best places of `files`, best first."""
    hits = search(query=query, files=files, limit=limit)
    rows = FileText.objects.filter(file__in=[hit.file for hit in hits]).values_list("file", "spans")
    spans = dict(rows)
    return [_result(hit, spans.get(hit.file, [])) for hit in hits]


def _result(hit: Hit, spans: Sequence[Sequence[int]]) -> Result:
    best = _best(hit)
    start, end = _excerpt(hit.text, best)
    inside = [mark for mark in hit.highlights if start <= mark[0] and mark[1] <= end]
    return Result(
        file=hit.file,
        name=hit.name,
        page=bisect_right(spans, hit.start + best, key=lambda span: span[0]),
        start=hit.start + start,
        end=hit.start + end,
        parts=list(_parts(hit, start, end, inside)),
    )


def _best(hit: Hit) -> int:
    """Where in the hit's text the most different words that matched stand closest together; 0 if none matched."""

    def together(at: int) -> tuple[int, int]:
        near = [mark for mark in hit.highlights if at <= mark[0] and mark[1] <= at + NEAR] or [(at, at)]
        return len({hit.text[left:right].casefold() for left, right in near}), at - near[-1][1]

    return max((left for left, _ in hit.highlights), key=together, default=0)


def _excerpt(text: str, best: int) -> tuple[int, int]:
    """[start, end) of what is shown around `best`, cut between words."""
    start = max(0, best - BEFORE)
    if start:
        start = min(best, start + len(text[start:best].partition(" ")[0]) + 1)
    end = start + EXCERPT
    if end < len(text):
        end = max(text.rfind(" ", start, end), best + BEFORE)
    return start, min(end, len(text))


def _parts(hit: Hit, start: int, end: int, inside: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    yield ("… " if start else ""), False
    at = start
    for left, right in inside:
        yield hit.text[at:left], False
        yield hit.text[left:right], True
        at = right
    yield hit.text[at:end] + (" …" if end < len(hit.text) else ""), False
