"""Projects, with their instructions, members and files."""

from collections.abc import Collection
from typing import ClassVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from accounts.models import EDITING, Sharing, shared_with
from core.faces import WithFace


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ProjectQuerySet":
        """Return the projects that the user owns, or that are shared with the user or one of their groups."""
        return self._with_role(user, None)

    def editable_by(self, user: AbstractBaseUser | AnonymousUser) -> "ProjectQuerySet":
        return self._with_role(user, EDITING)

    def _with_role(self, user: AbstractBaseUser | AnonymousUser, roles: Collection[str] | None) -> "ProjectQuerySet":
        if user.pk is None:
            return self.none()
        return self.filter(Q(owner_id=user.pk) | shared_with(user, Project.objects.all(), "memberships", roles))


class Project(WithFace):
    """Project. `persona` answers in its conversations, unless a conversation has another one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(max_length=100)
    instructions = models.TextField(blank=True)
    persona = models.ForeignKey("personas.Persona", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    web = models.BooleanField(
        default=True, help_text="Whether models may search the web and open pages in its conversations."
    )
    findable = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Whether models may search its conversations in other conversations.",
    )
    version = models.PositiveIntegerField(default=1, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(auto_now=True)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-updated", "-id"]

    def __str__(self) -> str:
        return self.name


class Membership(Sharing):
    """Role of a user or a group in a project. The `owner` of the project has no row."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership_per_user"),
            models.UniqueConstraint(fields=["project", "group"], name="one_membership_per_group"),
            models.CheckConstraint(condition=Q(user=None) ^ Q(group=None), name="member_is_person_or_group"),
        ]

    def __str__(self) -> str:
        return f"{self.holder} in {self.project_id}"

    @property
    def holder(self) -> UUID | None:
        """Return the id of the user or the group."""
        return self.user_id or self.group_id

    @property
    def name(self) -> str:
        return self.group.name if self.group is not None else str(self.user)


class ProjectFile(models.Model):
    """File in a project. Pinned files come first in prompts. `ordinal`: the position that users have chosen."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="entries")
    file = models.ForeignKey("files.File", on_delete=models.CASCADE, related_name="project_entries")
    pinned = models.BooleanField(default=False)
    ordinal = models.PositiveIntegerField(default=0)
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["ordinal", "id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["project", "file"], name="file_once_per_project")]

    def __str__(self) -> str:
        return f"{self.file_id} in {self.project_id}"
