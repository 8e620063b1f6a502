"""Policy `recent` (context.md, section 3): older turns whole, newest first, up to the first that does not fit."""

from typing import NamedTuple

from chat.context.history import History
from chat.context.rendering import Renderer, cost
from chat.context.turns import read_turn
from chat.context.types import PromptMessage


class RenderedTurn(NamedTuple):
    """The messages `[start:stop]` of the conversation as they are sent."""

    start: int
    stop: int
    messages: list[PromptMessage]


def keep_recent(renderer: Renderer, start: int, stop: int, room: int) -> History:
    """Chooses from the messages `[start:stop]`, at most `room` tokens.

    The walk looks at nothing older than the first turn that does not fit, and at turns of plain messages only to add up
    their tokens; the others (tools, files, uncounted text) are rendered to know what they cost.
    """
    messages, overhead = renderer.request.messages, renderer.overhead
    history = History()
    rendered: list[RenderedTurn] = []
    end, tokens, plain = stop, 0, True
    for index in range(stop - 1, start - 1, -1):
        message = messages[index]
        if message.plain_tokens is None:
            plain = False
        else:
            tokens += message.plain_tokens + overhead
        if message.role == "user" or index == start:
            if not plain:
                rendered.append(_render_turn(renderer, index, end, history))
                tokens = cost(rendered[-1].messages)
            if tokens > room:
                history.gap = index
                break
            room -= tokens
            history.tokens += tokens
            end, tokens, plain = index, 0, True
    history.left_out = end > 0
    history.messages = _in_order(renderer, rendered, end, stop)
    return history


def _render_turn(renderer: Renderer, start: int, stop: int, history: History) -> RenderedTurn:
    turn = read_turn(renderer.request.messages[start:stop])
    history.orphans |= turn.orphans
    return RenderedTurn(start, stop, [sent for message in turn.messages for sent in renderer.older_message(message)])


def _in_order(renderer: Renderer, rendered: list[RenderedTurn], start: int, stop: int) -> list[PromptMessage]:
    """The kept messages `[start:stop]`, oldest first. `rendered` is newest first; the rest are plain."""
    messages = renderer.request.messages
    sent: list[PromptMessage] = []
    for turn in reversed(rendered):
        if turn.start >= start:
            sent += renderer.plain_messages(messages[start : turn.start])
            sent += turn.messages
            start = turn.stop
    return sent + renderer.plain_messages(messages[start:stop])
