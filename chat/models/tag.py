"""Words of a person's own for their conversations."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import models
from django.db.models.functions import Lower
from uuid_utils.compat import uuid7


class TagQuerySet(models.QuerySet["Tag"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> "TagQuerySet":
        return self.filter(owner_id=user.pk)


class Tag(models.Model):
    """Is there as long as a conversation has it; `Conversation.tags` says which."""

    MAX_NAME = 40
    MOST = 100  # of one person
    MOST_OF_ONE = 20  # of one conversation

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=MAX_NAME)
    created = models.DateTimeField(auto_now_add=True)

    objects = TagQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = [Lower("name"), "id"]
        constraints: ClassVar = [
            models.UniqueConstraint("owner", Lower("name"), name="one_tag_per_name"),
        ]

    def __str__(self) -> str:
        return self.name
