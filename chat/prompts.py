"""What one model call is sent."""

from collections.abc import Sequence

from chat.models import Message as MessageRow
from chat.models import Turn
from chat.tree import branch
from llm.messages import Message, ModelRequest
from llm.models import Model
from personas.models import SystemPrompt

DEFAULT_MAX_OUTPUT = 1024


def build(turn: Turn, model: Model, added: Sequence[Message]) -> ModelRequest:
    """The system prompt and the whole history, then what this turn has added."""
    system = SystemPrompt.objects.filter(active=True).first()
    history = branch(turn.user_message_id, newest=10_000, leaf_depth=turn.user_message.depth)
    messages = [Message("system", system.text)] if system else []
    messages += [_message(row) for row in history if row.text]
    return ModelRequest(
        model=model.name,
        messages=(*messages, *added),
        max_output=model.max_output or DEFAULT_MAX_OUTPUT,
        several_system_messages=model.several_system_messages,
    )


def _message(row: MessageRow) -> Message:
    return Message("user" if row.role == MessageRow.Role.USER else "assistant", row.text)
