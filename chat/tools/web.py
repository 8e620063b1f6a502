"""Tools for the web. Their results get citation numbers like the documents of the conversation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from chat.context.rendering import CitationNumbers, ToolGuidance, documents_json
from chat.context.types import Document
from chat.documents.numbers import assign_numbers
from chat.models import Conversation
from chat.models.parts import FoundDocument
from chat.tools.permission import Gate
from core.background import on_database
from core.net.url_safety import FetchRefused
from core.sentences import Sentence
from llm.tools.open_url import OpenUrlTool
from llm.types.tools import Tool, ToolOutput
from readers.api import ReaderError, extract

WEB_GUIDANCE = ToolGuidance("web_search", is_search=True)
OPEN_GUIDANCE = ToolGuidance("open_url", is_search=True)


class NumberedResults:
    """A tool whose `documents` get citation numbers. The model sees their JSON, the page shows their addresses."""

    def __init__(self, tool: Tool, conversation: Conversation, gate: Gate) -> None:
        self.tool = tool
        self.conversation = conversation
        self.gate = gate
        self.definition = tool.definition
        self.timeout = tool.timeout

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return self.tool.label(arguments)

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        output = await self.tool.run(arguments)
        self.gate.denied += output.data.get("denied", 0)
        pages = output.data.get("documents", ())
        if not pages:
            return output
        ids = [each["id"] for each in pages]
        numbers = await on_database(assign_numbers, self.conversation, ids)
        documents = [Document(each["id"], each["title"], each["text"], metadata=each["metadata"]) for each in pages]
        places: list[FoundDocument] = [
            {"number": numbers[each["id"]], "title": each["title"], "url": each["metadata"]} for each in pages
        ]
        self.gate.learn(each["url"] for each in places)
        text = "\n".join([documents_json(documents, CitationNumbers(numbers)), *output.data.get("notes", ())])
        return replace(output, text=text, data={"documents": places})


def open_url(conversation: Conversation, gate: Gate) -> NumberedResults:
    return NumberedResults(OpenUrlTool(readers=READERS, follow=gate.follow), conversation, gate)


def _pdf(body: bytes) -> str:
    """Return the text of a PDF, read in the confined process for uploaded files."""
    with NamedTemporaryFile(suffix=".pdf") as file:
        file.write(body)
        file.flush()
        try:
            return extract(Path(file.name), "page.pdf").text
        except ReaderError as error:
            reason = str(error.sentence).partition(". ")[0]  # the rest is advice on uploads
            raise FetchRefused(f"This PDF cannot be read. {reason}.") from error


READERS: Mapping[str, Callable[[bytes], str]] = {"application/pdf": _pdf}
