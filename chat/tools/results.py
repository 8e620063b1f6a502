"""Shorten results of tools that are too long for a prompt, and store them whole for the model to read.

1. A server's tool, or the tool that opens web pages, returns a result (`ToolOutput.full_text`).
2. `ResultKeeper` stores the files of the result (`chat.tools.result_files`), which may add their texts.
3. It counts the tokens. A result that fits the room of its step is sent as it is.
4. A longer one is stored (`ToolResult`). Its head and tail are sent, with a marker between them that names its id.
5. `ReadResult` returns any part of a stored result.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, transaction

from chat.context.rendering import CitationNumbers, ToolGuidance, documents_json, shortened_result
from chat.context.results import CUT_OFF, NOT_KEPT, NOT_TAKEN, PARTIAL, ResultRoom
from chat.context.types import Document, TextTokenizer
from chat.documents.numbers import assign_numbers
from chat.models import Conversation, ToolResult
from chat.models.parts import FoundDocument
from chat.models.summary import marks_on
from chat.tools.result_files import ResultFiles
from core.background import on_database
from core.errors import ProductError
from core.sentences import Sentence
from files.services import reserve_storage
from llm.types.model_call import StoredResult, ToolCall, ToolDefinition
from llm.types.tools import BadArguments, ToolOutput
from personas.texts import Texts

MAX_KEPT = 4_000_000  # stored characters per result; the rest is only counted
READ = 12_000  # characters per call of `read_result`
READ_RESULT_GUIDANCE = ToolGuidance("read_result")

logger = logging.getLogger(__name__)


class ResultKeeper:
    """Shortens and stores the results of one turn's tools; a `llm.agent_loop.OutputProcessor`.

    `answer`: the message that the results belong to.
    """

    def __init__(self, conversation: Conversation, answer: UUID) -> None:
        self._conversation = conversation
        self._answer = answer
        self._files = ResultFiles(conversation, answer)

    def begin_step(self, room: ResultRoom, tokenizer: TextTokenizer, texts: Texts, notes: list[str]) -> None:
        """Set the room for the results of a step. Sentences for people are added to the `notes` of its report."""
        self._room = room
        self._tokenizer = tokenizer
        self._texts = texts
        self._notes = notes

    async def __call__(self, call: ToolCall, output: ToolOutput, waiting: int) -> ToolOutput:
        self._notes += [note.dump() for note in output.notes]
        if output.tool_files:
            output = await self._files.stored(output, self._notes)
        if not output.full_text:
            return output
        if output.partial:
            self._notes.append(Sentence(PARTIAL, tool=call.name).dump())
        share = self._room.share_of_next(waiting)
        # A token has at least one byte, so a result with few bytes need not be counted.
        tokens = size = len(output.text.encode())
        if size > share or self._room.may_be_cut(size):
            tokens = await asyncio.to_thread(_counted, output.text, self._tokenizer)
        if tokens <= share and not self._room.may_be_cut(tokens):
            self._room.used += tokens
            return output
        text = output.full_text[:MAX_KEPT]
        pk, reason = await on_database(self._store, call, output, text)
        result = StoredResult(tokens, len(output.full_text), len(text) if pk else 0, pk)
        if not pk:
            not_stored = Sentence(NOT_KEPT, tool=call.name, characters=len(output.full_text))
            self._notes += [not_stored.dump(), reason]
        elif len(text) < len(output.full_text):
            cut_off = Sentence(CUT_OFF, tool=call.name, characters=len(output.full_text), kept=len(text))
            self._notes.append(cut_off.dump())
        if tokens <= share:
            self._room.used += tokens
            return replace(output, result=result)
        limit = self._room.limit_of_shortened(share)
        self._room.used += limit
        text, result = await asyncio.to_thread(
            shortened_result, output.text, limit, result, self._tokenizer, self._texts
        )
        return replace(output, text=text, result=result)

    def _store(self, call: ToolCall, output: ToolOutput, text: str) -> tuple[str, str]:
        """Store the text of a result. Returns its id and an empty reason, or an empty id and the reason."""
        documents: Sequence[Mapping[str, Any]] = output.data.get("documents", ())
        document = documents[0] if documents else {}
        try:
            with transaction.atomic():
                size = len(text.encode())
                reserve_storage(self._conversation.owner, size)
                row = ToolResult.objects.create(
                    owner_id=self._conversation.owner_id,
                    conversation=self._conversation,
                    message_id=self._answer,
                    tool=call.name[:200],
                    title=str(document.get("title", ""))[:300],
                    url=str(document.get("url", "")),
                    text=text,
                    size=size,
                    characters=len(output.full_text),
                )
        except ProductError as error:
            return "", error.sentence.dump()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("a result of %s was not kept", call.name, exc_info=error)
            return "", NOT_TAKEN
        return str(row.pk), ""


def _counted(text: str, tokenizer: TextTokenizer) -> int:
    """Return the tokens of a text. Beyond `MAX_KEPT` characters they are extrapolated."""
    tokens = tokenizer.count(text[:MAX_KEPT])
    return tokens if len(text) <= MAX_KEPT else tokens * len(text) // MAX_KEPT


class ReadResult:
    """Read more of a result that is stored with this conversation."""

    timeout = 10.0

    definition = ToolDefinition(
        "read_result",
        "Read a part of a shortened tool result, from a character on.",
        {
            "type": "object",
            "properties": {
                "result": {"type": "string", "description": "The id that its marker names, such as 5e1f."},
                "start": {"type": "integer", "description": "The first character, such as 4000."},
            },
            "required": ["result"],
        },
    )

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Reading on in a result")

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return await on_database(self._read, arguments)

    def _read(self, arguments: Mapping[str, Any]) -> ToolOutput:
        row = self._row(arguments.get("result"))
        start = arguments.get("start", 0)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise BadArguments("“start” must be a whole number of characters, from 0.")
        end = min(len(row.text), start + READ)
        text = row.text[start:end]
        if not text:
            raise BadArguments(f"The result ends at character {len(row.text)}.")
        continuation = f", goes on at character {end}" if end < len(row.text) else ", the end of what is kept"
        position = f"characters {start} to {end} of {row.characters}{continuation}"
        if not row.url:
            return ToolOutput(f"{row.tool}, {position}\n\n{text}")
        numbers = assign_numbers(self.conversation, [row.url])
        document = Document(row.url, row.title, text, metadata=f"{row.url}, {position}")
        found_document: FoundDocument = {"number": numbers[row.url], "title": row.title, "url": row.url}
        return ToolOutput(documents_json([document], CitationNumbers(numbers)), {"documents": [found_document]})

    def _row(self, pk: object) -> ToolResult:
        """Return a stored result that the person does not exclude. Raises `BadArguments`."""
        try:
            result_id = UUID(str(pk))
        except ValueError as error:
            raise BadArguments("“result” must be the id that the marker in the shortened result names.") from error
        excluded: Sequence[UUID] = marks_on(self.conversation.pk, self.conversation.leaf_id).excluded
        rows = ToolResult.objects.filter(conversation=self.conversation, message__deleted=None, pk=result_id)
        row = rows.exclude(message__in=excluded).exclude(message__parent__in=excluded).first()
        if row is None:
            raise BadArguments("There is no such result here. Call the tool again that gave it.")
        return row
