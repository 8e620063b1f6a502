"""The tasks that a person mentioned in their messages, by day."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from projects.planner.models.codes import MAX_LENGTH


class Mention(models.Model):
    """A record that a message of the user mentioned an objective or task by its code, such as @code.

    `day` is in the user's time zone. A mention of an item counts for its task. The row outlives the message.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    code = models.CharField(max_length=MAX_LENGTH)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "day", "code"], name="mentioned_once_a_day"),
        ]

    def __str__(self) -> str:
        return f"{self.code} on {self.day}"
