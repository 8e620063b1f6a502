from chat.models.conversation import (
    RESTORABLE_FOR,
    TEMPORARY_FOR,
    Attachment,
    Conversation,
    JudgedAnswer,
    Message,
    NextMessage,
    RenderedAnswer,
    StepReasoning,
    Tag,
    ToolPermission,
    Turn,
)
from chat.models.import_job import Import, ImportedRow
from chat.models.last_prompt import LastPrompt
from chat.models.mention import Mention
from chat.models.share import Share
from chat.models.summary import Mark, Summary, SummaryJob
from chat.models.team_share import TeamShare
from chat.models.tool_result import ToolResult

__all__ = [
    "RESTORABLE_FOR",
    "TEMPORARY_FOR",
    "Attachment",
    "Conversation",
    "Import",
    "ImportedRow",
    "JudgedAnswer",
    "LastPrompt",
    "Mark",
    "Mention",
    "Message",
    "NextMessage",
    "RenderedAnswer",
    "Share",
    "StepReasoning",
    "Summary",
    "SummaryJob",
    "Tag",
    "TeamShare",
    "ToolPermission",
    "ToolResult",
    "Turn",
]
