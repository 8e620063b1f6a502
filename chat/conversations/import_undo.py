"""Undo an import: remove the rows that it has made.

1. `undo_import` sets the status. A worker claims the import (`run`).
2. `run` goes through the journal of the import: conversations first, then what these may use. Each row has a
   transaction of its own, and leaves the journal with it, so that the next worker can go on.
3. A row that a person has changed or uses stays: a conversation that was continued here, a persona that was changed, a
   file in another conversation. The results of the import name it with the reason.
4. If a worker is lost, the next one goes through the rest of the journal. It sees each row that stays once more, so the
   results name all of them.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts.models import User
from accounts.realtime import News, notify
from chat.conversations.importing.fingerprints import fingerprints
from chat.conversations.importing.jobs import require_owner
from chat.conversations.importing.results import ImportResult
from chat.conversations.services import delete_conversation
from chat.memory.models import Fact
from chat.memory.services import FactScope, forget_fact
from chat.models import Attachment, Conversation, Import, ImportedRow, Mark, Message, Share, TeamShare
from core.audit.services import record
from core.errors import ProductError
from core.jobs import JobKind
from core.lines import first_line
from core.sentences import Sentence
from files import services as file_services
from files.models import File
from personas.models import Persona
from personas.services import delete_persona
from projects.models import Project, ProjectFile
from projects.planner import services as planner
from projects.planner.models.task import Task
from projects.planner.rules import Actor
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import delete_saved_prompt
from projects.services import delete_project

STALE_AFTER = timedelta(seconds=60)
BATCH = 100  # rows of the journal that are read together
CHANGE_MARGIN = timedelta(seconds=1)  # a change that is later than this after the import is a person's
MAX_NAMED = 1_000  # rows that stay and are no conversations, which the results name one by one
MAX_TITLE_LENGTH = 80  # characters of the name of such a row
CONTINUED = Sentence("It was continued here, so it stays.")
CHANGED = Sentence("It was changed here, so it stays.")
SHARED = Sentence("It is shared, so it stays.")
IN_USE = Sentence("It is in use, so it stays.")
REMOVED = gettext_noop("It was removed again.")
NOT_UNDONE = gettext_noop("What it has changed stays.")
SETTINGS = ("settings.json", "profile.json")  # lists that change settings and make no rows

UNDOING = Q(status=Import.Status.UNDOING)

# All rows that are being undone are `waiting`, so every claim succeeds. If two workers claim one, the later goes on.
UNDOS = JobKind(
    model=Import,
    task="chat.tasks.undo_import",
    waiting=UNDOING,
    running=UNDOING,
    resumable=UNDOING,
    stale_after=STALE_AFTER,
    unclaimed_after=STALE_AFTER,
)

logger = logging.getLogger(__name__)


@transaction.atomic
def undo_import(*, user: User, job: Import) -> None:
    """Begin to remove everything that an import has made. Staff may do so for others.

    Raises `not_undoable` (409) if the import is under way, or has made nothing that is left.
    """
    require_owner(user, job, "change")
    row = Import.objects.select_for_update().get(pk=job.pk)
    if not row.undoable:
        detail = Sentence("Only an import that has ended and has brought something can be undone.")
        raise ProductError("not_undoable", detail, status=409)
    row.status = Import.Status.UNDOING
    row.progress = 0
    row.heartbeat = timezone.now()
    row.save(update_fields=["status", "progress", "heartbeat"])
    record(user=user, action="conversation.import_undone", row=row)
    UNDOS.hand_over(row.pk)
    job.refresh_from_db()


def run(pk: UUID) -> None:
    """Claim an import and undo it."""
    job = UNDOS.claim(pk, "owner")
    if job is None:
        return
    undo = _Undo(job)
    for kind in (
        ImportedRow.Kind.CONVERSATION,
        ImportedRow.Kind.FACT,
        ImportedRow.Kind.TASK,
        ImportedRow.Kind.PROMPT,
        ImportedRow.Kind.PROJECT,
        ImportedRow.Kind.PERSONA,
        ImportedRow.Kind.FILE,
    ):
        if not undo.remove_all(kind):
            return  # the claim is lost
    UNDOS.claimed(job).update(
        status=Import.Status.UNDONE,
        progress=100,
        finished=timezone.now(),
        results=undo.results(),
        counting=False,
        blob="",
        size=0,
    )
    notify(job.owner_id, News.CONVERSATIONS)


class _Undo:
    """One import while it is undone. `_stays` has the reason for each row that stays."""

    def __init__(self, job: Import) -> None:
        self._job = job
        self._owner = job.owner
        self._total = job.rows.count()
        self._stays: dict[UUID, Sentence] = {}
        self._others: list[ImportResult] = []  # rows that stay and are no conversations
        self._unnamed = 0

    def remove_all(self, kind: ImportedRow.Kind) -> bool:
        """Remove the rows of one kind. Return False if the claim is lost."""
        remove: Callable[[ImportedRow], Sentence | None] = {
            ImportedRow.Kind.CONVERSATION: self._conversation,
            ImportedRow.Kind.FACT: self._fact,
            ImportedRow.Kind.TASK: self._task,
            ImportedRow.Kind.PROJECT: self._project,
            ImportedRow.Kind.PERSONA: self._persona,
            ImportedRow.Kind.PROMPT: self._prompt,
            ImportedRow.Kind.FILE: self._file,
        }[kind]
        last = 0
        while notes := list(self._job.rows.filter(kind=kind, pk__gt=last).order_by("pk")[:BATCH]):
            last = notes[-1].pk
            for note in notes:
                try:
                    with transaction.atomic():
                        why = remove(note)
                        if why is None:
                            note.delete()
                except ProductError as error:  # such as a legal hold
                    is_conversation = kind == ImportedRow.Kind.CONVERSATION
                    why = error.sentence if is_conversation else self._keep(str(kind.label), error.sentence)
                if why is not None:
                    self._stays[note.row] = why
            left = self._job.rows.count()
            progress = 100 * (self._total - left) // max(self._total, 1)
            if not UNDOS.claimed(self._job).update(progress=progress, heartbeat=timezone.now()):
                return False
        return True

    def results(self) -> list[ImportResult]:
        """Return the results of the import, with what has become of each row, and the other rows that stay."""
        results: list[ImportResult] = []
        stored: list[ImportResult] = self._job.results
        for result in stored:
            key = result["conversation"]
            why = self._stays.get(UUID(key)) if key is not None else None
            if result["outcome"] != "imported":
                results.append(result)
            elif why is not None:
                results.append({**result, "why": why.dump()})
            elif key is None and result["title"] in SETTINGS:
                results.append({**result, "why": NOT_UNDONE})
            else:
                results.append({**result, "outcome": "skipped", "why": REMOVED, "conversation": None})
        named = {result["conversation"] for result in stored}
        others = [*self._unlisted(named), *self._others]
        if self._unnamed:
            why = Sentence("Further rows that stay: {count}.", count=self._unnamed)
            others.append({"title": "", "outcome": "imported", "why": why.dump(), "conversation": None})
        return [*others, *results]

    def _unlisted(self, named: set[str | None]) -> Iterator[ImportResult]:
        """Yield the conversations that stay and have no result, since the import had not ended."""
        unlisted = [pk for pk in self._stays if str(pk) not in named]
        for row in Conversation.objects.filter(pk__in=unlisted, owner=self._owner).only("title"):
            why = self._stays[row.pk].dump()
            yield {"title": row.title, "outcome": "imported", "why": why, "conversation": str(row.pk)}

    def _keep(self, title: str, why: Sentence) -> Sentence:
        """Note a row that stays by its name, and return the reason."""
        if len(self._others) < MAX_NAMED:
            short = first_line(title, MAX_TITLE_LENGTH)
            self._others.append({"title": short, "outcome": "imported", "why": why.dump(), "conversation": None})
        else:
            self._unnamed += 1
        return why

    def _changed(self, note: ImportedRow) -> bool:
        """Return whether a person has changed the row since the import made it."""
        kind = ImportedRow.Kind(note.kind)
        return bool(note.fingerprint) and fingerprints(kind, [note.row]).get(note.row) != note.fingerprint

    def _conversation(self, note: ImportedRow) -> Sentence | None:
        row = Conversation.objects.filter(pk=note.row, owner=self._owner, deleted=None).first()
        if row is None:
            return None
        if Message.objects.filter(conversation=row, created__gt=note.created).exists():
            return CONTINUED
        if Share.objects.filter(conversation=row).exists() or TeamShare.objects.filter(conversation=row).exists():
            return SHARED
        if self._changed(note) or Mark.objects.filter(conversation=row, created__gt=note.created).exists():
            return CHANGED
        delete_conversation(user=self._owner, conversation=row)
        # Without its source the conversation is imported anew from the same export.
        Conversation.objects.filter(pk=row.pk).update(imported_from="")
        return None

    def _fact(self, note: ImportedRow) -> Sentence | None:
        row = Fact.objects.visible_to(self._owner).filter(pk=note.row).first()
        if row is None or row.status == Fact.Status.FORGOTTEN:
            return None
        if row.status == Fact.Status.OUTDATED or self._changed(note):
            return self._keep(row.text, CHANGED)
        forget_fact(user=self._owner, fact=row)
        return None

    def _task(self, note: ImportedRow) -> Sentence | None:
        """Remove a task with its checklist. It stays as a whole if it or an item was changed or added."""
        row = Task.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return None
        if row.level == Task.Level.ITEM:
            return IN_USE  # its task stays, and is named
        items = {item.row: item for item in self._job.rows.filter(kind=note.kind, row__in=row.children.values("pk"))}
        own_items = row.children.filter(level=Task.Level.ITEM)
        if self._changed(note) or any(item.pk not in items or self._changed(items[item.pk]) for item in own_items):
            return self._keep(f"{row.code} {row.title}", CHANGED)
        planner.delete(actor=Actor(self._owner), task=row)
        return None

    def _project(self, note: ImportedRow) -> Sentence | None:
        row = Project.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return None
        if self._changed(note):
            return self._keep(row.name, CHANGED)
        own_files = self._job.rows.filter(kind=ImportedRow.Kind.FILE).values("row")
        if (
            Conversation.objects.filter(project=row, deleted=None).exists()
            or Task.objects.filter(project=row).exists()
            or row.memberships.exists()
            or ProjectFile.objects.filter(project=row).exclude(file__in=own_files).exists()
            or SavedPrompt.objects.filter(project=row).exists()
            or _has_facts(FactScope(project=row))
        ):
            return self._keep(row.name, IN_USE)
        delete_project(user=self._owner, project=row)
        return None

    def _persona(self, note: ImportedRow) -> Sentence | None:
        row = Persona.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return None
        if self._changed(note):
            return self._keep(row.name, CHANGED)
        if (
            row.shares.exists()
            or Project.objects.filter(persona=row).exists()
            or Conversation.objects.filter(persona=row, deleted=None).exists()
            or _has_facts(FactScope(persona=row))
        ):
            return self._keep(row.name, IN_USE)
        delete_persona(user=self._owner, persona=row)
        return None

    def _prompt(self, note: ImportedRow) -> Sentence | None:
        row = SavedPrompt.objects.visible_to(self._owner).filter(pk=note.row).first()
        if row is None:
            return None
        if self._changed(note):
            return self._keep(row.name, CHANGED)
        delete_saved_prompt(user=self._owner, prompt=row)
        return None

    def _file(self, note: ImportedRow) -> Sentence | None:
        row = File.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return None
        attached = Attachment.objects.filter(file=row, message__conversation__deleted=None).exists()
        again = row.uploaded_again is not None and row.uploaded_again > note.created + CHANGE_MARGIN
        if attached or again or ProjectFile.objects.filter(file=row).exists():
            return self._keep(row.name, IN_USE)
        file_services.delete(user=self._owner, file=row)
        return None


def _has_facts(scope: FactScope) -> bool:
    """Return whether facts are remembered for this project or persona. They would be deleted with it."""
    facts = Fact.objects.filter(project=scope.project, persona=scope.persona)
    return facts.exclude(status=Fact.Status.FORGOTTEN).exists()
