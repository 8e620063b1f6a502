"""Store a conversation of another product.

1. `ForeignRows.store` stores the files whose bytes or text are in the export. Each has a transaction of its own.
2. It stores the conversation with its messages, its project, its tags and the journal entry in one transaction.

Parts that cannot be stored are counted. The result of the conversation names them (`LOSS_SENTENCES`).
"""

import binascii
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import IO, Any

from django.core.files.base import ContentFile
from django.core.files.base import File as Content
from django.db import transaction
from django.utils import timezone

from accounts.access.rights import models_of
from accounts.models import User
from chat.conversations.importing.journal import ImportJournal
from chat.conversations.importing.listing import StoredConversation, set_listing
from chat.conversations.importing.reading import (
    MAX_TITLE,
    ImportedConversation,
    ImportedFile,
    ImportedMessage,
)
from chat.conversations.importing.restoring import join_sentences
from chat.models import Attachment, Conversation, ImportedRow, Message, Tag
from chat.models.parts import MessagePart
from chat.models.words import title_from
from core.errors import ProductError
from core.ids import new_id_at
from core.lines import first_line
from core.sentences import Sentence
from files.models import File
from files.services import clean_name
from llm.models import Model
from projects.models import Project
from projects.services import create_project

STEP = timedelta(milliseconds=1)
BATCH_ROWS = 500  # rows per statement
MAX_STORED_FILES = 300  # of one conversation
EARLIEST_TIME = datetime(1990, 1, 1, tzinfo=UTC)
# A file that is imported as text only keeps its name if it has one of these endings. Other names get “.txt”.
_TEXT_SUFFIXES = frozenset(
    {
        *(
            "txt",
            "md",
            "markdown",
            "rst",
            "tex",
            "log",
            "csv",
            "tsv",
            "json",
            "jsonl",
            "xml",
            "yaml",
            "yml",
            "toml",
            "ini",
        ),
        *("html", "htm", "css", "js", "jsx", "ts", "tsx", "py", "rb", "go", "rs", "java", "kt", "c", "h", "cpp", "hpp"),
        *("cs", "php", "sh", "sql", "r", "lua", "pl", "swift", "scala"),
    }
)
LOSS_SENTENCES: dict[str, Callable[[int], Sentence]] = {
    "tools": lambda n: Sentence("Tool calls whose results were not imported: {count}.", count=n),
    "files": lambda n: Sentence("Files without content, imported by name only: {count}.", count=n),
    "texts": lambda n: Sentence("Files imported as text only: {count}.", count=n),
    "recordings": lambda n: Sentence("Recordings imported as text only: {count}.", count=n),
    "references": lambda n: Sentence("References to collections, notes and other conversations: {count}.", count=n),
    "citations": lambda n: Sentence("Citation marks without a link: {count}.", count=n),
    "sources": lambda n: Sentence("Answers imported without their lists of sources: {count}.", count=n),
    "artifacts": lambda n: Sentence("Changes to artifacts without the changed text: {count}.", count=n),
    "instructions": lambda n: Sentence("Instructions before the conversation: {count}.", count=n),
    "summaries": lambda n: Sentence("Summaries of earlier messages: {count}.", count=n),
    "ratings": lambda n: Sentence("Ratings of answers: {count}.", count=n),
    "tags": lambda n: Sentence("Tags over the limit: {count}.", count=n),
    "errors": lambda n: Sentence("Errors instead of an answer: {count}.", count=n),
    "unreachable": lambda n: Sentence("Messages without a place in the conversation: {count}.", count=n),
    "others": lambda n: Sentence("Parts of another kind: {count}.", count=n),
}

OpenFile = Callable[[str], IO[bytes] | None]


@dataclass(slots=True)
class StoredFile:
    """A file of a message: its name, and its row if its content was imported."""

    name: str
    row: File | None


@dataclass(slots=True)
class Losses:
    """The parts of one conversation that were not imported: counts by key, answers by model, other reasons."""

    counts: "Counter[str]"
    models: "Counter[str]" = field(default_factory=Counter)
    others: list[Sentence] = field(default_factory=list)

    def sentence(self) -> Sentence:
        sentences = [
            Sentence("Answers of “{name}”, a model that you do not have here: {count}.", count=count, name=name)
            for name, count in self.models.most_common(3)
        ]
        sentences += [
            LOSS_SENTENCES[key](count) for key, count in self.counts.items() if key in LOSS_SENTENCES and count > 0
        ]
        sentences += dict.fromkeys(self.others)
        return join_sentences(sentences) if sentences else Sentence("")


class ForeignRows:
    """Stores the conversations of one import for its owner.

    `bytes_of` opens the content of a file by its id in the other product, and returns None if there is none.
    """

    def __init__(self, owner: User, journal: ImportJournal, bytes_of: OpenFile | None = None) -> None:
        self.owner = owner
        self._journal = journal
        self._bytes_of = bytes_of
        self._projects: dict[str, Project] = {}

    @cached_property
    def _models(self) -> dict[str, Model]:
        return {model.name: model for model in models_of(self.owner)}

    def existing(self, foreign: ImportedConversation) -> Conversation | None:
        """Return the owner's conversation that was imported from this one."""
        return Conversation.objects.filter(owner=self.owner, imported_from=foreign.source).first()

    def store(self, foreign: ImportedConversation) -> StoredConversation:
        """Store a conversation. Raises IntegrityError if another import has stored it meanwhile."""
        losses = Losses(Counter(foreign.losses))
        files = self._store_files(foreign, losses)
        with transaction.atomic():
            conversation = self._store_conversation(foreign, files, losses)
            sentence = losses.sentence()
            self._journal.add(ImportedRow.Kind.CONVERSATION, conversation.pk, sentence)
        return StoredConversation(conversation, sentence)

    def project(self, name: str, instructions: str = "") -> Project:
        """Return the owner's project with this name. Create it with these instructions if there is none."""
        if name not in self._projects:
            row = Project.objects.filter(owner=self.owner, name=name).order_by("pk").first()
            if row is None:
                with transaction.atomic():
                    row = create_project(user=self.owner, fields={"name": name, "instructions": instructions})
                    self._journal.add(ImportedRow.Kind.PROJECT, row.pk)
            self._projects[name] = row
        return self._projects[name]

    def store_file(self, name: str, content: "Content[Any]") -> File:
        """Store a file, and add it to the journal if it is new. Raises the errors of `files.services.store`."""
        return self._journal.store_file(self.owner, name, content)

    def _store_files(self, foreign: ImportedConversation, losses: Losses) -> dict[str, list[StoredFile]]:
        """Return the files by the id of their message."""
        files: dict[str, list[StoredFile]] = {}
        stored = 0
        for message in foreign.messages:
            for each in message.files:
                row = None
                if stored < MAX_STORED_FILES:
                    try:
                        row = self._store_one(each, losses)
                    except ProductError as error:
                        losses.others.append(error.sentence)
                stored += row is not None
                losses.counts["files"] += row is None
                name = row.name if row is not None else clean_name(each.name)
                files.setdefault(message.id, []).append(StoredFile(name, row))
        return files

    def _store_one(self, file: ImportedFile, losses: Losses) -> File | None:
        """Store a file with its bytes, else with its text. Return None if the export has neither."""
        name = clean_name(file.name)
        content = self._bytes_of(file.key) if self._bytes_of is not None and file.key else None
        if content is not None:
            with content:
                return self.store_file(name, Content(content, name=name))
        if file.data:
            try:
                return self.store_file(name, ContentFile(b64decode(file.data, validate=True), name=name))
            except binascii.Error:
                return None
        if not file.text:
            return None
        if name.rpartition(".")[2].lower() not in _TEXT_SUFFIXES:
            name = clean_name(f"{name}.txt")
            losses.counts["texts"] += 1
        return self.store_file(name, ContentFile(file.text.encode(), name=name))

    def _store_conversation(
        self, foreign: ImportedConversation, files: dict[str, list[StoredFile]], losses: Losses
    ) -> Conversation:
        now = timezone.now()
        created = clamp_time(foreign.created, now)
        title = first_line(foreign.title, MAX_TITLE)[:MAX_TITLE] or title_from(foreign.messages[0].text)
        conversation = Conversation.objects.create(
            owner=self.owner,
            title=title,
            titled=True,
            archived=foreign.archived,
            imported_from=foreign.source,
            project=self._project_of(foreign, losses),
        )
        rows = self._messages(conversation, foreign.messages, created, losses)
        attachments = [
            Attachment(message=rows[key], file=file.row, name=file.name, ordinal=number)
            for key, its_files in files.items()
            for number, file in enumerate(its_files)
        ]
        Attachment.objects.bulk_create(attachments, BATCH_ROWS)
        tags = [tag.replace(",", " ")[: Tag.MAX_NAME].strip() for tag in foreign.tags]
        losses.others += set_listing(
            owner=self.owner, conversation=conversation, tags=[tag for tag in tags if tag], pinned=foreign.pinned
        )
        leaf = rows.get(foreign.leaf or "") or max(rows.values(), key=lambda each: each.pk)
        updated = clamp_time(foreign.updated or max(row.created for row in rows.values()), now)
        Conversation.objects.filter(pk=conversation.pk).update(leaf=leaf, created=created, updated=updated)
        return conversation

    def _project_of(self, foreign: ImportedConversation, losses: Losses) -> Project | None:
        if not foreign.folder:
            return None
        try:
            return self.project(foreign.folder)
        except ProductError as error:
            losses.others.append(error.sentence)
            return None

    def _messages(
        self, conversation: Conversation, messages: list[ImportedMessage], created: datetime, losses: Losses
    ) -> dict[str, Message]:
        """Store the messages. Their ids contain increasing times, so that lists and branches keep their order."""
        now = timezone.now()
        rows: dict[str, Message] = {}
        times: dict[str, datetime] = {}  # of the id
        shown: dict[str, datetime] = {}
        last: dict[str | None, datetime] = {}  # the time of the newest child so far, by its parent
        for each in messages:
            before = [time for time in (times.get(each.parent or ""), last.get(each.parent)) if time is not None]
            earliest = max(before) + STEP if before else created
            shown[each.id] = clamp_time(each.created or earliest, now)
            times[each.id] = last[each.parent] = max(earliest, shown[each.id])
            parent = rows[each.parent] if each.parent else None
            model = self._models.get(each.model) if each.model else None
            if each.model and model is None:
                losses.models[each.model] += 1
            rows[each.id] = Message(
                id=new_id_at(times[each.id]),
                conversation=conversation,
                owner_id=conversation.owner_id,
                parent=parent,
                depth=parent.depth + 1 if parent else 0,
                role=Message.Role.USER if each.question else Message.Role.ASSISTANT,
                parts=_message_parts(each),
                model=model,
            )
        Message.objects.bulk_create(rows.values(), BATCH_ROWS)
        for key, message in rows.items():
            message.created = shown[key]  # the insert has set it to the current time
        Message.objects.bulk_update(rows.values(), ["created"], BATCH_ROWS)
        return rows


def _message_parts(message: ImportedMessage) -> list[MessagePart]:
    parts: list[MessagePart] = [{"type": "reasoning", "text": message.reasoning}] if message.reasoning else []
    if message.text:
        parts.append({"type": "text", "text": message.text})
    return parts


def clamp_time(moment: datetime | None, now: datetime) -> datetime:
    """Return the time, not before `EARLIEST_TIME` and not after `now`; `now` without a time."""
    return min(max(moment, EARLIEST_TIME), now) if moment else now
