"""Store the web hosts that tools may reach without asking, and those that they may never reach."""

from typing import ClassVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext

from core.net.addresses import HostLists, host_pattern


def validate_hosts(text: str) -> None:
    for line in text.split():
        try:
            host_pattern(line)
        except ValueError as error:
            raise ValidationError(
                f"“{line[:100]}” is not a host. Write one a line, such as example.org or *.example.org."
            ) from error


class WebAccess(models.Model):
    """Lists of allowed and denied hosts. One row for the whole workspace; without it both lists are empty."""

    ONLY = 1

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY, editable=False)
    allowed_hosts = models.TextField(
        blank=True,
        validators=[validate_hosts],
        help_text=(
            "One per line. Addresses of these hosts are opened without asking. "
            "*.example.org means all hosts below example.org, but not example.org."
        ),
    )
    denied_hosts = models.TextField(
        blank=True,
        validators=[validate_hosts],
        help_text=(
            "One per line. These hosts are never opened, also not through a redirect. A host on both lists is denied."
        ),
    )

    class Meta:
        verbose_name = "web access"
        verbose_name_plural = "web access"
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_web_access")]

    def __str__(self) -> str:
        return gettext("Web access")

    @property
    def lists(self) -> HostLists:
        return HostLists(_parse_hosts(self.allowed_hosts), _parse_hosts(self.denied_hosts))


def _parse_hosts(text: str) -> frozenset[str]:
    return frozenset(map(host_pattern, text.split()))
