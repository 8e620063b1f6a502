"""How a conversation falls into turns, and how older ones are chosen: the policies `recent` and `priority`.

A turn is a user message and everything up to the next one; what stands before the first user message is a turn of its
own. A tool group is an assistant message with tool calls together with all of its results. The rules:
docs/develop/context.md, “Words”, “The room” and “manage.py plan”.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

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


def turn_bounds(messages: Sequence[ContextMessage], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where each turn of `messages[start:stop]` begins and ends, newest first."""
    for index in range(stop - 1, start - 1, -1):
        if index == start or messages[index].role == "user":
            yield index, stop
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
    """`messages` oldest first, of `tokens` in total.

    `gap` is the index of the turn that ended the walk because it did not fit, None if none did; `skipped` is where the
    newest pinned turn ends that does not fit. `orphans`: messages that are left out for another reason than room, by
    id; `marked`: where each turn begins and ends that a person leaves out, or that is pinned and does not fit.
    `stubbed`: the questions whose files are only named. `unbroken`: from which of `messages` on nothing is left out for
    want of room, where the policy knows.
    """

    messages: list[PromptMessage] = field(default_factory=list)
    tokens: int = 0
    gap: int | None = None
    skipped: int = 0
    orphans: dict[str, Reason] = field(default_factory=dict)
    marked: list[tuple[int, int, Reason]] = field(default_factory=list)
    stubbed: set[str] = field(default_factory=set)
    unbroken: int | None = None


# Of a turn that is decided by itself, by where it begins: where it ends, and what is sent of it, None where that is its
# messages as they are.
Decided = dict[int, tuple[int, list[PromptMessage] | None]]


def keep_recent(renderer: Renderer, start: int, stop: int, room: int) -> History:
    """Chooses from the messages `[start:stop]`, at most `room` tokens.

    The walk looks at nothing older than the first turn that does not fit, and at turns of plain messages only to add up
    their tokens; the others (tools, files, uncounted text) are rendered to know what they cost. Turns with a mark are
    decided before.
    """
    messages, overhead = renderer.request.messages, renderer.overhead
    history = History()
    turns = _decide_marked(renderer, start, stop, room, history)
    room -= history.tokens
    end, tokens, plain = stop, 0, True
    for index in range(stop - 1, start - 1, -1):
        message = messages[index]
        if (own := message.plain_tokens) is None:
            plain = False
        else:
            tokens += own + overhead
        if message.role == "user" or index == start:
            if index in turns:
                tokens = 0
            elif not plain:
                tokens, sent = _whole_or_stubbed(renderer, index, end, room, history)
                turns[index] = end, sent
            if tokens > room:
                history.gap = index
                turns.pop(index, None)
                break
            room -= tokens
            history.tokens += tokens
            end, tokens, plain = index, 0, True
    if renderer.request.whole_results:
        history.tokens += _restore_results(renderer, turns, room)
    whole = max(end, history.skipped)
    begins = sorted(turns)
    split = bisect_left(begins, whole)
    broken = _in_order(renderer, turns, begins[:split], end, whole)
    history.messages = broken + _in_order(renderer, turns, begins[split:], whole, stop)
    history.unbroken = len(broken)
    return history


def _decide_marked(renderer: Renderer, start: int, stop: int, room: int, history: History) -> Decided:
    """The turns with a mark: pinned ones that fit, newest first; the others without a message."""
    messages, turns = renderer.request.messages, Decided()
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
                turns[begin] = end, sent
                room -= tokens
                history.tokens += tokens
                continue
            reason, history.skipped = "no_room", history.skipped or end
        turns[begin] = end, []
        history.marked.append((begin, end, reason))
    return turns


def _whole_or_stubbed(
    renderer: Renderer, start: int, stop: int, room: int, history: History
) -> tuple[int, list[PromptMessage] | None]:
    """What the turn costs and is sent as: whole, or with its files only named where it does not fit whole."""
    if (plain := _plain_tokens(renderer, start, stop)) is not None:
        return plain, None
    messages = renderer.request.messages[start:stop]
    turn = read_turn(messages)
    history.orphans |= turn.orphans
    sent, question = [each for message in turn.messages for each in renderer.older_message(message)], messages[0]
    if cost(sent) > room and question.role == "user" and question.sent_files:
        sent[0] = renderer.file_stub(sent[0], question)
        history.stubbed |= {question.id} if cost(sent) <= room else set()
    return cost(sent), sent


def _restore_results(renderer: Renderer, turns: Decided, room: int) -> int:
    """Send results of tools whole instead of stubbed, newest turn first, until one turn's do not fit. Return the tokens
    that this adds."""
    messages, added = {message.id: message for message in renderer.request.messages}, 0
    for begin in sorted(turns, reverse=True):
        end, sent = turns[begin]
        if not sent or not any(each.role == "tool" and each.state == "stubbed" for each in sent):
            continue
        whole = [
            renderer.message("history", messages[each.source or ""])[0]
            if each.role == "tool" and each.state == "stubbed"
            else each
            for each in sent
        ]
        more = cost(whole) - cost(sent)
        if added + more > room:
            break
        turns[begin] = end, whole
        added += more
    return added


def _plain_tokens(renderer: Renderer, start: int, stop: int) -> int | None:
    """What the messages `[start:stop]` cost as they are; None where that has to be decided."""
    tokens = 0
    for message in renderer.request.messages[start:stop]:
        if message.plain_tokens is None:
            return None
        tokens += message.plain_tokens + renderer.overhead
    return tokens


def _in_order(renderer: Renderer, turns: Decided, begins: Sequence[int], start: int, stop: int) -> list[PromptMessage]:
    """What is sent of the turns that begin there, oldest first, and of the messages `[start:stop]` outside them, which
    are plain."""
    messages = renderer.request.messages
    sent: list[PromptMessage] = []
    plain: list[ContextMessage] = []
    for begin in begins:
        end, decided = turns[begin]
        if begin >= start:
            plain += messages[start:begin]
            start = end
        if decided is None:
            plain += messages[begin:end]
        else:
            sent += renderer.plain_messages(plain)
            sent += decided
            plain = []
    plain += messages[start:stop]
    return sent + renderer.plain_messages(plain)


def keep_by_priority(renderer: Renderer, start: int, stop: int, room: int) -> History:
    """Chooses from the messages `[start:stop]`, at most `room` tokens, skipping what does not fit.

    Turns with a mark are decided before. Phase 1: tool groups, newest first, with full results, else with stubs.
    Phase 2: what is left of each turn, newest first, all or nothing.
    """
    messages, history = renderer.request.messages, History()
    turns = _decide_marked(renderer, start, stop, room, history)
    left = room - history.tokens
    bounds = [(begin, end) for begin, end in turn_bounds(messages, start, stop) if begin not in turns]
    plain = {begin: _plain_tokens(renderer, begin, end) for begin, end in bounds}
    others = {begin: read_turn(messages[begin:end]) for begin, end in bounds if plain[begin] is None}
    kept: dict[str, list[PromptMessage]] = {}
    for turn in others.values():
        for group in reversed(turn.groups):
            left -= _keep_group(renderer, group, left, kept)
    for begin, end in bounds:
        if (tokens := plain[begin]) is None:
            turn = others[begin]
            left -= _keep_dialogue(renderer, turn, left, kept, history)
            history.orphans |= turn.orphans
            turns[begin] = end, [sent for message in turn.messages for sent in kept.get(message.id, ())]
        elif tokens <= left:
            left -= tokens
            turns[begin] = end, None
    history.tokens = room - left
    history.messages = _in_order(renderer, turns, sorted(turns), stop, stop)
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


def _keep_dialogue(
    renderer: Renderer, turn: Turn, room: int, kept: dict[str, list[PromptMessage]], history: History
) -> int:
    """Adds the turn's messages outside its tool groups to `kept`, all or none, with its files or else with their names;
    the tokens they take."""
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
    kept.update(rendered)
    return tokens
