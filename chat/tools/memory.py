"""A tool with which a model proposes a fact about the person, with the words of the person that it rests on."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from chat.context.rendering import ToolGuidance
from chat.memory.models import Fact
from chat.memory.services import REMEMBER_TOOL, propose
from chat.memory.sources import MAX_MESSAGES, MAX_QUOTE
from chat.models import Conversation, Message
from chat.models.tree import ids_down_to
from chat.tools.tasks import check_names, object_schema, text, text_schema
from core.background import on_database
from core.errors import ProductError
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput

REMEMBER_GUIDANCE = ToolGuidance(REMEMBER_TOOL)
RESULTS: dict[str, str] = {
    Fact.Status.PROPOSED: "Proposed. The person decides below your answer whether it is remembered.",
    Fact.Status.KEPT: "Remembered.",
}


class Remember:
    """Propose a fact. The person sees it below the answer and keeps it, changes it or declines it.

    `answer`: the id of the answer that is being written. The label has no words of the fact, since labels stay when a
    fact is forgotten.
    """

    timeout = 20.0
    definition = ToolDefinition(
        REMEMBER_TOOL,
        "Propose one lasting fact about the person for later conversations. Only what they wrote themselves counts.",
        object_schema(
            "fact",
            "quote",
            fact=text_schema("One short sentence in the person's words, such as: Allergic to nuts."),
            quote=text_schema("The words of the person's message that say it, copied exactly."),
        ),
    )

    def __init__(self, conversation: Conversation, answer: UUID) -> None:
        self.conversation = conversation
        self.answer = answer

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Proposing something to remember")

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        check_names(arguments, self.definition.parameters)
        fact = text(arguments, "fact", Fact.MAX_TEXT, required=True)
        quote = text(arguments, "quote", MAX_QUOTE, required=True)
        return ToolOutput(await on_database(self._propose, fact, quote))

    def _propose(self, fact: str, quote: str) -> str:
        above = ids_down_to(self.answer, 0)[:MAX_MESSAGES]
        try:
            row = propose(
                conversation=self.conversation,
                text=fact,
                quote=quote,
                proposed_by=Fact.ProposedBy.TOOL,
                answer=Message.objects.get(pk=self.answer),
                among=above,
            )
        except ProductError as error:
            raise BadArguments(error.detail) from error
        return RESULTS[row.status]
