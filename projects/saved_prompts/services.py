"""Every change to saved prompts; whose they are; and what a / at the beginning of a message offers of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts.access.holds import require_free, require_movable, require_rewritable
from accounts.models import User
from core.errors import NotFound, ProductError
from core.permissions import Action, has_right, require_right
from core.requests import get_or_404
from core.sentences import Sentence
from core.text import unix_lines, without_margins
from personas.models import Persona
from projects.models import Project
from projects.models.roles import require_editor
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.variables import Variable, require_usable, variables

OFFERED = 12  # behind a /
LONGEST_SEARCH = 100  # characters


def create_saved_prompt(
    *, user: User, name: str, text: str, project: Project | None = None, workspace: bool = False
) -> SavedPrompt:
    """One's own, unless it is for a `project` or for the whole `workspace`.

    Raises `empty_prompt`, `prompt_too_long`, `too_many_variables`, `prompt_name_taken` (409), `too_many_prompts`, and
    what `require_holder` raises.
    """
    prompt = _held(SavedPrompt(), user, project, workspace=workspace)
    require_holder(user, prompt, "add")
    return _stored(prompt, name, text)


def update_saved_prompt(*, user: User, prompt: SavedPrompt, fields: Mapping[str, Any]) -> SavedPrompt:
    """`fields`: `name` and `text`, `project` and `workspace`, or some of them. Whoever hands one over must be
    allowed to change it where it is and where it goes; with no project it becomes their own. Raises what creating one
    raises, and `legal_hold` (409) where its text or name would be lost."""
    require_holder(user, prompt, "change")
    name, text = _written(fields.get("name", prompt.name), fields.get("text", prompt.text))
    require_rewritable(prompt, prompt.name, name)
    require_rewritable(prompt, prompt.text, text)
    before = (prompt.owner_id, prompt.project_id)
    if {"project", "workspace"} & set(fields):
        workspace = fields.get("workspace", before == (None, None) and fields.get("project") is None)
        _held(prompt, user, fields.get("project", None if workspace else prompt.project), workspace=workspace)
        if (prompt.owner_id, prompt.project_id) != before:
            require_holder(user, prompt, "add")
            require_movable(prompt)
    return _stored(prompt, name, text, before)


def delete_saved_prompt(*, user: User, prompt: SavedPrompt) -> None:
    """Raises what `require_holder` raises, and `legal_hold` (409)."""
    require_holder(user, prompt, "delete")
    require_free(prompt)
    prompt.delete()


def copy_saved_prompt(*, user: User, prompt: SavedPrompt) -> SavedPrompt:
    """One's own copy of a prompt that one sees, with a number behind its name where that is taken."""
    taken = set(SavedPrompt.objects.filter(owner=user).values_list("name", flat=True))
    number, name = 1, prompt.name
    while name in taken:
        number += 1
        name = f"{prompt.name[: SavedPrompt.MAX_NAME - len(str(number)) - 1]} {number}"
    return create_saved_prompt(user=user, name=name, text=prompt.text)


def visible_saved_prompt(user: User, pk: UUID) -> SavedPrompt:
    """Raises `NotFound`."""
    return get_or_404(SavedPrompt.objects.visible_to(user).select_related("project"), pk, "prompt")


def require_holder(user: User, prompt: SavedPrompt, action: Action) -> None:
    """One's own; of a project that one may edit; of the workspace with the right to it. Raises `not_found` for another
    person's, `not_editor`, `staff_only` or `right_missing` (403)."""
    if prompt.owner_id is not None:
        if prompt.owner_id != user.pk:
            raise NotFound("prompt")
    elif prompt.project is not None:
        require_editor(user=user, project=prompt.project)
    else:
        require_right(user, action, SavedPrompt)


def editable_projects(user: User) -> QuerySet[Project]:
    """Those into which the person may put prompts: their own, and those that they are an editor of."""
    return Project.objects.editable_by(user).order_by("name", "id").only("id", "name")


def may_change(user: User, prompt: SavedPrompt) -> bool:
    try:
        require_holder(user, prompt, "change")
    except ProductError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Offered:
    """What a / at the beginning of a message may mean. `name` is empty for a persona's starter message; `project` is
    that of a project's prompt, `own` one's own."""

    key: str
    name: str
    text: str
    own: bool = False
    project: str = ""

    @property
    def asks(self) -> list[Variable]:
        return variables(self.text)


def offered_prompts(*, user: User, persona: Persona | None, project: Project | None, typed: str) -> list[Offered]:
    """What may be meant by `typed` behind a /: one's own prompts by name, those of the project that one is in, those of
    the workspace, then the persona's starter messages."""
    here = Q(owner=user.pk) | Q(owner=None, project=None) | Q(project=project.pk if project else None, owner=None)
    rows = SavedPrompt.objects.visible_to(user).filter(here).select_related("project")
    found = [
        Offered(str(each.pk), each.name, each.text, own=bool(each.owner_id), project=_project_name(each))
        for each in sorted(rows, key=lambda each: (not each.owner_id, each.project_id is None))
    ]
    starters = enumerate(persona.starter_messages) if persona else ()
    found += [Offered(f"starter-{number}", "", text) for number, text in starters]
    wanted = typed.strip().casefold()[:LONGEST_SEARCH]
    return [each for each in found if wanted in (each.name or each.text).casefold()][:OFFERED]


def _project_name(prompt: SavedPrompt) -> str:
    return prompt.project.name if prompt.project else ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The prompts of one holder: one's own, those of a `project`, or those of the workspace."""

    kind: str
    rows: list[SavedPrompt]
    project: Project | None = None
    editable: bool = False


def shelves(user: User, query: str = "") -> list[Shelf]:
    """Everything that the person sees, one's own first; with a `query`, what has it in its name or text."""
    rows = SavedPrompt.objects.visible_to(user).select_related("project")
    wanted = query.strip()[:LONGEST_SEARCH].replace("\0", "")
    if wanted:
        rows = rows.filter(Q(name__icontains=wanted) | Q(text__icontains=wanted))
    by_project: dict[UUID, list[SavedPrompt]] = {}
    own: list[SavedPrompt] = []
    workspace: list[SavedPrompt] = []
    for row in rows:
        if row.owner_id:
            own.append(row)
        elif row.project_id:
            by_project.setdefault(row.project_id, []).append(row)
        else:
            workspace.append(row)
    of_projects = [
        Shelf("project", held, held[0].project, editable=may_change(user, held[0])) for held in by_project.values()
    ]
    of_projects.sort(key=lambda shelf: shelf.project.name.casefold() if shelf.project else "")
    shared = Shelf("workspace", workspace, editable=has_right(user, "change", SavedPrompt))
    return [Shelf("own", own, editable=True), *of_projects, *([shared] if workspace else [])]


def _held(prompt: SavedPrompt, user: User, project: Project | None, *, workspace: bool) -> SavedPrompt:
    if workspace and project is not None:
        raise ProductError("one_holder", "A prompt is for one project or for everybody. Choose one of them.")
    prompt.project = project
    prompt.owner = None if workspace or project is not None else user
    return prompt


def _written(name: str, text: str) -> tuple[str, str]:
    """As they are stored."""
    return " ".join(name.split()), without_margins(unix_lines(text))


def _stored(prompt: SavedPrompt, name: str, text: str, before: object = None) -> SavedPrompt:
    prompt.name, prompt.text = _written(name, text)
    if not prompt.name or not prompt.text:
        raise ProductError("empty_prompt", "Give the prompt a name and a text.")
    if len(prompt.name) > SavedPrompt.MAX_NAME or len(prompt.text) > SavedPrompt.MAX_TEXT:
        raise ProductError(
            "prompt_too_long",
            Sentence(
                "A name takes {max_name} characters at most, a text {max_text}. Shorten it.",
                max_name=SavedPrompt.MAX_NAME,
                max_text=SavedPrompt.MAX_TEXT,
            ),
        )
    require_usable(prompt.text)
    moved = (prompt.owner_id, prompt.project_id) != before
    if moved and SavedPrompt.objects.beside(prompt).count() >= SavedPrompt.MOST:
        raise ProductError(
            "too_many_prompts",
            Sentence("{most} prompts are the most in one place. Delete one that nobody uses.", most=SavedPrompt.MOST),
        )
    try:
        with transaction.atomic():
            prompt.save()
    except IntegrityError as error:
        raise ProductError(
            "prompt_name_taken",
            Sentence("There is a prompt called “{name}” already. Choose another name.", name=prompt.name),
            status=409,
        ) from error
    return prompt
