"""Files become what the context engine is given: documents with numbers, images, and what cannot be sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from chat.context.rendering import PREFIX, Numbers, documents_json, split_project_files
from chat.context.types import ContextMessage, Document, ImageRef, Reason, SourceReport
from chat.models import Attachment
from files.models import File, FileText
from files.services import store_tokens, tokens_of
from llm.tokens import Tokenizer
from personas.models import BudgetProfile
from projects.models import Project, ProjectFile

NO_VISION = "[This image cannot be shown: the model does not see images.]"
# Two documents side by side may count a little more than each alone; nobody has seen more than two.
JOINT = 4


@dataclass(slots=True)
class Documents:
    """Makes the documents of one conversation. `numbers` go on from those the conversation has given before."""

    tokenizer: Tokenizer
    vision: bool
    numbers: Numbers
    reports: list[SourceReport] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)

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
        """What the file costs as it is sent: its entry of the JSON, counted once per tokenizer and stored."""
        if not self.is_counted(file):
            entry = documents_json([Document(str(file.pk), file.name, text)], Numbers({str(file.pk): 100}))
            wrapper = self.tokenizer.count(f"{PREFIX}\n") + JOINT
            store_tokens(file=file, tokenizer=self._key, count=self.tokenizer.count(entry) + wrapper)
        return int(file.tokens[self._key])

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

    def attach(self, messages: Sequence[ContextMessage]) -> list[ContextMessage]:
        """The messages with the files that were uploaded with them. Two queries, whatever the number of messages."""
        by_message = _attachments(message.id for message in messages if message.role == "user")
        if not by_message:
            return list(messages)
        texts = _texts(file for attached in by_message.values() for file in attached if file is not None)
        return [self._with_files(message, by_message.get(message.id, ()), texts) for message in messages]

    def draft(self, message: ContextMessage, files: Sequence[File]) -> ContextMessage:
        """The same for a message that is not stored yet."""
        return self._with_files(message, files, _texts(files)) if files else message

    def _with_files(
        self, message: ContextMessage, attached: Iterable[File | None], texts: dict[UUID, str]
    ) -> ContextMessage:
        documents: list[Document] = []
        images: list[ImageRef] = []
        for file in attached:
            if file is None or file.status not in (File.Status.READY, File.Status.TOO_LONG):
                name = "deleted" if file is None else str(file.pk)
                self.reports.append(SourceReport("file", name, "left_out", 0, _why_missing(file)))
            elif not file.is_image:
                documents.append(self.of_file(file, texts.get(file.pk, "")))
            elif self.vision:
                images.append(ImageRef(str(file.pk), tokens_of(file=file) or 0))
            else:
                self.reports.append(SourceReport("image", str(file.pk), "left_out", 0, "no_vision", exact=False))
                documents.append(Document(str(file.pk), file.name, NO_VISION, number=self.numbers.of(str(file.pk))))
        # A marker has no stored cost; then the whole message of files is counted as it is sent.
        return replace(message, files=tuple(documents), images=tuple(images))


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """`inline` goes into the prompt whole; `chat.prompts.project_retrieval` tells of the others."""

    inline: tuple[Document, ...] = ()
    by_search: tuple[Document, ...] = ()
    line: int = 0

    @property
    def inline_tokens(self) -> int:
        return sum(document.tokens or 0 for document in self.inline)


def project_files(project: Project | None, made: Documents, *, room: int, profile: BudgetProfile) -> ProjectFiles:
    """Which of a project's files are inline and which by search; failed ones are reported.

    The rule: docs/context.md, “Files and projects”.

    `room`: window − reserved output − system prompt − persona prompt, in tokens. Images have no text to be found by
    and are left out; a message can bring them along.
    """
    if project is None:
        return ProjectFiles()
    entries = list(ProjectFile.objects.filter(project=project).select_related("file"))
    readable = [entry for entry in entries if entry.file.status in (File.Status.READY, File.Status.TOO_LONG)]
    for entry in entries:
        if entry not in readable or entry.file.is_image:
            why = "project_image" if entry in readable else _why_missing(entry.file)
            made.reports.append(SourceReport("project_file", str(entry.file_id), "left_out", 0, why))
    documents = {str(entry.file_id): entry.file for entry in readable if not entry.file.is_image}
    sized = made.sized(list(documents.values()))
    pinned = frozenset(str(entry.file_id) for entry in readable if entry.pinned)
    fitting, by_search = split_project_files(sized, room=room, pinned=pinned, share=profile.project_share)
    texts = _texts(documents[each.id] for each in fitting)
    inline = [made.of_file(documents[each.id], texts.get(documents[each.id].pk, "")) for each in fitting]
    made.reports += [SourceReport("project_file", each.id, "by_search", 0) for each in by_search]
    line = int(max(0, room) * profile.project_share)
    return ProjectFiles(tuple(inline), tuple(by_search), line)


def _why_missing(file: File | None) -> Reason:
    if file is None:
        return "deleted_file"
    return "unread_file" if file.status in (File.Status.UPLOADED, File.Status.PROCESSING) else "failed_file"


def _attachments(message_ids: Iterable[str]) -> dict[str, list[File | None]]:
    """The files of each message, in their order; None for one that was deleted."""
    by_message: dict[str, list[File | None]] = {}
    for each in Attachment.objects.filter(message__in=list(message_ids)).select_related("file"):
        by_message.setdefault(str(each.message_id), []).append(each.file)
    return by_message


def _texts(files: Iterable[File]) -> dict[UUID, str]:
    wanted = [file.pk for file in files if not file.is_image]
    return dict(FileText.objects.filter(file__in=wanted).values_list("file", "text")) if wanted else {}
