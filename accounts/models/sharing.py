"""Sharing in several apps: a row gives a person, or all people of a group, a role in another person's row."""

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
    """Roles. Each includes the rights of the roles before it.

    Readers see and use. Editors change texts, files and settings. Owners share, delete and hand over.
    """

    READER = "reader", _("Reader")
    EDITOR = "editor", _("Editor")
    OWNER = "owner", _("Owner")


EDITING = (Role.EDITOR, Role.OWNER)


def strongest(roles: Iterable[str]) -> Role | None:
    """Return a person's strongest role, counting the roles of their groups. None without a role."""
    present = set(roles)
    return next((role for role in reversed(Role) if role in present), None)


def shared_with(
    user: AbstractBaseUser | AnonymousUser,
    rows: "models.QuerySet[Any]",
    path: str,
    roles: Collection[str] | None = None,
) -> Q:
    """Return the filter of `rows` that are shared with this person or one of their groups, in one of these roles.

    `path`: the lookup from the rows to their sharing rows. `roles`: None means all. Each way of sharing is its own
    subquery. One subquery with an OR could not use an index for each.
    """
    if user.pk is None:
        return Q(pk__in=[])
    to_person, to_groups = ways_of_sharing(user, path, roles)
    return Q(pk__in=rows.filter(to_person).values("pk")) | Q(pk__in=rows.filter(to_groups).values("pk"))


def ways_of_sharing(
    user: AbstractBaseUser | AnonymousUser, path: str, roles: Collection[str] | None = None
) -> tuple[Q, Q]:
    """Return the filters of rows that are shared with this person, and with one of their groups."""
    groups = PeopleGroup.objects.of(user).values("pk")
    to_person = Q((f"{path}__user", user.pk))
    to_groups = Q((f"{path}__group__in", groups))
    if roles is None:
        return to_person, to_groups
    in_role = Q((f"{path}__role__in", roles))  # in the same `filter`, so that both lookups match one sharing row
    return in_role & to_person, in_role & to_groups


class SharingQuerySet(models.QuerySet[Any]):
    def of(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """Return the sharing rows of this person and of their groups."""
        if user.pk is None:
            return self.none()
        return self.filter(Q(user=user.pk) | Q(group__in=PeopleGroup.objects.of(user).values("pk")))


class Sharing(models.Model):
    """The base of sharing rows: the role of a person or of a group."""

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
        """Raise `ValidationError` for rows that violate the constraints of the subclasses."""
        if (self.user_id is None) == (self.group_id is None):
            raise ValidationError(gettext("Choose a person or a group."))
