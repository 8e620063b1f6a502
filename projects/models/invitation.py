"""Pending invitations to projects."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.utils import timezone
from uuid_utils.compat import uuid7

from accounts.models import Role
from projects.models.project import Project

MAX_USERNAME = 150  # the same as in Django's table of users


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "InvitationQuerySet":
        """Return the invitations that the user may still answer. `sent` has the invitations that an owner sent."""
        return self.filter(person_id=user.pk, declined=None, expires__gt=timezone.now())

    def sent(self, project: Project) -> "InvitationQuerySet":
        """Return the pending invitations that the owner sees, including unknown names and declined invitations."""
        return self.filter(project=project, expires__gt=timezone.now())


class Invitation(models.Model):
    """An invitation of a user name. `person`: the user who had the name when it was sent; null if no user did.

    Owners must not learn whether a user name exists. So a declined invitation stays until it expires: its removal would
    reveal the user. The row also keeps the invitation hidden from the user. Acceptance deletes the row.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    username = models.CharField(max_length=MAX_USERNAME, help_text="As the owner wrote it.")
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="invitations"
    )
    role = models.CharField(max_length=20, choices=Role, default=Role.READER)
    declined = models.DateTimeField(null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField()

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "username"], name="one_invitation_per_name"),
        ]

    def __str__(self) -> str:
        return str(self.pk)
