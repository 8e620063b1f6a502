"""Undo an import: remove the rows that it has made.

1. `undo_import` sets the status. A worker claims the import (`run`).
2. `run` goes through the journal of the import: conversations first, then what these may use. Each row has a
   transaction of its own, and leaves the journal with it, so that the next worker can go on.
3. A row that is in use stays: a conversation that was continued here, a persona that was changed, a file in another
   conversation. The results of the import say so.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts.models import User
from accounts.realtime import News, notify
from chat.conversations.importing.jobs import require_owner
from chat.conversations.importing.results import ImportResult
from chat.conversations.services import delete_conversation
from chat.memory.models import Fact
from chat.memory.services import FactScope, forget_fact
from chat.models import Attachment, Conversation, Import, ImportedRow, Message
from core.audit.services import record
from core.errors import ProductError
from core.jobs import JobKind
from core.sentences import Sentence
from files import services as file_services
from files.models import File
from personas.models import Persona
from personas.services import delete_persona
from projects.models import Project, ProjectFile
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import delete_saved_prompt
from projects.services import delete_project

STALE_AFTER = timedelta(seconds=60)
BATCH = 100  # rows of the journal that are read together
CHANGE_MARGIN = timedelta(seconds=1)  # a change that is later than this after the import is a person's
CONTINUED = gettext_noop("It was continued here, so it stays.")
REMOVED = gettext_noop("It was removed again.")

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
        ImportedRow.Kind.PROJECT,
        ImportedRow.Kind.PERSONA,
        ImportedRow.Kind.PROMPT,
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
    """One import while it is undone."""

    def __init__(self, job: Import) -> None:
        self._job = job
        self._owner = job.owner
        self._total = job.rows.count()

    def remove_all(self, kind: ImportedRow.Kind) -> bool:
        """Remove the rows of one kind. Return False if the claim is lost."""
        remove: Callable[[ImportedRow], bool] = {
            ImportedRow.Kind.CONVERSATION: self._conversation,
            ImportedRow.Kind.FACT: self._fact,
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
                        if remove(note):
                            note.delete()
                except ProductError as error:  # such as a legal hold
                    logger.info("import %s: %s %s stays: %s", self._job.pk, kind, note.row, error.code)
            left = self._job.rows.count()
            progress = 100 * (self._total - left) // max(self._total, 1)
            if not UNDOS.claimed(self._job).update(progress=progress, heartbeat=timezone.now()):
                return False
        return True

    def results(self) -> list[ImportResult]:
        """Return the results of the import, with what has become of each conversation."""
        left = set(self._job.rows.filter(kind=ImportedRow.Kind.CONVERSATION).values_list("row", flat=True))
        results: list[ImportResult] = []
        stored: list[ImportResult] = self._job.results
        for result in stored:
            if result["outcome"] != "imported" or result["conversation"] is None:
                results.append(result)
            elif UUID(result["conversation"]) in left:
                results.append({**result, "why": CONTINUED})
            else:
                results.append({**result, "outcome": "skipped", "why": REMOVED, "conversation": None})
        return results

    def _conversation(self, note: ImportedRow) -> bool:
        row = Conversation.objects.filter(pk=note.row, owner=self._owner, deleted=None).first()
        if row is None:
            return True
        if Message.objects.filter(conversation=row, created__gt=note.created).exists():
            return False
        delete_conversation(user=self._owner, conversation=row)
        # Without its source the conversation is imported anew from the same export.
        Conversation.objects.filter(pk=row.pk).update(imported_from="")
        return True

    def _fact(self, note: ImportedRow) -> bool:
        row = Fact.objects.visible_to(self._owner).filter(pk=note.row).first()
        if row is None or row.status == Fact.Status.FORGOTTEN:
            return True
        if row.status == Fact.Status.OUTDATED:
            return False
        forget_fact(user=self._owner, fact=row)
        return True

    def _project(self, note: ImportedRow) -> bool:
        row = Project.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return True
        if row.version > 1 or Conversation.objects.filter(project=row, deleted=None).exists():
            return False
        if _has_facts(FactScope(project=row)):
            return False
        own_files = self._job.rows.filter(kind=ImportedRow.Kind.FILE).values("row")
        if row.memberships.exists() or ProjectFile.objects.filter(project=row).exclude(file__in=own_files).exists():
            return False
        delete_project(user=self._owner, project=row)
        return True

    def _persona(self, note: ImportedRow) -> bool:
        row = Persona.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return True
        if row.version > 1 or row.shares.exists() or Project.objects.filter(persona=row).exists():
            return False
        if Conversation.objects.filter(persona=row, deleted=None).exists() or _has_facts(FactScope(persona=row)):
            return False
        delete_persona(user=self._owner, persona=row)
        return True

    def _prompt(self, note: ImportedRow) -> bool:
        row = SavedPrompt.objects.filter(pk=note.row, owner=self._owner).first()
        if row is not None:
            delete_saved_prompt(user=self._owner, prompt=row)
        return True

    def _file(self, note: ImportedRow) -> bool:
        row = File.objects.filter(pk=note.row, owner=self._owner).first()
        if row is None:
            return True
        attached = Attachment.objects.filter(file=row, message__conversation__deleted=None).exists()
        again = row.uploaded_again is not None and row.uploaded_again > note.created + CHANGE_MARGIN
        if attached or again or ProjectFile.objects.filter(file=row).exists():
            return False
        file_services.delete(user=self._owner, file=row)
        return True


def _has_facts(scope: FactScope) -> bool:
    """Return whether facts are remembered for this project or persona. They would be deleted with it."""
    facts = Fact.objects.filter(project=scope.project, persona=scope.persona)
    return facts.exclude(status=Fact.Status.FORGOTTEN).exists()
