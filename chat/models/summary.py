"""Summaries of what is too old to be sent word for word, and their jobs (docs/context.md, “Summaries”)."""

import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.db import connection, models
from django.db.models import Q, QuerySet
from uuid_utils.compat import uuid7

from chat.models.conversation import OfConversation


class SummaryQuerySet(OfConversation["Summary"]):
    def in_force(self) -> "SummaryQuerySet":
        return self.filter(withdrawn=None)


class Summary(models.Model):
    """Stands for every message from the root of a branch to `last`, so it holds for every branch through `last`.

    A row never changes but for `withdrawn`: an edited, rebuilt or longer summary is a new row that `supersedes` it.
    `sections` is a list of `{"name", "text"}`, oldest part first, names as in `chat.context.summary.SECTION_SHARES`.
    `shortened` lists the ids of messages that were too long to be summarised whole. Deleting `last` deletes the row,
    and so does deleting anything above it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="summaries")
    leaf = models.ForeignKey(
        "chat.Message", null=True, on_delete=models.SET_NULL, related_name="+", help_text="The branch's end then."
    )
    first = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="+")
    last = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="summaries_to_here")
    messages = models.PositiveIntegerField(help_text="How many it covers.")
    span_start = models.DateTimeField()
    span_end = models.DateTimeField()
    sections: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    shortened: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    tokens_in = models.PositiveIntegerField(help_text="Tokens of the messages it stands for.")
    tokens_out = models.PositiveIntegerField(help_text="Tokens of its text as it is sent.")
    as_of = models.DateTimeField(help_text="The moment from which “Today” and “Now” are seen.")
    timezone = models.CharField(max_length=64, help_text="Where “Today” was that day.")
    model_name = models.CharField(max_length=200, blank=True, help_text="Who wrote it; empty for a person.")
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
        return f"{self.messages} messages, {self.tokens_in:,} → {self.tokens_out:,} tokens"


class SummaryJobQuerySet(models.QuerySet["SummaryJob"]):
    def live(self) -> "SummaryJobQuerySet":
        return self.filter(status__in=SummaryJob.LIVE)


class SummaryJob(models.Model):
    """One attempt to bring a conversation's next prompt down to the floor. The row is the truth about who works on it.

    `target` is the summary to write again from the messages themselves; without it the job goes on from the newest.
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
    target = models.ForeignKey(Summary, null=True, on_delete=models.CASCADE, related_name="+")
    used = models.PositiveIntegerField(default=0, help_text="Tokens of the turn that asked for it.")
    fixed = models.PositiveIntegerField(default=0, help_text="Tokens of the parts that every prompt has.")
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    code = models.CharField(max_length=60, blank=True)
    detail = models.TextField(blank=True)
    heartbeat = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    finished = models.DateTimeField(null=True, blank=True)

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
        return f"{self.id} ({self.status})"


# Walks up from the leaf to the first message at which a summary ends. Its cost grows with what no summary covers.
_FIRST_COVERED = """
WITH RECURSIVE up AS (
    SELECT id, parent_id FROM chat_message WHERE id = %(leaf)s
    UNION ALL
    SELECT m.id, m.parent_id FROM chat_message m JOIN up ON m.id = up.parent_id WHERE up.id <> ALL(%(ends)s)
)
SELECT id FROM up WHERE id = ANY(%(ends)s)
"""


def in_force(conversation_id: UUID, leaf_id: UUID | None, *, prompt_version: int | None = None) -> Summary | None:
    """The summary that holds on the branch ending at `leaf_id`: the one that reaches furthest, of those the newest.

    A summary covers everything above its last message, so it holds exactly where that message is on the branch: a
    branch that forked before a summary's end gets an earlier one, or none. `prompt_version` asks for one written under
    that version only.
    """
    rows = Summary.objects.in_force().filter(conversation=conversation_id)
    if prompt_version is not None:
        rows = rows.filter(prompt_version=prompt_version)
    last = _end(rows, leaf_id)
    return rows.filter(last=last).select_related("last").order_by("-id").first() if last is not None else None


def _end(rows: "QuerySet[Summary]", leaf_id: UUID | None) -> UUID | None:
    ends = list(set(rows.values_list("last", flat=True))) if leaf_id else []
    if not ends:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_FIRST_COVERED, {"leaf": leaf_id, "ends": ends})
        row = cursor.fetchone()
    return row[0] if row else None


def text_of(summary: Summary) -> str:
    """What the model reads. The same as long as the row is, so “Today” is said with its date."""
    zone = zoneinfo.ZoneInfo(summary.timezone)
    end, then = summary.span_end.astimezone(zone), summary.as_of.astimezone(zone)
    frame = (
        f"Summary of this conversation up to {end:%Y-%m-%d %H:%M}, written on {then:%A, %Y-%m-%d} "
        "(“today” and “now” mean then). What came after it follows word for word."
    )
    return "\n".join([frame, *bracketed(summary.sections)])


def bracketed(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each section: `[Today: …]`."""
    return [f"[{section['name']}: {section['text']}]" for section in sections if section["text"]]
