"""Tools that search and read the files of a conversation: project files and files uploaded with messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize
from uuid import UUID

from django.db.models import Q, QuerySet

from chat.context.rendering import CitationNumbers, ToolGuidance, documents_json
from chat.context.types import Document
from chat.documents.numbers import assign_numbers
from chat.documents.passages import HITS, MAX_QUERY, passages_document, search_queries
from chat.models import Attachment, Conversation
from chat.models.parts import FoundDocument, PassageSpan
from chat.models.summary import marks_on
from core.background import on_database
from core.lines import first_line
from core.sentences import Sentence
from files.index.finding import find_passages
from files.index.ledger import Payer
from files.index.search import ChunkHit
from files.models import File, FileText
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput
from projects.models import Project

MAX_VARIANTS = 6
READ = 12_000  # characters per call of `read_file`
SEARCH_GUIDANCE = ToolGuidance("search_files", is_search=True)
READ_GUIDANCE = ToolGuidance("read_file", is_search=True)


@dataclass(frozen=True, slots=True)
class FileScope:
    """The files that tools may search and read, and the question that is being answered."""

    conversation: Conversation
    project: Project | None
    question: str

    def files(self) -> QuerySet[File]:
        """Return the files, without files that the person has excluded."""
        marks = marks_on(self.conversation.pk, self.conversation.leaf_id)
        attached = Attachment.objects.filter(
            message__conversation=self.conversation, message__deleted=None, file__isnull=False
        )
        attached = attached.exclude(message__in=marks.excluded)
        for message, files in marks.files.items():
            attached = attached.exclude(message=message, file__in=files)
        in_reach = Q(pk__in=attached.values("file"))
        if self.project is not None:
            in_reach |= Q(project_entries__project=self.project)
        return File.objects.filter(in_reach, status__in=(File.Status.READY, File.Status.TOO_LONG)).distinct()


class SearchFiles:
    """Search the files with the model's query, its variants and the person's own question at once.

    The history stores all phrasings as arguments of the call, in the model's own form. Only the first search of a turn
    includes the question, since later searches look for something else. `notes`: sentences for people about failures
    of an embedder or the re-ranker.
    """

    timeout = 20.0

    definition = ToolDefinition(
        "search_files",
        "Search the files of this conversation and its project. Returns the best passages.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Such as: notice period of tenants"},
                "variants": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": f"Up to {MAX_VARIANTS} other wordings, such as: how to end a lease",
                },
            },
            "required": ["query"],
        },
    )

    def __init__(self, scope: FileScope) -> None:
        self.scope = scope
        self.notes: list[Sentence] = []
        self._question = search_queries(scope.question)

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Searching the files for “{get}”", get=str(arguments.get("query", ""))[:80])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        queries = expanded(arguments, self._question)
        self._question = []
        return await on_database(self._search, queries)

    def _search(self, queries: Sequence[str]) -> ToolOutput:
        payer = Payer(self.scope.conversation.owner_id, conversation=self.scope.conversation.pk)
        result = find_passages(queries=queries, files=self.scope.files(), limit=HITS, payer=payer)
        hits = result.hits
        self.notes += [note for note in result.notes if note not in self.notes]
        used = {"query": queries[0], "variants": queries[1:]} if len(queries) > 1 else {"query": queries[0]}
        if not hits:
            return ToolOutput("Nothing was found. Try other words.", arguments=used)
        by_file: dict[UUID, list[ChunkHit]] = {}
        for hit in hits:
            by_file.setdefault(hit.file, []).append(hit)
        numbers = assign_numbers(self.scope.conversation, [str(pk) for pk in by_file])
        documents = [passages_document(pk, file_hits) for pk, file_hits in by_file.items()]
        places = [_place(numbers, pk, file_hits) for pk, file_hits in by_file.items()]
        return ToolOutput(documents_json(documents, CitationNumbers(numbers)), {"documents": places}, arguments=used)


def expanded(arguments: Mapping[str, Any], question: Sequence[str]) -> list[str]:
    """Return all phrasings to search together, each once, the model's query first.

    `question`: the person's own phrasings. At most `MAX_VARIANTS` phrasings follow the query: all of the person's,
    after as many of the model's as fit. So a model that repeats a call of an earlier turn does not displace a newer
    question. Raises `BadArguments`.
    """
    query = arguments.get("query")
    variants = arguments.get("variants", [])
    if not isinstance(query, str) or not query.strip():
        raise BadArguments("“query” must be a text that says what to look for; other ways to say it are “variants”.")
    if not isinstance(variants, list) or not all(isinstance(each, str) for each in variants):
        raise BadArguments("“variants” must be a list of texts.")
    from_model = _each_once((query, *variants))
    from_person = _each_once(question)
    return _each_once((*from_model[: 1 + MAX_VARIANTS - len(from_person)], *from_person))


def _each_once(phrasings: Sequence[str]) -> list[str]:
    """Drop phrasings that differ from an earlier one only in case, white space or Unicode normalization."""
    unique: dict[str, str] = {}
    for each in phrasings:
        text = first_line(each, MAX_QUERY)[:MAX_QUERY].strip()
        unique.setdefault(normalize("NFC", text).casefold(), text)
    return [text for text in unique.values() if text]


def _place(numbers: Mapping[str, int], pk: UUID, hits: Sequence[ChunkHit]) -> FoundDocument:
    hit = hits[0]
    place: FoundDocument = {
        "number": numbers[str(pk)],
        "title": hit.name,
        "file": str(pk),
        "page": hit.page,
        "start": hit.start,
        "end": hit.end,
        "passages": [_passage_span(each) for each in sorted(hits, key=lambda each: each.start)],
    }
    if hit.heading:
        place["heading"] = hit.heading
    return place


def _passage_span(hit: ChunkHit) -> PassageSpan:
    span: PassageSpan = {"start": hit.start, "end": hit.end}
    if hit.heading:
        span["heading"] = hit.heading
    return span


class ReadFile:
    """Read a page of a file, or its text from a character on."""

    timeout = 10.0

    definition = ToolDefinition(
        "read_file",
        "Read a page of a file, or its text from a character on.",
        {
            "type": "object",
            "properties": {
                "file": {"type": "string", "description": "Its document number, such as 3, or its id."},
                "page": {"type": "integer", "description": "Such as 12; the first is 1."},
                "start": {"type": "integer", "description": "The first character, such as 4000."},
            },
            "required": ["file"],
        },
    )

    def __init__(self, scope: FileScope) -> None:
        self.scope = scope

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        page = arguments.get("page")
        if isinstance(page, int):
            return Sentence("Reading page {page}", page=str(page))
        return Sentence("Reading a file")

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        return await on_database(self._read, arguments)

    def _read(self, arguments: Mapping[str, Any]) -> ToolOutput:
        content = self._content(arguments.get("file"))
        page, start, end = reading_span(content, arguments)
        text = content.text[start:end]
        if not text:
            raise BadArguments(f"The file ends at character {len(content.text)}.")
        pk = str(content.file_id)
        numbers = assign_numbers(self.scope.conversation, [pk])
        more = f", goes on at character {end}" if end < len(content.text) else ", its end"
        where = f"{f'page {page}, ' if page else ''}characters {start} to {end}{more}"
        document = Document(pk, content.file.name, text, metadata=where)
        place: FoundDocument = {
            "number": numbers[pk],
            "title": content.file.name,
            "file": pk,
            "page": page,
            "start": start,
            "end": end,
        }
        return ToolOutput(documents_json([document], CitationNumbers(numbers)), {"documents": [place]})

    def _content(self, name: object) -> FileText:
        """Return the text of the file with this document number or id."""
        ids = {str(number): pk for pk, number in self.scope.conversation.documents.items()}
        name = str(name).strip().strip("[]")
        try:
            pk = UUID(ids.get(name, name))
        except ValueError as error:
            raise BadArguments("“file” must be the number of a document that is a file, such as 3.") from error
        content = FileText.objects.filter(file__in=self.scope.files(), file=pk).select_related("file").first()
        if content is None:
            raise BadArguments("There is no such file here. Search first; each result has its document number.")
        return content


def reading_span(content: FileText, arguments: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the page (0 without one) and the start and end of the characters to read, at most `READ`."""
    page = arguments.get("page")
    start = arguments.get("start")
    for name, value in (("page", page), ("start", start)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise BadArguments(f"“{name}” must be a whole number.")
    if page is not None and content.spans:
        if not 1 <= page <= len(content.spans):
            raise BadArguments(f"The file has pages 1 to {len(content.spans)}.")
        first, end = content.spans[page - 1]
        return page, first, min(end, first + READ)
    begin = start or 0
    return 0, begin, min(len(content.text), begin + READ)
