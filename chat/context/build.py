"""Build a prompt and its report from a `ContextRequest`. `build()` is the entry point of the context engine.

1. Images above the model's limit are replaced by their names (“Files and projects”).
2. The required sections are rendered: all sections but the older turns (“The room”).
3. If they do not fit, remembered facts are left out, and the tool results of the current turn are shortened. Then the
   system prompt is shortened, if the policy says so. If the sections still do not fit, `build()` raises a
   `ContextError`.
4. The policy selects older turns for the room that is left (“Policy `recent`”, “Policy `priority`”, “Marks”).
5. The omission note is placed at the newest gap, if it fits.
6. The layout puts the sections in their order (“Order”). The borders for the provider's cache are derived (“Caching”).

The titles in brackets are sections of docs/develop/context.md.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, NotRequired, TypedDict, cast

from chat.context.policies import (
    ContextTurn,
    SelectedHistory,
    current_turn_start,
    first_whole_turn,
    read_turn,
    select_by_priority,
    select_recent,
)
from chat.context.rendering import LAYOUTS, PromptRenderer, cost, cut_end, cut_middle
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    Document,
    PromptMessage,
    Reason,
    Section,
    SourceReport,
    context_too_long,
    file_too_long,
)

# The limits of “Policy `priority`”: a system prompt above the first share is cut to the second, in percent of the input
# limit. A system prompt that would keep no more than SYSTEM_REMOVED_AT tokens is removed.
SYSTEM_CUT_ABOVE = 50
SYSTEM_CUT_TO = 30
SYSTEM_REMOVED_AT = 50
SHORTEST_RESULT = 256  # tokens of a shortened tool result, see rule 1 of “The room”
# Sections, besides the system prompt (S), that are identical in the next turn. Used to place the borders for the
# provider's cache.
STABLE_SECTIONS: tuple[Section, ...] = ("persona", "memory", "project_files", "file_listing")

Sections = dict[Section, list[PromptMessage]]


class SourceEntry(TypedDict):
    """A `SourceReport` as JSON.

    `title` is shown to users. `mark` is set on a pinned source that did not fit. `role` of a message is `question`,
    `answer`, `call` or `result`. `used` is set on a searched file of which passages were found.
    """

    kind: str
    state: str
    id: NotRequired[str | None]
    title: NotRequired[str]
    mark: NotRequired[str]
    role: NotRequired[str]
    used: NotRequired[bool]
    tokens: NotRequired[int | None]
    reason: NotRequired[str | None]
    cut_from: NotRequired[int]
    exact: NotRequired[bool]


class ReportEntry(TypedDict):
    """A `Report` as JSON."""

    limit: int
    used: int
    left: int
    exact: bool
    sections: Mapping[str, int]
    dropped: list[str]
    unloaded: int
    without_room: NotRequired[int]  # missing in reports of earlier versions
    sources: list[SourceEntry]
    versions: dict[str, str]


_SOURCE = SourceReport._fields


class Report:
    """The report of one prompt: `limit`, `used` and `left` in tokens, and the state of every source.

    `unloaded` counts the older messages that the caller did not load.
    """

    def __init__(
        self, request: ContextRequest, messages: list[PromptMessage], history: SelectedHistory, *, limit: int, used: int
    ) -> None:
        self.limit = limit
        self.used = used
        self.left = limit - used
        self.unloaded = request.unloaded
        self.versions: Mapping[str, str] = request.versions
        self._request = request
        self._messages = messages
        self._history = history

    @cached_property
    def sections(self) -> dict[str, int]:
        """Return the tokens of each section that is sent, overhead included, in the order of the prompt."""
        sections: dict[str, int] = {}
        for sent in self._messages:
            sections[sent.section] = sections.get(sent.section, 0) + sent.tokens
        return sections

    @cached_property
    def sources(self) -> list[SourceReport]:
        """Return the sections, then the messages, oldest first, each after its files, then the extra sources."""
        return [*self._section_sources(), *self._message_sources(), *self._request.extra_sources]

    @cached_property
    def dropped(self) -> list[str]:
        """Return the ids of omitted messages and files, oldest first. Files come before their message."""
        dropped: list[str] = []
        for message in self._request.messages:
            unsent = message.id not in self._sent_ids
            dropped += [file.id for file in message.files if unsent or file.excluded]
            dropped += [message.id] if unsent else []
        return dropped

    @cached_property
    def without_room(self) -> int:
        """Return the number of dropped or unloaded messages and files, without those that the user excludes."""
        by_user = {source.id for source in self.sources if source.reason == "by_user"} if self.dropped else ()
        return self.unloaded + sum(1 for each in self.dropped if each not in by_user)

    @cached_property
    def exact(self) -> bool:
        """Return whether every count is exact."""
        return all(source.exact for source in self.sources)

    def as_dict(self) -> ReportEntry:
        """Return the report as JSON. Fields of a source that are None are left out."""
        return {
            "limit": self.limit,
            "used": self.used,
            "left": self.left,
            "exact": self.exact,
            "sections": self.sections,
            "dropped": self.dropped,
            "unloaded": self.unloaded,
            "without_room": self.without_room,
            "sources": [
                cast(
                    "SourceEntry",
                    {name: value for name, value in zip(_SOURCE, source, strict=True) if value is not None},
                )
                for source in self.sources
            ],
            "versions": dict(self.versions),
        }

    @cached_property
    def _sent_ids(self) -> frozenset[str | None]:
        return frozenset(sent.source for sent in self._messages if sent.section in ("history", "current"))

    def _section_sources(self) -> Iterator[SourceReport]:
        sent = {message.section: message for message in self._messages if message.source is None}
        request = self._request
        for section, _, _ in request.blocks:
            yield self._source(section, None, sent.get(section), "no_room")
        yield from self._memory_sources()
        for file in request.project_files:
            yield SourceReport("project_file", file.id, "full", file.tokens, exact=request.exact)
        for image in request.project_images:
            yield SourceReport("project_file", image.id, "full", image.tokens, exact=False)

    def _memory_sources(self) -> Iterator[SourceReport]:
        """Yield the profile and each fact with the reason why it is sent, or the reason why it is not."""
        memory = self._request.memory
        if memory is None:
            return
        exact = self._request.exact
        sent = next((message for message in self._messages if message.section == "memory"), None)
        ids = (sent.source or "").split("+") if sent is not None else ()
        if memory.profile:
            yield SourceReport("profile", None, "full", memory.profile_tokens, "always", exact=exact)
        for fact in memory.facts:
            if fact.id in ids:
                yield SourceReport("fact", fact.id, "full", fact.tokens, fact.reason, exact=exact)
            else:
                yield SourceReport("fact", fact.id, "left_out", 0, "no_room", exact=exact)

    def _message_sources(self) -> Iterator[SourceReport]:
        sent = {message.source: message for message in self._messages if message.section in ("history", "current")}
        for index, message in enumerate(self._request.messages):
            placed = sent.get(message.id)
            reason = self._reason(index, message)
            exact = self._request.exact
            for file in message.files:
                if placed is not None and message.id in self._history.stubbed and not file.excluded:
                    yield SourceReport("file", file.id, "stubbed", None, exact=exact)
                    continue
                file_reason = "by_user" if file.excluded else reason
                yield _attached(
                    "file", file.id, file.tokens, placed is not None and not file.excluded, file_reason, exact
                )
            for image in message.images:
                named = image.excluded and (placed is not None or image.reason == "by_user")
                is_sent = placed is not None and not image.excluded
                if is_sent and placed is not None and not message.shows_images(current=placed.section == "current"):
                    yield SourceReport("image", image.id, "stubbed", 0, exact=False)
                    continue
                yield _attached("image", image.id, image.tokens, is_sent, image.reason if named else reason, False)
            for file in message.result_documents:
                yield _result_document(file, placed, reason, exact)
            yield self._source("message", message.id, placed, reason)

    @cached_property
    def _unsent_marked(self) -> dict[int, Reason]:
        """Return the reason for each message of a marked turn that is not sent, by its index."""
        unsent = self._history.unsent
        return {index: turn.reason for turn in unsent for index in range(turn.start, turn.stop)}

    def _reason(self, index: int, message: ContextMessage) -> Reason:
        """Return the reason to report if the message is not sent."""
        if index in self._unsent_marked:
            return self._unsent_marked[index]
        gap = self._history.gap
        if gap is not None and index < gap:
            return "behind_gap"
        return self._history.orphans.get(message.id, "no_room")

    def _source(self, kind: str, name: str | None, sent: PromptMessage | None, reason: Reason) -> SourceReport:
        exact = self._request.exact
        if sent is None:
            return SourceReport(kind, name, "left_out", 0, reason, exact=exact)
        exact = exact and not sent.images
        return SourceReport(kind, name, sent.state, sent.tokens, cut_from=sent.cut_from, exact=exact)


def _attached(kind: str, name: str, tokens: int | None, sent: bool, reason: Reason, exact: bool) -> SourceReport:
    """Return the report of a file or an image of a message."""
    if sent:
        return SourceReport(kind, name, "full", tokens, exact=exact)
    return SourceReport(kind, name, "left_out", 0, reason, exact=exact)


def _result_document(file: Document, result: PromptMessage | None, reason: Reason, exact: bool) -> SourceReport:
    """Return the report of a document whose text is in the tool result that is sent as `result`."""
    if file.excluded or result is None:
        return SourceReport("file", file.id, "left_out", 0, "by_user" if file.excluded else reason, exact=exact)
    stub_reason: Reason | None = "of_result" if result.state == "stubbed" else None
    return SourceReport("file", file.id, result.state, None, stub_reason, exact=exact)


class Prompt(NamedTuple):
    """A built prompt.

    `wants_older`: some older messages are not loaded, and one of them could still fit. The caller loads more and builds
    again. A caller that loads newest first stops when it is False. `borders` are numbers of messages from the start:
    later prompts begin with the same messages (docs/develop/context.md, “Caching”). There are at most three, ascending.
    """

    messages: list[PromptMessage]
    report: Report
    wants_older: bool
    borders: tuple[int, ...] = ()


class HistoryPolicy(NamedTuple):
    """A way to select older turns: `select(renderer, start, stop, room)` selects from the messages `[start:stop]`.

    `cuts_system`: the system prompt (S) is cut if the required sections do not fit.
    """

    select: Callable[[PromptRenderer, int, int, int], SelectedHistory]
    cuts_system: bool


# To add a policy: 1. Write a function with the signature of `HistoryPolicy.select` in `chat.context.policies`. 2. Add
# it here. 3. Add its name to `personas.models.BudgetProfile`, where admins choose it. 4. Describe its rule in
# docs/develop/context.md, “The room”, and cover it with vectors in tests/chat/context/vectors.
POLICIES = {
    "recent": HistoryPolicy(select_recent, cuts_system=False),
    "priority": HistoryPolicy(select_by_priority, cuts_system=True),
}


def build(request: ContextRequest) -> Prompt:
    """Decide what the model sees. Equal requests give equal prompts.

    `request.policy` and `request.layout` are names in `POLICIES` and `LAYOUTS`. Raises `ContextError`:
    `no_user_message`, `file_too_long`, `context_too_long`.
    """
    request = with_image_limit(request)
    renderer = PromptRenderer(request)
    policy = POLICIES[request.policy]
    limit = request.room.input_limit
    current_start = current_turn_start(request.messages)
    current = read_turn(request.messages[current_start:])
    sections = _required_sections(renderer, current)
    _fit(sections, current, limit, renderer, cuts_system=policy.cuts_system)

    left = limit - _total(sections)
    oldest = min(first_whole_turn(request.messages, request.unloaded), current_start)
    history = policy.select(renderer, oldest, current_start, left)
    history.orphans |= current.orphans
    left -= history.tokens
    wants_older = request.unloaded > 0 and history.gap is None and left >= renderer.overhead
    note = _omission_note(renderer, left)
    place = _place_of_note(request, history, current_start) if note else None
    sections["history"] = history.messages
    if place is not None:
        history.messages[place:place] = note
        left -= cost(note)
    messages: list[PromptMessage] = []
    ends: dict[Section, int] = {}
    for section in _order(request):
        messages += sections.get(section, ())
        ends[section] = len(messages)
    report = Report(request, messages, history, limit=limit, used=limit - left)
    return Prompt(messages, report, wants_older, _borders(sections, ends))


def _order(request: ContextRequest) -> tuple[Section, ...]:
    """Return the sections in the order of the prompt."""
    order = LAYOUTS[request.layout]
    if not request.reminder_above:
        return order
    others = [section for section in order if section != "reminder"]
    place = others.index("current")
    return (*others[:place], "reminder", *others[place:])


def required_tokens(request: ContextRequest) -> int:
    """Return the cost of the required sections before any is shortened, with S cut to the share of the policy.

    Raises `ContextError`: `no_user_message`.
    """
    request = with_image_limit(request)
    renderer = PromptRenderer(request)
    sections = _required_sections(renderer, read_turn(request.messages[current_turn_start(request.messages) :]))
    if POLICIES[request.policy].cuts_system:
        _cut_system_to_share(sections, renderer)
    return _total(sections)


def with_image_limit(request: ContextRequest) -> ContextRequest:
    """Return the request with at most `max_images` images.

    The newest messages keep theirs; the others are only named. The project's images get the rest.
    """
    left = request.max_images
    messages = list(request.messages)
    if left is None or sum(len(message.images) for message in messages) + len(request.project_images) <= left:
        return request
    current_start = current_turn_start(messages)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        shown = message.mark != "excluded" and message.shows_images(current=index >= current_start)
        sent = message.sent_images if shown else ()
        if len(sent) > left:
            surplus = {image.id for image in sent[left:]}
            images = (
                replace(image, excluded=True, reason="too_many_images") if image.id in surplus else image
                for image in message.images
            )
            messages[index] = replace(message, images=tuple(images))
        left = max(0, left - len(sent))
    unsent = (
        SourceReport("project_file", image.id, "left_out", 0, "too_many_images", exact=False)
        for image in request.project_images[left:]
    )
    return replace(
        request,
        messages=messages,
        project_images=request.project_images[:left],
        extra_sources=(*request.extra_sources, *unsent),
    )


def _borders(sections: Sections, ends: Mapping[Section, int]) -> tuple[int, ...]:
    """Return the borders of the prompt, ascending, as numbers of messages from the start (“Caching”).

    The borders are: after S; after the other stable sections above the history; and before the first message that has
    another position in the next turn's prompt. `ends` has the number of messages up to the end of each section.
    """
    present = [section for section in STABLE_SECTIONS if sections.get(section)]
    above = [ends[section] for section in present if ends[section] <= ends["history"]]
    moving = next((section for section in present if ends[section] > ends["history"]), None)
    if moving:
        stable = ends[moving] - len(sections[moving])
    elif sections.get("reminder") and ends["reminder"] < ends["current"]:
        stable = ends["reminder"] - len(sections["reminder"])
    else:
        current = sections["current"]
        stable = ends["current"] - len(current) + [sent.role for sent in current].index("user") + 1
    return tuple(sorted({border for border in (ends["system"], max(above, default=0), stable) if border}))


def _omission_note(renderer: PromptRenderer, left: int) -> list[PromptMessage]:
    """Return the omission note if the request asks for it and `left` tokens are enough, else an empty list."""
    text = renderer.texts["omission_note"]
    tokens = renderer.tokenizer.count(text) + renderer.overhead if renderer.request.omission_note else left + 1
    return [PromptMessage("omitted", None, "user", tokens, text)] if tokens <= left else []


def _place_of_note(request: ContextRequest, history: SelectedHistory, current_start: int) -> int | None:
    """Return the index in the history at which the omission note is inserted, None if no message is missing.

    The note stands at the newest gap: after the newest omitted message, before the next message and its files. Messages
    that the user excludes are not missing.
    """
    if history.unbroken is not None and not history.orphans:
        return history.unbroken if history.gap is not None or history.skipped_until or request.unloaded else None
    messages = request.messages
    excluded = [turn for turn in history.unsent if turn.reason == "by_user"]
    by_user = {each.id for turn in excluded for each in messages[turn.start : turn.stop]}
    accounted = {sent.source for sent in history.messages} | by_user
    older = (index for index in range(current_start - 1, -1, -1) if messages[index].id not in accounted)
    orphaned = any(message.id in history.orphans for message in messages[current_start:])
    newest = current_start if orphaned else next(older, -1)
    if newest < 0 and not request.unloaded:
        return None
    after = {message.id for message in messages[newest + 1 : current_start]}
    place = next((n for n, message in enumerate(history.messages) if message.source in after), len(history.messages))
    while 0 < place < len(history.messages) and history.messages[place].role == "tool":
        place -= 1  # the note never separates a call from its results
    while 0 < place < len(history.messages) and history.messages[place - 1].section == "file":
        place -= 1  # the note stands above the files and images of its message
    return place


def _required_sections(renderer: PromptRenderer, current: ContextTurn) -> Sections:
    """Return the required sections, not shortened."""
    request = renderer.request
    sections: Sections = {section: [renderer.block(section, role, block)] for section, role, block in request.blocks}
    if request.memory is not None and (memory := renderer.memory(request.memory.facts)):
        sections["memory"] = memory
    if request.project_files:
        sections["project_files"] = [renderer.files("project_files", None, request.project_files)]
    if request.project_images:
        sections["project_files"] = [*sections.get("project_files", ()), *renderer.project_images()]
    sections["current"] = [sent for message in current.messages for sent in renderer.message("current", message)]
    return sections


def _fit(sections: Sections, current: ContextTurn, limit: int, renderer: PromptRenderer, *, cuts_system: bool) -> None:
    """Shorten the required sections in place until they fit into `limit` (“The room”, rules 1 to 3).

    Facts that are not required are left out first, the last one first. Then the tool results of the current turn are
    shortened; S follows if the policy `cuts_system`. The newest user
    message is never shortened. Raises `file_too_long` or `context_too_long`.
    """
    system_block = renderer.request.system_block
    if cuts_system:
        _cut_system_to_share(sections, renderer)
    _leave_facts_out(sections, limit, renderer)
    excess = _total(sections) - limit
    if excess <= 0:
        return
    excess -= _shorten_results(sections, current, excess, renderer)
    if excess > 0 and cuts_system and system_block and "system" in sections:
        system = sections["system"][0]
        _put_system(sections, _cut_to_rest(system, system_block, system.tokens - excess, renderer))
        excess = _total(sections) - limit
    if excess > 0:
        raise _refusal(sections, current.messages[0], limit, renderer)


def _leave_facts_out(sections: Sections, limit: int, renderer: PromptRenderer) -> None:
    """Leave out facts that are not required, the last one first, until the sections fit into `limit`."""
    memory = renderer.request.memory
    facts = list(memory.facts) if memory is not None else []
    optional = [fact for fact in facts if not fact.required]
    while optional and _total(sections) > limit:
        facts.remove(optional.pop())
        sections["memory"] = renderer.memory(facts)


def _total(sections: Sections) -> int:
    """Return the tokens of all sections, overhead included."""
    return sum(cost(messages) for messages in sections.values())


def _put_system(sections: Sections, system: PromptMessage | None) -> None:
    """Replace S; None removes it."""
    if system is None:
        del sections["system"]
    else:
        sections["system"] = [system]


def _shorten_results(sections: Sections, current: ContextTurn, excess: int, renderer: PromptRenderer) -> int:
    """Shorten the turn's tool results, oldest first, each only as far as needed (rule 1). Return the tokens saved."""
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


def _shorten_result(
    sent: PromptMessage, result: ContextMessage, excess: int, renderer: PromptRenderer
) -> PromptMessage:
    """Return the tool result with up to `excess` tokens less, never below `SHORTEST_RESULT`."""
    fixed = renderer.overhead + sum(image.tokens for image in sent.images)
    tokens = sent.tokens - fixed
    if tokens <= SHORTEST_RESULT:
        return sent
    target = max(tokens - excess, SHORTEST_RESULT)
    text = result.text
    if text is not None:
        text = cut_middle(text, target, SHORTEST_RESULT, renderer.tokenizer, renderer.texts, result.result)
        if result.tokens is None:
            target = renderer.tokenizer.count(text)
            if target >= tokens:  # the marker costs more than the cut saves
                return sent
    before = sent.cut_from or sent.tokens  # the tokens of the whole result, even if it was shortened when it arrived
    return sent._replace(tokens=target + fixed, text=text, state="shortened", cut_from=before, as_stored=False)


def _refusal(sections: Sections, question: ContextMessage, limit: int, renderer: PromptRenderer) -> ContextError:
    """Return the error for sections that do not fit.

    Under rule 2 the error names the first attached file that does not fit together with the files before it. Under rule
    3 it has the cost of every section.
    """
    upload = sum(sent.tokens for sent in sections["current"] if sent.section == "file" and sent.state == "full")
    room = limit - (_total(sections) - upload) - renderer.overhead
    files = question.sent_files
    if not files or _total(sections) - upload > limit:
        return _context_too_long(sections, renderer.request)
    number = next(n for n in range(1, len(files) + 1) if renderer.files_tokens(files[:n]) > room)
    file = files[number - 1]
    before = renderer.files_tokens(files[: number - 1])
    up_to_file = renderer.files_tokens(files[:number])
    return file_too_long(file.id, file.title, tokens=up_to_file - before, room=room - before)


def _context_too_long(sections: Sections, request: ContextRequest) -> ContextError:
    costs: dict[str, int] = {}
    for section in LAYOUTS["near_end"]:
        for sent in sections.get(section, ()):
            costs[sent.section] = costs.get(sent.section, 0) + sent.tokens
    persona = request.system_is_persona or request.persona_replaces_system
    return context_too_long(costs, room=request.room, persona_is_system=persona)


def _cut_system_to_share(sections: Sections, renderer: PromptRenderer) -> None:
    """Cut S to 30 % of the limit if it takes more than half of the limit. Remove it if not even the marker fits."""
    block = renderer.request.system_block
    limit = renderer.request.room.input_limit
    if block and sections["system"][0].tokens * 100 > limit * SYSTEM_CUT_ABOVE:
        _put_system(sections, _cut_system(sections["system"][0], block, limit * SYSTEM_CUT_TO // 100, renderer))


def _cut_to_rest(system: PromptMessage, block: Block, left: int, renderer: PromptRenderer) -> PromptMessage | None:
    """Cut S to the `left` tokens that the other required sections leave. Return None if that is too little to keep."""
    if left <= SYSTEM_REMOVED_AT:
        return None
    return _cut_system(system, block, left, renderer)


def _cut_system(system: PromptMessage, block: Block, room: int, renderer: PromptRenderer) -> PromptMessage | None:
    """Cut S to at most `room` tokens, overhead included. Return None if not even the marker fits.

    A block with given `tokens` then costs exactly `room`; other texts are counted.
    """
    tokens = room
    text = block.text
    if text is not None:
        text = cut_end(text, room - renderer.overhead, renderer.tokenizer, renderer.texts)
        if text is None:
            return None
        if block.tokens is None:
            tokens = renderer.tokenizer.count(text) + renderer.overhead
    return system._replace(tokens=tokens, text=text, state="shortened", cut_from=system.tokens)
