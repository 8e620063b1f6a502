"""How older turns are chosen (docs/context.md, “The room”): the policies `recent` and `priority`."""

from typing import NamedTuple

from chat.context.rendering import Renderer, cost, cut_end
from chat.context.turns import History, Turn, older_turns, read_turn
from chat.context.types import Block, ContextMessage, PromptMessage


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


# Of the input limit, in percent: above the first a system prompt is cut to the second.
KEPT_WHOLE = 50
CUT_TO = 30
# A system prompt that would be left with this much or less is removed.
WORTH_KEEPING = 50


def cut_to_share(system: PromptMessage, block: Block, limit: int, renderer: Renderer) -> PromptMessage | None:
    """S as it is when it has at most half of the limit, else cut to 30 % of it; None if nothing of it fits there."""
    if system.tokens * 100 <= limit * KEPT_WHOLE:
        return system
    return _cut_system(system, block, limit * CUT_TO // 100, renderer)


def cut_to_rest(system: PromptMessage, block: Block, left: int, renderer: Renderer) -> PromptMessage | None:
    """S cut to what the other required sections leave; None, so removed, when that is at most 50 tokens."""
    if left <= WORTH_KEEPING:
        return None
    return _cut_system(system, block, left, renderer)


def keep_by_priority(renderer: Renderer, start: int, stop: int, room: int) -> History:
    """Chooses from the messages `[start:stop]`, at most `room` tokens, skipping what does not fit.

    Phase 1: tool groups, newest first, with full results, else with stubs. Phase 2: what is left of each turn, newest
    first, all or nothing.
    """
    messages, left = renderer.request.messages, room
    turns = list(older_turns(messages, start, stop))
    kept: dict[str, list[PromptMessage]] = {}
    for turn in turns:
        for group in reversed(turn.groups):
            left -= _keep_group(renderer, group, left, kept)
    for turn in turns:
        left -= _keep_dialogue(renderer, turn, left, kept)
    history = History(tokens=room - left, left_out=start > 0 or len(kept) < sum(len(turn.messages) for turn in turns))
    for turn in turns:
        history.orphans |= turn.orphans
    history.messages = [sent for message in messages[start:stop] for sent in kept.get(message.id, ())]
    return history


def _keep_group(
    renderer: Renderer, group: list[ContextMessage], room: int, kept: dict[str, list[PromptMessage]]
) -> int:
    """Adds the group to `kept` in the fuller form that fits, if one does; the tokens it takes."""
    full = {message.id: renderer.message("history", message) for message in group}
    stubbed = full | {result.id: renderer.older_message(result) for result in group[1:]}
    for form in (full, stubbed):
        tokens = sum(cost(sent) for sent in form.values())
        if tokens <= room:
            kept.update(form)
            return tokens
    return 0


def _keep_dialogue(renderer: Renderer, turn: Turn, room: int, kept: dict[str, list[PromptMessage]]) -> int:
    """Adds the turn's messages outside its tool groups to `kept`, all or none; the tokens they take."""
    rendered = {message.id: renderer.message("history", message) for message in turn.outside_groups()}
    tokens = sum(cost(sent) for sent in rendered.values())
    if tokens > room:
        return 0
    kept.update(rendered)
    return tokens


def _cut_system(system: PromptMessage, block: Block, room: int, renderer: Renderer) -> PromptMessage | None:
    """S in at most `room` tokens with its overhead: exactly that when its tokens were given, else its real count."""
    tokens, text = room, block.text
    if text is not None:
        text = cut_end(text, room - renderer.overhead, renderer.tokenizer)
        if text is None:
            return None
        if block.tokens is None:
            tokens = renderer.tokenizer.count(text) + renderer.overhead
    return system._replace(tokens=tokens, text=text, state="shortened", cut_from=system.tokens)
