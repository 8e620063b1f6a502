"""Groups of people and their rights. `accounts.access.rights` computes a person's rights from their groups.

These are not Django's groups, which give administrators their rights in the admin.
"""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7


class Right(models.TextChoices):
    """Rights that a group gives its members, in addition to models and tools."""

    SHARE = "share", _("Share conversations by link")
    SHARE_INSIDE = "share_inside", _("Share conversations with people here")
    TOKENS = "tokens", _("Make API tokens")
    PUBLISH_PERSONAS = "publish_personas", _("Make personas for others")
    UPLOAD = "upload", _("Upload files")
    RUN_TASKS = "run_tasks", _("Let models work through tasks")
    WEB = "web", _("Let models search the web and open pages")
    EXPORT = "export", _("Export conversations")


def everything() -> list[str]:
    return list(Right.values)


class PeopleGroupQuerySet(models.QuerySet["PeopleGroup"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "PeopleGroupQuerySet":
        """Return “Everyone” and the groups in which the user is a member or a manager."""
        if user.pk is None:
            return self.none()
        of_user = [
            rows.objects.filter(user_id=user.pk).values("peoplegroup")
            for rows in (PeopleGroup.members.through, PeopleGroup.managers.through)
        ]
        return self.filter(Q(everyone=True) | Q(pk__in=of_user[0]) | Q(pk__in=of_user[1]))

    def of(self, user: AbstractBaseUser | AnonymousUser) -> "PeopleGroupQuerySet":
        """Return the groups of which the user is a member, including “Everyone”."""
        if user.pk is None:
            return self.none()
        mine = PeopleGroup.members.through.objects.filter(user_id=user.pk).values("peoplegroup")
        return self.filter(Q(everyone=True) | Q(pk__in=mine))


class PeopleGroup(models.Model):
    """A group of people. `may` is a list of `Right`.

    `everyone` marks the single group to which each person belongs without a row. `claim`: at each sign-in through a
    provider, a person is added to the group if their groups claim has this value, and removed if it does not. Managers
    add and remove people, and need not be members.
    """

    MAX_NAME = 100
    MAX_CLAIM = 200

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=MAX_NAME, unique=True)
    everyone = models.BooleanField(default=False, editable=False)
    claim = models.CharField(
        "claim it follows",
        max_length=MAX_CLAIM,
        blank=True,
        db_index=True,
        help_text=(
            "A value of the groups claim of an OpenID provider. At each sign-in "
            "there, people are added to this group or removed from it. Empty: only "
            "people change the members."
        ),
    )
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="people_groups")
    managers = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="managed_groups",
        help_text="They add and remove members on the page “Groups” of their settings.",
    )
    all_models = models.BooleanField("all models", default=False, help_text="Includes those that are added later.")
    allowed_models = models.ManyToManyField(
        "llm.Model", verbose_name="models", blank=True, related_name="+", help_text="Used if not all are allowed."
    )
    all_tool_servers = models.BooleanField(
        "all tool servers", default=False, help_text="Includes those that are added later."
    )
    allowed_tool_servers = models.ManyToManyField(
        "llm.ToolServer",
        verbose_name="tool servers",
        blank=True,
        related_name="+",
        help_text=("Used if not all are allowed."),
    )
    may = ArrayField(
        models.CharField(max_length=20, choices=Right),
        verbose_name="may",
        default=list,
        blank=True,
        help_text="People have the rights of all their groups.",
    )
    conversation_days = models.PositiveSmallIntegerField(
        "days that conversations are kept",
        null=True,
        blank=True,
        validators=[MaxValueValidator(3650)],
        help_text=(
            "Days after the last message, instead of the workspace's setting. 0 is "
            "for ever; empty is the workspace's setting. If a person is in several "
            "groups, the fewest days count."
        ),
    )
    created = models.DateTimeField(auto_now_add=True)

    objects = PeopleGroupQuerySet.as_manager()

    class Meta:
        verbose_name = "group of people"
        verbose_name_plural = "groups of people"
        ordering: ClassVar = ["-everyone", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["everyone"], condition=Q(everyone=True), name="one_group_of_everyone"),
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of_everyone(cls) -> "PeopleGroup":
        """Return an unsaved group “Everyone” with its initial rights: it may use everything."""
        return cls(name="Everyone", everyone=True, all_models=True, all_tool_servers=True, may=everything())
