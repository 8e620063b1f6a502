"""A tool that searches the messages that a summary has replaced, so that the model can still read them."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from chat.context.rendering import ToolGuidance
from chat.models import Conversation, Message
from chat.models.summary import in_force, marks_on
from chat.models.tree import ids_down_to
from chat.models.words import Phrases, best, fold, parse_query, spans
from core.background import on_database
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput

HITS = 8
QUOTE = 1_500  # quoted characters per message
CUT = "[…]"  # marks an omission in a quotation
NO_RESULTS = "Nothing was found in what the summary replaced. Try other words."

CONVERSATION_GUIDANCE = ToolGuidance("search_conversation")


class SearchConversation:
    """Search messages and quote them word for word.

    The search leaves out messages that a person excludes, and messages that are in the prompt anyway: pinned turns and
    everything after the summary.
    """

    timeout = 20.0

    definition = ToolDefinition(
        "search_conversation",
        "Search the earlier messages that the summary replaced. Returns quotes with author, time and position.",
        {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words, such as budget. Quotation marks keep words together.",
                }
            },
            "required": ["query"],
        },
    )

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Searching the conversation for “{get}”", get=str(arguments.get("query", ""))[:80])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        query = arguments.get("query")
        phrases = parse_query(query) if isinstance(query, str) else []
        if not phrases:
            raise BadArguments("“query” must be a text with the words to look for.")
        return await on_database(self._search, phrases)

    def _search(self, phrases: Phrases) -> ToolOutput:
        matches = best(_replaced(self.conversation), phrases, HITS)
        if not matches:
            return ToolOutput(NO_RESULTS)
        zone = self.conversation.owner.zone
        quotes = [
            {
                "position": message.depth + 1,
                "who": message.role,
                "when": f"{message.created.astimezone(zone):%Y-%m-%d %H:%M}",
                "quote": quotation(message.text, phrases),
            }
            for message in Message.objects.filter(pk__in=matches).order_by("depth")
        ]
        return ToolOutput(json.dumps({"quotes": quotes}, ensure_ascii=False))


def _replaced(conversation: Conversation) -> list[UUID]:
    """Return the messages that the summary of the displayed branch has replaced, except marked messages."""
    marks = marks_on(conversation.pk, conversation.leaf_id)
    summary = in_force(conversation.pk, conversation.leaf_id, marks)
    if summary is None:
        return []
    left_out = {*map(UUID, summary.left_aside), *marks.by_message}
    return [pk for pk in ids_down_to(summary.last_id, 0) if pk not in left_out]


def quotation(text: str, phrases: Phrases) -> str:
    """Return the text, or the `QUOTE` characters of a long text with most of the words. `CUT` marks omissions."""
    text = unicodedata.normalize("NFC", text)
    if len(text) <= QUOTE:
        return text
    starts = [start for start, _ in spans(text, phrases)] or [0]
    word_counts = [(len({fold(text[a:b]) for a, b in _near(text, start, phrases)}), -start) for start in starts[:100]]
    match = -max(word_counts)[1]
    start = max(0, match - QUOTE // 10)
    start = (text.find(" ", start, match) + 1 or start) if start else 0
    end = min(len(text), start + QUOTE)
    return (CUT if start else "") + text[start:end] + (CUT if end < len(text) else "")


def _near(text: str, start: int, phrases: Phrases) -> list[tuple[int, int]]:
    """Return the spans of matching words within a quotation that begins a little before `start`."""
    return [(start + a, start + b) for a, b in spans(text[start : start + QUOTE * 9 // 10], phrases)]
