"""Which tools a turn has, in the fixed order in which the model gets them."""

from collections.abc import Iterator

from chat.context.moving_parts import ToolGuidance
from chat.models import Message
from chat.prompts import Setting
from chat.tools import NO_TOOLS, Toolbox
from chat.tools.files import READ_GUIDANCE, SEARCH_GUIDANCE, ReadFile, Scope, SearchFiles
from chat.tools.tasks import Hand, task_tools
from chat.tools.web import OPEN_GUIDANCE, WEB_GUIDANCE, Numbered
from llm.tool_services import web_search_tool
from llm.tools import Tool
from llm.web.open_url import OpenUrlTool
from personas.tools import TASKS


def toolbox_for(setting: Setting, question: Message) -> Toolbox:
    """None for a model that cannot call tools."""
    if not setting.model.tools or setting.conversation is None:
        return NO_TOOLS
    chosen = [*_file_tools(setting, question), *_web_tools(setting), *_task_tools(setting)]
    tools = {guidance.name: tool for guidance, tool in chosen}
    return Toolbox(tools, tuple(guidance for guidance, _ in chosen))


def _file_tools(setting: Setting, question: Message) -> Iterator[tuple[ToolGuidance, Tool]]:
    """There as soon as there are files to search, whatever the persona's tools: a project's files must be in reach."""
    if setting.conversation is None:
        return
    scope = Scope(setting.conversation, setting.project, question.text)
    if scope.files().filter(searchable=True).exists():
        yield SEARCH_GUIDANCE, SearchFiles(scope)
        yield READ_GUIDANCE, ReadFile(scope)


def _web_tools(setting: Setting) -> Iterator[tuple[ToolGuidance, Tool]]:
    """For personas that name them, and where nobody else answers: without a persona. Only once a search is set up."""
    wanted = {"web_search", "open_url"} if setting.persona is None else set(setting.persona.tools)
    search = web_search_tool() if wanted & {"web_search", "open_url"} else None
    if setting.conversation is None or search is None:
        return
    if "web_search" in wanted:
        yield WEB_GUIDANCE, Numbered(search, setting.conversation)
    if "open_url" in wanted:
        yield OPEN_GUIDANCE, Numbered(OpenUrlTool(), setting.conversation)


def _task_tools(setting: Setting) -> Iterator[tuple[ToolGuidance, Tool]]:
    named = setting.persona is not None and TASKS in setting.persona.tools
    yield from task_tools(Hand(setting.user, setting.model.name, setting.run_step), named=named)
