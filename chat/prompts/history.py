"""Rows become what the context engine is given: the branch, read newest first until the budget is full, and its files.

A message row may be several of the engine's messages: an answer holds the whole turn, with its calls and their results.
Files become documents with numbers, images, and what cannot be sent.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from accounts.models import User
from chat.context.cache import digest
from chat.context.rendering import Numbers, documents_json, own_tokens
from chat.context.types import Block, ContextMessage, Document, ImageRef, Reason, Role, SourceReport
from chat.models import Attachment, Mark, Message, StepReasoning, Summary
from chat.models.queries import BranchMessage, branch
from chat.models.summary import NO_MARKS, MarkedMessage, Marks
from files.models import File, FileText
from files.services import store_tokens, tokens_of
from llm.models import Model
from llm.providers import wanted_in_later_turns
from llm.step_filters.thoughts import without_reasoning
from llm.step_filters.valid_calls import json_object
from llm.tokens import Tokenizer
from llm.types.model_call import ReasoningState, StoredResult, ToolCall
from personas.texts import BUILT_IN, Texts

# How an answer that did not end well is replayed: its text as it stands, marked as what it is. Its error never is.
MARKS = {
    Message.Status.STOPPED: "answer_stopped",
    Message.Status.FAILED: "answer_broke_off",
    Message.Status.INTERRUPTED: "answer_broke_off",
}

# Errors of an answer whose question was never sent, since it was too long. It must not stand in the way of what came
# before it: the policy `recent` would find in every later turn that it does not fit, and look no further.
UNSENT = ("context_too_long", "file_too_long")

_ONE_MESSAGE = ("text", "reasoning")  # types of parts

# Ids that say nothing: those of servers that number the calls of each step, or send none (`llm.providers.openai`).
_NUMBERED = re.compile(r"call_\d{1,3}(?:-\d+)?")

_STORE = "UPDATE chat_message m SET tokens = m.tokens || v.tokens FROM (VALUES {}) AS v (id, tokens) WHERE m.id = v.id"


Count = tuple[UUID, dict[str, Any]]  # a message's tokens, by the name of the tokenizer
Row = Message | BranchMessage


@dataclass(frozen=True, slots=True)
class Branch:
    """What is read of the branch that ends at `leaf`: what `summary` does not stand for, under the person's `marks`."""

    leaf: Message
    summary: Summary | None
    marks: Marks

    @property
    def older(self) -> list[UUID]:
        """What is read wherever it stands: pinned turns, and what the summary left aside for a mark that is gone."""
        aside = [UUID(pk) for pk in self.summary.left_aside] if self.summary else []
        return [*self.marks.pinned, *(pk for pk in aside if pk not in self.marks.by_message)]

    def newest(self, *, room: int, tokenizer: Tokenizer, overhead: int) -> list[BranchMessage]:
        """The end of the branch, oldest first: the turns that fit into `room` tokens and, if there is more, one beyond;
        before them the `older` messages. Each says with `has_files` whether files were uploaded with it."""
        return branch(
            leaf=self.leaf.pk,
            covered=self.summary.last_id if self.summary else None,
            room=max(room, 0),
            path=[tokenizer.name, f"as_history_{overhead}"],
            unsent=UNSENT,
            excluded=self.marks.excluded,
            older=self.older,
        )

    def left_out(self, rows: Sequence[Row]) -> list[SourceReport]:
        """What a person leaves out and is not among the `rows` that were read, since it stands above them."""
        return [SourceReport("message", str(each.id), "left_out", 0, "by_user") for each in self._unread(rows)]

    def unloaded(self, rows: Sequence[Row]) -> int:
        """How many messages are neither among the `rows` that were read, nor left out, nor in the summary."""
        above = self.summary.last.depth + 1 if self.summary else 0
        depths = [row.depth for row in rows] + [each.depth for each in self._unread(rows)]
        return self.leaf.depth + 1 - above - sum(depth >= above for depth in depths)

    def _unread(self, rows: Sequence[Row]) -> list[MarkedMessage]:
        if not self.marks.messages:
            return []
        read = {row.pk for row in rows}
        return [each for each in self.marks.messages if each.mark == Mark.Kind.EXCLUDED and each.id not in read]


def unsent(rows: Sequence[Row]) -> list[SourceReport]:
    """The questions among the rows that were too long to be sent, and so are not part of what was said."""
    return [SourceReport("message", str(row.pk), "left_out", 0, "no_room") for row in _unsent(rows)]


def _unsent(rows: Sequence[Row]) -> list[Row]:
    return [question for question, answer in pairwise(rows) if answer.error_code in UNSENT and not answer.parts]


def counts_of(rows: Sequence[Row], *, tokenizer: Tokenizer, overhead: int) -> list[Count]:
    """The counts that these rows do not have yet and a prompt would want, by one tokenizer."""
    counted: list[Count] = []
    messages_of(rows, tokenizer=tokenizer, overhead=overhead, later=counted)
    return counted


def messages_of(
    rows: Sequence[Row],
    *,
    tokenizer: Tokenizer,
    overhead: int,
    marks: Marks = NO_MARKS,
    later: list[Count] | None = None,
    texts: Texts = BUILT_IN,
) -> list[ContextMessage]:
    """The engine's messages of these rows, without the `unsent`, and their counts. New ones are stored, or put into
    `later` for the caller to store when nobody waits. Only those of the built-in texts are stored."""
    messages: list[ContextMessage] = []
    counted: list[Count] = []
    left_out = {row.pk for row in _unsent(rows)}
    as_history = f"as_history_{overhead}"
    for row in rows:
        if row.pk in left_out:
            continue
        mark: Any = marks.by_message.get(row.pk) if marks.by_message and row.role == Message.Role.USER else None
        rewritten = bool(texts.own) and MARKS.get(row.status) in texts.own  # type: ignore[call-overload]  # its words
        known = {} if rewritten else row.tokens.get(tokenizer.name, {})
        if len(known.get("each", ())) == 1 and as_history in known and (text := _only_text(row)) is not None:
            role: Role = "user" if row.role == Message.Role.USER else "assistant"
            messages.append(ContextMessage(str(row.pk), role, text, known["each"][0], mark=mark))
            continue
        expanded = expand(row, texts)
        if len(known.get("each", ())) != len(expanded) or as_history not in known:
            each = known.get("each", ())
            if len(each) != len(expanded):
                each = [own_tokens(message, tokenizer) for message in expanded]
            known = {**known, "each": each, as_history: _as_history(expanded, each, tokenizer, overhead)}
            if row.status != Message.Status.PENDING and not rewritten:
                counted.append((row.pk, {tokenizer.name: known}))
        each = known["each"]
        messages += [replace(message, tokens=own, mark=mark) for message, own in zip(expanded, each, strict=True)]
    if later is None:
        store_counts(counted)
    else:
        later += counted
    return messages


def _only_text(row: Row) -> str | None:
    """What `expand` makes of a row that is one message and nothing but text; None for others."""
    if row.role == Message.Role.USER:
        return row.text
    if row.status in MARKS or any(part["type"] not in _ONE_MESSAGE for part in row.parts):
        return None
    texts = [part["text"] for part in row.parts if part["type"] == "text"]
    return "\n\n".join([*map(without_reasoning, texts[:1]), *texts[1:]])


def called(rows: Sequence[Row]) -> list[UUID]:
    """The answers in which a tool was called: most conversations have none, and nothing is looked up for them."""
    return [row.pk for row in rows if any(part["type"] == "tool_call" for part in row.parts)]


def reasoned(answers: Sequence[UUID]) -> QuerySet[StepReasoning]:
    """What providers want back of the reasoning in these answers."""
    return StepReasoning.objects.filter(turn__answer__in=answers).order_by("number")


def reasoned_by_others(rows: Sequence[Row], model: Model) -> dict[str, str]:
    """Of the answers whose reasoning another model keeps: its name, by the answer's id."""
    if not (answers := called(rows)):
        return {}
    others = reasoned(answers).exclude(_by(model)).filter(turn__answer__model__isnull=False)
    return {str(answer): name for answer, name in others.values_list("turn__answer", "turn__answer__model__name")}


def _by(model: Model) -> Q:
    """Two rows may be the same model of the same server; a model of that name elsewhere is another."""
    same = {"name": model.name, "provider__kind": model.provider.kind, "provider__base_url": model.provider.base_url}
    return Q(**{f"turn__answer__model__{name}": value for name, value in same.items()})


def with_reasoning(messages: list[ContextMessage], rows: Sequence[Row], model: Model) -> list[ContextMessage]:
    """With what the model thought before its calls in earlier turns, where that is wanted for ever."""
    if not (answers := called(rows)):
        return messages
    states: dict[str, list[ReasoningState]] = {}
    kept = reasoned(answers).filter(_by(model))
    for answer, items, tokens in kept.values_list("turn__answer", "items", "tokens"):
        states.setdefault(str(answer), []).append(ReasoningState(tuple(items), tokens))
    return [_with_next_state(message, states) for message in messages] if states else messages


def _with_next_state(message: ContextMessage, states: dict[str, list[ReasoningState]]) -> ContextMessage:
    left = states.get(message.id.partition("#")[0]) if message.tool_calls else None
    if not left:
        return message
    state = left.pop(0)
    return replace(message, reasoning=state) if wanted_in_later_turns(state) else message


def known_by(calls: Sequence[ToolCall]) -> str:
    """By what a step's calls are known again when a program sends them back; empty where they could be any step's.

    Programs may write the arguments anew, so their white space and order do not count.
    """
    if not calls or any(_NUMBERED.fullmatch(call.id) for call in calls):
        return ""
    return digest([[call.id, call.name, json_object(call.arguments)] for call in calls])


def with_reasoning_of_calls(
    messages: list[ContextMessage], user: User, model: Model, tokenizer: Tokenizer, *, whole: bool
) -> list[ContextMessage]:
    """With what the model thought before calls that a program has run, when the turn goes on in another request.

    `whole`: the messages came with that request, so those of older turns have no rows that say what was thought.
    """
    asked = max((number for number, message in enumerate(messages) if message.role == "user"), default=-1)
    called = [n for n, each in enumerate(messages) if each.tool_calls and (whole or n > asked)]
    places = {name: number for number in called if (name := known_by(messages[number].tool_calls))}
    if not places:
        return messages
    kept = StepReasoning.objects.filter(_by(model), calls__in=places, turn__conversation__owner=user).order_by("pk")
    for row in kept:
        number, state = places[row.calls], ReasoningState(tuple(row.items), row.tokens)
        if number > asked or wanted_in_later_turns(state):
            messages[number] = replace(messages[number], reasoning=state)
        if number > asked and row.reminder:
            reminder = Block(row.reminder, tokenizer.count(row.reminder))
            messages[number - 1] = replace(messages[number - 1], reminder=reminder)
    return messages


def _as_history(messages: Sequence[ContextMessage], each: Sequence[int], tokenizer: Tokenizer, overhead: int) -> int:
    """What the row costs in an older turn, where results are stubs. It only bounds how much is read at once, so that
    the built-in stub will do."""
    stub = tokenizer.count(BUILT_IN["tool_result_stub"])
    return sum((stub if m.role == "tool" else own) + overhead for m, own in zip(messages, each, strict=True))


def store_counts(counted: Sequence[Count]) -> None:
    """What is lost of them is counted again for the next prompt."""
    if not counted:
        return
    values = ", ".join(["(%s::uuid, %s::jsonb)"] * len(counted))
    flat = [value for pk, tokens in counted for value in (pk, json.dumps(tokens))]
    with connection.cursor() as cursor:
        cursor.execute(_STORE.format(values), flat)


def expand(row: Row, texts: Texts) -> list[ContextMessage]:
    """The row as the model sees it: reasoning is never replayed, what was said before a call is.

    The last message carries the row's id; the steps before it are numbered, as `<id>#1`.
    """
    if row.role == Message.Role.USER:
        return [ContextMessage(str(row.pk), "user", row.text)]
    steps = _steps(row.parts)
    mark = MARKS.get(Message.Status(row.status))
    if mark and steps:
        final = steps.pop() if steps[-1].role == "assistant" and not steps[-1].tool_calls else _said([], [])
        steps.append(replace(final, text=f"{final.text}\n\n{texts[mark]}".strip()))
    names = [f"{row.pk}#{number}" for number in range(1, len(steps))] + [str(row.pk)]
    return [replace(step, id=name) for step, name in zip(steps, names, strict=False)]


def _steps(parts: Sequence[dict[str, Any]]) -> list[ContextMessage]:
    steps: list[ContextMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            steps.append(_said(texts, calls))
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
                steps.append(ContextMessage("", "tool", part["text"], tool_call_id=part["id"], result=result))
    close()
    return steps


def stored_result(part: dict[str, Any]) -> StoredResult | None:
    """Of a part of the type `tool_result`, what it says of the whole result; None where the text is that."""
    stored = part.get("stored")
    return StoredResult(**stored) if stored else None


def _said(texts: Sequence[str], calls: Sequence[ToolCall]) -> ContextMessage:
    return ContextMessage("", "assistant", "\n\n".join(texts), tool_calls=tuple(calls))


READABLE = (File.Status.READY, File.Status.TOO_LONG)
# Two documents side by side may count a little more than each alone; nobody has seen more than two.
JOINT = 4


@dataclass(slots=True)
class Documents:
    """Makes the documents of one conversation. `numbers` go on from those the conversation has given before.

    `attached`: the readable files of each message that has been made with its files, by its id; those that `marks`
    leave out are not among them.
    """

    tokenizer: Tokenizer
    vision: bool
    numbers: Numbers
    texts: Texts = BUILT_IN
    reports: list[SourceReport] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    attached: dict[str, list[File]] = field(default_factory=dict)
    marks: Marks = NO_MARKS

    @property
    def given(self) -> list[dict[str, Any]]:
        """What stands in the prompt and can be cited, without a passage."""
        return [{"number": self.numbers.of(pk), "title": title, "file": pk} for pk, title in self.titles.items()]

    def of_file(self, file: File, text: str) -> Document:
        self.titles[str(file.pk)] = file.name
        return Document(
            id=str(file.pk),
            title=file.name,
            text=text,
            tokens=self._cost(file, text),
            number=self.numbers.of(str(file.pk)),
        )

    def _cost(self, file: File, text: str) -> int:
        """What the file costs as it is sent: its entry of the JSON, counted once per tokenizer and stored with the
        built-in line above it."""
        if not self.is_counted(file):
            entry = documents_json([Document(str(file.pk), file.name, text)], Numbers({str(file.pk): 100}))
            wrapper = self._above(BUILT_IN) + JOINT
            store_tokens(file=file, tokenizer=self._key, count=self.tokenizer.count(entry) + wrapper)
        longer = self._above(self.texts) - self._above(BUILT_IN) if "documents" in self.texts.own else 0
        return max(1, int(file.tokens[self._key]) + longer)

    def _above(self, texts: Texts) -> int:
        return self.tokenizer.count(f"{texts['documents']}\n")

    @property
    def _key(self) -> str:
        return f"{self.tokenizer.name}/sent"

    def is_counted(self, file: File) -> bool:
        """Whether it is known without the file's text what it costs."""
        return self._key in file.tokens

    def sized(self, files: Sequence[File]) -> list[Document]:
        """The files' costs, without their texts, without numbers: most of a large project is not in the prompt."""
        uncounted = {file.pk: file for file in files if not self.is_counted(file)}
        if uncounted:
            texts = FileText.objects.filter(file__in=uncounted).values_list("file", "text")
            for pk, text in texts.iterator(20):  # as few at once as may be, since a file's text may be long
                self._cost(uncounted.pop(pk), text)
            for file in uncounted.values():
                self._cost(file, "")
        return [Document(str(file.pk), file.name, tokens=self._cost(file, "")) for file in files]

    def attach(self, messages: Sequence[ContextMessage], rows: Sequence[Row]) -> list[ContextMessage]:
        """The messages with the files that were uploaded with their `rows`. Two queries, whatever their number; none
        where the rows know that they have no files."""
        some = [row.pk for row in rows if row.role == Message.Role.USER and getattr(row, "has_files", True)]
        by_message = _attachments(some) if some else {}
        if not by_message:
            return list(messages)
        wanted = (
            file
            for message, attached in by_message.items()
            for file in attached
            if isinstance(file, File) and not (self._left_out(message, file) and self.is_counted(file))
        )
        texts = texts_of(wanted)
        return [self._with_files(message, by_message.get(message.id, ()), texts) for message in messages]

    def draft(self, message: ContextMessage, files: Sequence[File]) -> ContextMessage:
        """The same for a message that is not stored yet."""
        return replace(self, marks=NO_MARKS)._with_files(message, files, texts_of(files)) if files else message

    def _left_out(self, message: str, file: File) -> bool:
        return self.marks is not NO_MARKS and self.marks.of_file(UUID(message), file.pk) == Mark.Kind.EXCLUDED

    def _with_files(
        self, message: ContextMessage, attached: Iterable[File | str], texts: dict[UUID, str]
    ) -> ContextMessage:
        documents: list[Document] = []
        images: list[ImageRef] = []
        for file in attached:
            if isinstance(file, str):
                self.reports.append(SourceReport("file", None, "left_out", 0, "deleted_file", title=file))
                continue
            if file.status not in READABLE:
                self.reports.append(SourceReport("file", str(file.pk), "left_out", 0, why_missing(file)))
                continue
            left_out = self._left_out(message.id, file)
            if not left_out:
                self.attached.setdefault(message.id, []).append(file)
            if not file.is_image:
                documents.append(replace(self.of_file(file, texts.get(file.pk, "")), excluded=left_out))
            elif self.vision:
                images.append(ImageRef(str(file.pk), tokens_of(file=file) or 0, excluded=left_out, title=file.name))
            else:
                self.reports.append(SourceReport("image", str(file.pk), "left_out", 0, "no_vision", exact=False))
                number = self.numbers.of(str(file.pk))
                documents.append(Document(str(file.pk), file.name, self.texts["image_unseen"], number=number))
        # A marker has no stored cost; then the whole message of files is counted as it is sent.
        return replace(message, files=tuple(documents), images=tuple(images))


def why_missing(file: File) -> Reason:
    """For a file that is none of `READABLE`."""
    return "unread_file" if file.status in (File.Status.UPLOADED, File.Status.PROCESSING) else "failed_file"


def _attachments(message_ids: Sequence[UUID]) -> dict[str, list[File | str]]:
    """The files of each message, in their order; of one that was deleted the name."""
    by_message: dict[str, list[File | str]] = {}
    for each in Attachment.objects.filter(message__in=message_ids).select_related("file"):
        by_message.setdefault(str(each.message_id), []).append(each.file or each.name)
    return by_message


def texts_of(files: Iterable[File]) -> dict[UUID, str]:
    wanted = [file.pk for file in files if not file.is_image]
    return dict(FileText.objects.filter(file__in=wanted).values_list("file", "text")) if wanted else {}
