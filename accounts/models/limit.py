"""What people and their programs may use at most. Who holds whom to it: `chat.usage.limits`, and `files.services` for
storage."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from accounts.models.person import ApiToken
from llm.models.workspace import Kept


class Limit(models.Model):
    """How much one person may use, or one API token; without either it is for everyone: each person by themselves.

    `amount` is in the unit: tokens, US dollars, turns, bytes, or turns at once. `per`: the day or month in which it is
    used up, of the workspace's time zone; empty where it holds at any moment. Of several limits all hold.
    """

    class Unit(models.TextChoices):
        TOKENS = "tokens", _("Tokens")
        MONEY = "money", _("US dollars")
        TURNS = "turns", _("Turns")
        STORAGE = "storage", _("Bytes stored")
        LIVE_TURNS = "live_turns", _("Turns at once")

    class Per(models.TextChoices):
        DAY = "day", _("A day")
        MONTH = "month", _("A month")

    USED_UP = (Unit.TOKENS, Unit.MONEY, Unit.TURNS)  # in a day or month; the others hold at any moment

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name="person",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="limits",
        help_text="Whom it holds for. With neither a person nor a token it holds for everyone, each by themselves.",
    )
    token = models.ForeignKey(
        ApiToken,
        verbose_name="API token",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="limits",
        help_text="What programs ask with it; the limits of its person hold besides.",
    )
    unit = models.CharField(max_length=10, choices=Unit)
    per = models.CharField(
        max_length=5, choices=Per, blank=True, help_text="Of tokens, money and turns; the others hold at any moment."
    )
    amount = models.DecimalField(
        max_digits=20,
        decimal_places=6,
        validators=[MinValueValidator(0)],
        help_text="The most. Money is in US dollars, storage in bytes.",
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user", "token", "unit", "per"], name="one_limit_of_a_kind", nulls_distinct=False
            ),
            models.CheckConstraint(condition=Q(user=None) | Q(token=None), name="limit_for_one"),
            models.CheckConstraint(
                condition=Q(unit__in=["tokens", "money", "turns"]) ^ Q(per=""), name="limit_of_a_time_or_a_moment"
            ),
        ]

    def __str__(self) -> str:
        """In the reader's language."""
        words = [f"{self.amount.normalize():f}", self.get_unit_display(), self.get_per_display() if self.per else ""]
        return " · ".join(filter(None, words))

    def clean(self) -> None:
        problems: dict[str, str] = {}
        if self.user_id is not None and self.token_id is not None:
            problems["token"] = "Choose a person or a token, not both."  # noqa: S105 - the name of a field
        if self.unit in self.USED_UP and not self.per:
            problems["per"] = "Choose a day or a month: tokens, money and turns are used up in one."
        elif self.unit and self.unit not in self.USED_UP and self.per:
            problems["per"] = "Leave this empty: storage and turns at once are limited at any moment."
        if self.token_id is not None and self.unit and self.unit not in self.USED_UP:
            problems["unit"] = "A token has limits of tokens, money and turns; the others are its person's."
        if self.unit == self.Unit.LIVE_TURNS and self.amount is not None and self.amount < 1:
            problems["amount"] = "One turn at once is the least; with none nothing would ever be answered."
        if self.amount is not None and self.unit and self.unit != self.Unit.MONEY and self.amount % 1:
            problems["amount"] = "Write a whole number."
        if problems:
            raise ValidationError(problems)

    def period(self, now: datetime | None = None) -> tuple[datetime, datetime]:
        """When the day or month began and when the next one begins, in the workspace's time zone."""
        return period(self.per, now)


def period(per: str, now: datetime | None = None) -> tuple[datetime, datetime]:
    """As `Limit.period`; of an empty `per` the day."""
    zone = timezone.get_default_timezone()
    day = (now or timezone.now()).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if per == Limit.Per.MONTH:
        first = day.replace(day=1)
        return first, (first + timedelta(days=32)).replace(day=1)
    return day, day + timedelta(days=1)  # of the clock: also where that day has 23 hours or 25


@dataclass(frozen=True, slots=True)
class Limits:
    """All of the workspace."""

    for_everyone: tuple[Limit, ...]
    for_people: dict[UUID, list[Limit]]
    for_tokens: dict[UUID, list[Limit]]

    def of_person(self, pk: UUID) -> list[Limit]:
        """Of each unit and time the strictest, in the order of `Limit.Unit`."""
        return _strictest([*self.for_everyone, *self.for_people.get(pk, ())])

    def of_token(self, pk: UUID | None) -> list[Limit]:
        return _strictest(self.for_tokens.get(pk, ())) if pk is not None else []

    def least(self, pk: UUID, unit: str) -> Decimal | None:
        """Of what holds at any moment for this person; None without a limit."""
        return next((limit.amount for limit in self.of_person(pk) if limit.unit == unit), None)


def _strictest(limits: Iterable[Limit]) -> list[Limit]:
    found: dict[tuple[Any, str], Limit] = {}
    for limit in limits:
        kind = (Limit.Unit.values.index(limit.unit), limit.per)
        if kind not in found or limit.amount < found[kind].amount:
            found[kind] = limit
    return [found[kind] for kind in sorted(found)]


def _read() -> Limits:
    everyone: list[Limit] = []
    people: dict[UUID, list[Limit]] = {}
    tokens: dict[UUID, list[Limit]] = {}
    for limit in Limit.objects.all():
        if limit.user_id is not None:
            people.setdefault(limit.user_id, []).append(limit)
        elif limit.token_id is not None:
            tokens.setdefault(limit.token_id, []).append(limit)
        else:
            everyone.append(limit)
    return Limits(tuple(everyone), people, tokens)


_kept = Kept(_read)


def limits_at(version: UUID | None = None) -> Limits:
    """As they were at this version of the workspace or later; as they are now without one."""
    return _kept.at(version)
