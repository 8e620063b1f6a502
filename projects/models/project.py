"""Where work happens: instructions, files and members; objectives, tasks and checklists are in `task`."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from uuid_utils.compat import uuid7


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "ProjectQuerySet":
        """Those the user owns or is a member of."""
        if user.pk is None:
            return self.none()
        memberships = Membership.objects.filter(user_id=user.pk).values("project")
        return self.filter(Q(owner_id=user.pk) | Q(pk__in=memberships))


class Project(models.Model):
    """`persona` answers in its conversations unless they choose another."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(max_length=100)
    instructions = models.TextField(blank=True)
    persona = models.ForeignKey("personas.Persona", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    web = models.BooleanField(
        default=True, help_text="Whether models may reach the web in its conversations: search it, open pages."
    )
    version = models.PositiveIntegerField(default=1, editable=False)
    created = models.DateTimeField(auto_now_add=True)
    updated = models.DateTimeField(auto_now=True)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-updated", "-id"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """Editors change instructions and files; readers use them in conversations of their own. The owner needs no row."""

    class Role(models.TextChoices):
        READER = "reader", _("Reader")
        EDITOR = "editor", _("Editor")

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role, default=Role.READER)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["project", "user"], name="one_membership_per_user")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.project_id}"


class ProjectFile(models.Model):
    """A file in a project. Pinned files are inlined first; `ordinal` is the order people gave them."""

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
