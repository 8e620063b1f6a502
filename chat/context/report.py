"""What became of every source (docs/context.md, “What comes back”).

A report is stored with the answer it produced. Making it costs more than making the prompt, so all but the totals is
worked out when it is asked for.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, NotRequired, TypedDict, cast

from chat.context.policies import History
from chat.context.types import (
    ContextMessage,
    ContextRequest,
    PromptMessage,
    Reason,
    SourceReport,
)


class SourceEntry(TypedDict):
    """A `SourceReport` for JSON; `title` is for people."""

    kind: str
    state: str
    id: NotRequired[str | None]
    title: NotRequired[str]
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
    sources: list[SourceEntry]
    versions: dict[str, str]


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
        sent = self._sent_ids
        return [
            source
            for message in self._request.messages
            if message.id not in sent
            for source in (*(file.id for file in message.files), message.id)
        ]

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
            "sources": [
                cast("SourceEntry", {name: value for name, value in source._asdict().items() if value is not None})
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
                yield _attached("file", file.id, file.tokens, placed is not None, reason, exact)
            for image in message.images:
                yield _attached(
                    "image", image.id, image.tokens, placed is not None and bool(placed.images), reason, False
                )
            yield self._source("message", message.id, placed, reason)

    def _reason(self, index: int, message: ContextMessage) -> Reason:
        """Why a message is not sent, if it is not."""
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
    again. A caller that loads newest first stops when it is False.
    """

    messages: list[PromptMessage]
    report: Report
    wants_older: bool
