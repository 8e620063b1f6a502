"""Profiles of people, facts about them with their sources, and the conversations that use facts."""

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from chat.models import Conversation, Message


class Profile(models.Model):
    """Text of a person about themselves for the models, and their choices about memory.

    `proposals`: whether models may propose facts, and whether these wait for the person's word.
    `search_conversations`: whether models may search the person's other conversations.
    """

    class Proposals(models.TextChoices):
        OFF = "off", _("Never")
        ASK = "ask", _("Ask me about each fact")
        KEEP = "keep", _("Keep without asking")

    MAX_TEXT = 1_500  # characters of each text

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="memory_profile"
    )
    about = models.TextField(blank=True, max_length=MAX_TEXT)
    answering = models.TextField(blank=True, max_length=MAX_TEXT)
    in_prompts = models.BooleanField(default=True, help_text="Whether prompts have the profile and the facts.")
    proposals = models.CharField(max_length=10, choices=Proposals, default=Proposals.OFF)
    search_conversations = models.BooleanField(default=False, db_default=False)
    updated = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return str(self.person_id)

    @property
    def tag(self) -> str:
        """Return the entity tag."""
        return str(int(self.updated.timestamp() * 1_000_000)) if self.updated else "0"


class FactQuerySet(models.QuerySet["Fact"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "FactQuerySet":
        """Return the user's own facts. Nobody else sees them, whatever their scope."""
        return self.filter(owner_id=user.pk)

    def applying(self, *, project: Any = None, persona: Any = None) -> "FactQuerySet":
        """Return the kept facts that apply in a conversation with this project and persona (ids)."""
        scopes = Q(scope=Fact.Scope.PERSON)
        if project is not None:
            scopes |= Q(scope=Fact.Scope.PROJECT, project_id=project)
        if persona is not None:
            scopes |= Q(scope=Fact.Scope.PERSONA, persona_id=persona)
        return self.filter(scopes, status=Fact.Status.KEPT)


class Fact(models.Model):
    """Something that a person has said about themselves.

    A text never changes: a correction is a new fact, which outdates this one. `answer` is the answer below which the
    fact is proposed. `terms` are digests of its words, for the search. `confirmed_by` is null for a fact that was kept
    without asking. Forgetting deletes the text, the terms and the sources; the row keeps its id and its times, so that
    reports can say that a fact was forgotten.
    """

    class Scope(models.TextChoices):
        PERSON = "person", _("All my conversations")
        PROJECT = "project", _("One project")
        PERSONA = "persona", _("One persona")

    class Status(models.TextChoices):
        PROPOSED = "proposed", _("Proposed")
        KEPT = "kept", _("Remembered")
        OUTDATED = "outdated", _("Outdated")
        FORGOTTEN = "forgotten", _("Forgotten")

    class ProposedBy(models.TextChoices):
        TOOL = "tool", _("A model, during an answer")
        PASS = "pass", _("A model, after the conversation")
        PERSON = "person", _("You")

    MAX_TEXT = 300  # characters
    MAX_COUNT = 5_000  # facts of a person that are not forgotten
    MAX_PINNED = 20
    MAX_PROPOSED = 200  # proposals of a person that wait

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="facts")
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.PERSON)
    project = models.ForeignKey("projects.Project", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    persona = models.ForeignKey("personas.Persona", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    text = models.CharField(max_length=MAX_TEXT, blank=True)
    terms = ArrayField(models.BigIntegerField(), default=list, editable=False)
    status = models.CharField(max_length=10, choices=Status, default=Status.PROPOSED)
    pinned = models.BooleanField(default=False)
    proposed_by = models.CharField(max_length=10, choices=ProposedBy)
    answer = models.ForeignKey(Message, null=True, on_delete=models.SET_NULL, related_name="+")
    confirmed_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    confirmed = models.DateTimeField(null=True)
    outdated_by = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="outdates")
    forgotten = models.DateTimeField(null=True)
    last_used = models.DateTimeField(null=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = FactQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            GinIndex(fields=["terms"], name="fact_terms"),
            models.Index(fields=["owner", "status", "-id"], name="fact_of_owner"),
            models.Index(fields=["owner"], condition=Q(pinned=True), name="fact_pinned"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(scope="person", project=None, persona=None)
                | Q(scope="project", project__isnull=False, persona=None)
                | Q(scope="persona", project=None, persona__isnull=False),
                name="fact_of_one_scope",
            ),
            models.CheckConstraint(
                condition=~Q(status="forgotten") | Q(text="", terms=[], pinned=False), name="forgotten_fact_is_empty"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)  # the text is the person's own


class FactSource(models.Model):
    """The words of a person on which a fact rests. `message` is null once the message is erased.

    A fact that was proposed twice has both sources. A fact that the person wrote by hand has none.
    """

    fact = models.ForeignKey(Fact, on_delete=models.CASCADE, related_name="sources")
    message = models.ForeignKey(Message, null=True, on_delete=models.SET_NULL, related_name="+")
    quote = models.CharField(max_length=1_000)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["fact", "message"], name="one_source_per_message")]

    def __str__(self) -> str:
        return str(self.pk)


class ConversationFact(models.Model):
    """A fact that was chosen for a conversation, or that its person leaves out of it.

    A chosen fact stays in the prompts, in the order of the ids, while the conversation has the summary `summary` (its
    id; null without one). `left_out` holds whatever the summary.
    """

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="facts")
    fact = models.ForeignKey(Fact, on_delete=models.CASCADE, related_name="uses")
    summary = models.UUIDField(null=True)
    left_out = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "fact"], name="one_use_of_a_fact_per_conversation")
        ]

    def __str__(self) -> str:
        return str(self.pk)


class MemoryPass(models.Model):
    """The pass that looks for facts in a finished conversation, a job of `chat.memory.passes`.

    `read_to` is the id of the newest message that was read. `attempt` counts the claims, `tries` those since the last
    success.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "Waiting"
        RUNNING = "running", "Running"
        DONE = "done", "Done"

    conversation = models.OneToOneField(
        Conversation, primary_key=True, on_delete=models.CASCADE, related_name="memory_pass"
    )
    read_to = models.UUIDField(null=True)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0)
    heartbeat = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["heartbeat"], condition=Q(status__in=["queued", "running"]), name="memory_pass_heartbeat"
            )
        ]

    def __str__(self) -> str:
        return str(self.pk)
