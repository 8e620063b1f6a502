"""Change saved prompts, check their holders, and suggest prompts after a / at the start of a message."""

from dataclasses import dataclass
from typing import TypedDict
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
from projects.saved_prompts.variables import Variable, check_variable_count, variables

MAX_SUGGESTIONS = 12  # suggestions after a /
MAX_SEARCH_LENGTH = 100  # characters


class PromptFields(TypedDict, total=False):
    """Fields of a saved prompt. `project` or `workspace`, at most one, is the holder. Without both, the user is."""

    name: str
    text: str
    project: Project | None
    workspace: bool


def create_saved_prompt(
    *, user: User, name: str, text: str, project: Project | None = None, workspace: bool = False
) -> SavedPrompt:
    """Create a prompt of the user, of a `project`, or of the `workspace`.

    Raises `empty_prompt`, `prompt_too_long`, `too_many_variables`, `prompt_name_taken` (409), `too_many_prompts`, and
    as `require_holder`.
    """
    prompt = _set_holder(SavedPrompt(), user, project, workspace=workspace)
    require_holder(user, prompt, "add")
    return _save(prompt, name, text)


def update_saved_prompt(*, user: User, prompt: SavedPrompt, fields: PromptFields) -> SavedPrompt:
    """Change a prompt, or its holder. A change of the holder needs the right to change both holders' prompts.

    Raises as `create_saved_prompt`, and `legal_hold` (409) if its text or name would be lost.
    """
    require_holder(user, prompt, "change")
    name, text = _normalise(fields.get("name", prompt.name), fields.get("text", prompt.text))
    require_rewritable(prompt, prompt.name, name)
    require_rewritable(prompt, prompt.text, text)
    before = (prompt.owner_id, prompt.project_id)
    if {"project", "workspace"} & set(fields):
        workspace = fields.get("workspace", before == (None, None) and fields.get("project") is None)
        _set_holder(prompt, user, fields.get("project", None if workspace else prompt.project), workspace=workspace)
        if (prompt.owner_id, prompt.project_id) != before:
            require_holder(user, prompt, "add")
            require_movable(prompt)
    return _save(prompt, name, text, before)


def delete_saved_prompt(*, user: User, prompt: SavedPrompt) -> None:
    """Delete a prompt. Raises as `require_holder`, and `legal_hold` (409)."""
    require_holder(user, prompt, "delete")
    require_free(prompt)
    prompt.delete()


def copy_saved_prompt(*, user: User, prompt: SavedPrompt) -> SavedPrompt:
    """Create the user's own copy of a prompt, with a number behind its name if they already use this name."""
    used = set(SavedPrompt.objects.filter(owner=user).values_list("name", flat=True))
    number = 1
    name = prompt.name
    while name in used:
        number += 1
        name = f"{prompt.name[: SavedPrompt.MAX_NAME - len(str(number)) - 1]} {number}"
    return create_saved_prompt(user=user, name=name, text=prompt.text)


def visible_saved_prompt(user: User, pk: UUID) -> SavedPrompt:
    """Return a prompt that the user may see. Raises `NotFound`."""
    return get_or_404(SavedPrompt.objects.visible_to(user).select_related("project"), pk, "prompt")


def require_holder(user: User, prompt: SavedPrompt, action: Action) -> None:
    """Check that the user may change the prompts of this prompt's holder.

    Allowed holders are the user, a project that they may edit, and the workspace with the right to the action. Raises
    `NotFound` for another user's prompt, `not_editor`, `staff_only` or `right_missing` (403).
    """
    if prompt.owner_id is not None:
        if prompt.owner_id != user.pk:
            raise NotFound("prompt")
    elif prompt.project is not None:
        require_editor(user=user, project=prompt.project)
    else:
        require_right(user, action, SavedPrompt)


def editable_projects(user: User) -> QuerySet[Project]:
    """Return the projects for which the user may write prompts: projects that they own or may edit."""
    return Project.objects.editable_by(user).order_by("name", "id").only("id", "name")


def may_change(user: User, prompt: SavedPrompt) -> bool:
    try:
        require_holder(user, prompt, "change")
    except ProductError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PromptSuggestion:
    """Suggestion after a / at the start of a message.

    `name` is empty for a starter message of the persona. `project`: the name of the prompt's project. `own`: the prompt
    belongs to the user.
    """

    key: str
    name: str
    text: str
    own: bool = False
    project: str = ""

    @property
    def asks(self) -> list[Variable]:
        return variables(self.text)


def suggest_prompts(
    *, user: User, persona: Persona | None, project: Project | None, typed: str
) -> list[PromptSuggestion]:
    """Return the suggestions for `typed` after a /, at most `MAX_SUGGESTIONS`.

    The user's own prompts come first, then prompts of the current project, prompts of the workspace, and the persona's
    starter messages.
    """
    usable = Q(owner=user.pk) | Q(owner=None, project=None) | Q(project=project.pk if project else None, owner=None)
    rows = SavedPrompt.objects.visible_to(user).filter(usable).select_related("project")
    prompts = [
        PromptSuggestion(str(each.pk), each.name, each.text, own=bool(each.owner_id), project=_project_name(each))
        for each in sorted(rows, key=lambda each: (not each.owner_id, each.project_id is None))
    ]
    starters = enumerate(persona.starter_messages) if persona else ()
    prompts += [PromptSuggestion(f"starter-{number}", "", text) for number, text in starters]
    query = typed.strip().casefold()[:MAX_SEARCH_LENGTH]
    return [each for each in prompts if query in (each.name or each.text).casefold()][:MAX_SUGGESTIONS]


def _project_name(prompt: SavedPrompt) -> str:
    return prompt.project.name if prompt.project else ""


@dataclass(frozen=True, slots=True)
class HolderPrompts:
    """Prompts of one holder. `kind`: “own”, “project” or “workspace”."""

    kind: str
    rows: list[SavedPrompt]
    project: Project | None = None
    editable: bool = False


def prompts_by_holder(user: User, query: str = "") -> list[HolderPrompts]:
    """Return the visible prompts, the user's own first. With a `query`, only prompts whose name or text contains it."""
    rows = SavedPrompt.objects.visible_to(user).select_related("project")
    words = query.strip()[:MAX_SEARCH_LENGTH].replace("\0", "")
    if words:
        rows = rows.filter(Q(name__icontains=words) | Q(text__icontains=words))
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
    project_prompts = [
        HolderPrompts("project", prompts, prompts[0].project, editable=may_change(user, prompts[0]))
        for prompts in by_project.values()
    ]
    project_prompts.sort(key=lambda each: each.project.name.casefold() if each.project else "")
    shared = HolderPrompts("workspace", workspace, editable=has_right(user, "change", SavedPrompt))
    return [HolderPrompts("own", own, editable=True), *project_prompts, *([shared] if workspace else [])]


def _set_holder(prompt: SavedPrompt, user: User, project: Project | None, *, workspace: bool) -> SavedPrompt:
    if workspace and project is not None:
        raise ProductError("one_holder", "A prompt belongs to a project or to everybody. Choose one of them.")
    prompt.project = project
    prompt.owner = None if workspace or project is not None else user
    return prompt


def _normalise(name: str, text: str) -> tuple[str, str]:
    """Return name and text as they are stored."""
    return " ".join(name.split()), without_margins(unix_lines(text))


def _save(prompt: SavedPrompt, name: str, text: str, before: object = None) -> SavedPrompt:
    """Validate and store a prompt. `before`: its previous (owner, project); None for a new one."""
    prompt.name, prompt.text = _normalise(name, text)
    if not prompt.name or not prompt.text:
        raise ProductError("empty_prompt", "Give the prompt a name and a text.")
    if len(prompt.name) > SavedPrompt.MAX_NAME or len(prompt.text) > SavedPrompt.MAX_TEXT:
        raise ProductError(
            "prompt_too_long",
            Sentence(
                "A name may have at most {max_name} characters, and a text at most {max_text}. Shorten it.",
                max_name=SavedPrompt.MAX_NAME,
                max_text=SavedPrompt.MAX_TEXT,
            ),
        )
    check_variable_count(prompt.text)
    moved = (prompt.owner_id, prompt.project_id) != before
    if moved and SavedPrompt.objects.of_same_holder(prompt).count() >= SavedPrompt.MAX_COUNT:
        raise ProductError(
            "too_many_prompts",
            Sentence(
                "There can be at most {most} prompts here. Delete one that nobody uses.", most=SavedPrompt.MAX_COUNT
            ),
        )
    try:
        with transaction.atomic():
            prompt.save()
    except IntegrityError as error:
        raise ProductError(
            "prompt_name_taken",
            Sentence("There is already a prompt called “{name}”. Choose another name.", name=prompt.name),
            status=409,
        ) from error
    return prompt
