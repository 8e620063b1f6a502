"""The ledger: what each model call took and cost, and what those of a day did together."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any, ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy
from uuid_utils.compat import uuid7

from accounts.models import asked_with
from chat.models.conversation import Conversation, Turn
from llm.models import Model
from llm.types.model_call import Usage


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ModelCallQuerySet":
        return self.filter(person_id=user.pk)


def _named(to: Any, **options: Any) -> Any:
    """What a call names, while that is there. The database enforces nothing: a call has cost what it has cost, also
    where the model or the project is removed in the moment in which it is written down."""
    return models.ForeignKey(to, null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False, **options)


def counted_to_group() -> Any:
    """As of a token: the id says apart what two groups that are gone have used."""
    return models.ForeignKey(
        "accounts.PeopleGroup",
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )


class ModelCall(models.Model):
    """What one model call took and cost, at the prices of its moment; the ledger of all usage. Rows are never changed,
    but for those of calls under way that the product itself makes (`chat.ledger.asking`, `chat.ledger.searching`).
    Embedders and re-rankers have no row of a model: their calls have its name and their own as the provider's.

    `number` counts the calls of a turn from 1. Tokens are the provider's; where it said nothing, such as of a call that
    was cut off, our own, and then `counted` is true. `cached_input` and `cache_written` are parts of `input`,
    `reasoning` of `output`. `cost` is in US dollars, exact; null where the model had no price. `token`: with which a
    program has asked. `group`: the one that its person was counted to then (`accounts.access.rights.counted_to`); the
    ids of both stay when they are gone.
    """

    class Purpose(models.TextChoices):
        ANSWER = "answer", gettext_lazy("Answer")
        RUN = "run", gettext_lazy("Run")
        SUMMARY = "summary", gettext_lazy("Summary")
        TITLE = "title", gettext_lazy("Title")
        REPLAY = "replay", gettext_lazy("Prompt lab")
        CITATIONS = "citations", gettext_lazy("Check of citations")
        READING = "reading", gettext_lazy("Pages read")
        FULL_READ = "full_read", gettext_lazy("Reading of a whole file")
        EMBEDDING = "embedding", gettext_lazy("Embedding")
        RERANKING = "reranking", gettext_lazy("Re-ranking")

    USED = ("input", "cached_input", "cache_written", "output", "reasoning", "counted", "cost")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    person = _named(settings.AUTH_USER_MODEL)
    group = counted_to_group()
    conversation = _named(Conversation)
    turn = _named(Turn)
    project = _named("projects.Project")
    persona = _named("personas.Persona")
    reading = _named("chat.Reading", db_index=False)
    model = _named("llm.Model")
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
    counted = models.BooleanField(default=False)
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
    def of(cls, model: Model, said: Usage, counted: Usage, **named: Any) -> Self:
        """A row, not stored yet, of what the provider `said`; where that is nothing, of what we `counted`."""
        row = cls(**named, model_id=model.pk, model_name=model.name, provider_name=model.provider.name)
        row.used(model, said, counted)
        return row

    def used(self, model: Model, said: Usage, counted: Usage) -> None:
        """Sets the fields `USED`, as `of` does."""
        read = said if said.input else replace(counted, reasoning=said.reasoning)
        usage = replace(read, output=said.output or counted.output).sensible()
        for name, number in asdict(usage).items():
            setattr(self, name, number)
        self.counted = (usage.input, usage.output) != (said.input, said.output)
        self.cost = model.prices.cost(usage) if model.prices is not None else None


def total_cost(calls: Iterable[ModelCall]) -> Decimal | None:
    """US dollars; None where no call has a price."""
    priced = [call.cost for call in calls if call.cost is not None]
    return sum(priced, Decimal(0)) if priced else None


class UsageDay(models.Model):
    """A day that is over, whose calls `chat.ledger.sums` has summed. `zone`: that in which it was a day.

    `people`: how many asked a model; who is deleted later was there all the same. `whole` is false where a version
    before has not summed all that is asked for now: such a day is summed anew. `by_person` is that version's mark.
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
    """`answers`: turns, by their first calls. `cost` is in US dollars, exact; null where no call had a price, and
    `unpriced` are the calls without one. The others are sums of what `ModelCall` calls the same."""

    calls = models.PositiveIntegerField()
    answers = models.PositiveIntegerField()
    input = models.PositiveBigIntegerField()
    cached_input = models.PositiveBigIntegerField(db_default=0)
    cache_written = models.PositiveBigIntegerField(db_default=0)
    output = models.PositiveBigIntegerField()
    reasoning = models.PositiveBigIntegerField(db_default=0)
    unpriced = models.PositiveIntegerField(db_default=0)
    cost = models.DecimalField(max_digits=26, decimal_places=12, null=True)

    class Meta:
        abstract = True
        app_label = "chat"


class UsageSum(SumOfCalls):
    """The sums of a day's calls of one model for one persona and purpose; where model or persona are gone, several rows
    may be of nobody's."""

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="sums")
    model = _named(Model)
    model_name = models.CharField(max_length=200)
    provider_name = models.CharField(max_length=100)
    persona = _named("personas.Persona")
    purpose = models.CharField(max_length=10, db_default="")

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.model_name}: {self.calls}"


class PersonSum(SumOfCalls):
    """The sums of a day's calls of one person; of those who are gone, several rows may be of nobody's."""

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="people_sums")
    person = _named(settings.AUTH_USER_MODEL)

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.person_id}: {self.calls}"


class PlaceSum(SumOfCalls):
    """The sums of a day's calls in one project, for one group and with one API token: most have none of the three but
    “Everyone”, so these are few rows."""

    day = models.ForeignKey(UsageDay, on_delete=models.CASCADE, related_name="place_sums")
    project = _named("projects.Project")
    group = counted_to_group()
    token = asked_with()

    class Meta:
        app_label = "chat"

    def __str__(self) -> str:
        return f"{self.day_id} {self.group_id}: {self.calls}"
