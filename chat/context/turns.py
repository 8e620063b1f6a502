"""Turns, tool groups and orphans (docs/context.md, “Words” and “manage.py plan”).

A turn is a user message and everything up to the next one; what stands before the first user message is a turn of its
own. A tool group is an assistant message with tool calls together with all of its results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

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
