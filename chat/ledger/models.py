"""Rows of the ledger: one for each model call, with its tokens and its cost, and sums of the calls of each day."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Self
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy, pgettext_lazy
from uuid_utils.compat import uuid7

from accounts.models import asked_with
from chat.models.conversation import Conversation, Turn
from llm.models import Model
from llm.types.model_call import Usage
from personas.models import Persona
from projects.models import Project


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ModelCallQuerySet":
        return self.filter(person_id=user.pk)


def _loose_key(to: Any, *, db_index: bool = True) -> Any:
    """Return a foreign key that is set to null when its target is deleted, without a constraint in the database.

    A call is stored with its cost even if its model or project is removed at the same moment.
    """
    return models.ForeignKey(
        to, null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False, db_index=db_index
    )


def counted_to_group() -> Any:
    """Return a foreign key to a group that keeps its id when the group is deleted.

    The id distinguishes the usage of two deleted groups. `accounts.models.asked_with` does the same for API tokens.
    """
    return models.ForeignKey(
        "accounts.PeopleGroup",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )


class ModelCall(models.Model):
    """Model call with its tokens and its cost, at the prices of that time.

    Rows never change, except those of running calls that the product makes for itself (`chat.ledger.asking`,
    `chat.ledger.searching`, `chat.ledger.speaking`). Calls of embedders, re-rankers and speech servers have no `model`;
    they have its name, and the name of the server as `provider_name`.

    `number` counts the calls of a turn from 1. Tokens are those that the provider reports. Where it reports none, for
    example for an aborted call, they are our own count, and `counted` is true. `cached_input` and `cache_written` are
    parts of `input`, and `reasoning` is a part of `output`. `cost` is in US dollars, exact; it is null if the model had
    no price. `seconds`: the duration of the sound that a speech server read or spoke. `failed`: the request to a speech
    server was sent, and its answer did not come, so that the provider may bill it. `token`: the API token of the
    program that asked. `group`: the group that the usage of the user counted to at the time
    (`accounts.access.rights.billing_group`). Both ids stay when token or group are deleted.
    """

    class Purpose(models.TextChoices):
        ANSWER = "answer", gettext_lazy("Answer")
        RUN = "run", pgettext_lazy("of a task", "Run")
        SUMMARY = "summary", gettext_lazy("Summary")
        TITLE = "title", gettext_lazy("Title")
        REPLAY = "replay", gettext_lazy("Prompt lab")
        CITATIONS = "citations", gettext_lazy("Check of citations")
        MEMORY = "memory", gettext_lazy("Search for facts")
        READING = "reading", gettext_lazy("Pages read")
        FULL_READ = "full_read", gettext_lazy("Full reading")
        EMBEDDING = "embedding", gettext_lazy("Embedding")
        RERANKING = "reranking", gettext_lazy("Re-ranking")
        TRANSCRIPT = "transcript", gettext_lazy("Transcription")
        SPEECH = "speech", gettext_lazy("Reading aloud")

    USED = ("input", "cached_input", "cache_written", "output", "reasoning", "counted", "cost")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    person = _loose_key(settings.AUTH_USER_MODEL)
    group = counted_to_group()
    conversation = _loose_key(Conversation)
    turn = _loose_key(Turn)
    project = _loose_key("projects.Project")
    persona = _loose_key("personas.Persona")
    reading = _loose_key("chat.Reading", db_index=False)
    model = _loose_key("llm.Model")
    token = asked_with()
    model_name = models.CharField(max_length=200)
    provider_name = models.CharField(max_length=100)
    purpose = models.CharField(max_length=10, choices=Purpose)
    number = models.PositiveSmallIntegerField(default=1)
    input = models.PositiveIntegerField()
    cached_input = models.PositiveIntegerField(default=0)
    cache_written = models.PositiveIntegerField(default=0)
    output = models.PositiveIntegerField()
    reasoning = models.PositiveIntegerField(default=0)
    seconds = models.PositiveIntegerField(default=0, db_default=0)
    counted = models.BooleanField(default=False)
    failed = models.BooleanField(default=False, db_default=False)
    cost = models.DecimalField(max_digits=26, decimal_places=12, null=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = ModelCallQuerySet.as_manager()

    class Meta:
        app_label = "chat"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["person", "-created"], name="model_call_of_person"),
            models.Index(fields=["-created"], name="model_call_created"),
            models.Index(fields=["reading"], condition=Q(reading__isnull=False), name="model_call_of_reading"),
            models.Index(fields=["token", "created"], condition=Q(token__isnull=False), name="model_call_of_token"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "number"], name="one_row_per_call_of_a_turn"),
            models.CheckConstraint(
                condition=Q(cached_input__lte=F("input") - F("cache_written")) & Q(reasoning__lte=F("output")),
                name="parts_of_a_call_within_it",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model_name}: {self.input} / {self.output}"

    @classmethod
    def of(
        cls,
        model: Model,
        reported: Usage,
        counted: Usage,
        *,
        purpose: str,
        person_id: UUID | None,
        group_id: UUID | None,
        token_id: UUID | None,
        conversation_id: UUID | None,
        project: Project | None,
        persona: Persona | None,
        turn: Turn | None = None,
        number: int = 1,
        reading_id: UUID | None = None,
    ) -> Self:
        """Return an unsaved row with the usage that the provider `reported`, or that we `counted` if it did not."""
        row = cls(
            model_id=model.pk,
            model_name=model.name,
            provider_name=model.provider.name,
            purpose=purpose,
            person_id=person_id,
            group_id=group_id,
            token_id=token_id,
            conversation_id=conversation_id,
            turn=turn,
            number=number,
            project=project,
            persona=persona,
            reading_id=reading_id,
        )
        row.set_usage(model, reported, counted)
        return row

    def set_usage(self, model: Model, reported: Usage, counted: Usage) -> None:
        """Set the fields of `USED`: the reported usage and its cost, or the counted usage if none was reported."""
        read = reported if reported.input else replace(counted, reasoning=reported.reasoning)
        usage = replace(read, output=reported.output or counted.output).within_totals()
        self.input = usage.input
        self.cached_input = usage.cached_input
        self.cache_written = usage.cache_written
        self.output = usage.output
        self.reasoning = usage.reasoning
        self.counted = (usage.input, usage.output) != (reported.input, reported.output)
        self.cost = model.prices.cost(usage) if model.prices is not None else None


def total_cost(calls: Iterable[ModelCall]) -> Decimal | None:
    """Return the cost of all calls in US dollars; None if no call has a price."""
    priced = [call.cost for call in calls if call.cost is not None]
    return sum(priced, Decimal(0)) if priced else None


class UsageDay(models.Model):
    """Past day whose calls `chat.ledger.sums` has summed.

    `zone`: the time zone of the day. `people`: number of users who asked a model, including users who were deleted
    since. `whole` is false if an earlier version of the product stored fewer sums; such a day is summed again.
    `by_person` marks the days of that version.
    """

    day = models.DateField(primary_key=True)
    zone = models.CharField(max_length=64)
    people = models.PositiveIntegerField()
    by_person = models.BooleanField(db_default=False)
    whole = models.BooleanField(db_default=False)

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}"


class SumOfCalls(models.Model):
    """Sums of the fields of the same names in `ModelCall`.

    `answers` is the number of turns, counted by their first calls. `unpriced` is the number of calls without a price.
    `cost` is in US dollars, exact; null if no call had a price.
    """

    calls = models.PositiveIntegerField()
    answers = models.PositiveIntegerField()
    input = models.PositiveBigIntegerField()
    cached_input = models.PositiveBigIntegerField(db_default=0)
    cache_written = models.PositiveBigIntegerField(db_default=0)
    output = models.PositiveBigIntegerField()
    reasoning = models.PositiveBigIntegerField(db_default=0)
    seconds = models.PositiveBigIntegerField(db_default=0)
    unpriced = models.PositiveIntegerField(db_default=0)
    cost = models.DecimalField(max_digits=26, decimal_places=12, null=True)

    class Meta:
        abstract = True
        app_label = "chat"


class UsageSum(SumOfCalls):
    """Sums of the calls of one day by model, persona and purpose.

    A deleted model or persona is null, so several rows may have the same keys.
    """

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="sums")
    model = _loose_key(Model)
    model_name = models.CharField(max_length=200)
    provider_name = models.CharField(max_length=100)
    persona = _loose_key("personas.Persona")
    purpose = models.CharField(max_length=10, db_default="")

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.model_name}: {self.calls}"


class PersonSum(SumOfCalls):
    """Sums of the calls of one day by user. A deleted user is null, so several rows may have no user."""

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="people_sums")
    person = _loose_key(settings.AUTH_USER_MODEL)

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.person_id}: {self.calls}"


class PlaceSum(SumOfCalls):
    """Sums of the calls of one day by project, group and API token.

    These are few rows: most calls have no project and no token, and the group “Everyone”.
    """

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="place_sums")
    project = _loose_key("projects.Project")
    group = counted_to_group()
    token = asked_with()

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.group_id}: {self.calls}"
