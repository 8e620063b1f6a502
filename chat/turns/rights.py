"""Check the rights that a turn uses. If a right is revoked while the answer is being written, the answer ends."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from accounts.access.rights import rights_of
from accounts.models import Right, User
from chat.models import Conversation
from chat.prompts.turn_context import TurnContext
from chat.tools.on_demand import SEPARATOR
from core.errors import ProductError
from core.sentences import Sentence
from personas.models import Persona
from personas.tools import WEB_TOOLS
from projects.models import Project
from workspace.models.version import version_now

MODEL = Sentence("Your groups no longer allow this model, so the answer was stopped. The text so far is kept.")
TOOLS = Sentence("Your groups no longer allow one of its tools, so the answer was stopped. The text so far is kept.")
TASKS = Sentence(
    "Your groups no longer allow models to work through tasks, so this was stopped. The text so far is kept."
)
PERSONA = Sentence("This persona is no longer shared with you, so the answer was stopped. The text so far is kept.")
PROJECT = Sentence("You are no longer in this project, so the answer was stopped. The text so far is kept.")


class TurnUses(NamedTuple):
    """The resources that a turn needs rights for. `web`: it has tools for the web.

    `servers`: names of tool servers. `tasks`: the turn is a step of a run. `persona`: None for the persona of a
    project, which every member may use.
    """

    user: User
    model: UUID
    persona: UUID | None
    project: UUID | None
    web: bool
    servers: frozenset[str]
    tasks: bool


def get_uses(context: TurnContext) -> TurnUses:
    tools = context.toolbox.tools
    persona = context.persona
    project = context.project
    is_projects_persona = persona is not None and project is not None and project.persona_id == persona.pk
    return TurnUses(
        user=context.user,
        model=context.model.pk,
        persona=persona.pk if persona is not None and not is_projects_persona else None,
        project=project.pk if project is not None else None,
        web=not tools.keys().isdisjoint(WEB_TOOLS),
        servers=frozenset(name.partition(SEPARATOR)[0] for name in tools if SEPARATOR in name),
        tasks=context.run_step is not None,
    )


def require_rights(context: TurnContext, conversation: Conversation) -> None:
    """Raise `right_lost` (403) if access to the model or persona was revoked between sending and answering."""
    if not context.rights.uses_model(context.model.pk):
        raise ProductError("right_lost", MODEL, status=403)
    if conversation.persona_id not in (None, context.persona.pk if context.persona is not None else None):
        raise ProductError("right_lost", PERSONA, status=403)


def find_lost_rights(using: Mapping[UUID, TurnUses]) -> dict[UUID, Sentence]:
    """Return a sentence with the reason for each turn that must end.

    Costs one query for the version of the workspace and one for all personas. Each private persona of another owner
    costs one more, and so does each project.
    """
    version = version_now()
    personas = _unshared_personas(using)
    return {turn: reason for turn, uses in using.items() if (reason := _lost_right(uses, version, personas))}


def _lost_right(uses: TurnUses, version: UUID | None, personas: "set[tuple[UUID, UUID]]") -> Sentence | None:
    rights = rights_of(uses.user, version)
    if not rights.uses_model(uses.model):
        return MODEL
    if (uses.web and Right.WEB not in rights.may) or not all(map(rights.uses_server, uses.servers)):
        return TOOLS
    if uses.tasks and Right.RUN_TASKS not in rights.may:
        return TASKS
    if uses.persona is not None and (uses.user.pk, uses.persona) in personas:
        return PERSONA
    if uses.project is not None and not Project.objects.visible_to(uses.user).filter(pk=uses.project).exists():
        return PROJECT
    return None


def _unshared_personas(using: Mapping[UUID, TurnUses]) -> set[tuple[UUID, UUID]]:
    """Return pairs of people and personas that are no longer shared with them. A deleted persona ends no turn."""
    used = {(uses.user.pk, uses.persona) for uses in using.values() if uses.persona is not None}
    people = {uses.user.pk: uses.user for uses in using.values()}
    rows = Persona.objects.filter(pk__in={persona for _, persona in used})
    private = dict(rows.filter(visibility=Persona.Visibility.PRIVATE).values_list("pk", "owner"))
    return {
        (user, persona)
        for user, persona in used
        if persona in private
        and private[persona] != user
        and not Persona.objects.visible_to(people[user]).filter(pk=persona).exists()
    }
