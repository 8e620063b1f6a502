"""Sharing, as several apps do it: a row gives a person, or all of a group, a role in what is somebody else's."""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.models.group import PeopleGroup


class Role(models.TextChoices):
    """Each may do what those before it may: readers see and use, editors (writers) change texts, files and settings,
    owners share, delete and hand over."""

    READER = "reader", _("Reader")
    EDITOR = "editor", _("Editor")
    OWNER = "owner", _("Owner")


EDITING = (Role.EDITOR, Role.OWNER)


def strongest(roles: Iterable[str]) -> Role | None:
    """Of several that one person has, by themselves and by their groups; None of none."""
    given = set(roles)
    return next((role for role in reversed(Role) if role in given), None)


def shared_with(
    user: AbstractBaseUser | AnonymousUser,
    rows: "models.QuerySet[Any]",
    path: str,
    roles: Collection[str] | None = None,
) -> Q:
    """Those of `rows` that are shared with this person or a group of theirs, with one of these roles where they are
    named. `path`: from the rows to those that share them.

    A subquery for each way in the place of one with an OR, so that each begins at an index.
    """
    if user.pk is None:
        return Q(pk__in=[])
    to_them, to_groups = (Q(pk__in=rows.filter(**way).values("pk")) for way in ways_of_sharing(user, path, roles))
    return to_them | to_groups


def ways_of_sharing(
    user: AbstractBaseUser | AnonymousUser, path: str, roles: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `filter` takes for rows that are shared with this person themselves, and with a group of theirs."""
    named = {} if roles is None else {f"{path}__role__in": roles}  # of the same row as the person or the group
    groups = PeopleGroup.objects.of(user).values("pk")
    return {**named, f"{path}__user": user.pk}, {**named, f"{path}__group__in": groups}


class SharingQuerySet(models.QuerySet[Any]):
    def of(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """What this person has, by themselves or by a group of theirs."""
        if user.pk is None:
            return self.none()
        return self.filter(Q(user=user.pk) | Q(group__in=PeopleGroup.objects.of(user).values("pk")))


class Sharing(models.Model):
    """Of a person or of a group."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name="person",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="%(class)ss",
    )
    group = models.ForeignKey(PeopleGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="%(class)ss")
    role = models.CharField(max_length=20, choices=Role, default=Role.READER)
    created = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[Any] = SharingQuerySet.as_manager()

    class Meta:
        abstract = True

    def clean(self) -> None:
        """Says in words what the constraints of those that are shared would refuse."""
        if (self.user_id is None) == (self.group_id is None):
            raise ValidationError(gettext("Choose a person or a group."))
