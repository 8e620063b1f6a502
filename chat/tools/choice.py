"""Which tools a turn has, in the fixed order in which the model gets them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from accounts.models import User
from chat.context.rendering import ToolGuidance
from chat.models import Conversation, RunStep
from chat.models.scope import ChatScope
from chat.tools.files import READ_GUIDANCE, SEARCH_GUIDANCE, ReadFile, Scope, SearchFiles
from chat.tools.tasks import Hand, task_tools
from chat.tools.toolbox import NO_TOOLS, Toolbox
from chat.tools.web import OPEN_GUIDANCE, WEB_GUIDANCE, Numbered, open_url
from files.models import File
from llm.models import Model
from llm.tools.services import web_search_tool
from llm.types.messages import ToolDefinition
from llm.types.tools import Tool
from personas.models import Persona
from personas.tools import TASKS, WEB


def toolbox_for(
    scope: ChatScope,
    *,
    user: User,
    model: Model,
    question: str,
    files: Sequence[File] = (),
    run_step: RunStep | None = None,
) -> Toolbox:
    """The product's own tools; none for a model that cannot call tools. `files` come with a question not stored yet."""
    if not model.tools:
        return NO_TOOLS
    # One that is about to be begun; nothing belongs to it yet.
    conversation = scope.conversation or Conversation(owner=user)
    persona = scope.persona
    hand = Hand(user, model.name, run_step)
    chosen = [
        *_file_tools(Scope(conversation, scope.project, question), files),
        *_web_tools(persona, conversation),
        *task_tools(hand, named=persona is not None and TASKS in persona.tools),
    ]
    tools = {guidance.name: tool for guidance, tool in chosen}
    missing = persona is not None and set(WEB) & set(persona.tools) - set(tools)
    notes = ("The persona's tools for the web are not there: no search service is set up.",) if missing else ()
    return Toolbox(tools, tuple(guidance for guidance, _ in chosen), notes)


def _file_tools(scope: Scope, files: Sequence[File]) -> Iterator[tuple[ToolGuidance, Tool]]:
    """There as soon as there are files to search, whatever the persona's tools: a project's files must be in reach."""
    if any(file.searchable for file in files) or scope.files().filter(searchable=True).exists():
        yield SEARCH_GUIDANCE, SearchFiles(scope)
        yield READ_GUIDANCE, ReadFile(scope)


def _web_tools(persona: Persona | None, conversation: Conversation) -> Iterator[tuple[ToolGuidance, Tool]]:
    """For personas that name them, and where nobody else answers: without a persona. Only once a search is set up."""
    wanted = set(WEB if persona is None else persona.tools)
    search = web_search_tool() if wanted & set(WEB) else None
    if search is None:
        return
    if "web_search" in wanted:
        yield WEB_GUIDANCE, Numbered(search, conversation)
    if "open_url" in wanted:
        yield OPEN_GUIDANCE, open_url(conversation)


def with_external_tools(box: Toolbox, offered: tuple[ToolDefinition, ...]) -> Toolbox:
    """With the tools of the program that asks: it runs them itself, so that a call of one ends the turn.

    One of a name that the product has too stands in its place.
    """
    if not offered:
        return box
    names = {tool.name for tool in offered}
    replaced = [f"The calling program has a tool {name} of its own." for name in box.tools if name in names]
    return replace(
        box,
        tools={name: tool for name, tool in box.tools.items() if name not in names},
        guidance=tuple(each for each in box.guidance if each.name not in names),
        notes=(*box.notes, *replaced),
        external=offered,
    )
