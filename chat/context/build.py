"""The one entry point: from everything a prompt is made of to the messages that are sent, and the report.

The required sections, all but older turns, are made first and made to fit; what they leave is for a policy to fill
(docs/context.md, “The room”).
"""

from collections.abc import Callable
from typing import NamedTuple

from chat.context.policies import (
    History,
    Turn,
    current_turn_start,
    first_whole_turn,
    keep_by_priority,
    keep_recent,
    read_turn,
)
from chat.context.rendering import LAYOUTS, Renderer, cost, cut_end, cut_middle
from chat.context.report import Prompt, Report
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    PromptMessage,
    Section,
    context_too_long,
    file_too_long,
)

OMISSION_NOTE = "[Earlier messages were left out to fit the context.]"
# Of the input limit, in percent: above the first a system prompt is cut to the second.
KEPT_WHOLE = 50
CUT_TO = 30
# A system prompt that would be left with this much or less is removed.
WORTH_KEEPING = 50
SHORTEST_RESULT = 256

Sections = dict[Section, list[PromptMessage]]


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
    sections = _required_sections(renderer, current)
    _fit(sections, current, limit, renderer, cuts_system=policy.cuts_system)

    left = limit - _total(sections)
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


def _required_sections(renderer: Renderer, current: Turn) -> Sections:
    """The required sections in full, whether they fit or not."""
    request = renderer.request
    sections: Sections = {section: [renderer.block(section, role, block)] for section, role, block in request.blocks}
    if request.project_files:
        sections["project_files"] = [renderer.files("project_files", None, request.project_files)]
    sections["current"] = [sent for message in current.messages for sent in renderer.message("current", message)]
    return sections


def _fit(sections: Sections, current: Turn, limit: int, renderer: Renderer, *, cuts_system: bool) -> None:
    """Makes the required sections fit into `limit`, in place. Raises `file_too_long` or `context_too_long`.

    First the tool results of the current turn are shortened; then, where the policy `cuts_system`, S. The newest user
    message is never touched, so one that is too long by itself ends in `context_too_long`.
    """
    block = renderer.request.system_block
    if cuts_system and block:
        _put_system(sections, _cut_to_share(sections["system"][0], block, limit, renderer))
    excess = _total(sections) - limit
    if excess <= 0:
        return
    excess -= _shorten_results(sections, current, excess, renderer)
    if excess > 0 and cuts_system and block and "system" in sections:
        system = sections["system"][0]
        _put_system(sections, _cut_to_rest(system, block, system.tokens - excess, renderer))
        excess = _total(sections) - limit
    if excess > 0:
        raise _refusal(sections, current.messages[0], limit, renderer)


def _total(sections: Sections) -> int:
    return sum(cost(messages) for messages in sections.values())


def _put_system(sections: Sections, system: PromptMessage | None) -> None:
    if system is None:
        del sections["system"]
    else:
        sections["system"] = [system]


def _shorten_results(sections: Sections, current: Turn, excess: int, renderer: Renderer) -> int:
    """Rule 1: shortens the turn's tool results, oldest first, each only as far as needed; the tokens that saves."""
    saved = 0
    source = {message.id: message for message in current.messages}
    for position, sent in enumerate(sections["current"]):
        if saved >= excess:
            break
        if sent.role == "tool" and sent.source is not None:
            shorter = _shorten_result(sent, source[sent.source], excess - saved, renderer)
            sections["current"][position] = shorter
            saved += sent.tokens - shorter.tokens
    return saved


def _shorten_result(sent: PromptMessage, result: ContextMessage, excess: int, renderer: Renderer) -> PromptMessage:
    fixed = renderer.overhead + sum(image.tokens for image in sent.images)
    tokens = sent.tokens - fixed
    if tokens <= SHORTEST_RESULT:
        return sent
    target = max(tokens - excess, SHORTEST_RESULT)
    text = result.text
    if text is not None:
        text = cut_middle(text, target, SHORTEST_RESULT, renderer.tokenizer)
        if result.tokens is None:
            target = renderer.tokenizer.count(text)
            if target >= tokens:  # the marker takes more than could be left out
                return sent
    return sent._replace(tokens=target + fixed, text=text, state="shortened", cut_from=sent.tokens)


def _refusal(sections: Sections, question: ContextMessage, limit: int, renderer: Renderer) -> ContextError:
    """Rule 2, the first file that does not fit after those before it, or rule 3, the cost of every section."""
    upload = sum(sent.tokens for sent in sections["current"] if sent.section == "file")
    room = limit - (_total(sections) - upload) - renderer.overhead
    if not question.files or _total(sections) - upload > limit:
        return _context_too_long(sections, limit)
    up_to = next(n for n in range(1, len(question.files) + 1) if renderer.files_tokens(question.files[:n]) > room)
    file, before = question.files[up_to - 1], renderer.files_tokens(question.files[: up_to - 1])
    together = renderer.files_tokens(question.files[:up_to])
    return file_too_long(file.id, file.title, tokens=together - before, room=room - before)


def _context_too_long(sections: Sections, limit: int) -> ContextError:
    costs: dict[str, int] = {}
    for section in LAYOUTS["near_end"]:
        for sent in sections.get(section, ()):
            costs[sent.section] = costs.get(sent.section, 0) + sent.tokens
    return context_too_long(costs, limit=limit)


def _cut_to_share(system: PromptMessage, block: Block, limit: int, renderer: Renderer) -> PromptMessage | None:
    """S as it is when it has at most half of the limit, else cut to 30 % of it; None if nothing of it fits there."""
    if system.tokens * 100 <= limit * KEPT_WHOLE:
        return system
    return _cut_system(system, block, limit * CUT_TO // 100, renderer)


def _cut_to_rest(system: PromptMessage, block: Block, left: int, renderer: Renderer) -> PromptMessage | None:
    """S cut to what the other required sections leave; None, so removed, when that is at most 50 tokens."""
    if left <= WORTH_KEEPING:
        return None
    return _cut_system(system, block, left, renderer)


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
