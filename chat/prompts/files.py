"""Decide which files a prompt holds whole and how the model reaches the others.

1. `project_files` splits a project's files by their sum: inline, or by search. Its pictures get the rest of that room.
2. `PromptFiles.fitted` leaves out pictures, then moves files to search, until the required sections and the inline
   files fit together.
3. `PromptFiles.build` builds the prompt with the list of files (L). L names the project's files that are reached by
   search, and the attachments of the branch that the prompt does not contain. A longer list may push out more files, so
   the prompt is built again until the list is complete.
4. A model with tools searches the listed files itself. For a model without tools the product searches for its question
   and sends the best passages with the list, so that a small model can use a large project. A brief message such as
   “thanks” gets only passages that match it.

The rules: docs/develop/context.md, “Files and projects”.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from django.utils.translation import gettext_noop

from chat.context.build import Prompt, build, required_tokens
from chat.context.policies import current_turn_start
from chat.context.rendering import (
    CitationNumbers,
    NoteForm,
    documents_text,
    note_text,
    project_images_text,
    split_project_files,
)
from chat.context.types import Block, ContextMessage, ContextRequest, Document, ImageRef, Reason, SourceReport
from chat.documents.passages import HITS, passages_document, search_queries
from chat.models import Attachment, Mark
from chat.models import Message as MessageRow
from chat.models.tree import ids_down_to
from chat.prompts.history import READABLE, Documents, texts_of, why_missing
from core.sentences import Sentence
from files.index.finding import find_passages
from files.index.language import prepare_text
from files.index.ledger import NO_PAYER, Payer
from files.index.search import ChunkHit, SearchResult
from files.models import File
from files.services import get_token_count
from personas.models import BudgetProfile
from personas.texts import Texts
from projects.models import ProjectFile

# Texts above a list of files: for a model with tools, for one without tools with passages, and without passages.
HEADERS = BY_SEARCH, FOUND, NOT_SHOWN = ("files_by_search", "files_found", "files_not_shown")
NO_MATCH = gettext_noop(
    "The message is too short to search the files with, so no passage was sent. Name a file, or use words "
    "that are in it."
)
LINES = {File.Index.WAITING: "file_line_waiting", File.Index.FAILED: "file_line_unindexed"}
NOT_INDEXED = {
    File.Index.WAITING: gettext_noop(
        "Not searchable yet: {names}. Until then no search finds it; the model can only read it page by page."
    ),
    File.Index.FAILED: gettext_noop(
        "Could not be made searchable: {names}. The model can only read it page by page. Open the file to try again."
    ),
}
NAMED = 3  # files named in one such sentence
# Longest message, in words, whose passages must match it. No cosine separates small talk from a question that a
# passage answers in other words (bundled embedder: up to 0.22, and from 0.02), and a superfluous passage harms less
# than a missing one. So longer messages always get passages.
BRIEF = 3
# The largest share of the room for each of the two lists, in percent. The lists are required. Without a limit, a
# project with a thousand files would leave no room for a question.
LIST_SHARE = 10
PASSAGES_DIVISOR = 4  # passages from attachments take at most a quarter of the room; a project's passages use its line
# The most pictures of a project in one prompt. Above 20 images in a request, Anthropic takes only smaller ones.
MAX_IMAGES = 20
HEADER = 40  # tokens; enough for the built-in text above a list and the line below it
JOINT = 4  # tokens that a joined text may have in addition to the sum of its parts


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """A project's files, as documents without text: sent whole (`inline`) or reached `by_search`.

    `line`: the most tokens of all inline files and `images` together. `pinned`: ids. `gave_way`: ids of files that were
    inline until the required sections were counted. `images`: the pictures that are sent, the pinned ones first.
    """

    inline: tuple[Document, ...] = ()
    by_search: tuple[Document, ...] = ()
    line: int = 0
    pinned: frozenset[str] = frozenset()
    gave_way: frozenset[str] = frozenset()
    images: tuple[ImageRef, ...] = ()

    @property
    def inline_tokens(self) -> int:
        """The tokens of the inline files and of the pictures, without overhead."""
        return sum(document.tokens or 0 for document in self.inline) + sum(image.tokens for image in self.images)

    @property
    def is_sent(self) -> bool:
        """Return whether the prompt holds any file or picture of the project."""
        return bool(self.inline or self.images)

    def cost(self, overhead: int) -> int:
        """Return the tokens of P with its overhead, without the line above the pictures. 0 if nothing is sent."""
        return self.inline_tokens + overhead * (bool(self.inline) + bool(self.images))

    def without(self, ids: frozenset[str]) -> "ProjectFiles":
        """Return the project without these files."""
        return replace(
            self,
            inline=tuple(each for each in self.inline if each.id not in ids),
            by_search=tuple(each for each in self.by_search if each.id not in ids),
            images=tuple(each for each in self.images if each.id not in ids),
        )

    def one_less(self) -> "ProjectFiles":
        """Leave out the last picture. Without pictures move one more file to search.

        That is the largest file that is not pinned, else the last pinned file.
        """
        if self.images:
            return replace(self, images=self.images[:-1])
        others = [each for each in reversed(self.inline) if each.id not in self.pinned]
        moved = max(others, key=lambda each: each.tokens or 0) if others else self.inline[-1]
        inline = tuple(each for each in self.inline if each is not moved)
        return replace(self, inline=inline, by_search=(*self.by_search, moved), gave_way=self.gave_way | {moved.id})


def project_files(
    entries: Sequence[ProjectFile], documents: Documents, *, room: int, profile: BudgetProfile
) -> ProjectFiles:
    """Split a project's files only by the sum of their tokens. Report failed files and unseen pictures in `documents`.

    `room` is window − reserved output − system prompt − persona prompt, in tokens.
    """
    readable = [entry for entry in entries if entry.file.status in READABLE]
    texts = [entry for entry in readable if not entry.file.is_image]
    for entry in entries:
        if entry.file.status not in READABLE:
            why = why_missing(entry.file)
            documents.reports.append(SourceReport("project_file", str(entry.file_id), "left_out", 0, why))
    sized = documents.sized([entry.file for entry in texts])
    pinned = frozenset(str(entry.file_id) for entry in texts if entry.pinned)
    inline, by_search = split_project_files(sized, room=room, pinned=pinned, share=profile.project_share)
    for each in inline:  # their numbers precede those of the messages' files
        documents.numbers.assign(each.id)
    project = ProjectFiles(tuple(inline), tuple(by_search), int(max(0, room) * profile.project_share), pinned)
    pictures = sorted((entry for entry in readable if entry.file.is_image), key=lambda entry: not entry.pinned)
    if not documents.vision:
        documents.reports += [_unsent_image(str(entry.file_id), "no_vision") for entry in pictures]
        return project
    images = [
        ImageRef(str(each.file_id), get_token_count(file=each.file) or 0, title=each.file.name) for each in pictures
    ]
    shown = _images_in(images, project)
    documents.reports += [_unsent_image(image.id, "project_image") for image in images if image not in shown]
    return replace(project, images=shown)


def _images_in(images: Sequence[ImageRef], project: ProjectFiles) -> tuple[ImageRef, ...]:
    """Return the pictures that fit into the room that the inline files leave of the project's line, in their order.

    Where files are reached by search, half of that room is for their passages.
    """
    left = project.line - project.inline_tokens
    if project.by_search:
        left //= 2
    shown: list[ImageRef] = []
    for image in images:
        if image.tokens <= left and len(shown) < MAX_IMAGES:
            shown.append(image)
            left -= image.tokens
    return tuple(shown)


def _unsent_image(pk: str, reason: Reason) -> SourceReport:
    return SourceReport("project_file", pk, "left_out", 0, reason, exact=False)


def older_attachments(leaf: MessageRow, documents: Documents) -> list[File]:
    """Return the files of the branch above the messages in `documents`, newest first.

    Every file of an earlier prompt has a citation number. So a conversation without further numbers costs no query.
    """
    loaded = {str(file.pk) for files in documents.attached.values() for file in files}
    numbered = [each for pk in documents.numbers.assigned if pk not in loaded and (each := _as_id(pk))]
    if not numbered:
        return []
    rows = Attachment.objects.filter(message__conversation=leaf.conversation_id, file__in=numbered)
    rows = rows.filter(file__status__in=READABLE).select_related("file", "message").order_by("-message__depth")
    attachments = list(rows)
    if not attachments:
        return []
    branch = set(ids_down_to(leaf.pk, attachments[-1].message.depth))
    return [
        each.file
        for each in attachments
        if each.file is not None
        and each.message_id in branch
        and documents.marks.of_file(each.message_id, each.file_id) != Mark.Kind.EXCLUDED
    ]


def _as_id(source: str) -> UUID | None:
    """Return the id of a file, None for a web page, which has a number too."""
    try:
        return UUID(source)
    except ValueError:
        return None


@dataclass(slots=True)
class PromptFiles:
    """The files of one prompt.

    `question`: the text to search for; empty if the model can search. `older`: the attachments of the branch above the
    engine's messages, newest first. `with_documents` returns a request with S and R for a prompt with numbered
    documents.

    `build` sets the results. `listed`: the ids of the attachments in the list of files. `notes`: sentences about files
    that no search finds. `passages`: whether the prompt contains passages.
    """

    project: ProjectFiles
    documents: Documents
    question: str = ""
    older: Sequence[File] = ()
    payer: Payer = NO_PAYER
    note_form: NoteForm = "plain"
    with_documents: Callable[[ContextRequest], ContextRequest] = lambda request: request
    passages: bool = False
    listed: frozenset[str] = frozenset()
    notes: tuple[Sentence, ...] = ()
    _counts: dict[str, int] = field(default_factory=dict)
    _unindexed: dict[str, File] | None = None
    _searched: dict[frozenset[UUID], SearchResult] = field(default_factory=dict)

    def build(self, request: ContextRequest, first: Sequence[ContextMessage] = ()) -> Prompt:
        """Build the prompt with P and L, which `request` lacks. Raises `ContextError`.

        `first`: the messages of the first cycle of an append-only turn. While the turn fits, P and L of that cycle do
        not change, since nothing above the newest addition may change.
        """
        if first:
            settled, prompt = self._settled(replace(request, messages=first))
            unseen = self._out_of_sight(settled, prompt)
            settled = replace(settled, messages=[*settled.messages, *request.messages[len(first) :]])
            if required_tokens(settled) <= request.room.input_limit:
                prompt = build(settled)
                if self._out_of_sight(settled, prompt) <= unseen:  # otherwise older turns have changed as well
                    return prompt
        return self._settled(request)[1]

    def fitted(self, request: ContextRequest, required: int) -> ProjectFiles:
        """Return the project with as many inline files as fit in addition to the other required sections.

        `required`: the tokens of these sections. Files attached to the question are removed: each file is sent once.
        """
        question = request.messages[current_turn_start(request.messages)]
        project = self.project.without(
            frozenset([*(each.id for each in question.files), *(each.id for each in question.images)])
        )
        limit = request.room.input_limit
        overhead = request.message_overhead
        while project.is_sent:
            listing = self._list(project.by_search, limit, limit)
            needed = required + self._cost(project, overhead) + (self._list_cost(listing) + overhead if listing else 0)
            if needed <= limit:
                break
            project = project.one_less()
        return project

    def _cost(self, project: ProjectFiles, overhead: int) -> int:
        """Return the tokens of P with its overhead and the line above the pictures."""
        line = self._count(project_images_text(project.images, self.documents.texts)) if project.images else 0
        return project.cost(overhead) + line

    def _settled(self, request: ContextRequest) -> tuple[ContextRequest, Prompt]:
        """Build the prompt with a list of all files that it does not contain. Return the request and the prompt.

        A longer list may push another file out of the prompt, so the prompt is built again. A listed file stays listed,
        so the loop ends.
        """
        request, project, required = self._with_rules(request)
        left = request.room.input_limit - required - self._cost(project, request.message_overhead)
        request = self._with_project(request, project)
        listed: set[str] = set()
        self.notes = ()
        while True:
            attached = [file for file in self._newest_first(request) if str(file.pk) in listed]
            listing = self._listing(project, attached, request, left)
            settled = replace(request, file_listing=listing)
            prompt = build(settled)
            unseen = self._out_of_sight(settled, prompt)
            if unseen <= listed:
                texts = (str(file.pk) for file in attached if not file.is_image)
                self.listed = frozenset(texts) if listing is not None else frozenset()
                listed_files = [each.id for each in project.by_search] + [str(file.pk) for file in attached]
                self.notes += self._index_notes(listed_files)
                return settled, prompt
            listed |= unseen

    def _with_rules(self, request: ContextRequest) -> tuple[ContextRequest, ProjectFiles, int]:
        """Return the request, the project's files, and the tokens of the other required sections.

        A request with documents contains the rules for documents. The rules alone never prevent sending a question: if
        all documents are dropped, the rules are dropped as well.
        """
        question = current_turn_start(request.messages)
        ruled = self.with_documents(request)
        required = required_tokens(ruled)
        project = self.fitted(ruled, required)
        attached = any(message.sent_files for message in request.messages[question:])
        older = any(message.sent_files for message in request.messages[:question])
        if project.inline or attached or (older and required <= request.room.input_limit):
            return ruled, project, required
        required = required_tokens(request)
        return request, self.fitted(request, required), required

    def _with_project(self, request: ContextRequest, project: ProjectFiles) -> ContextRequest:
        """Return the request with the texts of the inline files and reports on the other files.

        Each file is sent once: with the newest message that has it, else with the project's files.
        """
        rows = File.objects.in_bulk([UUID(each.id) for each in project.inline])
        texts = texts_of(rows.values())
        ids = (UUID(each.id) for each in project.inline)
        inline = [self.documents.of_file(rows[pk], texts.get(pk, "")) for pk in ids]
        reports = [
            SourceReport("project_file", each.id, "by_search", 0, self._why_searched(each, project))
            for each in project.by_search
        ]
        of_project = {each.id for each in (*project.inline, *project.by_search)}
        reports += [
            SourceReport("project_file", each.id, "full", None, "attached")
            for each in (*self.project.inline, *self.project.by_search)
            if each.id not in of_project
        ]
        reports += self._unsent_images(request, project)
        messages = []
        sent_ids = {*(each.id for each in inline), *(each.id for each in project.images)}
        for message in request.messages:
            files = tuple(file for file in message.files if file.id not in sent_ids)
            images = tuple(image for image in message.images if image.id not in sent_ids)
            for file in message.files:
                if file.id in sent_ids:
                    reports.append(SourceReport("file", file.id, "full", None, "in_project"))
            for image in message.images:
                if image.id in sent_ids:
                    reports.append(SourceReport("image", image.id, "full", None, "in_project", exact=False))
            changed = len(files) < len(message.files) or len(images) < len(message.images)
            messages.append(replace(message, files=files, images=images) if changed else message)
        return replace(
            request,
            messages=messages,
            project_files=tuple(inline),
            project_images=project.images,
            extra_sources=(*request.extra_sources, *dict.fromkeys(reports)),
        )

    def _unsent_images(self, request: ContextRequest, project: ProjectFiles) -> Iterator[SourceReport]:
        """Yield reports on the pictures that P lacks: sent with the question, or without room beside the question."""
        attached = {image.id for image in request.messages[current_turn_start(request.messages)].images}
        shown = {image.id for image in project.images}
        for image in self.project.images:
            if image.id in attached:
                yield SourceReport("project_file", image.id, "full", None, "attached", exact=False)
            elif image.id not in shown:
                yield _unsent_image(image.id, "project_image")

    def _why_searched(self, file: Document, project: ProjectFiles) -> Reason:
        if row := self._without_index().get(file.id):
            return "not_searchable" if row.index_state == File.Index.FAILED else "not_searchable_yet"
        return "no_room" if file.id in project.gave_way else "over_share"

    def _newest_first(self, request: ContextRequest) -> Iterator[File]:
        """Yield every readable attachment of the branch once, newest first."""
        loaded = (file for each in reversed(request.messages) for file in self.documents.attached.get(each.id, ()))
        yield from {file.pk: file for file in (*loaded, *self.older)}.values()

    def _out_of_sight(self, request: ContextRequest, prompt: Prompt) -> set[str]:
        """Return the ids of the attachments whose contents the prompt lacks."""
        shown = {file.id for file in request.project_files}
        for sent in prompt.messages:
            shown.update(image.id for image in sent.images)
            if sent.section == "file" and sent.state != "stubbed":
                shown.update((sent.source or "").split("+"))
        vision = self.documents.vision
        attached = {str(file.pk) for file in self._newest_first(request) if vision or not file.is_image}
        return attached - shown

    def _listing(
        self, project: ProjectFiles, attached: Sequence[File], request: ContextRequest, left: int
    ) -> Block | None:
        """Return L in at most `left` tokens with its overhead. None without files to list."""
        limit = max(0, request.room.input_limit)
        left -= request.message_overhead + JOINT
        files = {"project": project.by_search, "conversation": self._described(attached)}
        lists: dict[str, str] = {}
        for source, each in files.items():
            if lines := self._list(each, limit, left):
                lists[source] = lines
                left -= self._list_cost(lines)
        self.passages = False
        if not lists:
            return None
        passages_text = ""
        header = BY_SEARCH
        if self.question:
            most = project.line - project.inline_tokens if project.by_search else limit // PASSAGES_DIVISOR
            ids = [UUID(file.id) for each in files.values() for file in each if file.tokens is not None]
            passages_text = self._best_passages(ids, min(most, left))
            self.passages = bool(passages_text)
            header = FOUND if self.passages else NOT_SHOWN
        only_images = not any(file.tokens is not None for file in files["conversation"])
        headers = {"project": header, "conversation": NOT_SHOWN if only_images else header}
        texts = self.documents.texts
        text = note_text(listing_text(headers, lists, passages_text, texts), self.note_form, texts)
        return Block(text, self.documents.tokenizer.count(text))

    def _described(self, attached: Sequence[File]) -> list[Document]:
        """Return the attachments as documents with their tokens. Images have none, since no search finds them."""
        sized = {each.id: each for each in self.documents.sized([file for file in attached if not file.is_image])}
        return [sized.get(str(file.pk), Document(str(file.pk), file.name)) for file in attached]

    def _list(self, files: Sequence[Document], limit: int, left: int) -> str:
        """Return a line for each of the first files that fit; empty if none fits.

        The lines take at most their share of `limit`, and with a header at most `left`.
        """
        lines: list[str] = []
        left -= self._header
        share = min(left, limit * LIST_SHARE // 100 - self._header)
        for file in files:
            line = self._line(file)
            size = self._count(f"{line}\n")
            if size > (share if lines else left):
                break
            self.documents.numbers.assign(file.id)  # only listed files get a number
            lines.append(line)
            share -= size
        if 0 < len(lines) < len(files):
            lines.append(self.documents.texts.fill("more_files", count=len(files) - len(lines)))
        return "\n".join(lines)

    def _line(self, file: Document) -> str:
        """Return the line of a file, without assigning it a number."""
        numbers = CitationNumbers(self.documents.numbers.assigned)
        row = self._without_index().get(file.id)
        state = row.index_state if row is not None else File.Index.SEARCHABLE
        return listing_line(file, numbers, self.documents.texts, state)

    def _without_index(self) -> dict[str, File]:
        """Return the files of the project and the branch that have text and cannot be searched, by id."""
        if self._unindexed is None:
            attached = [file for files in self.documents.attached.values() for file in files]
            ids = {str(file.pk) for file in (*attached, *self.older)}
            ids |= {each.id for each in (*self.project.inline, *self.project.by_search)}
            rows = File.objects.filter(pk__in=ids, searchable=False, status__in=READABLE, width=None)
            self._unindexed = {str(row.pk): row for row in rows}
        return self._unindexed

    def _index_notes(self, ids: Sequence[str]) -> tuple[Sentence, ...]:
        """Return a sentence for each index state of listed files that no search finds."""
        rows = [row for pk in ids if (row := self._without_index().get(pk))]
        names: dict[File.Index, list[str]] = {}
        for row in rows:
            names.setdefault(row.index_state, []).append(row.name)
        return tuple(Sentence(NOT_INDEXED[state], names=_named(file_names)) for state, file_names in names.items())

    @property
    def _header(self) -> int:
        """The most tokens of the text above a list and the line below it."""
        texts = self.documents.texts
        if texts.own.keys().isdisjoint({*HEADERS, "more_files"}):
            return HEADER
        longest_header = max(self._count(texts.fill(name, whose="conversation")) for name in HEADERS)
        return max(HEADER, longest_header + self._count(texts.fill("more_files", count=100_000)) + JOINT)

    def _list_cost(self, lines: str) -> int:
        return self._count(lines) + self._header

    def _count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = self.documents.tokenizer.count(text)
        return self._counts[text]

    def _best_passages(self, ids: Sequence[UUID], limit: int) -> str:
        """Return the best passages of these files as documents, in at most `limit` tokens. Empty without passages."""
        result = self._search(frozenset(ids))
        no_match = bool(ids) and not result.hits and self._is_brief()
        self.notes = (*result.notes, *((Sentence(NO_MATCH),) if no_match else ()))
        selected: dict[UUID, list[ChunkHit]] = {}
        for hit in result.hits:
            candidate = {**selected, hit.file: [*selected.get(hit.file, ()), hit]}
            # Only documents that are sent get a number, so a candidate is rendered with a copy of the numbers.
            text = self._passages_text(candidate, CitationNumbers(self.documents.numbers.assigned))
            if self.documents.tokenizer.count(text) <= limit:
                selected = candidate
        self.documents.titles |= {str(pk): hits[0].name for pk, hits in selected.items()}
        return self._passages_text(selected, self.documents.numbers) if selected else ""

    def _passages_text(self, hits: Mapping[UUID, Sequence[ChunkHit]], numbers: CitationNumbers) -> str:
        return documents_text(
            [passages_document(pk, of_file) for pk, of_file in hits.items()], numbers, self.documents.texts
        )

    def _search(self, ids: frozenset[UUID]) -> SearchResult:
        """Search these files for the question. A brief message keeps only related passages and files that it names."""
        if ids not in self._searched:
            rows = File.objects.filter(pk__in=ids, searchable=True)
            result = find_passages(queries=search_queries(self.question), files=rows, limit=HITS, payer=self.payer)
            if self._is_brief():
                hits = [hit for hit in result.hits if hit.related or _names(self.question, hit.name)]
                result = replace(result, hits=hits)
            self._searched[ids] = result
        return self._searched[ids]

    def _is_brief(self) -> bool:
        words = re.finditer(r"\w+", prepare_text(self.question))
        return len(list(islice(words, BRIEF + 1))) <= BRIEF


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"“{name}”" for name in names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def listing_line(
    file: Document, numbers: CitationNumbers, texts: Texts, state: File.Index = File.Index.SEARCHABLE
) -> str:
    """Return the line of a file in a list, with its citation number. A file without tokens is an image."""
    if file.tokens is None:
        return texts.fill("image_line", title=file.title, id=file.id)
    line = LINES.get(state, "file_line")
    return texts.fill(line, document=numbers.assign(file.id), title=file.title, id=file.id, tokens=file.tokens)


def listing_text(headers: Mapping[str, str], lists: Mapping[str, str], passages_text: str, texts: Texts) -> str:
    """Return L: each list below its header, then the passages.

    The keys of `lists` and `headers` are `project` or `conversation`, the source of the files. The values of `headers`
    are names of texts.
    """
    listed = [f"{texts.fill(headers[source], whose=source)}\n{lines}" for source, lines in lists.items()]
    return "\n\n".join([*listed, passages_text] if passages_text else listed)


def _names(question: str, file: str) -> bool:
    """Return whether the question contains the file's name, with or without its extension."""
    stem = file.rpartition(".")[0] or file
    question_words, stem_words = (" ".join(re.findall(r"[^\W_]+", text.casefold())) for text in (question, stem))
    names_stem = bool(stem_words) and f" {stem_words} " in f" {question_words} "
    return file.casefold() in question.casefold() or names_stem
