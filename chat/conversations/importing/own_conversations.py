"""Store a conversation of an own export: its tree, marks, summaries, turns and place in the lists.

`OwnLosses` counts the parts that cannot be stored. The result of the conversation names them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import get_args
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts.access.rights import models_of
from chat.conversations.importing.listing import StoredConversation, set_listing
from chat.conversations.importing.own_reports import MAX_CALLS, RestoredRows, read_calls
from chat.conversations.importing.own_rows import ExportedRow, is_uuid
from chat.conversations.importing.reading import (
    MAX_MESSAGES,
    MAX_TEXT,
    MAX_TITLE,
    UnusableConversation,
    as_text,
    make_source,
    too_long_error,
)
from chat.conversations.importing.restoring import OwnLists, join_sentences, not_in_future
from chat.models import Attachment, Conversation, Mark, Message, Summary, Tag, Turn
from chat.models.parts import FoundDocument, MessagePart, PassageSpan
from core.ids import new_id_at
from core.json_types import JsonObject
from core.net.outgoing import OutgoingRequest
from core.net.url_safety import is_http
from core.sentences import Sentence
from files.models import File
from llm.models import Effort, Model
from llm.types.model_call import FinishReason, ResultFile
from personas.models import Persona
from projects.models import Project

PRODUCT = "glasshouse"
MAX_CHARACTERS = 40_000_000  # of one conversation
MAX_PARTS = 2_000  # of one message
MAX_ATTACHED = 50  # files of one message
MAX_DOCUMENTS = 20_000  # numbered sources of one conversation
MAX_PASSAGES = 200  # of one document in a tool result
MAX_OUTGOING = 200  # requests of one tool call
MAX_MARKS = 5_000
MAX_REASONS = 10  # of one feedback
MAX_COMMENT = 1_000  # characters of a feedback, as for one that is typed here
MAX_SUMMARIES = 1_000
STEP = timedelta(milliseconds=1)
BATCH_ROWS = 500  # rows per statement


@dataclass(slots=True)
class OwnLosses:
    """Counts of the parts of a conversation that cannot be stored.

    `models` counts the answers of each model that the owner does not have.
    """

    files: int = 0
    reports: int = 0
    results: int = 0
    checks: int = 0
    models: "Counter[str]" = field(default_factory=Counter)
    others: list[Sentence] = field(default_factory=list)

    def sentence(self) -> Sentence:
        """Return a sentence about each loss; empty without losses."""
        sentences = [
            Sentence("Answers of “{name}”, a model that you do not have here: {count}.", count=count, name=name)
            for name, count in self.models.most_common(3)
        ]
        if self.files:
            sentences.append(Sentence("Files without content, imported by name only: {count}.", count=self.files))
        if self.reports:
            sentences.append(Sentence("Older context reports imported as numbers only: {count}.", count=self.reports))
        if self.results:
            sentences.append(
                Sentence("Long tool results imported in their shortened form: {count}.", count=self.results)
            )
        if self.checks:
            sentences.append(Sentence("Answers imported without their citation checks: {count}.", count=self.checks))
        sentences += self.others
        return join_sentences(sentences) if sentences else Sentence("")


def make_own_source(body: JsonObject) -> str:
    """Return the conversation's source. Raises `UnusableConversation` without an id."""
    return make_source(PRODUCT, body.get("id"))


def find_existing(lists: OwnLists, body: JsonObject) -> Conversation | None:
    """Return the owner's conversation that is this one or was imported from it; None if there is none."""
    rows = Conversation.objects.filter(owner=lists.owner)
    imported = rows.filter(imported_from=make_own_source(body)).first()
    key = as_text(body.get("id"))
    return imported or (rows.filter(pk=key).first() if is_uuid(key) else None)


@transaction.atomic
def store_own_conversation(lists: OwnLists, body: JsonObject) -> StoredConversation:
    """Store a conversation. Raises `UnusableConversation` if it has no messages, is too large, or is not a tree."""
    return _ConversationRestorer(lists, ExportedRow(body)).store()


class _ConversationRestorer:
    """Stores one conversation. `rows` maps the ids of messages in the export to the stored messages."""

    def __init__(self, lists: OwnLists, row: ExportedRow) -> None:
        self.lists = lists
        self.owner = lists.owner
        self.row = row
        self.losses = OwnLosses()
        self.models: Mapping[str, Model] = {model.name: model for model in models_of(lists.owner)}
        self.rows: dict[str, Message] = {}
        self.exported: dict[str, ExportedRow] = {}
        self.files: dict[str, File] = {}  # by the id in the export
        self.summaries: dict[str, Summary] = {}  # by the id in the export

    def store(self) -> StoredConversation:
        row = self.row
        conversation = Conversation.objects.create(
            owner=self.owner,
            title=" ".join(row.text("title", MAX_TITLE).split()),
            titled=True,
            archived=row.flag("archived"),
            effort=row.choice("effort", Effort.values),
            tasks_in_prompts=row.flag("tasks_in_prompts", default=True),
            memory_in_prompts=row.flag("memory_in_prompts", default=True),
            findable=row.flag("findable", default=True),
            automatic_summaries=row.flag("automatic_summaries", default=True),
            persona=self._find_persona(),
            project=self._find_project(),
            imported_from=make_own_source(row.values),
        )
        self._read_messages(conversation)
        self._store_messages()
        self._store_attachments()
        self._store_marks(conversation)
        self._store_summaries(conversation)
        numbers = self._read_numbers()
        self._store_turns(conversation, numbers)
        self._set_listing(conversation)
        newest = max(self.rows.values(), key=lambda each: each.pk)
        leaf = self.rows.get(row.text("leaf", 40)) or newest
        Conversation.objects.filter(pk=conversation.pk).update(
            leaf=leaf,
            documents=numbers,
            created=not_in_future(row.moment("created")),
            updated=not_in_future(row.moment("updated")),
        )
        return StoredConversation(conversation, self.losses.sentence())

    def _find_persona(self) -> Persona | None:
        name = self.row.text("persona", 100)
        persona = self.lists.persona_named(self.row.text("persona_id", 40), name)
        if name and persona is None:
            self.losses.others.append(Sentence("You have no persona “{name}” here.", name=name))
        return persona

    def _find_project(self) -> Project | None:
        name = self.row.text("project", 100)
        project = self.lists.project_named(self.row.text("project_id", 40), name)
        if name and project is None:
            self.losses.others.append(Sentence("You have no project “{name}” here.", name=name))
        return project

    def _read_messages(self, conversation: Conversation) -> None:
        exported = list(self.row.rows("messages", MAX_MESSAGES + 1))
        if not exported:
            raise UnusableConversation(Sentence("It has no message."))
        if len(exported) > MAX_MESSAGES:
            raise UnusableConversation(Sentence("It has more than {max_messages} messages.", max_messages=MAX_MESSAGES))
        for each in exported:
            for file in each.rows("attachments", MAX_ATTACHED):
                self._find_file(file)
        characters = 0
        last: dict[UUID | None, datetime] = {}  # of the newest child so far, by its parent
        times: dict[UUID | None, datetime] = {}
        for each in exported:
            key = each.text("id", 40)
            parent_key = each.text("parent", 40)
            parent = self.rows.get(parent_key)
            role = each.choice("role", Message.Role.values)
            if not key or key in self.rows or not role or (parent_key and parent is None):
                raise UnusableConversation(
                    Sentence("Its messages do not form a tree. The file was changed or is damaged.")
                )
            parts = self._read_parts(each)
            characters += sum(len(part.get("text", "")) + len(part.get("arguments", "")) for part in parts)
            if characters > MAX_CHARACTERS:
                raise too_long_error()
            parent_id = parent.pk if parent is not None else None
            # The times in the ids keep the order of lists and siblings.
            earliest = max((time + STEP for time in (times.get(parent_id), last.get(parent_id)) if time), default=None)
            created = not_in_future(each.moment("created"))
            id_time = max(created, earliest) if earliest is not None else created
            message = self._make_message(conversation, each, role, parts, id_time)
            message.parent = parent
            message.depth = parent.depth + 1 if parent is not None else 0
            message.created = created
            self.rows[key] = message
            self.exported[key] = each
            times[message.pk] = last[parent_id] = id_time

    def _make_message(
        self, conversation: Conversation, row: ExportedRow, role: str, parts: list[MessagePart], id_time: datetime
    ) -> Message:
        is_answer = role == Message.Role.ASSISTANT
        status = row.choice("status", Message.Status.values, Message.Status.DONE)
        name = row.text("model", 200) if is_answer else ""
        if name and name not in self.models:
            self.losses.models[name] += 1
        feedback = row.choice("feedback", Message.Feedback.values) if is_answer else ""
        reasons = row.texts("feedback_reasons", MAX_REASONS, 40) if feedback else []
        return Message(
            id=new_id_at(id_time),
            conversation=conversation,
            owner_id=conversation.owner_id,
            role=role,
            parts=parts,
            status=Message.Status.INTERRUPTED if status == Message.Status.PENDING else status,
            error_code=row.text("error_code", 60),
            error_detail=Sentence.verbatim(row.text("error_detail", 1_000)),
            feedback=feedback,
            feedback_reasons=[reason for reason in reasons if reason.isidentifier()],
            feedback_comment=row.text("feedback_comment", MAX_COMMENT) if feedback else "",
            feedback_at=not_in_future(row.moment("feedback_at") or row.moment("created")) if feedback else None,
            model=self.models.get(name),
        )

    def _store_messages(self) -> None:
        rows = self.rows.values()
        times = [message.created for message in rows]
        Message.objects.bulk_create(rows, BATCH_ROWS)
        for message, created in zip(rows, times, strict=True):
            message.created = created  # the insert has set it to the current time
        Message.objects.bulk_update(rows, ["created"], BATCH_ROWS)

    def _read_parts(self, row: ExportedRow) -> list[MessagePart]:
        parts: list[MessagePart] = []
        checked = False
        for each in row.rows("parts", MAX_PARTS):
            text = as_text(each.values.get("text"))
            if len(text) > MAX_TEXT:
                raise UnusableConversation(
                    Sentence("One of its messages has more than {max_text} characters.", max_text=MAX_TEXT)
                )
            match each.values.get("type"):
                case "text":
                    checked |= "check" in each.values
                    parts.append(_read_text_part(each, text))
                case "reasoning":
                    parts.append({"type": "reasoning", "text": text})
                case "tool_call":
                    call: MessagePart = {
                        "type": "tool_call",
                        "id": each.text("id", 200),
                        "name": each.text("name", 200),
                        "arguments": each.text("arguments", MAX_TEXT),
                    }
                    if label := each.text("label", 1_000):
                        call["label"] = Sentence.verbatim(label).dump()
                    parts.append(call)
                case "tool_result":
                    self.losses.results += "stored" in each.values
                    result: MessagePart = {
                        "type": "tool_result",
                        "id": each.text("id", 200),
                        "text": text,
                        "error": each.flag("error"),
                        "documents": self._read_documents(each),
                    }
                    if outgoing := _read_outgoing(each):
                        result["outgoing"] = outgoing
                    if files := self._read_result_files(each):
                        result["files"] = files
                    parts.append(result)
        self.losses.checks += checked
        return parts

    def _read_documents(self, row: ExportedRow) -> list[FoundDocument]:
        """Return the documents of a tool result, with the ids of the restored files."""
        documents: list[FoundDocument] = []
        for each in row.rows("documents", 500):
            document: FoundDocument = {"number": each.number("number"), "title": each.text("title", 500)}
            file = self._restored_file(each.text("file", 40))
            if file is not None:
                document["file"] = str(file.pk)
                document["start"] = each.number("start")
                document["end"] = each.number("end")
                document["page"] = each.number("page")
                if passages := [_read_passage(span) for span in each.rows("passages", MAX_PASSAGES)]:
                    document["passages"] = passages
            url = each.text("url", 2_000)
            if is_http(url):  # pages show it as a link
                document["url"] = url
            if heading := each.text("heading", 1_000):
                document["heading"] = heading
            documents.append(document)
        return documents

    def _read_result_files(self, row: ExportedRow) -> list[ResultFile]:
        """Return the restored files of a tool result. They are attachments of the answer, so `files` has them."""
        pairs = [(each, self.files.get(each.text("file", 40))) for each in row.rows("files", MAX_ATTACHED)]
        return [
            {"file": str(file.pk), "name": each.text("name", 255), "image": file.is_image}
            for each, file in pairs
            if file is not None
        ]

    def _find_file(self, row: ExportedRow) -> File | None:
        """Return the owner's file for an attachment: the file of this export, else one with its name and content."""
        key = row.text("id", 40)
        if key and key not in self.files:
            sha256 = row.text("sha256", 64)
            file = self.lists.files.get(key) or (
                self.lists.known_file(row.text("name", 255), sha256) if sha256 else None
            )
            if file is not None:
                self.files[key] = file
        return self.files.get(key)

    def _store_attachments(self) -> None:
        attachments = []
        for key, exported in self.exported.items():
            for number, each in enumerate(exported.rows("attachments", MAX_ATTACHED)):
                file = self._find_file(each)
                self.losses.files += file is None and bool(each.text("id", 40))
                name = each.text("name", 255)
                attachments.append(Attachment(message=self.rows[key], file=file, name=name, ordinal=number))
        Attachment.objects.bulk_create(attachments, BATCH_ROWS)

    def _store_turns(self, conversation: Conversation, numbers: Mapping[str, int]) -> None:
        """Store a turn for each answer that had one, with its numbers and reports."""
        rows_here = RestoredRows(self.rows, self.summaries, self._restored_file, numbers)
        turns = []
        now = timezone.now()
        for key, exported in self.exported.items():
            answer = self.rows[key]
            if answer.role != Message.Role.ASSISTANT or answer.parent is None or exported.values.get("usage") is None:
                continue
            if answer.parent.role != Message.Role.USER:
                continue
            calls = list(exported.rows("report", MAX_CALLS))
            reports = read_calls(exported, rows_here, answer.model)
            self.losses.reports += bool(calls) and not reports
            turn = Turn(
                conversation=conversation,
                owner_id=conversation.owner_id,
                user_message=answer.parent,
                answer=answer,
                model=answer.model,
                status=answer.status,
                usage=exported.counts("usage"),
                cost=exported.amount("cost"),
                finish_reason=exported.choice("finish_reason", get_args(FinishReason)),
                finish_detail=exported.text("finish_detail", 100),
                context_notice=Sentence.verbatim(exported.text("context_notice", 1_000)),
                report={"calls": reports} if reports else {},
                finished=now,
            )
            if calls:
                turn.context_limit = calls[-1].number("limit")
                turn.context_used = calls[-1].number("used")
                turn.context_left_out = calls[-1].number("without_room")
            turns.append(turn)
        Turn.objects.bulk_create(turns, BATCH_ROWS)

    def _restored_file(self, key: str) -> File | None:
        return self.files.get(key) or self.lists.files.get(key)

    def _store_marks(self, conversation: Conversation) -> None:
        marks = []
        for each in self.row.rows("marks", MAX_MARKS):
            message = self.rows.get(each.text("message", 40))
            since = self.rows.get(each.text("since", 40))
            kind = each.choice("mark", Mark.Kind.values)
            key = each.text("file", 40)
            file = self.files.get(key)
            is_lost = (key and file is None) or (file is not None and kind == Mark.Kind.PINNED)
            if message is None or since is None or not kind or is_lost:
                continue
            marks.append(Mark(conversation=conversation, message=message, since=since, file=file, mark=kind))
        Mark.objects.bulk_create(marks, BATCH_ROWS, ignore_conflicts=True)

    def _store_summaries(self, conversation: Conversation) -> None:
        stored = self.summaries
        for each in self.row.rows("summaries", MAX_SUMMARIES):
            first = self.rows.get(each.text("first", 40))
            last = self.rows.get(each.text("last", 40))
            start = each.moment("span_start")
            end = each.moment("span_end")
            as_of = each.moment("as_of")
            if first is None or last is None or start is None or end is None or as_of is None:
                self.losses.others.append(Sentence("A summary in an older export format was not imported."))
                continue
            summary = Summary.objects.create(
                conversation=conversation,
                leaf=self.rows.get(each.text("leaf", 40)),
                first=first,
                last=last,
                messages=each.number("messages"),
                span_start=start,
                span_end=end,
                sections=[
                    {"name": section.text("name", 40), "text": section.text("text", MAX_TEXT)}
                    for section in each.rows("sections", 10)
                ],
                shortened=self._restored_ids(each.texts("shortened", MAX_MESSAGES, 40)),
                left_aside=self._restored_ids(each.texts("left_aside", MAX_MESSAGES, 40)),
                tokens_in=each.number("tokens_in"),
                tokens_out=each.number("tokens_out"),
                as_of=as_of,
                timezone=each.text("timezone", 64) or "UTC",
                model_name=each.text("model", 200),
                prompt_version=each.number("prompt_version"),
                supersedes=stored.get(each.text("supersedes", 40)),
                withdrawn=each.moment("withdrawn"),
            )
            Summary.objects.filter(pk=summary.pk).update(created=not_in_future(each.moment("created")))
            stored[each.text("id", 40)] = summary

    def _restored_ids(self, keys: Sequence[str]) -> list[str]:
        return [str(self.rows[key].pk) for key in keys if key in self.rows]

    def _read_numbers(self) -> dict[str, int]:
        """Return the citation numbers by document, without files that were not imported."""
        exported = self.row.counts("documents", MAX_DOCUMENTS)
        numbers: dict[str, int] = {}
        for source, number in exported.items():
            file = self._restored_file(source)
            if file is not None:
                numbers[str(file.pk)] = number
            elif not is_uuid(source):
                numbers[source] = number
        return numbers

    def _set_listing(self, conversation: Conversation) -> None:
        """Set tags and the place above the list, as far as the owner's limits allow."""
        tags = self.row.texts("tags", Tag.MAX_OF_ONE, Tag.MAX_NAME)
        pinned = self.row.flag("pinned")
        self.losses.others += set_listing(owner=self.owner, conversation=conversation, tags=tags, pinned=pinned)
        since = self.row.moment("pinned_since")
        if conversation.pinned and since is not None:
            Conversation.objects.filter(pk=conversation.pk).update(pinned=not_in_future(since))


def _read_passage(row: ExportedRow) -> PassageSpan:
    span: PassageSpan = {"start": row.number("start"), "end": row.number("end")}
    if heading := row.text("heading", 1_000):
        span["heading"] = heading
    return span


def _read_outgoing(row: ExportedRow) -> list[OutgoingRequest]:
    """Return the requests with which a tool sent data out of the workspace."""
    requests = row.rows("outgoing", MAX_OUTGOING)
    return [{"host": each.text("host", 255), "what": each.text("what", MAX_TEXT)} for each in requests]


def _read_text_part(row: ExportedRow, text: str) -> MessagePart:
    part: MessagePart = {"type": "text", "text": text}
    if row.flag("continues"):
        part["continues"] = True
    if row.flag("files_alone"):
        part["files_alone"] = True
    if row.flag("edited"):
        part["edited"] = True
    return part
