"""Types of the JSON in `Message.parts`."""

from collections.abc import Iterable
from typing import Required, TypedDict

from core.net.outgoing import OutgoingRequest
from llm.step_filters.thoughts import split_reasoning
from llm.types.forms import ToolQuestion
from llm.types.model_call import ResultFile, StoredResultJson


class PassageSpan(TypedDict, total=False):
    """A passage of a file that a model got: characters [start, end), and the path of headings above it."""

    start: Required[int]
    end: Required[int]
    heading: str


class FoundDocument(TypedDict, total=False):
    """A document that a tool has found: its number in the conversation, its title and its place.

    A file has `file` (its id), `page` (0 without pages), and the characters `start` to `end` of the best passage.
    `passages` are all its passages that the model got, in order. A web page has `url`. Another conversation has
    `conversation` (its id), the `message` that was quoted and its `date` (YYYY-MM-DD), and `share` (the id of a
    `TeamShare`) if it is somebody else's. `heading`: the path of headings
    above the best passage.
    """

    number: Required[int]
    title: Required[str]
    file: str
    page: int
    start: int
    end: int
    heading: str
    passages: list[PassageSpan]
    url: str
    conversation: str
    message: str
    date: str
    share: str


class CitationPlace(TypedDict, total=False):
    """The sentence of a document that a citation leads to.

    `citation`: the number of the citation in the text, from 0. `number`: that of the document. In a file, the sentence
    is the characters [`sentence_start`, `sentence_end`) on `page` (0 without pages), in the passage [`start`, `end`)
    under `heading`. Of a web page, `quote` is the sentence itself.
    """

    citation: Required[int]
    number: Required[int]
    file: str
    page: int
    start: int
    end: int
    sentence_start: int
    sentence_end: int
    heading: str
    quote: str


class CitedSource(TypedDict):
    """A source that a text cites. `href` opens it."""

    number: int
    title: str
    href: str


class DoubtReason(TypedDict):
    """A reason to doubt a sentence (`chat.citations.differences.DoubtKind`), and the words that it concerns."""

    reason: str
    words: str


class CitationDoubt(TypedDict):
    """A sentence that the cited passage does not support.

    `citation`: the number of the citation in the text, from 0. `numbers`: the numbers of the cited documents.
    `evidence`: the part of the passage with which the sentence was compared.
    """

    citation: int
    numbers: list[int]
    sentence: str
    evidence: str
    reasons: list[DoubtReason]


class CitationCheck(TypedDict):
    """The result of comparing a text with its sources. `checked`: the number of sentences that were compared."""

    checked: int
    doubts: list[CitationDoubt]


class MessagePart(TypedDict, total=False):
    """One part of a message. `type`: text, reasoning, tool_call, tool_result or file.

    text, reasoning: `text`. A text with citations has `citations`, `check` and `places`. A question that asks the model
    to continue an answer has `continues`. The product's text below files that were sent without a message has
    `files_alone`. The text of an answer that a person has rewritten has `edited`.
    tool_call: `id`, `name`, `arguments` (JSON text) and `label` (`Sentence.dump`). A call that needs approval has
    `approval` (`chat.realtime.events.Approval`) and, while it waits, `until` (ISO 8601). If its tool asked the person
    with a form, `form` is the newest one, and `approval` its state.
    tool_result: `id`, `text`, `error`, `documents`. It has `outgoing` if the tool sent data out of the workspace. A
    long result has `stored`. A result with files has `files`, which are attached to the message, too.
    """

    type: Required[str]
    text: str
    citations: list[CitedSource]
    check: CitationCheck
    places: list[CitationPlace]
    continues: bool
    files_alone: bool
    edited: bool
    id: str
    name: str
    arguments: str
    label: str
    approval: str
    until: str
    form: ToolQuestion
    error: bool
    documents: list[FoundDocument]
    outgoing: list[OutgoingRequest]
    stored: StoredResultJson
    files: list[ResultFile]


def separate_reasoning(parts: Iterable[MessagePart]) -> list[MessagePart]:
    """Return the parts of an answer. Tagged reasoning at the start of a text becomes a part of its own.

    Only answers of versions before `llm.step_filters.thoughts` were stored with such texts. Imports may bring them.
    """
    separated: list[MessagePart] = []
    for part in parts:
        reasoning, answer = split_reasoning(part["text"]) if part["type"] == "text" else ("", "")
        if part["type"] != "text" or answer == part["text"]:
            separated.append(part)
            continue
        if reasoning:
            separated.append({"type": "reasoning", "text": reasoning})
        if answer:
            separated.append({**part, "text": answer})
    return separated
