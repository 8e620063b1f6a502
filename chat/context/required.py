"""What must be sent, every section but older turns; what happens if it does not fit (docs/context.md, “The room”)."""

from chat.context import policies
from chat.context.layout import Slot
from chat.context.rendering import Renderer, cost, cut_middle
from chat.context.turns import Turn
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    PromptMessage,
    context_too_long,
    file_too_long,
)

SHORTEST_RESULT = 256

Sections = dict[Slot, list[PromptMessage]]


def system_block(request: ContextRequest) -> Block | None:
    """S, or the persona that replaces it."""
    return request.persona if request.persona and request.persona_replaces_system else request.system


def required_sections(renderer: Renderer, current: Turn) -> Sections:
    """The required sections in full, whether they fit or not."""
    request = renderer.request
    persona = None if request.persona_replaces_system else request.persona
    sections: Sections = {}
    if block := system_block(request):
        sections["system"] = [renderer.block("system", "system", block)]
    if request.tasks:
        sections["tasks"] = [renderer.block("tasks", "system", request.tasks)]
    if request.summary:
        sections["summary"] = [renderer.block("summary", "system", request.summary)]
    if persona:
        sections["persona"] = [renderer.block("persona", "user", persona)]
    if request.project_files:
        sections["project_files"] = [renderer.files("project_files", None, request.project_files)]
    if request.file_listing:
        sections["file_listing"] = [renderer.block("file_listing", "user", request.file_listing)]
    sections["current"] = [sent for message in current.messages for sent in renderer.message("current", message)]
    if request.reminder:
        sections["reminder"] = [renderer.block("reminder", "user", request.reminder)]
    return sections


def fit(sections: Sections, current: Turn, limit: int, renderer: Renderer, *, cuts_system: bool) -> None:
    """Makes the required sections fit into `limit`, in place. Raises `file_too_long` or `context_too_long`.

    First the tool results of the current turn are shortened; then, where the policy `cuts_system`, S. The newest user
    message is never touched, so one that is too long by itself ends in `context_too_long`.
    """
    block = system_block(renderer.request)
    if cuts_system and block:
        _put_system(sections, policies.cut_to_share(sections["system"][0], block, limit, renderer))
    excess = total(sections) - limit
    if excess <= 0:
        return
    excess -= _shorten_results(sections, current, excess, renderer)
    if excess > 0 and cuts_system and block and "system" in sections:
        system = sections["system"][0]
        _put_system(sections, policies.cut_to_rest(system, block, system.tokens - excess, renderer))
        excess = total(sections) - limit
    if excess > 0:
        raise _refusal(sections, current.messages[0], limit, renderer)


def total(sections: Sections) -> int:
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
    room = limit - (total(sections) - upload) - renderer.overhead
    if not question.files or total(sections) - upload > limit:
        return _context_too_long(sections, limit)
    up_to = next(n for n in range(1, len(question.files) + 1) if renderer.files_tokens(question.files[:n]) > room)
    file, before = question.files[up_to - 1], renderer.files_tokens(question.files[: up_to - 1])
    together = renderer.files_tokens(question.files[:up_to])
    return file_too_long(file.id, file.title, tokens=together - before, room=room - before)


def _context_too_long(sections: Sections, limit: int) -> ContextError:
    costs: dict[str, int] = {}
    for messages in sections.values():
        for sent in messages:
            costs[sent.section] = costs.get(sent.section, 0) + sent.tokens
    return context_too_long(costs, limit=limit)
