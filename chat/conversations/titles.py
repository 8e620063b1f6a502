"""Write titles of conversations: first the start of the first message, then, after the first answer, the model's."""

import asyncio
import logging
from functools import partial
from uuid import UUID

from accounts.access.rights import NO_RIGHTS, Rights, rights_of
from chat.ledger.asking import Billing, ask
from chat.ledger.limits import require_not_used_up
from chat.ledger.models import ModelCall
from chat.models import Conversation, Turn
from chat.models.conversation_state import list_changed
from chat.models.summary import marks_on
from chat.models.words import title_from
from chat.realtime.event_stream import announce
from core.background import on_database
from core.errors import ProductError
from llm.models import Model
from llm.services import with_fallbacks
from llm.types.model_call import ModelMessage, ModelRequest
from personas.services import rules_at
from personas.texts import Texts

SMALLEST_WINDOW = 4_096  # tokens; smaller models write titles that are worse than the start of the message
CHARACTERS_READ = 2_000  # characters of the question, and of the answer, that the model reads
REPLY_CHARACTERS = 400  # characters of the reply; a model that writes an essay is cut off
TIMEOUT = 60.0  # seconds

logger = logging.getLogger(__name__)


def claim_title(conversation_id: UUID) -> UUID | None:
    """Claim the title of a conversation. Only one caller gets the turn whose model should write it.

    This is the turn of the newest complete answer that is not excluded. Returns None if there is no such answer.
    """
    leaf_id = Conversation.objects.filter(pk=conversation_id).values_list("leaf", flat=True).first()
    conversations = Conversation.objects.filter(pk=conversation_id, titled=False)
    complete = Turn.objects.filter(status=Turn.Status.DONE, model__context_window__gte=SMALLEST_WINDOW)
    complete = complete.exclude(answer__in=marks_on(conversation_id, leaf_id).excluded)
    turn = complete.filter(conversation__in=conversations).order_by("-id").values_list("pk", flat=True).first()
    return turn if turn is not None and conversations.update(titled=True) else None


async def write_title(turn_id: UUID) -> None:
    """Ask the turn's model for a title and store it. Without a usable reply, the automatic title stays."""
    turn, texts, rights = await on_database(_load_turn, turn_id)
    if turn is None or turn.model is None or not rights.uses_model(turn.model.pk):
        return
    try:
        await on_database(_check_limits, turn)
        async with asyncio.timeout(TIMEOUT):
            text = await with_fallbacks(turn.model, partial(_ask, turn, texts), rights.models)
    except (ProductError, TimeoutError) as error:
        logger.info(
            "no title for conversation %s: %s", turn.conversation_id, getattr(error, "code", "the model timed out")
        )
        return
    title = clean_title(text)
    if not title:
        return
    stored = await on_database(_store, turn.conversation, title)
    if stored:
        hint = {"type": "conversation.title", "conversation": str(turn.conversation_id), "title": title}
        await announce(turn.conversation_id, hint)


def clean_title(text: str) -> str:
    """Return the first line without quotation marks, Markdown and unprintable characters; empty when none is left."""
    for line in text.splitlines():
        printed = "".join(each if each.isprintable() else " " for each in line)
        if title := printed.strip(" \"'`*_#“”„«»‘’").removesuffix("."):
            return title_from(title)
    return ""


async def _ask(turn: Turn, texts: Texts, model: Model, patience: float | None) -> str:
    excerpt = f"{turn.user_message.text[:CHARACTERS_READ]}\n\n{turn.answer.text[:CHARACTERS_READ]}"
    request = ModelRequest(
        model=model.name,
        messages=(ModelMessage("system", texts["title"]), ModelMessage("user", excerpt)),
        max_output=min(1_024, model.context_window // 4),  # room for a model that reasons first
        window=model.window,
    )
    billing = Billing(turn.conversation, ModelCall.Purpose.TITLE, turn.conversation.owner_id, token=turn.token_id)
    reply = await ask(model, request, billing, longest=REPLY_CHARACTERS, patience=patience)
    # A reply that is cut off is an essay, or reasoning without a tag.
    return reply.text if reply.ended and not reply.unread else ""


def _load_turn(turn_id: UUID) -> tuple[Turn | None, Texts, Rights]:
    related = ("conversation", "user_message", "answer", "model__provider")
    turn = Turn.objects.select_related(*related).filter(pk=turn_id).first()
    return turn, rules_at().texts, rights_of(turn.conversation.owner_id) if turn is not None else NO_RIGHTS


def _check_limits(turn: Turn) -> None:
    """Check the person's limits. Raises `limit_reached`. Then the next answer triggers the title."""
    try:
        require_not_used_up(turn.conversation.owner_id, turn.token_id)
    except ProductError:
        Conversation.objects.filter(pk=turn.conversation_id).update(titled=False)
        raise


def _store(conversation: Conversation, title: str) -> bool:
    """Store the title. Returns False when the conversation was renamed or deleted meanwhile."""
    stored = Conversation.objects.filter(pk=conversation.pk, title=conversation.title).update(title=title)
    if stored:
        list_changed(conversation)
    return bool(stored)
