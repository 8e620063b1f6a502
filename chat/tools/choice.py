"""Which tools a turn has."""

from chat.models import Message
from chat.prompts import Setting
from chat.tools import NO_TOOLS, Toolbox
from chat.tools.files import READ_GUIDANCE, SEARCH_GUIDANCE, ReadFile, Scope, SearchFiles


def toolbox_for(setting: Setting, question: Message) -> Toolbox:
    """None for a model that cannot call tools. The file tools are there as soon as there are files to search."""
    if not setting.model.tools or setting.conversation is None:
        return NO_TOOLS
    scope = Scope(setting.conversation, setting.project, question.text)
    if not scope.files().filter(searchable=True).exists():
        return NO_TOOLS
    return Toolbox({"search_files": SearchFiles(scope), "read_file": ReadFile(scope)}, (SEARCH_GUIDANCE, READ_GUIDANCE))
