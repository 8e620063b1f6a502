"""Store the lists and files of an own export, and the lists of other products in the same form.

`own_conversations` stores the conversations of an own export.

Rows that exist already are recognised, so that a second import creates nothing: files by name and content, personas by
name or time, projects by name and time, prompts by name and holder, tasks by code.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO, Any

from django.core.files.base import ContentFile
from django.core.files.base import File as Content
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access.offered_models import set_favourite
from accounts.access.rights import models_of
from accounts.models import User
from accounts.services import PreferenceFields, change_preferences, hide_tasks_notice
from chat.conversations.importing.journal import ImportJournal
from chat.conversations.importing.own_rows import ExportedRow, iterate_rows
from chat.conversations.importing.reading import MAX_TITLE
from chat.conversations.importing.results import FilePiece, ImportResult, ListEntry, Outcome
from chat.memory.models import Fact, Profile
from chat.memory.services import EVERYWHERE, FactScope, ProfileFields, add_fact, profile_for, save_profile
from chat.models import ImportedRow
from core.errors import ProductError
from core.faces import FaceColour, FaceIcon
from core.sentences import Sentence
from files.models import File
from files.services import clean_name
from llm.models import Effort, FavouriteModel
from personas.models import BudgetProfile, Persona
from personas.services import PersonaFields, create_persona
from personas.sharing.names import unique_name
from projects.models import Project
from projects.planner.models.codes import MAX_LENGTH
from projects.planner.models.task import MAX_MODEL, MAX_NEEDS, Task
from projects.planner.restoring import TaskCopy, restore_tasks
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import create_saved_prompt
from projects.services import MAX_INSTRUCTIONS, MAX_NAME, add_file, create_project
from workspace.models import DateAwareness

MAX_ROWS = 20_000  # of one list
MAX_NOTES = 100_000  # characters of a task's notes
MAX_MEMORY = 20_000  # characters of one memory
MEMORIES_FILE = "Memories.md"  # the file with the memories of another product
MAX_FAVOURITES = 200  # favourite models
MAX_NAMED = 3  # reasons or codes in one sentence
STEP = timedelta(milliseconds=1)  # the precision of times in the lists


@dataclass(slots=True)
class Tally:
    """Counts the stored, existing and refused rows of one list.

    `remarks` are sentences about rows that were imported in part or refused.
    """

    stored: int = 0
    existing: int = 0
    refused: int = 0
    remarks: list[Sentence] = field(default_factory=list)

    def refuse(self, sentence: Sentence) -> None:
        """Count a refused row, and remark the reason."""
        self.refused += 1
        self.remark(sentence)

    def remark(self, sentence: Sentence) -> None:
        """Add a remark. Repetitions and remarks after the first `MAX_NAMED` are dropped."""
        if sentence not in self.remarks and len(self.remarks) < MAX_NAMED:
            self.remarks.append(sentence)

    def result(self, title: str) -> ImportResult:
        counted = Sentence(
            "{stored} imported, {existing} here already, {refused} skipped.",
            stored=self.stored,
            existing=self.existing,
            refused=self.refused,
        )
        outcome: Outcome = "imported" if self.stored else "known" if self.existing or not self.refused else "skipped"
        return {
            "title": title,
            "outcome": outcome,
            "why": join_sentences([counted, *self.remarks]).dump(),
            "conversation": None,
        }


def join_sentences(sentences: Sequence[Sentence]) -> Sentence:
    """Return the sentences as one."""
    result = sentences[0]
    for sentence in sentences[1:]:
        result = Sentence("{first} {second}", first=result, second=sentence)
    return result


@dataclass(slots=True)
class IncomingFile:
    """A file of the export whose bytes are being read."""

    row: ExportedRow
    content: IO[bytes]
    digest: Any


class OwnLists:
    """Stores the lists and files of one export for its owner.

    `files`, `personas` and `projects` map the ids in the export to the stored rows.
    """

    def __init__(self, owner: User, journal: ImportJournal) -> None:
        self.owner = owner
        self._journal = journal
        self.files: dict[str, File] = {}
        self.personas: dict[str, Persona] = {}
        self.projects: dict[str, Project] = {}
        self._listed: dict[str, ExportedRow] = {}
        self._incoming: IncomingFile | None = None
        self._file_tally = Tally()

    def take_list(self, entry: ListEntry) -> list[ImportResult]:
        """Store the rows of a list. Return the results that are complete."""
        if entry.name == "files":
            self._listed = {row.text("id", 40): row for row in iterate_rows(entry.rows, MAX_ROWS)}
            return []
        results = [] if entry.name == "settings" else self._files_done()
        readers: dict[str, Callable[[ExportedRow, Tally], None]] = {
            "settings": self._settings,
            "personas": self._persona,
            "projects": self._project,
            "prompts": self._prompt,
            "profile": self._profile,
            "memory": self._fact,
        }
        tally = Tally()
        if entry.name == "tasks":
            self._tasks(iterate_rows(entry.rows, MAX_ROWS), tally)
        elif entry.name == "memories":
            self._memories(iterate_rows(entry.rows, MAX_ROWS), tally)
        elif reader := readers.get(entry.name):
            for row in iterate_rows(entry.rows, MAX_ROWS):
                try:
                    with transaction.atomic():
                        reader(row, tally)
                except ProductError as error:
                    tally.refuse(error.sentence)
        if len(entry.rows) > MAX_ROWS:
            tally.remark(Sentence("Only the first {most} of {count} were read.", most=MAX_ROWS, count=len(entry.rows)))
        return [*results, tally.result(f"{entry.name}.json")] if entry.rows else results

    def take_piece(self, piece: FilePiece) -> None:
        """Store the next bytes of a file; its last piece stores the file."""
        row = self._listed.get(piece.file)
        if row is None:
            return
        if self._incoming is None or self._incoming.row is not row:
            self._incoming = IncomingFile(row, tempfile.TemporaryFile(), hashlib.sha256())  # noqa: SIM115 - closed below
        self._incoming.content.write(piece.data)
        self._incoming.digest.update(piece.data)
        if piece.last:
            incoming, self._incoming = self._incoming, None
            with incoming.content:
                self._store_file(piece.file, incoming)

    def _store_file(self, key: str, incoming: IncomingFile) -> None:
        name = clean_name(incoming.row.text("name", 255))
        existing = self.known_file(name, incoming.digest.hexdigest())
        if existing is not None:
            self.files[key] = existing
            self._file_tally.existing += 1
            return
        incoming.content.seek(0)
        try:
            with transaction.atomic():
                file = self._journal.store_file(self.owner, name, Content(incoming.content, name=name))
                if not file.repeated:
                    File.objects.filter(pk=file.pk).update(created=not_in_future(incoming.row.moment("created")))
        except ProductError as error:
            self._file_tally.refuse(error.sentence)
            return
        self.files[key] = file
        self._file_tally.stored += 1

    def known_file(self, name: str, sha256: str) -> File | None:
        """Return the owner's file with this name and content, if there is one."""
        return File.objects.filter(owner=self.owner, name=name, sha256=sha256).order_by("pk").first()

    def _files_done(self) -> list[ImportResult]:
        """Return the result of the files if it is still due. Listed files without bytes are refused."""
        if not self._listed:
            return []
        missing = len(self._listed) - self._file_tally.stored - self._file_tally.existing - self._file_tally.refused
        if missing > 0:
            self._file_tally.refused += missing
            self._file_tally.remark(Sentence("Files whose bytes are not in the export: {count}.", count=missing))
        self._listed = {}
        return [self._file_tally.result("files.json")]

    def _settings(self, row: ExportedRow, tally: Tally) -> None:
        """Import the settings that the owner has never changed."""
        owner = User.objects.get(pk=self.owner.pk)
        fields: PreferenceFields = {}
        if not owner.language and row.text("language", 10):
            fields["language"] = row.text("language", 10)
        if owner.timezone_source != User.ZoneSource.CHOSEN and row.text("timezone", 64):
            fields["timezone"] = row.text("timezone", 64)
        if not (owner.icon or owner.colour):
            fields["icon"] = row.choice("icon", FaceIcon.values)
            fields["colour"] = row.choice("colour", FaceColour.values)
        if not owner.theme:
            fields["theme"] = row.choice("theme", User.Theme.values)
        if not owner.accepts_model_tasks:
            fields["accepts_model_tasks"] = row.flag("accepts_model_tasks")
        if not owner.asks_before_search:
            fields["asks_before_search"] = row.flag("asks_before_search")
        if owner.tasks_in_prompts:
            fields["tasks_in_prompts"] = row.flag("tasks_in_prompts", default=True)
        change_preferences(user=owner, fields=fields)
        self._favourites(row, tally)
        if row.flag("tasks_notice_seen"):
            hide_tasks_notice(user=owner)
        tally.stored += 1

    def _favourites(self, row: ExportedRow, tally: Tally) -> None:
        """Mark the favourite models, unless the owner has chosen some here."""
        if FavouriteModel.objects.filter(user=self.owner).exists():
            return
        models = {model.name: model for model in models_of(self.owner)}
        for name in dict.fromkeys(row.texts("favourite_models", MAX_FAVOURITES, 200)):
            if name in models:
                set_favourite(user=self.owner, model=models[name].pk, favourite=True)
            else:
                tally.remark(_missing_model_sentence(name))

    def _profile(self, row: ExportedRow, tally: Tally) -> None:
        """Import the texts of the profile that are still empty."""
        profile = profile_for(self.owner)
        fields: ProfileFields = {}
        if not profile.about:
            fields["about"] = row.text("about", Profile.MAX_TEXT)
        if not profile.answering:
            fields["answering"] = row.text("answering", Profile.MAX_TEXT)
        if not fields:
            tally.existing += 1
            return
        fields["in_prompts"] = profile.in_prompts and row.flag("in_prompts", default=True)
        if row.text("proposals", 10) == Profile.Proposals.ASK and profile.proposals == Profile.Proposals.OFF:
            fields["proposals"] = Profile.Proposals.ASK
        fields["search_conversations"] = profile.search_conversations or row.flag("search_conversations")
        save_profile(user=self.owner, fields=fields)
        tally.stored += 1

    def _fact(self, row: ExportedRow, tally: Tally) -> None:
        """Store a remembered fact without its sources, since imported messages get new ids."""
        if row.text("status", 10) != Fact.Status.KEPT:
            raise ProductError("fact_not_kept", Sentence("Facts that are proposed or outdated are skipped."))
        text = " ".join(row.text("text", Fact.MAX_TEXT).split())
        scope = EVERYWHERE
        if name := row.text("project", MAX_NAME):
            scope = FactScope(project=next((each for each in self.projects.values() if each.name == name), None))
        elif name := row.text("persona", Persona.MAX_NAME):
            scope = FactScope(persona=next((each for each in self.personas.values() if each.name == name), None))
        if name and scope == EVERYWHERE:
            raise ProductError("lost_scope", Sentence("Facts of projects and personas that are not here are skipped."))
        rows = Fact.objects.visible_to(self.owner).filter(text=text, status=Fact.Status.KEPT)
        if rows.filter(scope=scope.kind, project=scope.project, persona=scope.persona).exists():
            tally.existing += 1
            return
        now = timezone.now()
        fact = add_fact(user=self.owner, text=text, scope=scope, pinned=row.flag("pinned"))
        if fact.created < now:  # `add_fact` returned an older fact with the same words
            tally.existing += 1
            return
        self._journal.add(ImportedRow.Kind.FACT, fact.pk)
        tally.stored += 1

    def _persona(self, row: ExportedRow, tally: Tally) -> None:
        name = row.text("name", Persona.MAX_NAME).strip()
        created = not_in_future(row.moment("created"))
        mine = Persona.objects.filter(owner=self.owner)
        existing = mine.filter(Q(name__iexact=name) | _created_at(created)).first()
        if existing is not None:
            self.personas[row.text("id", 40)] = existing
            tally.existing += 1
            return
        if not name:
            raise ProductError("empty_name", Sentence("A persona without a name is skipped."))
        instructions = row.text("instructions", Persona.MAX_INSTRUCTIONS + 1)
        if len(instructions) > Persona.MAX_INSTRUCTIONS:
            most = Persona.MAX_INSTRUCTIONS
            why = Sentence("The instructions of “{name}” have more than {most} characters.", name=name, most=most)
            raise ProductError("instructions_too_long", why)
        models = {model.name: model for model in models_of(self.owner)}
        model_name = row.text("model", 200)
        profile_name = row.text("budget_profile", 100)
        profile = BudgetProfile.objects.filter(name=profile_name).first() if profile_name else None
        fields: PersonaFields = {
            "name": unique_name(name, self.owner),
            "description": row.text("description", 300),
            "instructions": instructions,
            "replaces_system_prompt": row.flag("replaces_system_prompt"),
            "starter_messages": row.texts("starter_messages", Persona.MAX_STARTERS, Persona.MAX_STARTER),
            "tools": row.texts("tools", 128, 100),
            "effort": row.choice("effort", Effort.values),
            "memory": row.flag("memory", default=True),
            "date_awareness": row.choice("date_awareness", DateAwareness.values, DateAwareness.DAY),
            "model": models.get(model_name),
            "budget_profile": profile,
            "icon": row.choice("icon", FaceIcon.values),
            "colour": row.choice("colour", FaceColour.values),
        }
        persona = create_persona(user=self.owner, fields=fields, reminder=row.text("own_reminder", 2_000))
        Persona.objects.filter(pk=persona.pk).update(created=created)
        self._journal.add(ImportedRow.Kind.PERSONA, persona.pk)
        self.personas[row.text("id", 40)] = persona
        tally.stored += 1
        if model_name and model_name not in models:
            tally.remark(_missing_model_sentence(model_name))
        if profile_name and profile is None:
            tally.remark(Sentence("There is no budget profile “{name}” here.", name=profile_name))
        if row.text("visibility", 20) == Persona.Visibility.WORKSPACE:
            tally.remark(Sentence("Personas for everyone are imported as your own. Publish them again."))
        if lost := row.texts("lost", MAX_NAMED, 40):
            tally.remark(Sentence("“{name}” was imported without: {lost}.", name=name, lost=", ".join(lost)))

    def _project(self, row: ExportedRow, tally: Tally) -> None:
        name = " ".join(row.text("name", MAX_NAME).split())
        created = not_in_future(row.moment("created"))
        existing = Project.objects.filter(_created_at(created), owner=self.owner, name=name).first()
        if existing is not None:
            self.projects[row.text("id", 40)] = existing
            tally.existing += 1
            return
        persona_name = row.text("persona", Persona.MAX_NAME)
        persona = self.persona_named(row.text("persona_id", 40), persona_name)
        instructions = row.text("instructions", MAX_INSTRUCTIONS)
        project = create_project(
            user=self.owner,
            fields={
                "name": name, "instructions": instructions, "web": row.flag("web", default=True), "persona": persona,
                "findable": row.flag("findable", default=True),
                "icon": row.choice("icon", FaceIcon.values), "colour": row.choice("colour", FaceColour.values),
            },
        )  # fmt: skip
        Project.objects.filter(pk=project.pk).update(created=created)
        self._journal.add(ImportedRow.Kind.PROJECT, project.pk)
        self.projects[row.text("id", 40)] = project
        missing = 0
        for each in row.rows("files", MAX_ROWS):
            file = self.files.get(each.text("file", 40))
            if file is None:
                missing += 1
            else:
                add_file(user=self.owner, project=project, file=file, pinned=each.flag("pinned"))
        tally.stored += 1
        if persona_name and persona is None:
            tally.remark(_missing_persona_sentence(persona_name))
        if missing:
            tally.remark(Sentence("Missing files of “{name}”: {count}.", count=missing, name=name))

    def _prompt(self, row: ExportedRow, tally: Tally) -> None:
        key = row.text("project", 40)
        project = self.projects.get(key)
        if key and project is None:
            raise ProductError("no_project", Sentence("The prompts of a project that is not here are skipped."))
        name = row.text("name", SavedPrompt.MAX_NAME)
        holder = {"project": project} if project is not None else {"owner": self.owner}
        if SavedPrompt.objects.filter(**holder, name=name).exists():
            tally.existing += 1
            return
        text = row.text("text", SavedPrompt.MAX_TEXT + 1)  # a text that is too long is refused, not cut
        prompt = create_saved_prompt(user=self.owner, name=name, text=text, project=project)
        self._journal.add(ImportedRow.Kind.PROMPT, prompt.pk)
        tally.stored += 1

    def _memories(self, rows: Iterable[ExportedRow], tally: Tally) -> None:
        """Store the memories of another product as one file, a line for each."""
        texts = dict.fromkeys(" ".join(row.text("text", MAX_MEMORY + 1).split()) for row in rows)
        for text in texts:
            if len(text) > MAX_MEMORY:
                tally.refuse(Sentence("A memory has more than {most} characters.", most=MAX_MEMORY))
        lines = [f"- {text}\n" for text in texts if 0 < len(text) <= MAX_MEMORY]
        if not lines:
            return
        content = ContentFile("".join(lines).encode(), name=MEMORIES_FILE)
        try:
            file = self._journal.store_file(self.owner, MEMORIES_FILE, content)
        except ProductError as error:
            tally.refuse(error.sentence)
            return
        if file.repeated:
            tally.existing += len(lines)
            return
        tally.stored += len(lines)
        tally.remark(Sentence("They were imported as the file “{name}”, one per line.", name=MEMORIES_FILE))

    def _tasks(self, rows: Iterable[ExportedRow], tally: Tally) -> None:
        with transaction.atomic():
            result = restore_tasks(user=self.owner, copies=[self._task(row) for row in rows])
            self._journal.add_several(ImportedRow.Kind.TASK, result.stored)
        tally.stored = len(result.stored)
        tally.existing = result.existing
        tally.refused = len(result.refused)
        if result.refused:
            names = ", ".join(result.refused[:MAX_NAMED])
            tally.remark(Sentence("Some tasks have invalid values and were skipped, for example {names}.", names=names))

    def _task(self, row: ExportedRow) -> TaskCopy:
        return TaskCopy(
            code=row.text("code", MAX_LENGTH),
            title=row.text("title", MAX_TITLE),
            notes=row.text("notes", MAX_NOTES),
            archetype=row.choice("archetype", Task.Archetype.values),
            status=row.choice("status", Task.Status.values, Task.Status.OPEN),
            breakpoint=row.flag("breakpoint"),
            needs=row.text("needs", MAX_NEEDS),
            cleared=row.moment("cleared"),
            project=self.projects.get(row.text("project", 40)),
            parent=row.text("parent__code", MAX_LENGTH),
            position=row.number("position"),
            moved_to=row.text("moved_to__code", MAX_LENGTH),
            model=row.text("model", MAX_MODEL),
            proposed=row.flag("proposed"),
            created=not_in_future(row.moment("created")),
            finished=row.moment("finished"),
        )

    def persona_named(self, key: str, name: str) -> Persona | None:
        """Return the imported persona, else a persona with this name that the owner sees."""
        if not key and not name:
            return None
        return self.personas.get(key) or Persona.objects.visible_to(self.owner).filter(name=name).first()

    def project_named(self, key: str, name: str) -> Project | None:
        """Return the imported project, else a project with this name that the owner sees."""
        if not key and not name:
            return None
        return self.projects.get(key) or Project.objects.visible_to(self.owner).filter(name=name).first()


def not_in_future(moment: datetime | None) -> datetime:
    """Return the time; the current time instead of a time in the future or None."""
    now = timezone.now()
    return min(moment, now) if moment is not None else now


def _created_at(created: datetime) -> Q:
    """Return the condition that a row was created at this time, to the millisecond."""
    return Q(created__gte=created, created__lt=created + STEP)


def _missing_model_sentence(name: str) -> Sentence:
    return Sentence("You have no model “{name}” here.", name=name)


def _missing_persona_sentence(name: str) -> Sentence:
    return Sentence("You have no persona “{name}” here.", name=name)
