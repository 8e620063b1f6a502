"""The one entry point: from everything a prompt is made of to the messages that are sent, and the report.

The required sections, all but older turns, are made first and made to fit; what they leave is for a policy to fill
(docs/develop/context.md, “The room”).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, NotRequired, TypedDict, cast

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
from chat.context.types import (
    Block,
    ContextError,
    ContextMessage,
    ContextRequest,
    PromptMessage,
    Reason,
    Section,
    SourceReport,
    context_too_long,
    file_too_long,
)

# Of the input limit, in percent: above the first a system prompt is cut to the second.
KEPT_WHOLE = 50
CUT_TO = 30
# A system prompt that would be left with this much or less is removed.
WORTH_KEEPING = 50
SHORTEST_RESULT = 256
# Of which the next turn has the same; where they stand depends on the layout, their order does not.
LASTING: tuple[Section, ...] = ("persona", "project_files", "file_listing")

Sections = dict[Section, list[PromptMessage]]


class SourceEntry(TypedDict):
    """A `SourceReport` for JSON; `title` is for people, `mark` what was pinned and did not fit.

    `role`, of a message: `question`, `answer`, `call` or `result`. `used`: of a file by search, whose text was found.
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
    """A `Report` for JSON."""

    limit: int
    used: int
    left: int
    exact: bool
    sections: Mapping[str, int]
    dropped: list[str]
    unloaded: int
    without_room: NotRequired[int]  # not in those of earlier versions
    sources: list[SourceEntry]
    versions: dict[str, str]


_SOURCE = SourceReport._fields


class Report:
    """`limit`, `used` and `left` in tokens; `unloaded` counts older messages the engine was not given."""

    def __init__(
        self, request: ContextRequest, messages: list[PromptMessage], history: History, *, limit: int, used: int
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
        """Tokens of each section that is sent, overhead included, in the order of the prompt."""
        sections: dict[str, int] = {}
        for sent in self._messages:
            sections[sent.section] = sections.get(sent.section, 0) + sent.tokens
        return sections

    @cached_property
    def sources(self) -> list[SourceReport]:
        """Sections, then messages oldest first, a message's files before it, then the caller's own sources."""
        return [*self._section_sources(), *self._message_sources(), *self._request.extra_sources]

    @cached_property
    def dropped(self) -> list[str]:
        """The ids of the messages and files that were left out, oldest first, a turn's files before its message."""
        sent, dropped = self._sent_ids, list[str]()
        for message in self._request.messages:
            gone = message.id not in sent
            dropped += [file.id for file in message.files if gone or file.excluded]
            dropped += [message.id] if gone else []
        return dropped

    @cached_property
    def without_room(self) -> int:
        """How many messages and files are left out though nobody wants it: those of `dropped` and `unloaded` but what
        its person leaves out."""
        wanted_out = {source.id for source in self.sources if source.reason == "by_user"} if self.dropped else ()
        return self.unloaded + sum(1 for each in self.dropped if each not in wanted_out)

    @cached_property
    def exact(self) -> bool:
        """Whether every count is exact."""
        return all(source.exact for source in self.sources)

    def as_dict(self) -> ReportEntry:
        """For JSON. Fields of a source that say nothing are left out."""
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
        for file in request.project_files:
            yield SourceReport("project_file", file.id, "full", file.tokens, exact=request.exact)

    def _message_sources(self) -> Iterator[SourceReport]:
        sent = {message.source: message for message in self._messages if message.section in ("history", "current")}
        for index, message in enumerate(self._request.messages):
            placed, reason = sent.get(message.id), self._reason(index, message)
            exact = self._request.exact
            for file in message.files:
                if placed is not None and message.id in self._history.stubbed and not file.excluded:
                    yield SourceReport("file", file.id, "stubbed", None, exact=exact)
                    continue
                why = "by_user" if file.excluded else reason
                yield _attached("file", file.id, file.tokens, placed is not None and not file.excluded, why, exact)
            for image in message.images:
                named = image.excluded and (placed is not None or image.reason == "by_user")
                there = placed is not None and not image.excluded
                yield _attached("image", image.id, image.tokens, there, image.reason if named else reason, False)
            yield self._source("message", message.id, placed, reason)

    @cached_property
    def _marked(self) -> dict[int, Reason]:
        return {index: why for begin, end, why in self._history.marked for index in range(begin, end)}

    def _reason(self, index: int, message: ContextMessage) -> Reason:
        """Why a message is not sent, if it is not."""
        if index in self._marked:
            return self._marked[index]
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
    """A file or an image of a message."""
    if sent:
        return SourceReport(kind, name, "full", tokens, exact=exact)
    return SourceReport(kind, name, "left_out", 0, reason, exact=exact)


class Prompt(NamedTuple):
    """The answer of the engine.

    `wants_older`: not all older messages were given, and one of them could still be in the prompt: give more and build
    again. A caller that loads newest first stops when it is False. `borders`: after so many messages the prompt is one
    that later prompts begin with, too (docs/develop/context.md, “Caching”); at most three, ascending.
    """

    messages: list[PromptMessage]
    report: Report
    wants_older: bool
    borders: tuple[int, ...] = ()


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
    request = with_image_limit(request)
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
    """What everything but the older turns takes before anything of it is shortened, with S as its policy cuts it.

    Raises `ContextError`: `no_user_message`.
    """
    request = with_image_limit(request)
    renderer = Renderer(request)
    sections = _required_sections(renderer, read_turn(request.messages[current_turn_start(request.messages) :]))
    if POLICIES[request.policy].cuts_system:
        _cut_system_to_share(sections, renderer)
    return _total(sections)


def with_image_limit(request: ContextRequest) -> ContextRequest:
    """Return the request with at most `max_images` images, those of the newest messages; the others are only named."""
    left, messages = request.max_images, list(request.messages)
    if left is None or sum(len(message.images) for message in messages) <= left:
        return request
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        sent = message.sent_images if message.mark != "excluded" else ()
        if len(sent) > left:
            surplus = {image.id for image in sent[left:]}
            images = (
                replace(image, excluded=True, reason="too_many_images") if image.id in surplus else image
                for image in message.images
            )
            messages[index] = replace(message, images=tuple(images))
        left = max(0, left - len(sent))
    return replace(request, messages=messages)


def _borders(sections: Sections, ends: Mapping[Section, int]) -> tuple[int, ...]:
    """After S; after what else stands above the history for good; and before the first message that the next turn will
    not find in its place. Each is a number of messages from the start, none comes twice. `ends`: of each section."""
    lasting = [section for section in LASTING if sections.get(section)]
    above = [ends[section] for section in lasting if ends[section] <= ends["history"]]
    moving = next((section for section in lasting if ends[section] > ends["history"]), None)
    if moving:
        stable = ends[moving] - len(sections[moving])
    elif sections.get("reminder") and ends["reminder"] < ends["current"]:
        stable = ends["reminder"] - len(sections["reminder"])
    else:
        current = sections["current"]
        stable = ends["current"] - len(current) + [sent.role for sent in current].index("user") + 1
    return tuple(sorted({border for border in (ends["system"], *above[-1:], stable) if border}))


def _omission_note(renderer: Renderer, left: int) -> list[PromptMessage]:
    """The line that stands where messages are missing, if it is wanted and fits in what is left (“The room”)."""
    text = renderer.texts["omission_note"]
    tokens = renderer.tokenizer.count(text) + renderer.overhead if renderer.request.omission_note else left + 1
    return [PromptMessage("omitted", None, "user", tokens, text)] if tokens <= left else []


def _place_of_note(request: ContextRequest, history: History, current_start: int) -> int | None:
    """Before how many of the history's messages the note stands: before the first, with its files, that is newer than
    the newest message left out. None where nothing is left out but what a person leaves out."""
    if history.unbroken is not None and not history.orphans:
        return history.unbroken if history.gap is not None or history.skipped or request.unloaded else None
    messages = request.messages
    by_user = {each.id for begin, end, why in history.marked if why == "by_user" for each in messages[begin:end]}
    there = {sent.source for sent in history.messages} | by_user
    older = (index for index in range(current_start - 1, -1, -1) if messages[index].id not in there)
    orphaned = any(message.id in history.orphans for message in messages[current_start:])
    newest = current_start if orphaned else next(older, -1)
    if newest < 0 and not request.unloaded:
        return None
    after = {message.id for message in messages[newest + 1 : current_start]}
    place = next((n for n, message in enumerate(history.messages) if message.source in after), len(history.messages))
    while 0 < place < len(history.messages) and history.messages[place].role == "tool":
        place -= 1  # it never parts a call from its results
    while 0 < place < len(history.messages) and history.messages[place - 1].section == "file":
        place -= 1  # it stands above the files and images of its message
    return place


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
    if cuts_system:
        _cut_system_to_share(sections, renderer)
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
        text = cut_middle(text, target, SHORTEST_RESULT, renderer.tokenizer, renderer.texts, result.result)
        if result.tokens is None:
            target = renderer.tokenizer.count(text)
            if target >= tokens:  # the marker takes more than could be left out
                return sent
    before = sent.cut_from or sent.tokens  # the whole, also where it was shortened when it came
    return sent._replace(tokens=target + fixed, text=text, state="shortened", cut_from=before, as_stored=False)


def _refusal(sections: Sections, question: ContextMessage, limit: int, renderer: Renderer) -> ContextError:
    """Rule 2, the first file that does not fit after those before it, or rule 3, the cost of every section."""
    upload = sum(sent.tokens for sent in sections["current"] if sent.section == "file" and sent.state == "full")
    room = limit - (_total(sections) - upload) - renderer.overhead
    files = question.sent_files
    if not files or _total(sections) - upload > limit:
        return _context_too_long(sections, renderer.request)
    up_to = next(n for n in range(1, len(files) + 1) if renderer.files_tokens(files[:n]) > room)
    file, before = files[up_to - 1], renderer.files_tokens(files[: up_to - 1])
    together = renderer.files_tokens(files[:up_to])
    return file_too_long(file.id, file.title, tokens=together - before, room=room - before)


def _context_too_long(sections: Sections, request: ContextRequest) -> ContextError:
    costs: dict[str, int] = {}
    for section in LAYOUTS["near_end"]:
        for sent in sections.get(section, ()):
            costs[sent.section] = costs.get(sent.section, 0) + sent.tokens
    persona = request.system_is_persona or request.persona_replaces_system
    return context_too_long(costs, room=request.room, persona_is_system=persona)


def _cut_system_to_share(sections: Sections, renderer: Renderer) -> None:
    """Cuts S to 30 % of the limit where it has more than half of it; removes it if nothing of it fits there."""
    block, limit = renderer.request.system_block, renderer.request.room.input_limit
    if block and sections["system"][0].tokens * 100 > limit * KEPT_WHOLE:
        _put_system(sections, _cut_system(sections["system"][0], block, limit * CUT_TO // 100, renderer))


def _cut_to_rest(system: PromptMessage, block: Block, left: int, renderer: Renderer) -> PromptMessage | None:
    """S cut to what the other required sections leave; None, so removed, when that is at most 50 tokens."""
    if left <= WORTH_KEEPING:
        return None
    return _cut_system(system, block, left, renderer)


def _cut_system(system: PromptMessage, block: Block, room: int, renderer: Renderer) -> PromptMessage | None:
    """S in at most `room` tokens with its overhead: exactly that when its tokens were given, else its real count."""
    tokens, text = room, block.text
    if text is not None:
        text = cut_end(text, room - renderer.overhead, renderer.tokenizer, renderer.texts)
        if text is None:
            return None
        if block.tokens is None:
            tokens = renderer.tokenizer.count(text) + renderer.overhead
    return system._replace(tokens=tokens, text=text, state="shortened", cut_from=system.tokens)
