"""The one entry point: from everything a prompt is made of to the messages that are sent, and the report."""

from collections.abc import Callable
from typing import NamedTuple

from chat.context import required
from chat.context.layout import LAYOUTS
from chat.context.policies import keep_by_priority, keep_recent
from chat.context.rendering import Renderer
from chat.context.report import Prompt, Report
from chat.context.turns import History, current_turn_start, first_whole_turn, read_turn
from chat.context.types import ContextRequest, PromptMessage

OMISSION_NOTE = "[Earlier messages were left out to fit the context.]"


class Policy(NamedTuple):
    """How older turns are chosen: `keep(renderer, start, stop, room)` picks from the messages `[start:stop]`.

    `cuts_system`: S gives way to the other required sections.
    """

    keep: Callable[[Renderer, int, int, int], History]
    cuts_system: bool


POLICIES = {
    "recent": Policy(keep_recent, cuts_system=False),
    "priority": Policy(keep_by_priority, cuts_system=True),
}


def build(request: ContextRequest) -> Prompt:
    """Decides what the model sees. The same request gives the same prompt.

    Raises `ContextError`: `no_user_message`, `file_too_long`, `context_too_long`. `request.policy` and `.layout` are
    names in `POLICIES` and `LAYOUTS`.
    """
    renderer, policy, limit = Renderer(request), POLICIES[request.policy], request.room.input_limit
    current_start = current_turn_start(request.messages)
    current = read_turn(request.messages[current_start:])
    sections = required.required_sections(renderer, current)
    required.fit(sections, current, limit, renderer, cuts_system=policy.cuts_system)

    left = limit - required.total(sections)
    oldest = min(first_whole_turn(request.messages, request.unloaded), current_start)
    history = policy.keep(renderer, oldest, current_start, left)
    history.orphans |= current.orphans
    left -= history.tokens
    wants_older = request.unloaded > 0 and history.gap is None and left >= renderer.overhead
    note = _omission_note(renderer, history, left)
    left -= sum(sent.tokens for sent in note)

    sections["history"] = note + history.messages
    messages = [sent for slot in LAYOUTS[request.layout] for sent in sections.get(slot, ())]
    return Prompt(messages, Report(request, messages, history, limit=limit, used=limit - left), wants_older)


def _omission_note(renderer: Renderer, history: History, left: int) -> list[PromptMessage]:
    """The line that stands where messages are missing, if there are any and it fits in what is left (“The room”)."""
    request = renderer.request
    left_out = history.left_out or history.orphans or request.unloaded
    if not (request.omission_note and left_out):
        return []
    tokens = renderer.tokenizer.count(OMISSION_NOTE) + renderer.overhead
    if tokens > left:
        return []
    return [PromptMessage("omitted", None, "user", tokens, OMISSION_NOTE)]
