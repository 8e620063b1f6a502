"""Store the files that tools return, as files of the conversation.

1. `ResultFiles.stored` stores each file of an output (`files.services.store`) and attaches it to the answer.
2. The readers of uploads read the files in the background. The call waits for them, `READING` seconds at most.
3. The text of a document is added to the text of the result, so that it is shortened and stored like other results.
4. Images are sent with the results of their step (`chat.prompts.history`).

A file that cannot be stored or read is named with the reason. The result stays.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.core.files.base import ContentFile
from django.db import DatabaseError, InterfaceError, transaction

from chat.models import Attachment, Conversation
from core.background import on_database
from core.errors import ProductError
from core.sentences import Sentence, gettext_noop
from files.models import File, FileText
from files.services import store
from llm.types.model_call import ResultFile
from llm.types.tools import ToolFile, ToolOutput

MAX_OF_ANSWER = 40  # files of all results of one answer
READING = 30.0  # seconds to wait until the files of a result are read
LOOK_EVERY = 0.2  # seconds between two looks at the files
READABLE = (File.Status.READY, File.Status.TOO_LONG)
NOT_STORED = gettext_noop("The file {name}, which a tool returned, was not kept. {reason}")
TOO_MANY = Sentence("An answer keeps at most {most} files of its tools.", most=MAX_OF_ANSWER)
NOT_TAKEN = Sentence("The storage could not take it.")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """A file of a result with its row. Without a row, `problem` is the reason."""

    returned: ToolFile
    file: UUID | None
    problem: Sentence | None = None


class ResultFiles:
    """Stores the files of one answer's tool results. `answer` is the message that they are attached to."""

    def __init__(self, conversation: Conversation, answer: UUID) -> None:
        self._conversation = conversation
        self._answer = answer

    async def stored(self, output: ToolOutput, notes: list[str]) -> ToolOutput:
        """Return the output with its files stored, and with the texts of its documents.

        A sentence for each file that was not stored is added to the `notes` of the report.
        """
        stored = await on_database(self._store, output.tool_files)
        notes += [
            Sentence(NOT_STORED, name=each.returned.name, reason=each.problem).dump()
            for each in stored
            if each.problem is not None
        ]
        await _until_read([each.file for each in stored if each.file is not None and not each.returned.text_included])
        return await on_database(_described, output, stored)

    def _store(self, returned: Sequence[ToolFile]) -> list[_StoredFile]:
        return [self._store_one(each) for each in returned]

    def _store_one(self, returned: ToolFile) -> _StoredFile:
        attached = Attachment.objects.filter(message=self._answer)
        try:
            count = attached.count()
            if count >= MAX_OF_ANSWER:
                return _StoredFile(returned, None, TOO_MANY)
            file = store(
                user=self._conversation.owner,
                name=returned.name,
                content=ContentFile(returned.content, name=returned.name),
                with_conversation=True,
            )
            # Equal content is stored once for each person, so this answer may have the file already.
            if not attached.filter(file=file).exists():
                with transaction.atomic():
                    Attachment.objects.create(message_id=self._answer, file=file, name=file.name, ordinal=count)
        except ProductError as error:
            return _StoredFile(returned, None, error.sentence)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("a file of a tool was not stored", exc_info=error)
            return _StoredFile(returned, None, NOT_TAKEN)
        return _StoredFile(returned, file.pk)


async def _until_read(files: Sequence[UUID]) -> None:
    """Wait until the files are read or cannot be read, `READING` seconds at most."""
    deadline = asyncio.get_running_loop().time() + READING
    while files and asyncio.get_running_loop().time() < deadline:
        if not await on_database(_unread, files):
            return
        await asyncio.sleep(LOOK_EVERY)


def _unread(files: Sequence[UUID]) -> bool:
    return File.objects.filter(pk__in=files, status__in=File.UNREAD).exists()


def _described(output: ToolOutput, stored: Sequence[_StoredFile]) -> ToolOutput:
    """Return the output with what is known about its files now. The reasons for the model are in English."""
    rows = {file.pk: file for file in File.objects.filter(pk__in=[each.file for each in stored if each.file])}
    documents = [file.pk for file in rows.values() if file.status in READABLE and not file.is_image]
    texts = dict(FileText.objects.filter(file__in=documents).values_list("file", "text"))
    lines: list[str] = []
    files: list[ResultFile] = []
    for each in stored:
        name = each.returned.name
        row = rows.get(each.file) if each.file else None
        if row is None:
            reason = each.problem.english if each.problem is not None else "It was deleted."
            lines.append(f"[The file {name} was not kept. {reason}]")
            continue
        files.append({"file": str(row.pk), "name": row.name, "image": row.is_image})
        if each.returned.text_included or row.is_image:
            continue
        if row.status in File.UNREAD:
            lines.append(f"[The file {name} is still being read.]")
        elif row.status in READABLE:
            lines.append(f"[The text of {name}]\n{texts.get(row.pk, '')}")
        else:
            lines.append(f"[The file {name} cannot be read. {row.problem.english}]")
    text = "\n\n".join([output.text, *lines])
    return replace(output, text=text, full_text=text, tool_files=(), files=tuple(files))
