"""Saved prompts: texts that users insert into messages with a / and some letters of their name."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from accounts.models import shared_with


class SavedPromptQuerySet(models.QuerySet["SavedPrompt"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "SavedPromptQuerySet":
        """Return the user's own prompts, those of their projects, and those of the workspace."""
        if user.pk is None:
            return self.none()
        owned = SavedPrompt.objects.filter(project__owner=user.pk).values("pk")
        shared = shared_with(user, SavedPrompt.objects.all(), "project__memberships")
        return self.filter(Q(owner=user.pk) | Q(pk__in=owned) | shared | Q(owner=None, project=None))

    def of_same_holder(self, prompt: "SavedPrompt") -> "SavedPromptQuerySet":
        """Return the prompts of the same user or project, or of the workspace."""
        return self.filter(owner=prompt.owner_id, project=prompt.project_id)


class SavedPrompt(models.Model):
    """A saved prompt of its `owner`, of a `project`, or of the workspace if both are null.

    `{{name}}` and `{{name:one|two}}` in the text are variables (`projects.saved_prompts.variables`).
    """

    MAX_NAME = 60
    MAX_TEXT = 20_000  # characters
    MAX_COUNT = 200  # prompts per user or project, and in the workspace

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="saved_prompts"
    )
    project = models.ForeignKey(
        "projects.Project", null=True, blank=True, on_delete=models.CASCADE, related_name="saved_prompts"
    )
    name = models.CharField(max_length=MAX_NAME, help_text="The word that people type after / to find it.")
    text = models.TextField()
    created = models.DateTimeField(auto_now_add=True)

    objects = SavedPromptQuerySet.as_manager()

    class Meta:
        app_label = "personas"
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "name"], name="one_saved_prompt_per_name"),
            models.UniqueConstraint(fields=["project", "name"], name="one_prompt_of_a_project_per_name"),
            models.UniqueConstraint(
                fields=["name"], condition=Q(owner=None, project=None), name="one_prompt_of_the_workspace_per_name"
            ),
            models.CheckConstraint(condition=Q(owner=None) | Q(project=None), name="saved_prompt_of_one_holder"),
        ]

    def __str__(self) -> str:
        return self.name
