"""Which tools a turn has, in the fixed order in which the model gets them."""

from collections.abc import Iterator, Sequence

from chat.context.moving_parts import ToolGuidance
from chat.models import Conversation
from chat.prompts import Setting
from chat.tools import NO_TOOLS, Toolbox
from chat.tools.files import READ_GUIDANCE, SEARCH_GUIDANCE, ReadFile, Scope, SearchFiles
from chat.tools.servers import with_known_tools
from chat.tools.tasks import Hand, task_tools
from chat.tools.web import OPEN_GUIDANCE, WEB_GUIDANCE, Numbered, open_url
from files.models import File
from llm.tool_services import web_search_tool
from llm.tools import Tool
from personas.tools import TASKS, WEB


def toolbox_for(setting: Setting, question: str, files: Sequence[File] = ()) -> Toolbox:
    """None for a model that cannot call tools. `files` come with a question that is not stored yet."""
    if not setting.model.tools:
        return NO_TOOLS
    # One that is about to be begun; nothing belongs to it yet.
    conversation = setting.conversation or Conversation(owner=setting.user)
    scope = Scope(conversation, setting.project, question)
    chosen = [*_file_tools(scope, files), *_web_tools(setting, conversation), *_task_tools(setting)]
    tools = {guidance.name: tool for guidance, tool in chosen}
    missing = setting.persona is not None and set(WEB) & set(setting.persona.tools) - set(tools)
    notes = ("The persona's tools for the web are not there: no search service is set up.",) if missing else ()
    return Toolbox(tools, tuple(guidance for guidance, _ in chosen), notes)


def toolbox_ahead(setting: Setting, question: str, files: Sequence[File]) -> Toolbox:
    """What the turn of a draft would have. Tool servers are not asked before their tools are needed."""
    return with_known_tools(setting, toolbox_for(setting, question, files))


def _file_tools(scope: Scope, files: Sequence[File]) -> Iterator[tuple[ToolGuidance, Tool]]:
    """There as soon as there are files to search, whatever the persona's tools: a project's files must be in reach."""
    if any(file.searchable for file in files) or scope.files().filter(searchable=True).exists():
        yield SEARCH_GUIDANCE, SearchFiles(scope)
        yield READ_GUIDANCE, ReadFile(scope)


def _web_tools(setting: Setting, conversation: Conversation) -> Iterator[tuple[ToolGuidance, Tool]]:
    """For personas that name them, and where nobody else answers: without a persona. Only once a search is set up."""
    wanted = set(WEB if setting.persona is None else setting.persona.tools)
    search = web_search_tool() if wanted & set(WEB) else None
    if search is None:
        return
    if "web_search" in wanted:
        yield WEB_GUIDANCE, Numbered(search, conversation)
    if "open_url" in wanted:
        yield OPEN_GUIDANCE, open_url(conversation)


def _task_tools(setting: Setting) -> Iterator[tuple[ToolGuidance, Tool]]:
    named = setting.persona is not None and TASKS in setting.persona.tools
    yield from task_tools(Hand(setting.user, setting.model.name, setting.run_step), named=named)
