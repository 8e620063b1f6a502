"""Usage limits. `accounts.limits.holding` finds the limits that hold for a person or a token."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7

from accounts.models.group import PeopleGroup
from accounts.models.person import ApiToken


class Limit(models.Model):
    """A usage limit for one person, for each member of a group, or for one API token.

    Without a person, a group or a token, it holds for each person. If several limits apply, all of them hold.

    `amount` is in the unit: tokens, US dollars, turns, minutes, bytes, or turns at once. `per` is the period of the
    limit, a day or a month in the workspace's time zone. It is empty for a limit that holds at any moment.
    """

    class Unit(models.TextChoices):
        TOKENS = "tokens", _("Tokens")
        MONEY = "money", _("US dollars")
        TURNS = "turns", _("Turns")
        SPEECH = "speech", _("Minutes of speech")
        STORAGE = "storage", _("Bytes stored")
        LIVE_TURNS = "live_turns", _("Turns at once")

    class Per(models.TextChoices):
        DAY = "day", _("A day")
        MONTH = "month", _("A month")

    USED_UP = (
        Unit.TOKENS,
        Unit.MONEY,
        Unit.TURNS,
        Unit.SPEECH,
    )  # within a day or month; the other units have limits at any moment

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name="person",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="limits",
        help_text="The person that it limits. Without a person, a group and a token it limits each person separately.",
    )
    group = models.ForeignKey(
        PeopleGroup,
        verbose_name="group",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="limits",
        help_text="It limits each member separately.",
    )
    token = models.ForeignKey(
        ApiToken,
        verbose_name="API token",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="limits",
        help_text="It limits the programs that use the token. The limits of the token's person apply too.",
    )
    unit = models.CharField(max_length=10, choices=Unit)
    per = models.CharField(
        max_length=5,
        choices=Per,
        blank=True,
        help_text="For tokens, money, turns and minutes. The other limits have no period.",
    )
    amount = models.DecimalField(
        max_digits=20,
        decimal_places=6,
        validators=[MinValueValidator(0)],
        help_text="The maximum. Money is in US dollars, storage in bytes.",
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user", "group", "token", "unit", "per"], name="one_limit_of_a_kind", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=Q(user=None, group=None) | Q(user=None, token=None) | Q(group=None, token=None),
                name="limit_for_one",
            ),
            models.CheckConstraint(
                condition=Q(unit__in=["tokens", "money", "turns", "speech"]) ^ Q(per=""),
                name="limit_of_a_time_or_a_moment",
            ),
        ]

    def __str__(self) -> str:
        """Return amount, unit and period in the reader's language."""
        parts = [self.most, self.get_unit_display(), self.get_per_display() if self.per else ""]
        return " · ".join(filter(None, parts))

    @property
    def most(self) -> str:
        """Return the amount in the reader's language, without trailing zeros."""
        return number_format(self.plain, force_grouping=True)

    @property
    def plain(self) -> str:
        """Return the amount as a form shows it, without trailing zeros."""
        return f"{self.amount.normalize():f}"

    def clean(self) -> None:
        problems: dict[str, str] = {}
        if sum(each is not None for each in (self.user_id, self.group_id, self.token_id)) > 1:
            problems["user"] = gettext("Choose a person, a group or a token, and only one of them.")
        if self.unit in self.USED_UP and not self.per:
            problems["per"] = gettext("Choose a day or a month for tokens, money, turns and minutes.")
        elif self.unit and self.unit not in self.USED_UP and self.per:
            problems["per"] = gettext("Leave this empty: storage and turns at once have limits at any moment.")
        if self.token_id is not None and self.unit and self.unit not in self.USED_UP:
            problems["unit"] = gettext(
                "A token can have limits of tokens, money, turns and minutes. Set the others for its person."
            )
        if self.unit == self.Unit.LIVE_TURNS and self.amount is not None and self.amount < 1:
            problems["amount"] = gettext("The minimum is one turn at once. With zero, no answer could begin.")
        if self.amount is not None and self.unit and self.unit != self.Unit.MONEY and self.amount % 1:
            problems["amount"] = gettext("Write a whole number.")
        if problems:
            raise ValidationError(problems)

    def period(self, now: datetime | None = None) -> tuple[datetime, datetime]:
        """Return the start of the current day or month, and of the next one, in the workspace's time zone."""
        return period(self.per, now)


def period(per: str, now: datetime | None = None) -> tuple[datetime, datetime]:
    """Return the period as `Limit.period` does. An empty `per` means a day."""
    zone = timezone.get_default_timezone()
    day = (now or timezone.now()).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if per == Limit.Per.MONTH:
        first = day.replace(day=1)
        return first, (first + timedelta(days=32)).replace(day=1)
    return day, day + timedelta(days=1)  # a calendar day, which may have 23 or 25 hours
