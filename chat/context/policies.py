"""Divide a conversation into turns and select older turns, by the policies `recent` and `priority`.

A turn is a user message and everything up to the next user message. Messages before the first user message form a turn
of their own. A tool group is an assistant message with tool calls, together with all of its results.

The rules are in docs/develop/context.md: “Words”, “Policy `recent`”, “Policy `priority`” and “Marks”. The fine print of
“manage.py plan” has the rules for results without a call and calls without a result.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from chat.context.rendering import PromptRenderer, cost
from chat.context.types import ContextMessage, PromptMessage, Reason, no_user_message


@dataclass(slots=True)
class ContextTurn:
    """A turn without its orphans.

    `groups` are its tool groups, oldest first. A result belongs to the latest message with a call of the same id.
    `orphans` maps the id of each message that is left out to the reason.
    """

    messages: list[ContextMessage] = field(default_factory=list)
    groups: list[list[ContextMessage]] = field(default_factory=list)
    orphans: dict[str, Reason] = field(default_factory=dict)

    def outside_groups(self) -> list[ContextMessage]:
        """Return the messages that belong to no tool group."""
        grouped = {message.id for group in self.groups for message in group}
        return [message for message in self.messages if message.id not in grouped]


def current_turn_start(messages: Sequence[ContextMessage]) -> int:
    """Return the index of the last user message, where the current turn starts. Raises `no_user_message`."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            return index
    raise no_user_message()


def first_whole_turn(messages: Sequence[ContextMessage], unloaded: int) -> int:
    """Return the index at which the oldest whole turn starts.

    If older messages are not loaded, the messages before the first question are the end of a turn that is not loaded
    whole. They are skipped, since a turn is never split.
    """
    if not unloaded:
        return 0
    return next((index for index, message in enumerate(messages) if message.role == "user"), len(messages))


def turn_bounds(messages: Sequence[ContextMessage], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each turn of `messages[start:stop]`, newest first."""
    for index in range(stop - 1, start - 1, -1):
        if index == start or messages[index].role == "user":
            yield index, stop
            stop = index


def read_turn(messages: Sequence[ContextMessage]) -> ContextTurn:
    """Sort one turn's messages into groups and remove the orphans.

    A result without a call of its id earlier in the turn is left out. A call without a result is removed from its
    message. A message that loses all its calls and has no text is left out.
    """
    turn = ContextTurn()
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


def _match_results(messages: Sequence[ContextMessage], turn: ContextTurn) -> dict[str, list[ContextMessage]]:
    """Return the results of each message with calls, by its id. Results without a call become orphans of `turn`."""
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
            # Some models number their calls from zero in every cycle, so an id may repeat.
            caller.update((call.id, message.id) for call in message.tool_calls)
    return results


class UnsentTurn(NamedTuple):
    """A marked turn that is not sent: the messages `[start:stop]` of the request, and the reason."""

    start: int
    stop: int
    reason: Reason


@dataclass(slots=True)
class SelectedHistory:
    """The older messages that are sent: `messages`, oldest first, of `tokens` in total.

    `gap` is the index of the turn that ended the walk because it did not fit, None if the walk reached the start.
    `skipped_until` is the end of the newest pinned turn that does not fit, 0 without one. `orphans` maps the ids of
    messages that are left out for another reason than room to that reason. `unsent` are the excluded turns and the
    pinned turns that do not fit. `stubbed` are the ids of questions whose files are only named. `unbroken` is the index
    in `messages` from which nothing is left out for lack of room; None if the policy does not know it.
    """

    messages: list[PromptMessage] = field(default_factory=list)
    tokens: int = 0
    gap: int | None = None
    skipped_until: int = 0
    orphans: dict[str, Reason] = field(default_factory=dict)
    unsent: list[UnsentTurn] = field(default_factory=list)
    stubbed: set[str] = field(default_factory=set)
    unbroken: int | None = None


class TurnForm(NamedTuple):
    """The form in which a turn is sent. It ends before the index `stop`; `messages` is None if it is sent unchanged."""

    stop: int
    messages: list[PromptMessage] | None


TurnForms = dict[int, TurnForm]  # by the index at which the turn starts


def select_recent(renderer: PromptRenderer, start: int, stop: int, room: int) -> SelectedHistory:
    """Select whole turns of the messages `[start:stop]`, newest first, until one does not fit into `room` tokens.

    The walk reads nothing older than the first turn that does not fit. For turns of plain messages, it only adds up
    tokens. It renders turns with tools, files or uncounted texts, to know their cost. Turns with a mark are decided
    first. The rule: docs/develop/context.md, “Policy `recent`”.
    """
    messages = renderer.request.messages
    overhead = renderer.overhead
    history = SelectedHistory()
    forms = _decide_marked(renderer, start, stop, room, history)
    room -= history.tokens
    end = stop
    tokens = 0
    plain = True
    for index in range(stop - 1, start - 1, -1):
        message = messages[index]
        if (message_tokens := message.plain_tokens) is None:
            plain = False
        else:
            tokens += message_tokens + overhead
        if message.role == "user" or index == start:
            if index in forms:
                tokens = 0  # `room` is without the pinned turns already
            elif not plain:
                tokens, sent = _whole_or_stubbed(renderer, index, end, room, history)
                forms[index] = TurnForm(end, sent)
            if tokens > room:
                history.gap = index
                forms.pop(index, None)
                break
            room -= tokens
            history.tokens += tokens
            end = index
            tokens = 0
            plain = True
    if renderer.request.whole_results:
        history.tokens += _restore_results(renderer, forms, room)
    unbroken_from = max(end, history.skipped_until)
    starts = sorted(forms)
    split = bisect_left(starts, unbroken_from)
    broken = _in_order(renderer, forms, starts[:split], end, unbroken_from)
    history.messages = broken + _in_order(renderer, forms, starts[split:], unbroken_from, stop)
    history.unbroken = len(broken)
    return history


def _decide_marked(renderer: PromptRenderer, start: int, stop: int, room: int, history: SelectedHistory) -> TurnForms:
    """Decide the turns with a mark, newest first: pinned turns are sent while they fit, the others are not sent.

    The rule: docs/develop/context.md, “Marks”.
    """
    messages = renderer.request.messages
    forms = TurnForms()
    for begin in reversed(renderer.request.marked):
        if not start <= begin < stop:
            continue
        end = begin + 1
        while end < stop and messages[end].role != "user":
            end += 1
        reason: Reason = "by_user"
        if messages[begin].mark == "pinned":
            tokens, sent = _whole_or_stubbed(renderer, begin, end, room, history)
            if tokens <= room:
                forms[begin] = TurnForm(end, sent)
                room -= tokens
                history.tokens += tokens
                continue
            reason = "no_room"
            history.skipped_until = history.skipped_until or end
        forms[begin] = TurnForm(end, [])
        history.unsent.append(UnsentTurn(begin, end, reason))
    return forms


def _whole_or_stubbed(
    renderer: PromptRenderer, start: int, stop: int, room: int, history: SelectedHistory
) -> tuple[int, list[PromptMessage] | None]:
    """Return the cost of the turn `[start:stop]` and its messages, None if they are sent unchanged.

    Tool results are stubs. If the turn does not fit into `room`, its files become a file stub. The result may still be
    larger than `room`.
    """
    if (plain := _plain_tokens(renderer, start, stop)) is not None:
        return plain, None
    messages = renderer.request.messages[start:stop]
    turn = read_turn(messages)
    history.orphans |= turn.orphans
    question = messages[0]
    sent = [each for message in turn.messages for each in renderer.older_message(message)]
    if cost(sent) > room and question.role == "user" and question.sent_files:
        sent[0] = renderer.file_stub(sent[0], question)
        history.stubbed |= {question.id} if cost(sent) <= room else set()
    return cost(sent), sent


def _restore_results(renderer: PromptRenderer, forms: TurnForms, room: int) -> int:
    """Replace stubs of tool results by the whole results, newest turn first, until the results of a turn do not fit.

    Return the tokens that this adds.
    """
    messages = {message.id: message for message in renderer.request.messages}
    added = 0
    for begin in sorted(forms, reverse=True):
        end, sent = forms[begin]
        if not sent or not any(each.role == "tool" and each.state == "stubbed" for each in sent):
            continue
        whole = [
            renderer.message("history", messages[each.source or ""])[0]
            if each.role == "tool" and each.state == "stubbed"
            else each
            for each in sent
        ]
        extra_tokens = cost(whole) - cost(sent)
        if added + extra_tokens > room:
            break
        forms[begin] = TurnForm(end, whole)
        added += extra_tokens
    return added


def _plain_tokens(renderer: PromptRenderer, start: int, stop: int) -> int | None:
    """Return the cost of the messages `[start:stop]` if all of them are plain, else None."""
    tokens = 0
    for message in renderer.request.messages[start:stop]:
        if message.plain_tokens is None:
            return None
        tokens += message.plain_tokens + renderer.overhead
    return tokens


def _in_order(
    renderer: PromptRenderer, forms: TurnForms, starts: Sequence[int], start: int, stop: int
) -> list[PromptMessage]:
    """Return the prompt messages of two kinds of turns, oldest first.

    These are the turns that start at `starts`, in their form, and the messages `[start:stop]` outside of those turns,
    which are plain.
    """
    messages = renderer.request.messages
    sent: list[PromptMessage] = []
    plain: list[ContextMessage] = []
    for begin in starts:
        form = forms[begin]
        if begin >= start:
            plain += messages[start:begin]
            start = form.stop
        if form.messages is None:
            plain += messages[begin : form.stop]
        else:
            sent += renderer.plain_messages(plain)
            sent += form.messages
            plain = []
    plain += messages[start:stop]
    return sent + renderer.plain_messages(plain)


def select_by_priority(renderer: PromptRenderer, start: int, stop: int, room: int) -> SelectedHistory:
    """Select from the messages `[start:stop]` at most `room` tokens. Parts that do not fit are skipped.

    1. Turns with a mark are decided.
    2. Phase 1 selects tool groups, newest first, with whole results, else with stubs.
    3. Phase 2 selects the rest of each turn, newest first, all or nothing.

    The rule: docs/develop/context.md, “Policy `priority`”.
    """
    messages = renderer.request.messages
    history = SelectedHistory()
    forms = _decide_marked(renderer, start, stop, room, history)
    left = room - history.tokens
    bounds = [(begin, end) for begin, end in turn_bounds(messages, start, stop) if begin not in forms]
    plain_costs = {begin: _plain_tokens(renderer, begin, end) for begin, end in bounds}
    turns_by_start = {begin: read_turn(messages[begin:end]) for begin, end in bounds if plain_costs[begin] is None}
    selected: dict[str, list[PromptMessage]] = {}
    for turn in turns_by_start.values():
        for group in reversed(turn.groups):
            left -= _select_group(renderer, group, left, selected)
    for begin, end in bounds:
        if (tokens := plain_costs[begin]) is None:
            turn = turns_by_start[begin]
            left -= _select_dialogue(renderer, turn, left, selected, history)
            history.orphans |= turn.orphans
            sent = [each for message in turn.messages for each in selected.get(message.id, ())]
            forms[begin] = TurnForm(end, sent)
        elif tokens <= left:
            left -= tokens
            forms[begin] = TurnForm(end, None)
    history.tokens = room - left
    history.messages = _in_order(renderer, forms, sorted(forms), stop, stop)
    return history


def _select_group(
    renderer: PromptRenderer, group: list[ContextMessage], room: int, selected: dict[str, list[PromptMessage]]
) -> int:
    """Add the group to `selected` in the fullest form that fits, if any. Return the tokens it takes."""
    full = {message.id: renderer.message("history", message) for message in group}
    stubbed = full | {result.id: renderer.older_message(result) for result in group[1:]}
    for form in (full, stubbed):
        tokens = sum(cost(sent) for sent in form.values())
        if tokens <= room:
            selected.update(form)
            return tokens
    return 0


def _select_dialogue(
    renderer: PromptRenderer,
    turn: ContextTurn,
    room: int,
    selected: dict[str, list[PromptMessage]],
    history: SelectedHistory,
) -> int:
    """Add the turn's messages outside its tool groups to `selected`, all or none, with the files or the file stub.

    Return the tokens they take.
    """
    outside = turn.outside_groups()
    rendered = {message.id: renderer.message("history", message) for message in outside}
    tokens = sum(cost(sent) for sent in rendered.values())
    if tokens > room and outside and outside[0].sent_files:
        question = outside[0]
        upload, *rest = rendered[question.id]
        stub = renderer.file_stub(upload, question)
        rendered[question.id] = [stub, *rest]
        tokens += stub.tokens - upload.tokens
        if tokens <= room:
            history.stubbed.add(question.id)
    if tokens > room:
        return 0
    selected.update(rendered)
    return tokens
