"""What a person has decided once for a whole conversation about calls that would ask."""

from typing import ClassVar

from django.db import models
from uuid_utils.compat import uuid7

from chat.models.conversation import Conversation, OfConversation


class ToolPermission(models.Model):
    """`host`: of the addresses that the tool opens; empty where the decision is about the tool as such."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="permissions")
    tool = models.CharField(max_length=200)
    host = models.CharField(max_length=255, blank=True)
    allowed = models.BooleanField()
    created = models.DateTimeField(auto_now_add=True)

    objects = OfConversation["ToolPermission"].as_manager()

    class Meta:
        ordering: ClassVar = ["created", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "tool", "host"], name="one_permission_per_tool_and_host")
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.host}: {'allowed' if self.allowed else 'never'}"
