"""Summaries of messages that are too old to be sent word for word, the jobs that write them, and users' marks.

A mark means that a turn is always sent or always left out (docs/develop/context.md, “Summaries” and “Marks”).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import connection, models
from django.db.models import Q
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import asked_with, zone_or_workspaces
from chat.models.conversation import OfConversation
from core.sentence_field import SentenceColumn
from personas.texts import Texts


class SummaryQuerySet(OfConversation["Summary"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        return super().visible_to(user).filter(last__deleted=None)

    def in_force(self) -> "SummaryQuerySet":
        return self.filter(withdrawn=None)


class Summary(models.Model):
    """A text that is sent instead of all messages from the root of a branch to `last`.

    It does not cover the messages in `left_aside`, which were pinned or left out when it was written. It is valid for
    every branch through `last` on which no covered message is left out.

    Only `withdrawn` ever changes in a row. An edited, rebuilt or longer summary is a new row that `supersedes` it.
    `sections` is a list of `{"name", "text"}`, oldest part first, names as in `chat.context.summary.SECTION_SHARES`.
    `shortened` lists the ids of messages that were too long to be summarised whole. If `last` or a message
    above it is deleted, the row is hidden and later deleted, too.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="summaries")
    leaf = models.ForeignKey(
        "chat.Message",
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text=("The end of the branch at that time."),
    )
    first = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="+")
    last = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="summaries_to_here")
    messages = models.PositiveIntegerField(help_text="Number of messages that it covers.")
    span_start = models.DateTimeField()
    span_end = models.DateTimeField()
    sections: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    shortened: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    left_aside: "models.JSONField[Any, Any]" = models.JSONField(
        default=list, help_text=("Ids of messages that are not in it.")
    )
    tokens_in = models.PositiveIntegerField(help_text="Tokens of the messages that it covers.")
    tokens_out = models.PositiveIntegerField(help_text="Tokens of its text in a prompt.")
    as_of = models.DateTimeField(help_text="The time that “Today” and “Now” refer to.")
    timezone = models.CharField(max_length=64, help_text="The time zone of “Today”.")
    model_name = models.CharField(max_length=200, blank=True, help_text="The model that wrote it; empty for a person.")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    prompt_version = models.PositiveIntegerField(help_text="Version of the summary prompt.")
    supersedes = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="later")
    withdrawn = models.DateTimeField(null=True, blank=True, help_text="When it was undone.")
    created = models.DateTimeField(auto_now_add=True)

    objects = SummaryQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        verbose_name_plural = "summaries"
        indexes: ClassVar = [
            models.Index(fields=["conversation"], condition=Q(withdrawn=None), name="summary_in_force")
        ]

    def __str__(self) -> str:
        return str(self.id)


class Mark(models.Model):
    """A user's choice to always send the turn of the question `message`, to leave it out, or to leave out one `file`.

    The file is attached to the question, or to an answer of the turn whose tools returned it.

    A mark applies to every branch that contains `since`, the last message of the branch when the mark was set. If a
    branch has several marks for a target, the one with the deepest `since` applies. `none` cancels a mark there and
    keeps it on other branches. A branch that forks above `since` gets a copy of the mark (`carry_marks`). A file cannot
    be pinned, but its turn can.
    """

    class Kind(models.TextChoices):
        PINNED = "pinned", "Always sent"
        EXCLUDED = "excluded", "Left out"
        NONE = "none", "No longer marked"

    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="marks")
    message = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="marks")
    file = models.ForeignKey("files.File", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    since = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="+")
    mark = models.CharField(max_length=10, choices=Kind)
    created = models.DateTimeField(auto_now_add=True)

    objects = OfConversation["Mark"].as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["since", "message", "file"], nulls_distinct=False, name="one_mark_per_target_and_place"
            ),
            models.CheckConstraint(condition=Q(file=None) | ~Q(mark="pinned"), name="files_are_not_pinned"),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} {self.mark}"


@dataclass(frozen=True, slots=True)
class MarkedMessage:
    """A message of a marked turn. `depth` is its position on the branch."""

    id: UUID
    question: UUID
    depth: int
    mark: str


@dataclass(frozen=True)
class Marks:
    """The marks of one branch. `files` maps each message of a turn to the files of the turn that are left out."""

    messages: Sequence[MarkedMessage] = ()
    files: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)

    @cached_property
    def by_message(self) -> dict[UUID, str]:
        """Return `pinned` or `excluded` for every message of a marked turn."""
        return {message.id: message.mark for message in self.messages}

    @cached_property
    def pinned(self) -> list[UUID]:
        return [message.id for message in self.messages if message.mark == Mark.Kind.PINNED]

    @cached_property
    def excluded(self) -> list[UUID]:
        return [message.id for message in self.messages if message.mark == Mark.Kind.EXCLUDED]

    def of_file(self, message: UUID, file: UUID | None) -> str | None:
        """Return the mark of a file of the message: its own mark, or else that of its turn."""
        left_out = file is not None and file in self.files.get(message, ())
        return Mark.Kind.EXCLUDED.value if left_out else self.by_message.get(message)

    def excludes_covered(self, last_depth: int, left_aside: Iterable[str]) -> bool:
        """Return whether a summary down to `last_depth` covers a message that is left out."""
        aside = frozenset(left_aside)
        return any(
            message.mark == Mark.Kind.EXCLUDED and message.depth <= last_depth and str(message.id) not in aside
            for message in self.messages
        )


NO_MARKS = Marks()

# Marks that apply to the branch that ends at `leaf`, as (target, file, mark, depth of `since`). If the conversation has
# no mark, the branch is not walked at all.
_HOLDING = """
WITH RECURSIVE path AS (
    SELECT id, parent_id, role, depth FROM chat_message
    WHERE id = %(leaf)s AND EXISTS (SELECT FROM chat_mark k WHERE k.conversation_id = %(conversation)s)
    UNION ALL
    SELECT m.id, m.parent_id, m.role, m.depth FROM chat_message m JOIN path ON m.id = path.parent_id
), holding AS (
    SELECT DISTINCT ON (k.message_id, k.file_id) k.message_id, k.file_id, k.mark, path.depth AS since
    FROM chat_mark k JOIN path ON path.id = k.since_id WHERE k.conversation_id = %(conversation)s
    ORDER BY k.message_id, k.file_id, path.depth DESC
)
"""

# Each mark with the messages of its turn: the question and the messages below it, up to the next question. Files are
# attached to the question, or to an answer whose tools returned them.
_MARKED = """
, turns AS (
    SELECT id, depth, max(CASE WHEN role = 'user' THEN depth END) OVER (ORDER BY depth) AS start FROM path
)
SELECT h.message_id, h.file_id, h.mark, t.id, t.depth FROM holding h
JOIN path q ON q.id = h.message_id JOIN turns t ON t.start = q.depth
WHERE h.mark <> 'none' ORDER BY t.depth
"""

# Marks that were set below the fork, on messages at or above the fork. No rows if the fork is not on the branch.
_TO_CARRY = """
SELECT h.message_id, h.file_id, h.mark FROM holding h
JOIN path q ON q.id = h.message_id JOIN path fork ON fork.id = %(fork)s
WHERE h.since > fork.depth AND q.depth <= fork.depth
"""


def marks_on(conversation_id: UUID, leaf_id: UUID | None) -> Marks:
    """Return the marks of the branch that ends at `leaf_id`; one query."""
    rows = _rows_of_marks(_MARKED, {"conversation": conversation_id, "leaf": leaf_id}) if leaf_id else []
    if not rows:
        return NO_MARKS
    files: dict[UUID, set[UUID]] = {}
    messages = []
    for question, file, mark, pk, depth in rows:
        if file is None:
            messages.append(MarkedMessage(pk, question, depth, mark))
        else:
            files.setdefault(pk, set()).add(file)
    return Marks(messages, {message: frozenset(ids) for message, ids in files.items()})


def carry_marks(conversation_id: UUID, leaf_id: UUID | None, fork: UUID, to: Iterable[UUID]) -> None:
    """Copy the marks of the branch that ends at `leaf_id` to branches that fork from it.

    The new branches begin with the messages `to`, which follow `fork` or replace it. Marks on messages below the fork
    are not copied.
    """
    values = {"conversation": conversation_id, "leaf": leaf_id, "fork": fork}
    carried = _rows_of_marks(_TO_CARRY, values) if leaf_id and leaf_id != fork else []
    set_marks(
        Mark(conversation_id=conversation_id, message_id=message, file_id=file, mark=mark, since_id=since)
        for message, file, mark in carried
        for since in to
    )


def set_marks(marks: Iterable[Mark]) -> None:
    """Store the marks. Each replaces the mark with the same target and `since`."""
    fields = ["since", "message", "file"]
    Mark.objects.bulk_create(list(marks), update_conflicts=True, unique_fields=fields, update_fields=["mark"])


def _rows_of_marks(select: str, values: Mapping[str, Any]) -> list[Any]:
    """Run `select` on the marks that apply to a branch, and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(_HOLDING + select, values)
        return list(cursor.fetchall())


class SummaryJobQuerySet(models.QuerySet["SummaryJob"]):
    def live(self) -> "SummaryJobQuerySet":
        return self.filter(status__in=SummaryJob.LIVE)


class SummaryJob(models.Model):
    """One attempt to bring a conversation's next prompt down to the floor. The row decides which worker has the job.

    `target` is the summary to rebuild from the messages. Without it the job continues from the newest summary.
    """

    class Reason(models.TextChoices):
        CEILING = "ceiling", "The ceiling was passed"
        ASKED = "asked", "Somebody asked for it"
        REBUILD = "rebuild", "The summary is written anew"

    class Status(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    LIVE = (Status.QUEUED, Status.RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="summary_jobs")
    reason = models.CharField(max_length=10, choices=Reason, default=Reason.CEILING)
    model = models.ForeignKey("llm.Model", null=True, on_delete=models.SET_NULL, related_name="+")
    token = asked_with()
    target = models.ForeignKey(Summary, null=True, on_delete=models.CASCADE, related_name="+")
    used = models.PositiveIntegerField(default=0, help_text="Tokens of the turn that asked for it.")
    fixed = models.PositiveIntegerField(default=0, help_text="Tokens of the parts that all prompts have.")
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    code = models.CharField(max_length=60, blank=True)
    detail = SentenceColumn(blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(
        default=timezone.now, editable=False, help_text="For a replacement: when the replaced job was created."
    )
    finished = models.DateTimeField(null=True, blank=True)
    again = models.BooleanField(
        default=False, db_default=False, help_text="It replaces a job whose worker was lost. It is not replaced again."
    )

    objects = SummaryJobQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["conversation"],
                condition=Q(status__in=["queued", "running"]),
                name="one_live_summary_job",
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


# Walks up from the leaf to the first message at which a summary ends. Its cost grows with the messages that no summary
# covers.
_FIRST_COVERED = """
WITH RECURSIVE up AS (
    SELECT id, parent_id FROM chat_message WHERE id = %(leaf)s
    UNION ALL
    SELECT m.id, m.parent_id FROM chat_message m JOIN up ON m.id = up.parent_id WHERE up.id <> ALL(%(ends)s)
)
SELECT id FROM up WHERE id = ANY(%(ends)s)
"""


def in_force(
    conversation_id: UUID, leaf_id: UUID | None, marks: Marks | None = None, *, prompt_version: int | None = None
) -> Summary | None:
    """Return the valid summary of the branch that ends at `leaf_id`: the one that reaches furthest, then the newest.

    A summary covers all messages above its last one, so it is valid on a branch that contains its last message. A
    branch that forked before that message gets an earlier summary, or none. A summary of a message that is left out is
    not valid. If `marks` is None, the marks of the branch are read. `prompt_version`: only summaries of that version.
    """
    rows = Summary.objects.in_force().filter(conversation=conversation_id)
    if prompt_version is not None:
        rows = rows.filter(prompt_version=prompt_version)
    candidates = list(rows.values_list("pk", "last", "last__depth", "left_aside")) if leaf_id else []
    if not candidates:
        return None
    marks = marks_on(conversation_id, leaf_id) if marks is None else marks
    holding = {pk: last for pk, last, depth, aside in candidates if not marks.excludes_covered(depth, aside)}
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_COVERED, {"leaf": leaf_id, "ends": list({*holding.values()})})
        end = cursor.fetchone()
    return rows.filter(pk__in=holding, last=end[0]).select_related("last").order_by("-id").first() if end else None


def text_of(summary: Summary, texts: Texts) -> str:
    """Return the text that the model reads. It depends on the row alone, so “Today” is written with its date."""
    zone = zone_or_workspaces(summary.timezone)
    end = summary.span_end.astimezone(zone)
    written = summary.as_of.astimezone(zone)
    header = texts.fill("summary", until=f"{end:%Y-%m-%d %H:%M}", weekday=f"{written:%A}", date=f"{written:%Y-%m-%d}")
    return "\n".join([header, *bracketed(summary.sections)])


def bracketed(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line for each section: `[Today: …]`."""
    return [f"[{section['name']}: {section['text']}]" for section in sections if section["text"]]
