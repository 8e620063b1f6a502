"""Tool results that are too long for a prompt."""

from django.conf import settings
from django.db import models
from uuid_utils.compat import uuid7

from chat.models.conversation import Conversation, Message, OfConversation


class ToolResult(models.Model):
    """The text of a tool result that was too long for a prompt. The model can read more of it.

    It is deleted with its message. `size`, in bytes, counts towards the owner's storage. `url` is the address, if the
    result is a web page. `characters` is the length of the whole result; `text` may be only its beginning.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tool_results")
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="tool_results")
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="tool_results")
    tool = models.CharField(max_length=200)
    title = models.CharField(max_length=300, blank=True)
    url = models.TextField(blank=True)
    text = models.TextField()
    size = models.PositiveBigIntegerField()
    characters = models.PositiveBigIntegerField()
    created = models.DateTimeField(auto_now_add=True)

    objects = OfConversation["ToolResult"].as_manager()

    def __str__(self) -> str:
        return f"{self.tool} {self.id}"
