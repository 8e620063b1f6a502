"""Shapes of the JSON that `Message.parts` stores."""

from typing import Required, TypedDict

from core.net.outgoing import OutgoingRequest
from llm.types.model_call import StoredResultJson


class FoundDocument(TypedDict, total=False):
    """A document that a tool has found: its number in the conversation, its title, and where to open it.

    A file has `file` (its id), a `page` (0 where it has none) and the characters `start` to `end` of the passage. A web
    page has `url`. `heading`: the path of headings above the passage.
    """

    number: Required[int]
    title: Required[str]
    file: str
    page: int
    start: int
    end: int
    heading: str
    url: str


class CitedSource(TypedDict):
    """A source that a text cites. `href` opens it."""

    number: int
    title: str
    href: str


class DoubtReason(TypedDict):
    """A reason against a sentence (`chat.citations.support.DoubtKind`), and the words that it is about."""

    reason: str
    words: str


class CitationDoubt(TypedDict):
    """A sentence that its passage does not carry.

    `citation`: its number in the text, from 0. `numbers`: of the documents that it cites. `evidence`: the part of the
    passage that it was compared with.
    """

    citation: int
    numbers: list[int]
    sentence: str
    evidence: str
    reasons: list[DoubtReason]


class CitationCheck(TypedDict):
    """The result of comparing a text with what it cites. `checked`: the number of sentences that were compared."""

    checked: int
    doubts: list[CitationDoubt]


class MessagePart(TypedDict, total=False):
    """One part of a message. `type`: text, reasoning, tool_call, tool_result or file.

    text, reasoning: `text`; a text that cites something has `citations` and `check`; a question that asks to go on with
    an answer has `continues`.
    tool_call: `id`, `name`, `arguments` (JSON text) and `label` (`Sentence.dump`). A call that needs approval has
    `approval` (`chat.realtime.events.Approval`) and, while it waits, `until` (ISO 8601).
    tool_result: `id`, `text`, `error`, `documents`; where something left the workspace `outgoing`; a long result has
    `stored`.
    """

    type: Required[str]
    text: str
    citations: list[CitedSource]
    check: CitationCheck
    continues: bool
    id: str
    name: str
    arguments: str
    label: str
    approval: str
    until: str
    error: bool
    documents: list[FoundDocument]
    outgoing: list[OutgoingRequest]
    stored: StoredResultJson
