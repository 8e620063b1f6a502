"""How a conversation falls into turns, and how older ones are chosen: the policies `recent` and `priority`.

A turn is a user message and everything up to the next one; what stands before the first user message is a turn of its
own. A tool group is an assistant message with tool calls together with all of its results (docs/context.md, “Words”,
“The room” and “manage.py plan”).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from chat.context.rendering import Renderer, cost
from chat.context.types import ContextMessage, PromptMessage, Reason, no_user_message


@dataclass(slots=True)
class Turn:
    """A turn without its orphans.

    `groups` are its tool groups, oldest first; a result belongs to the latest message that made a call of its id.
    `orphans` maps the id of a message that is left out to the reason.
    """

    messages: list[ContextMessage] = field(default_factory=list)
    groups: list[list[ContextMessage]] = field(default_factory=list)
    orphans: dict[str, Reason] = field(default_factory=dict)

    def outside_groups(self) -> list[ContextMessage]:
        grouped = {message.id for group in self.groups for message in group}
        return [message for message in self.messages if message.id not in grouped]


def current_turn_start(messages: Sequence[ContextMessage]) -> int:
    """The index of the last user message, where the current turn starts. Raises `no_user_message`."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            return index
    raise no_user_message()


def first_whole_turn(messages: Sequence[ContextMessage], unloaded: int) -> int:
    """Where the oldest turn starts. When older messages were not loaded, what precedes the first question is the end of
    a turn that was not loaded whole, and a turn is never split."""
    if not unloaded:
        return 0
    return next((index for index, message in enumerate(messages) if message.role == "user"), len(messages))


def older_turns(messages: Sequence[ContextMessage], start: int, stop: int) -> Iterator[Turn]:
    """The turns of `messages[start:stop]`, newest first."""
    for index in range(stop - 1, start - 1, -1):
        if index == start or messages[index].role == "user":
            yield read_turn(messages[index:stop])
            stop = index


def read_turn(messages: Sequence[ContextMessage]) -> Turn:
    """One turn's messages, sorted into groups, without orphans.

    A result without a call of its id earlier in the turn is left out; a call without a result is taken from its
    message, and a message that loses all its calls and has no text is left out.
    """
    turn = Turn()
    group_of = _match_results(messages, turn)
    for message in messages:
        if message.id in turn.orphans:
            continue
        if message.tool_calls:
            results = group_of[message.id]
            answered = {result.tool_call_id for result in results}
            calls = tuple(call for call in message.tool_calls if call.id in answered)
            if not calls and not message.text:
                turn.orphans[message.id] = "call_without_result"
                continue
            if len(calls) < len(message.tool_calls):
                message = replace(message, tool_calls=calls)
            if calls:
                turn.groups.append([message, *results])
        turn.messages.append(message)
    return turn


def _match_results(messages: Sequence[ContextMessage], turn: Turn) -> dict[str, list[ContextMessage]]:
    """The results of each message with calls, by its id. Results without a call become orphans of `turn`."""
    results: dict[str, list[ContextMessage]] = {}
    caller: dict[str | None, str] = {}
    for message in messages:
        if message.role == "tool":
            owner = caller.get(message.tool_call_id)
            if owner is None:
                turn.orphans[message.id] = "result_without_call"
            else:
                results[owner].append(message)
        elif message.tool_calls:
            results[message.id] = []
            # Some models number their calls from zero in every cycle, so the same id may come again.
            caller.update((call.id, message.id) for call in message.tool_calls)
    return results


@dataclass(slots=True)
class History:
    """`messages` oldest first, of `tokens` in total; `left_out` says whether there was no room for some older message.

    `gap` is the index of the turn that ended the walk because it did not fit, None if none did. `orphans`: messages
    that are left out for another reason than room, by id.
    """

    messages: list[PromptMessage] = field(default_factory=list)
    tokens: int = 0
    left_out: bool = False
    gap: int | None = None
    orphans: dict[str, Reason] = field(default_factory=dict)


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
