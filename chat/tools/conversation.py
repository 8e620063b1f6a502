"""Searching what a summary of this branch replaced, so that nothing summarised is lost to the model."""

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from chat.context.rendering import ToolGuidance
from chat.models import Conversation, Message
from chat.models.summary import in_force, marks_on
from chat.models.tree import ids_down_to
from chat.models.words import MessageWords, Term, as_query, fold, phrases, spans, words_in
from core.background import on_database
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput

HITS = 8
QUOTE = 1_500  # characters of one message
CUT = "[…]"  # where a quotation leaves something out
NOTHING = "Nothing was found in what the summary replaced. Try other words."

CONVERSATION_GUIDANCE = ToolGuidance(
    "search_conversation",
    "Earlier messages were replaced by a summary. Call it before you answer a question on something said in them that "
    "the summary does not tell exactly: names, numbers, wordings. Use words that were said then.",
)


class SearchConversation:
    """Quotes word for word. Neither what a person left out is found, nor what is sent as it is: pinned turns and
    everything after the summary."""

    timeout = 20.0
    max_characters = 60_000

    definition = ToolDefinition(
        "search_conversation",
        "Searches the earlier messages of this conversation that its summary replaced, by words; quotes those that "
        "match best, with who wrote them, when and at which position.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words to look for; quotation marks keep words together."}
            },
            "required": ["query"],
        },
    )

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def label(self, arguments: Mapping[str, Any]) -> str:
        return f"Searching the conversation for “{str(arguments.get('query', ''))[:80]}”"

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        query = arguments.get("query")
        asked = phrases(query) if isinstance(query, str) else []
        if not asked:
            raise BadArguments("“query” must be a text with the words to look for.")
        return await on_database(self._search, asked)

    def _search(self, asked: Sequence[Sequence[Term]]) -> ToolOutput:
        matching = _replaced(self.conversation).alias(words=MessageWords(F("parts")))
        best = _best(matching.filter(words=as_query(asked, every=False)), asked)
        if not best:
            return ToolOutput(NOTHING)
        zone = self.conversation.owner.zone
        quotes = [
            {
                "position": message.depth + 1,
                "who": message.role,
                "when": f"{message.created.astimezone(zone):%Y-%m-%d %H:%M}",
                "quote": quotation(message.text, asked),
            }
            for message in sorted(Message.objects.filter(pk__in=best), key=lambda message: message.depth)
        ]
        return ToolOutput(json.dumps({"quotes": quotes}, ensure_ascii=False))


def _replaced(conversation: Conversation) -> QuerySet[Message]:
    """The messages that the summary in force stands for, but those with a mark."""
    marks = marks_on(conversation.pk, conversation.leaf_id)
    summary = in_force(conversation.pk, conversation.leaf_id, marks)
    if summary is None:
        return Message.objects.none()
    aside = [*summary.left_aside, *marks.by_message]
    rows = Message.objects.filter(pk__in=ids_down_to(summary.last_id, 0)).exclude(pk__in=aside)
    return rows.exclude(status=Message.Status.PENDING)


def _best(rows: QuerySet[Message], asked: Sequence[Sequence[Term]]) -> list[UUID]:
    """Those in which most of the words stand; a word that few messages have counts for more, and one that stands there
    whole for more than the beginning of a longer one ("box 1", "box 17"). Of equals the newest."""
    wanted = {term for phrase in asked for term in phrase}
    exact = {Term(term.word, False) for term in wanted}
    found: dict[UUID, tuple[int, set[Term]]] = {}
    for message in rows.only("parts", "depth").iterator(500):
        there = words_in(message.text)
        found[message.pk] = message.depth, {term for term in wanted | exact if any(map(term.matches, there))}
    frequency = Counter(term for _, has in found.values() for term in has)
    weights = {term: math.log(1 + len(found) / count) for term, count in frequency.items()}

    def rank(pk: UUID) -> tuple[float, int]:
        depth, has = found[pk]
        return math.fsum(weights[term] for term in has), depth

    return sorted(found, key=rank, reverse=True)[:HITS]


def quotation(text: str, asked: Sequence[Sequence[Term]]) -> str:
    """The text as it stands; of a long one the `QUOTE` characters with most of the words, and marks where it is cut."""
    text = unicodedata.normalize("NFC", text)
    if len(text) <= QUOTE:
        return text
    starts = [start for start, _ in spans(text, asked)] or [0]
    counted = [(len({fold(text[a:b]) for a, b in _near(text, start, asked)}), -start) for start in starts[:100]]
    match = -max(counted)[1]
    start = max(0, match - QUOTE // 10)
    start = (text.find(" ", start, match) + 1 or start) if start else 0
    end = min(len(text), start + QUOTE)
    return (CUT if start else "") + text[start:end] + (CUT if end < len(text) else "")


def _near(text: str, start: int, asked: Sequence[Sequence[Term]]) -> list[tuple[int, int]]:
    """Words that match within a quotation that begins a little before `start`, measured from `start`."""
    return [(start + a, start + b) for a, b in spans(text[start : start + QUOTE * 9 // 10], asked)]
