"""Turn stored rows into the context engine's messages and documents.

1. `Branch.newest` reads the end of the branch, as much as the budget can hold.
2. `messages_of` expands the rows. A row may become several messages: an answer holds its tool calls and results.
3. `with_reasoning` and `with_reasoning_of_calls` add the reasoning that providers want back.
4. `Documents.attach` adds the files: documents with citation numbers, images, and reports on files that are not sent.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from accounts.models import User
from chat.context.cache import digest
from chat.context.rendering import CitationNumbers, documents_json, own_tokens
from chat.context.types import Block, ContextMessage, Document, ImageRef, Reason, Role, SourceReport
from chat.models import Attachment, Mark, Message, StepReasoning, Summary
from chat.models.queries import BranchMessage, branch
from chat.models.summary import NO_MARKS, MarkedMessage, Marks
from files.models import File, FileText
from files.services import get_token_count, store_tokens
from llm.models import Model
from llm.providers import is_needed_in_later_turns
from llm.step_filters.thoughts import without_reasoning
from llm.step_filters.valid_calls import to_json_object
from llm.tokens import NamedTokenizer
from llm.types.model_call import ReasoningState, ResultFile, StoredResult, ToolCall
from personas.texts import BUILT_IN, Texts

# The text below an answer that did not end well, by its status. The answer's text is sent with it, its error never is.
STATUS_TEXTS = {
    Message.Status.STOPPED: "answer_stopped",
    Message.Status.FAILED: "answer_broke_off",
    Message.Status.INTERRUPTED: "answer_broke_off",
}

# Errors of an answer whose question was never sent, since it was too long. The question must not block the messages
# above it: in every later turn the policy `recent` would stop at a question that does not fit.
UNSENT = ("context_too_long", "file_too_long")

_ONE_MESSAGE = ("text", "reasoning")  # types of parts that do not split a row

# Call ids that identify nothing: some servers number the calls of each step or send no ids (`llm.providers.openai`).
_NUMBERED = re.compile(r"call_\d{1,3}(?:-\d+)?")

_STORE = "UPDATE chat_message m SET tokens = m.tokens || v.tokens FROM (VALUES {}) AS v (id, tokens) WHERE m.id = v.id"


Row = Message | BranchMessage


class MessageCounts(NamedTuple):
    """The counts of a message row by one tokenizer, to be stored with the row (`Message.tokens`).

    The row becomes one or more of the engine's messages. In `counts`, `each` lists their tokens. For every overhead,
    `as_history_<overhead>` is the cost of the row in an older turn.
    """

    message: UUID
    tokenizer: str
    counts: Mapping[str, int | Sequence[int]]


def _history_key(overhead: int) -> str:
    return f"as_history_{overhead}"


@dataclass(frozen=True, slots=True)
class Branch:
    """The part of the branch ending at `leaf` that a prompt reads: the messages that `summary` does not cover.

    `marks` are the user's marks on the branch.
    """

    leaf: Message
    summary: Summary | None
    marks: Marks

    @property
    def older(self) -> list[UUID]:
        """Return the ids of messages that are read at any position.

        These are the pinned messages, and messages that the summary left aside because of a mark that is now removed.
        """
        aside = [UUID(pk) for pk in self.summary.left_aside] if self.summary else []
        return [*self.marks.pinned, *(pk for pk in aside if pk not in self.marks.by_message)]

    def newest(self, *, room: int, tokenizer: NamedTokenizer, overhead: int) -> list[BranchMessage]:
        """Read the end of the branch, oldest first: the `older` messages, then the turns that fit into `room` tokens.

        If more turns exist, one more than fits is read.
        """
        return branch(
            leaf=self.leaf.pk,
            covered=self.summary.last_id if self.summary else None,
            room=max(room, 0),
            path=[tokenizer.name, _history_key(overhead)],
            unsent=UNSENT,
            excluded=self.marks.excluded,
            older=self.older,
        )

    def left_out(self, rows: Sequence[Row]) -> list[SourceReport]:
        """Report the messages that the user excludes and that are above the `rows` that were read."""
        return [SourceReport("message", str(each.id), "left_out", 0, "by_user") for each in self._unread(rows)]

    def unloaded(self, rows: Sequence[Row]) -> int:
        """Return the number of messages that are not read, not excluded and not covered by the summary."""
        above = self.summary.last.depth + 1 if self.summary else 0
        depths = [row.depth for row in rows] + [each.depth for each in self._unread(rows)]
        return self.leaf.depth + 1 - above - sum(depth >= above for depth in depths)

    def _unread(self, rows: Sequence[Row]) -> list[MarkedMessage]:
        if not self.marks.messages:
            return []
        read = {row.pk for row in rows}
        return [each for each in self.marks.messages if each.mark == Mark.Kind.EXCLUDED and each.id not in read]


def unsent(rows: Sequence[Row]) -> list[SourceReport]:
    """Report the questions among the rows that were too long to be sent. They are not part of the conversation."""
    return [SourceReport("message", str(row.pk), "left_out", 0, "no_room") for row in _unsent(rows)]


def _unsent(rows: Sequence[Row]) -> list[Row]:
    return [question for question, answer in pairwise(rows) if answer.error_code in UNSENT and not answer.parts]


def counts_of(rows: Sequence[Row], *, tokenizer: NamedTokenizer, overhead: int) -> list[MessageCounts]:
    """Return the counts by this tokenizer that a prompt needs and that are not stored with these rows."""
    counts: list[MessageCounts] = []
    messages_of(rows, tokenizer=tokenizer, overhead=overhead, later=counts)
    return counts


def messages_of(
    rows: Sequence[Row],
    *,
    tokenizer: NamedTokenizer,
    overhead: int,
    marks: Marks = NO_MARKS,
    later: list[MessageCounts] | None = None,
    texts: Texts = BUILT_IN,
) -> list[ContextMessage]:
    """Expand the rows, without the `unsent` ones, into the engine's messages with their counts.

    New counts are stored, or appended to `later` for the caller to store when no user waits. Counts of texts that the
    workspace has rewritten are not stored.
    """
    messages: list[ContextMessage] = []
    counts: list[MessageCounts] = []
    skipped = {row.pk for row in _unsent(rows)}
    history_key = _history_key(overhead)
    for row in rows:
        if row.pk in skipped:
            continue
        mark: Any = marks.by_message.get(row.pk) if marks.by_message and row.role == Message.Role.USER else None
        rewritten = bool(texts.own) and STATUS_TEXTS.get(Message.Status(row.status)) in texts.own
        stored = {} if rewritten else row.tokens.get(tokenizer.name, {})
        own_counts: Sequence[int] = stored.get("each", ())
        if len(own_counts) == 1 and history_key in stored and (text := _only_text(row)) is not None:
            role: Role = "user" if row.role == Message.Role.USER else "assistant"
            messages.append(ContextMessage(str(row.pk), role, text, own_counts[0], mark=mark))
            continue
        expanded = expand(row, texts)
        if len(own_counts) != len(expanded) or history_key not in stored:
            if len(own_counts) != len(expanded):
                own_counts = [own_tokens(message, tokenizer) for message in expanded]
            if row.status != Message.Status.PENDING and not rewritten:
                as_history = _history_tokens(expanded, own_counts, tokenizer, overhead)
                # The counts for other overheads stay.
                counts.append(
                    MessageCounts(row.pk, tokenizer.name, {**stored, "each": own_counts, history_key: as_history})
                )
        messages += [replace(message, tokens=own, mark=mark) for message, own in zip(expanded, own_counts, strict=True)]
    if later is None:
        store_counts(counts)
    else:
        later += counts
    return messages


def _only_text(row: Row) -> str | None:
    """Return the text of a row that `expand` turns into a single message of text; None for other rows."""
    if row.role == Message.Role.USER:
        return row.text
    if row.status in STATUS_TEXTS or any(part["type"] not in _ONE_MESSAGE for part in row.parts):
        return None
    texts = [part["text"] for part in row.parts if part["type"] == "text"]
    return "\n\n".join([*map(without_reasoning, texts[:1]), *texts[1:]])


def answers_with_calls(rows: Sequence[Row]) -> list[UUID]:
    """Return the ids of the answers with tool calls. Most conversations have none, and need no query for reasoning."""
    return [row.pk for row in rows if any(part["type"] == "tool_call" for part in row.parts)]


def reasoning_of(answers: Sequence[UUID]) -> QuerySet[StepReasoning]:
    """Return the stored reasoning of these answers."""
    return StepReasoning.objects.filter(turn__answer__in=answers).order_by("number")


def reasoned_by_others(rows: Sequence[Row], model: Model) -> dict[str, str]:
    """Return the names of other models whose reasoning is stored with the answers, by the answer's id."""
    if not (answers := answers_with_calls(rows)):
        return {}
    others = reasoning_of(answers).exclude(_by(model)).filter(turn__answer__model__isnull=False)
    return {str(answer): name for answer, name in others.values_list("turn__answer", "turn__answer__model__name")}


def _by(model: Model) -> Q:
    """Return the condition that this model wrote the answer.

    Two rows may stand for the same model on the same server. A model with this name on another server is different.
    """
    return Q(
        turn__answer__model__name=model.name,
        turn__answer__model__provider__kind=model.provider.kind,
        turn__answer__model__provider__base_url=model.provider.base_url,
    )


def with_reasoning(messages: list[ContextMessage], rows: Sequence[Row], model: Model) -> list[ContextMessage]:
    """Add the model's reasoning to the calls of earlier turns, if the provider wants it back in every later turn."""
    if not (answers := answers_with_calls(rows)):
        return messages
    states: dict[str, list[ReasoningState]] = {}
    stored = reasoning_of(answers).filter(_by(model))
    for answer, items, tokens in stored.values_list("turn__answer", "items", "tokens"):
        states.setdefault(str(answer), []).append(ReasoningState(tuple(items), tokens))
    return [_with_next_state(message, states) for message in messages] if states else messages


def _with_next_state(message: ContextMessage, states: dict[str, list[ReasoningState]]) -> ContextMessage:
    remaining = states.get(message.id.partition("#")[0]) if message.tool_calls else None
    if not remaining:
        return message
    state = remaining.pop(0)
    return replace(message, reasoning=state) if is_needed_in_later_turns(state) else message


def calls_digest(calls: Sequence[ToolCall]) -> str:
    """Return a digest that recognises a step's calls when a program sends them back; empty if the ids identify nothing.

    Programs may format the arguments differently, so white space and the order of members do not count.
    """
    if not calls or any(_NUMBERED.fullmatch(call.id) for call in calls):
        return ""
    return digest([[call.id, call.name, to_json_object(call.arguments)] for call in calls])


def with_reasoning_of_calls(
    messages: list[ContextMessage], user: User, model: Model, tokenizer: NamedTokenizer, *, whole: bool
) -> list[ContextMessage]:
    """Add the model's reasoning to calls that a program ran itself, when the turn continues in another request.

    `whole`: the request contains all messages. The calls of older turns then have no message rows, so they get their
    reasoning here, too.
    """
    question = max((number for number, message in enumerate(messages) if message.role == "user"), default=-1)
    steps = [n for n, each in enumerate(messages) if each.tool_calls and (whole or n > question)]
    places = {key: number for number in steps if (key := calls_digest(messages[number].tool_calls))}
    if not places:
        return messages
    stored = StepReasoning.objects.filter(_by(model), calls__in=places, turn__conversation__owner=user).order_by("pk")
    for row in stored:
        number = places[row.calls]
        state = ReasoningState(tuple(row.items), row.tokens)
        if number > question or is_needed_in_later_turns(state):
            messages[number] = replace(messages[number], reasoning=state)
        if number > question and row.reminder:
            reminder = Block(row.reminder, tokenizer.count(row.reminder))
            messages[number - 1] = replace(messages[number - 1], reminder=reminder)
    return messages


def _history_tokens(
    messages: Sequence[ContextMessage], each: Sequence[int], tokenizer: NamedTokenizer, overhead: int
) -> int:
    """Return the cost of a row in an older turn, with stubs for results.

    The cost only limits how much is read at once, so the built-in stub is exact enough.
    """
    stub = tokenizer.count(BUILT_IN["tool_result_stub"])
    return sum((stub if m.role == "tool" else own) + overhead for m, own in zip(messages, each, strict=True))


def store_counts(counts: Sequence[MessageCounts]) -> None:
    """Store counts with their rows. The next prompt counts again if one is lost."""
    if not counts:
        return
    values = ", ".join(["(%s::uuid, %s::jsonb)"] * len(counts))
    flat = [value for each in counts for value in (each.message, json.dumps({each.tokenizer: each.counts}))]
    with connection.cursor() as cursor:
        cursor.execute(_STORE.format(values), flat)


def expand(row: Row, texts: Texts) -> list[ContextMessage]:
    """Return the messages of a row as the model sees them. Text before a call is sent, reasoning is not.

    The last message has the row's id. The earlier steps are numbered, as `<id>#1`.
    """
    if row.role == Message.Role.USER:
        return [ContextMessage(str(row.pk), "user", row.text)]
    steps = _steps(row.parts)
    status_text = STATUS_TEXTS.get(Message.Status(row.status))
    if status_text and steps:
        final = steps.pop() if steps[-1].role == "assistant" and not steps[-1].tool_calls else _assistant([], [])
        steps.append(replace(final, text=f"{final.text}\n\n{texts[status_text]}".strip()))
    names = [f"{row.pk}#{number}" for number in range(1, len(steps))] + [str(row.pk)]
    return [replace(step, id=name) for step, name in zip(steps, names, strict=False)]


def _steps(parts: Sequence[Mapping[str, Any]]) -> list[ContextMessage]:
    """Return the messages of an answer's parts, without ids."""
    steps: list[ContextMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            steps.append(_assistant(texts, calls))
            texts.clear()
            calls.clear()

    for part in parts:
        match part["type"]:
            case "text":
                if calls:
                    close()
                texts.append(part["text"] if texts else without_reasoning(part["text"]))
            case "tool_call":
                calls.append(ToolCall(part["id"], part["name"], part["arguments"]))
            case "tool_result":
                close()
                result = stored_result(part)
                files = tuple(each["file"] for each in result_files(part))
                steps.append(
                    ContextMessage("", "tool", part["text"], tool_call_id=part["id"], result=result, result_files=files)
                )
    close()
    return steps


def stored_result(part: Mapping[str, Any]) -> StoredResult | None:
    """Return the facts about the whole result of a `tool_result` part; None if the part's text is complete."""
    stored = part.get("stored")
    return StoredResult.from_json(stored) if stored else None


def result_files(part: Mapping[str, Any]) -> tuple[ResultFile, ...]:
    """Return the files that the tool of a `tool_result` part returned."""
    return tuple(part.get("files", ()))


def _assistant(texts: Sequence[str], calls: Sequence[ToolCall]) -> ContextMessage:
    return ContextMessage("", "assistant", "\n\n".join(texts), tool_calls=tuple(calls))


READABLE = (File.Status.READY, File.Status.TOO_LONG)
# Two documents together may have slightly more tokens than the sum of both. The largest measured difference is two.
JOINT = 4


class CitableDocument(TypedDict):
    """A document of the prompt that an answer can cite."""

    number: int
    title: str
    file: str


@dataclass(slots=True)
class Documents:
    """Collects the documents of one plan. `numbers` continue the numbers of the conversation.

    `reports` collects the files that are not sent. `titles` maps the ids of the documents so far to their names.
    `attached` holds the readable files of each message, by its id, without the files that `marks` exclude.
    """

    tokenizer: NamedTokenizer
    vision: bool
    numbers: CitationNumbers
    texts: Texts = BUILT_IN
    reports: list[SourceReport] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    attached: dict[str, list[File]] = field(default_factory=dict)
    marks: Marks = NO_MARKS

    @property
    def citable(self) -> list[CitableDocument]:
        """Return the documents so far, which an answer can cite."""
        return [{"number": self.numbers.assign(pk), "title": title, "file": pk} for pk, title in self.titles.items()]

    def of_file(self, file: File, text: str) -> Document:
        """Return the document of a file."""
        self.titles[str(file.pk)] = file.name
        return Document(
            id=str(file.pk),
            title=file.name,
            text=text,
            tokens=self._cost(file, text),
            number=self.numbers.assign(str(file.pk)),
        )

    def _cost(self, file: File, text: str) -> int:
        """Return the tokens of the file as sent: its JSON entry and the line above it.

        A file is counted once per tokenizer, and the count is stored. The stored count includes the built-in line.
        """
        if not self.is_counted(file):
            entry = documents_json([Document(str(file.pk), file.name, text)], CitationNumbers({str(file.pk): 100}))
            wrapper = self._prefix_tokens(BUILT_IN) + JOINT
            store_tokens(file=file, tokenizer=self._key, count=self.tokenizer.count(entry) + wrapper)
        own_prefix = "documents" in self.texts.own
        longer = self._prefix_tokens(self.texts) - self._prefix_tokens(BUILT_IN) if own_prefix else 0
        return max(1, int(file.tokens[self._key]) + longer)

    def _prefix_tokens(self, texts: Texts) -> int:
        """Return the tokens of the line above the documents."""
        return self.tokenizer.count(f"{texts['documents']}\n")

    @property
    def _key(self) -> str:
        return f"{self.tokenizer.name}/sent"

    def is_counted(self, file: File) -> bool:
        """Return whether the file's cost is stored, so that its text is not needed."""
        return self._key in file.tokens

    def sized(self, files: Sequence[File]) -> list[Document]:
        """Return the files as documents with their costs, without texts and numbers.

        Most files of a large project are not in the prompt, so their texts are not read.
        """
        uncounted = {file.pk: file for file in files if not self.is_counted(file)}
        if uncounted:
            texts = FileText.objects.filter(file__in=uncounted).values_list("file", "text")
            for pk, text in texts.iterator(20):  # few at once, since a file's text may be long
                self._cost(uncounted.pop(pk), text)
            for file in uncounted.values():
                self._cost(file, "")
        return [Document(str(file.pk), file.name, tokens=self._cost(file, "")) for file in files]

    def attach(self, messages: Sequence[ContextMessage], rows: Sequence[Row]) -> list[ContextMessage]:
        """Return the messages with the files that were uploaded with their `rows`.

        Two queries for any number of messages; none if the rows say that they have no files.
        """
        questions = [
            row.pk for row in rows if row.role == Message.Role.USER and (isinstance(row, Message) or row.has_files)
        ]
        by_message = _attachments(questions) if questions else {}
        if not by_message:
            return list(messages)
        needed = (
            file
            for message, attached in by_message.items()
            for file in attached
            if isinstance(file, File) and not (self._is_excluded(message, file) and self.is_counted(file))
        )
        texts = texts_of(needed)
        return [self._with_files(message, by_message.get(message.id, ()), texts) for message in messages]

    def attach_to_draft(self, message: ContextMessage, files: Sequence[File]) -> ContextMessage:
        """Add the files to a message that is not stored yet."""
        return replace(self, marks=NO_MARKS)._with_files(message, files, texts_of(files)) if files else message

    def attach_to_results(self, messages: Sequence[ContextMessage]) -> list[ContextMessage]:
        """Return the messages with the files of their tool results; one query if there are any.

        The images of a step stand with its last result, since no message may stand between a call and its results. A
        result with a document that the user leaves out is replaced by its stub, since its text contains the document.
        """
        ids = {UUID(pk) for message in messages for pk in message.result_files}
        if not ids:
            return list(messages)
        files = {str(file.pk): file for file in File.objects.filter(pk__in=ids)}
        start = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
        attached = [
            self._with_result_files(message, files, current=index > start) for index, message in enumerate(messages)
        ]
        for index in range(len(attached) - 1):
            message, following = attached[index : index + 2]  # the loop moves images on, so no iterator reads ahead
            if message.images and message.role == following.role == "tool":
                attached[index] = replace(message, images=())
                images = {image.id: image for image in (*message.images, *following.images)}
                attached[index + 1] = replace(following, images=tuple(images.values()), mark=message.mark)
        return attached

    def _with_result_files(
        self, message: ContextMessage, files: Mapping[str, File], *, current: bool
    ) -> ContextMessage:
        """Return a message with its files. Files that are deleted or not read yet are not sent, only named in it.

        `current`: the message is of the current turn. In later turns the model gets no images of results by default, so
        the report does not say again that it cannot see them.
        """
        if not message.result_files:
            return message
        answer = message.id.partition("#")[0]
        images: list[ImageRef] = []
        documents: list[Document] = []
        for file in (files[pk] for pk in message.result_files if pk in files):
            excluded = self._is_excluded(answer, file)
            if not file.is_image or file.status not in READABLE or not (self.vision or current):
                documents.append(Document(str(file.pk), file.name, excluded=excluded))
            elif self.vision:
                images.append(
                    ImageRef(str(file.pk), get_token_count(file=file) or 0, excluded=excluded, title=file.name)
                )
            else:
                self.reports.append(SourceReport("image", str(file.pk), "left_out", 0, "no_vision", exact=False))
        mark: Any = self.marks.by_message.get(UUID(answer))
        attached = replace(message, images=tuple(images), result_documents=tuple(documents), mark=mark)
        if any(document.excluded for document in documents):
            attached = replace(attached, text=self.texts["tool_result_stub"], tokens=None, result=None)
        return attached

    def _is_excluded(self, message: str, file: File) -> bool:
        return self.marks is not NO_MARKS and self.marks.of_file(UUID(message), file.pk) == Mark.Kind.EXCLUDED

    def _with_files(
        self, message: ContextMessage, attached: Iterable[File | str], texts: dict[UUID, str]
    ) -> ContextMessage:
        documents: list[Document] = []
        images: list[ImageRef] = []
        missing: list[str] = []
        for file in attached:
            if isinstance(file, str):
                missing.append(file)
                self.reports.append(SourceReport("file", None, "left_out", 0, "deleted_file", title=file))
                continue
            if file.status not in READABLE:
                missing.append(file.name)
                self.reports.append(SourceReport("file", str(file.pk), "left_out", 0, why_missing(file)))
                continue
            excluded = self._is_excluded(message.id, file)
            if not excluded:
                self.attached.setdefault(message.id, []).append(file)
            if not file.is_image:
                documents.append(replace(self.of_file(file, texts.get(file.pk, "")), excluded=excluded))
            elif self.vision:
                images.append(
                    ImageRef(str(file.pk), get_token_count(file=file) or 0, excluded=excluded, title=file.name)
                )
            else:
                self.reports.append(SourceReport("image", str(file.pk), "left_out", 0, "no_vision", exact=False))
                number = self.numbers.assign(str(file.pk))
                documents.append(Document(str(file.pk), file.name, self.texts["image_unseen"], number=number))
        # The text for an unseen image has no stored cost. The engine then counts the whole message with the files.
        return replace(message, files=tuple(documents), images=tuple(images), missing_files=tuple(missing))


def why_missing(file: File) -> Reason:
    """Return the reason for a file whose status is not in `READABLE`."""
    return "unread_file" if file.status in (File.Status.UPLOADED, File.Status.PROCESSING) else "failed_file"


def _attachments(message_ids: Sequence[UUID]) -> dict[str, list[File | str]]:
    """Return the files of each message, by its id, in their order; a name stands for a deleted file."""
    by_message: dict[str, list[File | str]] = {}
    for each in Attachment.objects.filter(message__in=message_ids).select_related("file"):
        by_message.setdefault(str(each.message_id), []).append(each.file or each.name)
    return by_message


def texts_of(files: Iterable[File]) -> dict[UUID, str]:
    """Return the texts of the files, by id. Images have none."""
    ids = [file.pk for file in files if not file.is_image]
    return dict(FileText.objects.filter(file__in=ids).values_list("file", "text")) if ids else {}
