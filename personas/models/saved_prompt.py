"""Texts that a person writes once and puts into messages with a / and a few letters of their name."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from uuid_utils.compat import uuid7


class SavedPromptQuerySet(models.QuerySet["SavedPrompt"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "SavedPromptQuerySet":
        return self.filter(owner_id=user.pk)


class SavedPrompt(models.Model):
    MAX_NAME = 60
    MAX_TEXT = 20_000  # characters
    MOST = 200  # of one person

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_prompts")
    name = models.CharField(max_length=MAX_NAME)
    text = models.TextField()
    created = models.DateTimeField(auto_now_add=True)

    objects = SavedPromptQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "name"], name="one_saved_prompt_per_name"),
        ]

    def __str__(self) -> str:
        return self.name
