"""Which files are in a prompt whole, and how the model reaches the others.

The rules: docs/develop/context.md, “Files and projects”.

A project's files give way while what must be sent does not fit beside them. The list of files (L) names those and the
attachments of the branch that are out of sight. A model with tools searches them by itself; for one without, its
question is searched in its stead, so that a small model reaches a large project too; but a “thanks” costs no passages.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from django.utils.translation import gettext_noop

from chat.context.build import Prompt, build, required_tokens
from chat.context.policies import current_turn_start
from chat.context.rendering import NoteForm, Numbers, documents_text, note_text, split_project_files
from chat.context.types import Block, ContextMessage, ContextRequest, Document, Reason, SourceReport
from chat.documents.passages import HITS, passages, phrasings_of
from chat.models import Attachment, Mark
from chat.models import Message as MessageRow
from chat.models.tree import ids_down_to
from chat.prompts.history import READABLE, Documents, texts_of, why_missing
from core.sentences import Sentence
from files.index.finding import find_passages
from files.index.language import readable
from files.index.ledger import NOBODY, Payer
from files.index.search import ChunkHit, SearchResult
from files.models import File
from personas.models import BudgetProfile
from personas.texts import Texts
from projects.models import ProjectFile

# Above a list of files: for a model with tools, and for one without, with passages and without.
HEADERS = BY_SEARCH, FOUND, NOT_SHOWN = ("files_by_search", "files_found", "files_not_shown")
NO_MATCH = gettext_noop(
    "Nothing in the files that are reached by search has to do with so short a message, so no passage of them was "
    "sent. Name a file, or ask in words that stand in it."
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
NAMED = 3  # files in one such sentence
# No cosine tells small talk from a question that a passage answers in other words (bundled embedder: up to 0.22, and
# from 0.02), and a passage too many harms less than one that is missing. So only what says as little has to match.
BRIEF = 3  # words of a message
# The lists must be sent, so without a bound a project of a thousand files would leave no room for any question.
LIST_SHARE = 10  # percent of the room, for each of the two
FOUND_PART = 4  # passages of attachments take at most this part of the room; those of a project what its line leaves
HEADER = 40  # tokens that are enough for the built-in words above a list and for the line below it
JOINT = 4  # texts put together may count a little more than their parts


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """`inline` go into the prompt whole; `line`: the tokens that they may have together. `pinned` are ids.

    The documents are without text. `gave_way`: ids of those that were inline until all that must be sent was counted.
    """

    inline: tuple[Document, ...] = ()
    by_search: tuple[Document, ...] = ()
    line: int = 0
    pinned: frozenset[str] = frozenset()
    gave_way: frozenset[str] = frozenset()

    @property
    def inline_tokens(self) -> int:
        return sum(document.tokens or 0 for document in self.inline)

    def cost(self, overhead: int) -> int:
        return self.inline_tokens + overhead if self.inline else 0

    def without(self, ids: frozenset[str]) -> "ProjectFiles":
        inline = tuple(each for each in self.inline if each.id not in ids)
        return replace(self, inline=inline, by_search=tuple(each for each in self.by_search if each.id not in ids))

    def one_less(self) -> "ProjectFiles":
        """With one more by search: the largest that is not pinned, else the last pinned one."""
        others = [each for each in reversed(self.inline) if each.id not in self.pinned]
        away = max(others, key=lambda each: each.tokens or 0) if others else self.inline[-1]
        inline = tuple(each for each in self.inline if each is not away)
        return replace(self, inline=inline, by_search=(*self.by_search, away), gave_way=self.gave_way | {away.id})


def project_files(
    entries: Sequence[ProjectFile], made: Documents, *, room: int, profile: BudgetProfile
) -> ProjectFiles:
    """Which of a project's files are inline by their sum alone; failed ones are reported.

    `room`: window − reserved output − system prompt − persona prompt, in tokens. Images have no text to be found by
    and are left out; a message can bring them along.
    """
    texts = [entry for entry in entries if entry.file.status in READABLE and not entry.file.is_image]
    for entry in entries:
        if entry not in texts:
            why = "project_image" if entry.file.status in READABLE else why_missing(entry.file)
            made.reports.append(SourceReport("project_file", str(entry.file_id), "left_out", 0, why))
    sized = made.sized([entry.file for entry in texts])
    pinned = frozenset(str(entry.file_id) for entry in texts if entry.pinned)
    inline, by_search = split_project_files(sized, room=room, pinned=pinned, share=profile.project_share)
    for each in inline:  # before those of the messages
        made.numbers.of(each.id)
    return ProjectFiles(tuple(inline), tuple(by_search), int(max(0, room) * profile.project_share), pinned)


def older_attachments(leaf: MessageRow, made: Documents) -> list[File]:
    """Files of the branch above the messages that `made` has attached theirs to, newest first.

    Only what was planned before has a number, and nothing else can have been in a prompt; so most conversations are not
    asked for.
    """
    here = {str(file.pk) for files in made.attached.values() for file in files}
    known = [each for pk in made.numbers.known if pk not in here and (each := _as_id(pk))]
    if not known:
        return []
    rows = Attachment.objects.filter(message__conversation=leaf.conversation_id, file__in=known)
    found = list(rows.filter(file__status__in=READABLE).select_related("file", "message").order_by("-message__depth"))
    if not found:
        return []
    branch = set(ids_down_to(leaf.pk, found[-1].message.depth))
    return [
        each.file
        for each in found
        if each.file is not None
        and each.message_id in branch
        and made.marks.of_file(each.message_id, each.file_id) != Mark.Kind.EXCLUDED
    ]


def _as_id(source: str) -> UUID | None:
    """None for pages of the web, which have numbers, too."""
    try:
        return UUID(source)
    except ValueError:
        return None


@dataclass(slots=True)
class PromptFiles:
    """The files of one prompt. `question`: to search for, empty for a model that can search by itself.

    `older`: attachments of the branch above the messages that the engine is given, newest first. `listed`: the ids of
    the attachments that the model is told of, once the prompt is built; `notes`: sentences on what was not found;
    `passages`: some were found and are in the prompt. `with_documents` returns a request with S and R for a prompt that
    has numbered documents.
    """

    project: ProjectFiles
    made: Documents
    question: str = ""
    older: Sequence[File] = ()
    payer: Payer = NOBODY
    note_form: NoteForm = "plain"
    with_documents: Callable[[ContextRequest], ContextRequest] = lambda request: request
    passages: bool = False
    listed: frozenset[str] = frozenset()
    notes: tuple[Sentence, ...] = ()
    _counted: dict[str, int] = field(default_factory=dict)
    _unindexed: dict[str, File] | None = None
    _searched: dict[frozenset[UUID], SearchResult] = field(default_factory=dict)

    def build(self, request: ContextRequest, first: Sequence[ContextMessage] = ()) -> Prompt:
        """The prompt with the project's files and the list, which `request` is without. Raises `ContextError`.

        `first`: the messages of the turn's first cycle, where that decides for the later ones too, since nothing in
        front may change; as long as that fits.
        """
        if first:
            settled, prompt = self._settled(replace(request, messages=first))
            unseen = self._out_of_sight(settled, prompt)
            settled = replace(settled, messages=[*settled.messages, *request.messages[len(first) :]])
            if required_tokens(settled) <= request.room.input_limit:
                prompt = build(settled)
                if self._out_of_sight(settled, prompt) <= unseen:  # else older turns, too, are not what they were
                    return prompt
        return self._settled(request)[1]

    def fitted(self, request: ContextRequest, required: int) -> ProjectFiles:
        """What of the project stays inline beside what else must be sent, `required` tokens; each file sent once."""
        question = request.messages[current_turn_start(request.messages)]
        project = self.project.without(frozenset(document.id for document in question.files))
        limit, overhead = request.room.input_limit, request.message_overhead
        while project.inline:
            listing = self._list(project.by_search, limit, limit)
            needed = required + project.cost(overhead) + (self._list_cost(listing) + overhead if listing else 0)
            if needed <= limit:
                break
            project = project.one_less()
        return project

    def _settled(self, request: ContextRequest) -> tuple[ContextRequest, Prompt]:
        """Planned again with a longer list while that leaves another file out of sight. What is once on the list stays
        on it, so that ends."""
        request, project, required = self._with_rules(request)
        left = request.room.input_limit - required - project.cost(request.message_overhead)
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
        """Return the request with the rules for documents if it has any, what of the project is inline beside it, and
        the tokens of what else must be sent.

        The rules alone never keep a question from being sent: files that give way to it take them along.
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
        """With the texts of its files; each is sent once, with the newest message or else with the project's."""
        rows = File.objects.in_bulk([UUID(each.id) for each in project.inline])
        texts = texts_of(rows.values())
        inline = [self.made.of_file(rows[pk], texts.get(pk, "")) for pk in (UUID(each.id) for each in project.inline)]
        reports = [
            SourceReport("project_file", each.id, "by_search", 0, self._why_searched(each, project))
            for each in project.by_search
        ]
        kept = {each.id for each in (*project.inline, *project.by_search)}
        reports += [
            SourceReport("project_file", each.id, "full", None, "attached")
            for each in (*self.project.inline, *self.project.by_search)
            if each.id not in kept
        ]
        messages, twice = [], {each.id for each in inline}
        for message in request.messages:
            files = tuple(file for file in message.files if file.id not in twice)
            again = (file.id for file in message.files if file.id in twice)
            reports += [SourceReport("file", pk, "full", None, "in_project") for pk in again]
            messages.append(message if len(files) == len(message.files) else replace(message, files=files))
        return replace(
            request,
            messages=messages,
            project_files=tuple(inline),
            extra_sources=(*request.extra_sources, *dict.fromkeys(reports)),
        )

    def _why_searched(self, file: Document, project: ProjectFiles) -> Reason:
        if row := self._without_index().get(file.id):
            return "not_searchable" if row.index_state == File.Index.FAILED else "not_searchable_yet"
        return "no_room" if file.id in project.gave_way else "over_share"

    def _newest_first(self, request: ContextRequest) -> Iterator[File]:
        """Every readable attachment of the branch once."""
        given = (file for each in reversed(request.messages) for file in self.made.attached.get(each.id, ()))
        yield from {file.pk: file for file in (*given, *self.older)}.values()

    def _out_of_sight(self, request: ContextRequest, prompt: Prompt) -> set[str]:
        """The ids of the attachments whose contents are not in the prompt."""
        shown = {file.id for file in request.project_files}
        for sent in prompt.messages:
            shown.update(image.id for image in sent.images)
            if sent.section == "file" and sent.state != "stubbed":
                shown.update((sent.source or "").split("+"))
        attached = {str(file.pk) for file in self._newest_first(request) if self.made.vision or not file.is_image}
        return attached - shown

    def _listing(
        self, project: ProjectFiles, attached: Sequence[File], request: ContextRequest, left: int
    ) -> Block | None:
        """L in at most `left` tokens with its overhead, None where there is nothing to list."""
        limit, left = max(0, request.room.input_limit), left - request.message_overhead - JOINT
        files = {"project": project.by_search, "conversation": self._described(attached)}
        lists: dict[str, str] = {}
        for whose, each in files.items():
            if lines := self._list(each, limit, left):
                lists[whose], left = lines, left - self._list_cost(lines)
        self.passages = False
        if not lists:
            return None
        found, header = "", BY_SEARCH
        if self.question:
            most = project.line - project.inline_tokens if project.by_search else limit // FOUND_PART
            ids = [UUID(file.id) for each in files.values() for file in each if file.tokens is not None]
            found = self._found(ids, min(most, left))
            header, self.passages = FOUND if found else NOT_SHOWN, bool(found)
        images = not any(file.tokens is not None for file in files["conversation"])
        headers = {"project": header, "conversation": NOT_SHOWN if images else header}
        text = note_text(listing_text(headers, lists, found, self.made.texts), self.note_form, self.made.texts)
        return Block(text, self.made.tokenizer.count(text))

    def _described(self, attached: Sequence[File]) -> list[Document]:
        """With their tokens; None for images, which no search finds."""
        sized = {each.id: each for each in self.made.sized([file for file in attached if not file.is_image])}
        return [sized.get(str(file.pk), Document(str(file.pk), file.name)) for file in attached]

    def _list(self, files: Sequence[Document], limit: int, left: int) -> str:
        """A line for each file: the first ones that take at most their share of `limit`, and with a header at most
        `left`; empty where not one does."""
        lines: list[str] = []
        left -= self._header
        share = min(left, limit * LIST_SHARE // 100 - self._header)
        for file in files:
            line = self._line(file)
            size = self._count(f"{line}\n")
            if size > (share if lines else left):
                break
            self.made.numbers.of(file.id)  # of what is listed only
            lines.append(line)
            share -= size
        if 0 < len(lines) < len(files):
            lines.append(self.made.texts.fill("more_files", count=len(files) - len(lines)))
        return "\n".join(lines)

    def _line(self, file: Document) -> str:
        numbers, row = Numbers(self.made.numbers.known), self._without_index().get(file.id)
        return line_of(file, numbers, self.made.texts, row.index_state if row is not None else File.Index.SEARCHABLE)

    def _without_index(self) -> dict[str, File]:
        """Return the files of the project and the branch that have text and cannot be searched, by id."""
        if self._unindexed is None:
            attached = [file for files in self.made.attached.values() for file in files]
            ids = {str(file.pk) for file in (*attached, *self.older)}
            ids |= {each.id for each in (*self.project.inline, *self.project.by_search)}
            rows = File.objects.filter(pk__in=ids, searchable=False, status__in=READABLE, width=None)
            self._unindexed = {str(row.pk): row for row in rows}
        return self._unindexed

    def _index_notes(self, ids: Sequence[str]) -> tuple[Sentence, ...]:
        """Return a sentence for each kind of files in the list that no search finds."""
        rows = [row for pk in ids if (row := self._without_index().get(pk))]
        names: dict[File.Index, list[str]] = {}
        for row in rows:
            names.setdefault(row.index_state, []).append(row.name)
        return tuple(Sentence(NOT_INDEXED[state], names=_named(each)) for state, each in names.items())

    @property
    def _header(self) -> int:
        """What stands above a list, and the line below it, take no more tokens than this."""
        texts = self.made.texts
        if texts.own.keys().isdisjoint({*HEADERS, "more_files"}):
            return HEADER
        longest = max(self._count(texts.fill(name, whose="conversation")) for name in HEADERS)
        return max(HEADER, longest + self._count(texts.fill("more_files", count=100_000)) + JOINT)

    def _list_cost(self, lines: str) -> int:
        return self._count(lines) + self._header

    def _count(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self.made.tokenizer.count(text)
        return self._counted[text]

    def _found(self, ids: Sequence[UUID], most: int) -> str:
        """The best passages that together take at most `most` tokens, as documents; empty when there are none."""
        found = self._related(frozenset(ids))
        self.notes = (*found.notes, *((Sentence(NO_MATCH),) if ids and not found.hits and self._is_brief() else ()))
        kept: dict[UUID, list[ChunkHit]] = {}
        for hit in found.hits:
            tried = {**kept, hit.file: [*kept.get(hit.file, ()), hit]}
            # Numbers are given to what is sent only, so here they are tried on a copy.
            if self.made.tokenizer.count(self._rendered(tried, Numbers(self.made.numbers.known))) <= most:
                kept = tried
        self.made.titles |= {str(pk): hits[0].name for pk, hits in kept.items()}
        return self._rendered(kept, self.made.numbers) if kept else ""

    def _rendered(self, found: Mapping[UUID, Sequence[ChunkHit]], numbers: Numbers) -> str:
        return documents_text([passages(pk, hits) for pk, hits in found.items()], numbers, self.made.texts)

    def _related(self, ids: frozenset[UUID]) -> SearchResult:
        """The best passages; for a brief message those only that have to do with it, or whose file it names."""
        if ids not in self._searched:
            rows = File.objects.filter(pk__in=ids, searchable=True)
            found = find_passages(queries=phrasings_of(self.question), files=rows, limit=HITS, payer=self.payer)
            if self._is_brief():
                hits = [hit for hit in found.hits if hit.related or _names(self.question, hit.name)]
                found = replace(found, hits=hits)
            self._searched[ids] = found
        return self._searched[ids]

    def _is_brief(self) -> bool:
        words = re.finditer(r"\w+", readable(self.question))
        return len(list(islice(words, BRIEF + 1))) <= BRIEF


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(f"“{name}”" for name in names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def line_of(file: Document, numbers: Numbers, texts: Texts, state: File.Index = File.Index.SEARCHABLE) -> str:
    """Return the line of a file in a list, with its document number; a file without tokens is an image."""
    if file.tokens is None:
        return texts.fill("image_line", title=file.title, id=file.id)
    line = LINES.get(state, "file_line")
    return texts.fill(line, document=numbers.of(file.id), title=file.title, id=file.id, tokens=file.tokens)


def listing_text(headers: Mapping[str, str], lists: Mapping[str, str], found: str, texts: Texts) -> str:
    """Return L: the lines by whose files they name, each below its header, and what was `found` in them.

    `headers`: names of texts, by whose files.
    """
    listed = [f"{texts.fill(headers[whose], whose=whose)}\n{lines}" for whose, lines in lists.items()]
    return "\n\n".join([*listed, found] if found else listed)


def _names(question: str, file: str) -> bool:
    """Whether the file's name stands in the question, with or without its extension."""
    stem = file.rpartition(".")[0] or file
    asked, named = (" ".join(re.findall(r"[^\W_]+", text.casefold())) for text in (question, stem))
    return file.casefold() in question.casefold() or (bool(named) and f" {named} " in f" {asked} ")
