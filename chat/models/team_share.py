"""Conversations that are shared with people, groups and projects of the workspace."""

from typing import ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Exists, OuterRef, Q
from uuid_utils.compat import uuid7

from accounts.models import PeopleGroup, Right
from chat.models.conversation import OfConversation
from projects.models import Project


class TeamShareQuerySet(OfConversation["TeamShare"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> Self:
        """Return the shares of the user's own conversations."""
        return super().visible_to(user).filter(leaf__deleted=None)

    def received_by(self, user: AbstractBaseUser | AnonymousUser) -> "TeamShareQuerySet":
        """Return the shares that the user can read: given to them, to one of their groups, or to one of their projects.

        A share is readable while its owner is active and has the right to share.
        """
        if user.pk is None:
            return self.none()
        rows = TeamShare.objects.all()
        ways = (
            rows.filter(user=user.pk),
            rows.filter(group__in=PeopleGroup.objects.of(user).values("pk")),
            rows.filter(project__in=Project.objects.visible_to(user).values("pk")),
        )
        to_user = Q(pk__in=ways[0].values("pk")) | Q(pk__in=ways[1].values("pk")) | Q(pk__in=ways[2].values("pk"))
        not_deleted = Q(conversation__deleted=None, leaf__deleted=None, conversation__owner__is_active=True)
        return self.filter(to_user, not_deleted, _owner_may_share()).exclude(conversation__owner=user.pk)


def _owner_may_share() -> Q:
    """Return the condition that a group of the conversation's owner has the right to share.

    Without a row “Everyone”, everybody has every right (`PeopleGroup.of_everyone`).
    """
    sharing = PeopleGroup.objects.filter(may__contains=[Right.SHARE_INSIDE])
    members = PeopleGroup.members.through.objects.filter(
        user_id=OuterRef("conversation__owner"), peoplegroup__in=sharing.values("pk")
    )
    no_row = ~Exists(PeopleGroup.objects.filter(everyone=True))
    return Q(Exists(sharing.filter(everyone=True))) | Q(no_row) | Q(Exists(members))


class TeamShare(models.Model):
    """A branch of a conversation that one person, group or project may read.

    The branch is the one that ended at `leaf` when it was shared, so later messages are not in it. If it is shared with
    the same recipient again, the row gets the new leaf. A share by user name keeps the name as it was written, and has
    no user if nobody has this name.
    """

    MAX_USERNAME = 150

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="team_shares")
    leaf = models.ForeignKey("chat.Message", on_delete=models.CASCADE, related_name="team_shares")
    title = models.CharField(max_length=200, blank=True, help_text="The conversation's title at that time.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="team_shares"
    )
    username = models.CharField(max_length=MAX_USERNAME, blank=True, default="", db_default="")
    group = models.ForeignKey(PeopleGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="team_shares")
    project = models.ForeignKey(
        "projects.Project", null=True, blank=True, on_delete=models.CASCADE, related_name="team_shares"
    )
    may_copy = models.BooleanField(default=False, db_default=False, help_text="Readers may go on in a copy.")
    shows_context = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Readers see how many tokens of each kind the model saw, without names and texts.",
    )
    names_sources = models.BooleanField(
        default=False,
        db_default=False,
        help_text="With `shows_context`: also the names of files and the arguments of tools.",
    )
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(help_text="When the branch was shared, or shared again.")

    objects = TeamShareQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-updated", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["conversation", "username"], condition=~Q(username=""), name="shared_once_with_a_user_name"
            ),
            models.UniqueConstraint(fields=["conversation", "group"], name="shared_once_with_a_group"),
            models.UniqueConstraint(fields=["conversation", "project"], name="shared_once_with_a_project"),
            models.CheckConstraint(
                condition=(~Q(username="") & Q(group=None, project=None))
                | (Q(username="", user=None, project=None) & Q(group__isnull=False))
                | (Q(username="", user=None, group=None) & Q(project__isnull=False)),
                name="team_share_has_one_recipient",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def recipient(self) -> str:
        """Return the name of the person, group or project."""
        if self.group is not None:
            return self.group.name
        return self.project.name if self.project is not None else self.username
