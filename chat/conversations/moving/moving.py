"""Move a whole workspace of another product here: people with their groups, and what each of them has.

1. `move` goes through the people of the source, and finds or makes their accounts (`people`).
2. Each person gets an import in their list (`Import`). It names what could not be kept, and can be undone.
3. Rows are stored one by one, each in a transaction of its own: projects, memories, prompts, personas, conversations.

If the command is interrupted, it is run again: rows that are here are recognised, as in an import of an upload. A dry
run reads everything, stores nothing, and lists the same.

The report ends with the groups (`groups.GroupChoice`), the models of answers with their prices here, and what has no
counterpart.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.core.files.base import ContentFile
from django.core.files.base import File as Content
from django.db import DatabaseError, IntegrityError
from django.utils import timezone

from accounts.models import User
from chat.conversations.importing.counting import COUNTING_JOBS
from chat.conversations.importing.jobs import existing_result
from chat.conversations.importing.journal import ImportJournal
from chat.conversations.importing.reading import ImportedConversation, ImportedListRow
from chat.conversations.importing.restoring import OwnLists
from chat.conversations.importing.results import ImportResult, ListEntry
from chat.conversations.importing.storing import LOSS_SENTENCES, ForeignRows
from chat.conversations.moving.groups import GroupChoice
from chat.conversations.moving.people import UnclearAccount, account_of, create_account
from chat.conversations.moving.sources import ForeignPerson, ForeignProject, MoveSource, SkippedRow
from chat.models import Conversation, Import
from core.errors import ProductError
from core.sentences import Sentence
from files.models import File
from llm.models import Model
from projects.services import add_file

SAVE_EVERY = 50  # rows
LIST_ROWS = 200  # rows of a list that are stored together
NAMED = 5  # skipped rows that the report of a person names
LISTED = 50  # names of a kind that the report of a person lists
MAX_NAME = 80  # characters of a name in the report

Write = Callable[[str], object]


@dataclass(slots=True)
class PersonReport:
    """Counts what came for one person: `counts` by kind, `losses` by the kind of a part that did not come.

    `names` are those of rows that have a name, by kind. `models` counts the answers by the name of their model.
    """

    counts: "Counter[str]" = field(default_factory=Counter)
    losses: "Counter[str]" = field(default_factory=Counter)
    models: "Counter[str]" = field(default_factory=Counter)
    names: dict[str, dict[str, None]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def skip(self, title: str, why: Sentence) -> None:
        self.counts["skipped"] += 1
        if len(self.skipped) < NAMED:
            self.skipped.append(f"skipped “{title[:MAX_NAME]}”: {why.english}")

    def add_name(self, kind: str, name: str) -> None:
        """Count a named row, such as a project. A name counts once."""
        names = self.names.setdefault(kind, {})
        if name not in names:
            names[name] = None
            self.counts[kind] += 1

    def add_answers(self, row: ImportedConversation) -> None:
        self.models.update(message.model for message in row.messages if message.model)

    def lines(self) -> Iterator[str]:
        yield ", ".join(f"{number:,} {name}" for name, number in self.counts.items() if number) or "nothing"
        for kind, names in self.names.items():
            listed = ", ".join(f"“{name[:MAX_NAME]}”" for name in list(names)[:LISTED])
            more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
            yield f"{kind}: {listed}{more}"
        yield from (
            LOSS_SENTENCES[key](number).english
            for key, number in self.losses.items()
            if key in LOSS_SENTENCES and number
        )
        yield from self.skipped


def move(
    source: MoveSource, *, write: Write, dry_run: bool, groups: GroupChoice, only: frozenset[str] = frozenset()
) -> None:
    """Move all people of a source, or only those with these e-mail addresses in lower case. `write` gets the report."""
    total: Counter[str] = Counter()
    models: Counter[str] = Counter()
    for person in source.people():
        if only and person.email.lower() not in only:
            continue
        label = person.email or person.username or person.key
        try:
            user = account_of(person)
        except UnclearAccount as error:
            write(f"{label}: nothing is moved: {error}.")
            continue
        write(f"{label}: {_describe(person, user)}")
        if dry_run:
            groups.look(user, person.groups)
            report = _look(source, person, user)
        else:
            user = user or create_account(person)
            groups.join(user, person.groups)
            report = _Moving(source, person, user).move()
        total.update(report.counts)
        models.update(report.models)
        for line in report.lines():
            write(f"  {line}")
    write(f"Together: {', '.join(f'{number:,} {name}' for name, number in total.items() if number) or 'nothing'}.")
    for line in groups.lines():
        write(line)
    for line in _model_lines(models):
        write(line)
    for sentence in source.left_behind():
        write(f"No counterpart here: {sentence.english}")


def _model_lines(models: "Counter[str]") -> Iterator[str]:
    """Yield a line for each model that wrote answers there: whether it is here, and with which prices."""
    here: dict[str, list[Model]] = {}
    for model in Model.objects.filter(name__in=list(models)).select_related("provider").order_by("pk"):
        here.setdefault(model.name, []).append(model)
    for name, count in models.most_common():
        answers = "1 answer" if count == 1 else f"{count:,} answers"
        states = [_price_state(model) for model in here.get(name, ())]
        state = "; ".join(states) or "no model here has this name. Connect it first, so that answers name their model"
        yield f"Model “{name[:MAX_NAME]}”: {answers}: {state}"


def _price_state(model: Model) -> str:
    prices = model.prices
    if prices is None:
        return f"here at {model.provider.name}, without prices"
    numbers = " / ".join(f"{price.normalize():f}" for price in (prices.input, prices.output))
    return f"here at {model.provider.name}, {numbers} US dollars a million tokens"


def _describe(person: ForeignPerson, user: User | None) -> str:
    """Return the account of a person, their groups there, and what does not come along, in words."""
    state = f"account “{user.get_username()}”" if user is not None else "a new account"
    if person.waits and user is None:
        state += ", deactivated as there"
    groups = f", groups: {', '.join(person.groups)}" if person.groups else ""
    admin = "; was an administrator there, which does not come along" if person.is_admin else ""
    return f"{state}{groups}{admin}"


def _look(source: MoveSource, person: ForeignPerson, user: User | None) -> PersonReport:
    """Return what would come for a person."""
    report = PersonReport()
    for row in source.rows_of(person):
        match row:
            case SkippedRow():
                report.skip(row.title, row.why)
            case ForeignProject():
                report.add_name("projects", row.name)
                missing = sum(not _has_content(source, key) for key in row.files)
                report.counts["files"] += len(row.files) - missing
                report.losses["files"] += missing
            case ImportedListRow():
                _count_list_row(report, row)
            case ImportedConversation():
                sources = Conversation.objects.filter(owner=user, imported_from=row.source)
                is_here = user is not None and sources.exists()
                report.counts["conversations here already" if is_here else "conversations"] += 1
                report.counts["messages"] += 0 if is_here else len(row.messages)
                report.losses.update(row.losses)
                report.add_answers(row)
                if row.folder and not is_here:
                    report.add_name("projects", row.folder)
                for file in (file for message in row.messages for file in message.files):
                    has_content = bool(file.data or file.text) or _has_content(source, file.key)
                    report.counts["files"] += has_content
                    report.losses["files"] += not has_content
    return report


def _count_list_row(report: PersonReport, row: ImportedListRow) -> None:
    name = row.row.get("name")
    if isinstance(name, str) and name:
        report.add_name(row.name, name)
    else:
        report.counts[row.name] += 1


def _has_content(source: MoveSource, key: str) -> bool:
    content = source.open_file(key)
    if content is not None:
        content.close()
        return True
    file = source.file(key) if key else None
    return file is not None and bool(file.text)


class _Moving:
    """Moves the rows of one person."""

    def __init__(self, source: MoveSource, person: ForeignPerson, user: User) -> None:
        self._source = source
        self._person = person
        self._user = user
        self._report = PersonReport()
        self._results: list[ImportResult] = []
        self._lists: dict[str, list[dict[str, object]]] = {}
        # The import of an interrupted command goes on.
        unfinished = Import.objects.visible_to(user).filter(name=source.product, blob="", status=Import.Status.PAUSED)
        self._job = unfinished.first() or Import.objects.create(
            owner=user, name=source.product, status=Import.Status.PAUSED, finished=timezone.now()
        )
        journal = ImportJournal(self._job)
        self._journal = journal
        self._own = OwnLists(user, journal)
        self._foreign = ForeignRows(user, journal, source.open_file)

    def move(self) -> PersonReport:
        for number, row in enumerate(self._source.rows_of(self._person), start=1):
            match row:
                case SkippedRow():
                    self._report.skip(row.title, row.why)
                    self._results.append(_skipped(row.title, row.why))
                case ForeignProject():
                    self._project(row)
                case ImportedListRow():
                    self._list_row(row)
                case ImportedConversation():
                    self._store_lists()
                    self._conversation(row)
            if number % SAVE_EVERY == 0 and not self._save(status=Import.Status.PAUSED):
                return self._report  # its owner undoes it, or has removed it
        self._store_lists()
        self._end()
        return self._report

    def _save(self, status: Import.Status) -> bool:
        """Store the numbers so far. Return False if the import is no longer this command's."""
        counts = Counter(result["outcome"] for result in self._results if result["conversation"])
        rows = Import.objects.filter(pk=self._job.pk, status=Import.Status.PAUSED)
        done = status == Import.Status.DONE
        return bool(
            rows.update(
                status=status,
                imported=counts["imported"],
                known=counts["known"],
                skipped=self._report.counts["skipped"],
                finished=timezone.now(),
                heartbeat=timezone.now(),
                progress=100 if done else 0,
                counting=done,
                results=self._results if done else [],
            )
        )

    def _end(self) -> None:
        """End the import. One that has brought nothing leaves no trace, so that a second run changes nothing."""
        if not self._job.rows.exists():
            Import.objects.filter(pk=self._job.pk, status=Import.Status.PAUSED).delete()
        elif self._save(Import.Status.DONE):
            COUNTING_JOBS.hand_over(self._job.pk)

    def _conversation(self, row: ImportedConversation) -> None:
        existing = self._foreign.existing(row)
        if existing is not None:
            result = existing_result(existing, self._journal)
            self._results.append(result)
            self._report.counts[
                "conversations" if result["outcome"] == "imported" else "conversations here already"
            ] += 1
            return
        for file in (file for message in row.messages for file in message.files):
            if not file.data and not file.text and file.key:
                stored = self._source.file(file.key)
                file.text = stored.text if stored is not None else ""
        try:
            conversation, losses = self._foreign.store(row)
        except IntegrityError:
            self._results.append(_skipped(row.title, Sentence("It is being imported already.")))
            return
        except DatabaseError as error:
            why = Sentence("It could not be stored.")
            self._report.skip(row.title, Sentence.verbatim(f"{why.english} {error}"))
            self._results.append(_skipped(row.title, why))
            return
        self._results.append(
            {
                "title": conversation.title,
                "outcome": "imported",
                "why": losses.dump(),
                "conversation": str(conversation.pk),
            }
        )
        self._report.counts["conversations"] += 1
        self._report.counts["messages"] += len(row.messages)
        self._report.losses.update(row.losses)
        self._report.add_answers(row)
        if row.folder:
            self._report.add_name("projects", row.folder)

    def _project(self, row: ForeignProject) -> None:
        try:
            project = self._foreign.project(row.name, row.instructions)
        except ProductError as error:
            self._report.skip(row.name, error.sentence)
            return
        self._report.add_name("projects", row.name)
        for key in row.files:
            file = self._file(key)
            if file is None:
                self._report.losses["files"] += 1
                continue
            add_file(user=self._user, project=project, file=file)
            self._report.counts["files"] += 1

    def _file(self, key: str) -> File | None:
        """Store a file by its bytes, else by its text; None if neither is here."""
        stored = self._source.file(key)
        if stored is None:
            return None
        content = self._source.open_file(key)
        try:
            if content is not None:
                with content:
                    return self._foreign.store_file(stored.name, Content(content, name=stored.name))
            if stored.text:
                name = f"{stored.name}.txt"
                return self._foreign.store_file(name, ContentFile(stored.text.encode(), name=name))
        except ProductError as error:
            self._report.skip(stored.name, error.sentence)
        return None

    def _list_row(self, row: ImportedListRow) -> None:
        self._lists.setdefault(row.name, []).append(row.row)
        if len(self._lists[row.name]) >= LIST_ROWS and row.name != "memories":
            self._store_lists()

    def _store_lists(self) -> None:
        for name, rows in self._lists.items():
            results = self._own.take_list(ListEntry(name, [*rows]))
            self._results += results
            for result in results:
                self._report.counts[name] += len(rows)
                if result["outcome"] == "skipped":
                    self._report.skip(name, Sentence.load(result["why"]))
        self._lists.clear()


def _skipped(title: str, why: Sentence) -> ImportResult:
    return {"title": title, "outcome": "skipped", "why": why.dump(), "conversation": None}
